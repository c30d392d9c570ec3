package fdblayer

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"headwater/ci/engines"
	"headwater/fdblayer/kv"
	"headwater/keys"
)

// clock is a clock that tests set.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ms.Store(t0.UnixMilli())
	return c
}

func (c *clock) now() time.Time          { return time.UnixMilli(c.ms.Load()) }
func (c *clock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// env is one deployment with one or more frontends over it.
type env struct {
	t      *testing.T
	db     kv.Database
	clock  *clock
	prefix []byte
	*Store // the first frontend
}

func (e *env) frontend(mod func(*Options)) *Store {
	e.t.Helper()
	o := Options{
		Prefix: e.prefix, Now: e.clock.now, SweepInterval: -1,
		Logger: slog.New(slog.DiscardHandler),
	}
	if mod != nil {
		mod(&o)
	}
	s, err := Open(e.t.Context(), e.db, o)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			e.t.Errorf("close: %v", err)
		}
	})
	return s
}

// onEngines runs test against a fresh deployment on every engine there is.
func onEngines(t *testing.T, test func(t *testing.T, e *env)) {
	t.Helper()
	engines.Each(t, func(t *testing.T, db kv.Database) {
		e := &env{t: t, db: db, clock: newClock(), prefix: []byte("test-" + rand.Text())}
		e.Store = e.frontend(nil)
		test(t, e)
	})
}

func (e *env) create(id, contentType, body string) Stream {
	e.t.Helper()
	r, err := e.Create(e.t.Context(), CreateRequest{ID: sid(id), ContentType: contentType, Body: []byte(body)})
	if err != nil {
		e.t.Fatal(err)
	}
	return r.Stream
}

func (e *env) post(id, body string) keys.Offset {
	e.t.Helper()
	r, err := e.Append(e.t.Context(), AppendRequest{ID: sid(id), ContentType: "text/plain", Body: []byte(body)})
	if err != nil {
		e.t.Fatal(err)
	}
	return r.Next
}

func (e *env) all(id string) Piece {
	e.t.Helper()
	return e.from(id, From{AtStart: true})
}

func (e *env) from(id string, from From) Piece {
	e.t.Helper()
	p, err := e.Read(e.t.Context(), ReadRequest{ID: sid(id), From: from, MaxBytes: 64 << 20})
	if err != nil {
		e.t.Fatal(err)
	}
	return p
}

func (e *env) mustFail(err error, want Code) *Error {
	e.t.Helper()
	var got *Error
	if !errors.As(err, &got) || got.Code != want {
		e.t.Fatalf("got %v, want %s", err, want)
	}
	return got
}

func sid(name string) StreamID { return StreamID{"", name} }

func TestAppendThenRead(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		st := e.create("s", "text/plain", "")
		if !st.Tail.IsStart() {
			t.Fatalf("an empty stream's tail is %v", st.Tail)
		}
		a := e.post("s", "hello ")
		b := e.post("s", "world")
		if !st.Tail.Less(a) || !a.Less(b) {
			t.Fatalf("offsets do not grow: %v %v %v", st.Tail, a, b)
		}
		p := e.all("s")
		if string(p.Data) != "hello world" || p.Next != b || !p.UpToDate || p.Closed || p.Stream.Tail != b {
			t.Fatalf("%q %+v", p.Data, p)
		}
		if p := e.from("s", From{Offset: a}); string(p.Data) != "world" || p.Start != a {
			t.Fatalf("%q", p.Data)
		}
		if p := e.from("s", From{Offset: b}); len(p.Data) != 0 || !p.UpToDate || p.Next != b {
			t.Fatalf("%+v", p)
		}
		if p := e.from("s", From{Now: true}); len(p.Data) != 0 || p.Next != b {
			t.Fatalf("%+v", p)
		}
	})
}

// A read may start anywhere in a record and be cut anywhere; the pieces join.
func TestReadInPieces(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create("s", "text/plain", "")
		var want bytes.Buffer
		for i := range 20 {
			body := strings.Repeat(string(rune('a'+i)), 1+i*i*200)
			want.WriteString(body)
			e.post("s", body)
		}
		for _, size := range []int{1 << 20, 70_000, 4_096, 999} {
			var got bytes.Buffer
			pos := From{AtStart: true}
			for {
				p, err := e.Read(t.Context(), ReadRequest{ID: sid("s"), From: pos, MaxBytes: size})
				if err != nil {
					t.Fatal(err)
				}
				if len(p.Data) > size {
					t.Fatalf("%d bytes, limit %d", len(p.Data), size)
				}
				got.Write(p.Data)
				pos = From{Offset: p.Next}
				if p.UpToDate {
					break
				}
			}
			if !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Fatalf("pieces of %d do not join to the stream", size)
			}
		}
	})
}

// Every append that was acknowledged, by whichever frontend, is in the stream
// once, whole and in the order of the offsets.
func TestConcurrentAppendsOfSeveralFrontends(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		fronts := []*Store{e.Store, e.frontend(nil), e.frontend(nil)}
		e.create("s", "text/plain", "")
		const writers, each = 12, 40
		acked := make([]map[keys.Offset]string, writers)
		var wg sync.WaitGroup
		for w := range writers {
			acked[w] = make(map[keys.Offset]string)
			wg.Go(func() {
				for i := range each {
					body := fmt.Sprintf("<%d.%d>", w, i)
					r, err := fronts[(w+i)%len(fronts)].Append(t.Context(), AppendRequest{ID: sid("s"), ContentType: "text/plain", Body: []byte(body)})
					if err != nil {
						t.Error(err)
						return
					}
					// Readable on every frontend the moment it is acknowledged.
					p, err := fronts[(w+i+1)%len(fronts)].Read(t.Context(), ReadRequest{ID: sid("s"), From: From{AtStart: true}, MaxBytes: 1 << 20})
					if err != nil || p.Next.Less(r.Next) || !bytes.Contains(p.Data, []byte(body)) {
						t.Errorf("append %s, acknowledged at %v, is not read (%v)", body, r.Next, err)
					}
					acked[w][r.Next] = body
				}
			})
		}
		wg.Wait()
		total := string(e.all("s").Data)
		n := 0
		for _, m := range acked {
			for end, body := range m {
				n += len(body)
				if strings.Count(total, body) != 1 {
					t.Errorf("%s is in the stream %d times", body, strings.Count(total, body))
				}
				at := strings.Index(total, body) + len(body)
				if rest := e.from("s", From{Offset: end}); string(rest.Data) != total[at:] {
					t.Errorf("offset %v is not the end of %s", end, body)
				}
			}
		}
		if n != len(total) {
			t.Errorf("acknowledged %d bytes, stored %d", n, len(total))
		}
	})
}

func TestCloseEndsTheStreamForEveryFrontend(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		other := e.frontend(nil)
		e.create("s", "text/plain", "")
		r, err := other.Append(t.Context(), AppendRequest{ID: sid("s"), ContentType: "text/plain", Body: []byte("last"), Close: true})
		if err != nil || !r.Closed {
			t.Fatalf("%+v %v", r, err)
		}
		_, err = e.Append(t.Context(), AppendRequest{ID: sid("s"), ContentType: "text/plain", Body: []byte("x")})
		if got := e.mustFail(err, CodeClosed); got.Offset != r.Next || !got.HasOffset {
			t.Fatalf("the refusal names %v, the tail is %v", got.Offset, r.Next)
		}
		again, err := e.Append(t.Context(), AppendRequest{ID: sid("s"), Close: true})
		if err != nil || !again.Closed || again.Next != r.Next {
			t.Fatalf("%+v %v", again, err)
		}
		if p := e.all("s"); !p.Closed || !p.UpToDate || string(p.Data) != "last" {
			t.Fatalf("%+v", p)
		}
		if p := e.from("s", From{Offset: r.Next}); !p.Closed || len(p.Data) != 0 {
			t.Fatalf("%+v", p)
		}
	})
}

func TestLargeBodiesAreStagedAndWhole(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		large := bytes.Repeat([]byte("0123456789abcde\n"), (MaxInlineBody+3*blobChunk+1600)/16)
		res, err := e.Create(t.Context(), CreateRequest{ID: sid("s"), ContentType: "text/plain", Body: large})
		if err != nil || !res.Created {
			t.Fatal(err)
		}
		e.post("s", "between")
		r, err := e.Append(t.Context(), AppendRequest{ID: sid("s"), ContentType: "text/plain", Body: large})
		if err != nil {
			t.Fatal(err)
		}
		want := append(append(bytes.Clone(large), "between"...), large...)
		if p := e.all("s"); !bytes.Equal(p.Data, want) || p.Next != r.Next {
			t.Fatalf("%d bytes read, want %d", len(p.Data), len(want))
		}
		// A start inside the staged record, a cut inside it, a chunk's edges.
		for _, at := range []uint32{1, blobChunk - 1, blobChunk, blobChunk + 1, uint32(len(large)) - 1} {
			p, err := e.Read(t.Context(), ReadRequest{ID: sid("s"), From: From{Offset: res.Stream.Tail.WithCount(at)}, MaxBytes: blobChunk + 5})
			if err != nil || !bytes.Equal(p.Data, want[at : int(at)+blobChunk+5][:len(p.Data)]) || len(p.Data) == 0 {
				t.Fatalf("reading from %d: %d bytes, %v", at, len(p.Data), err)
			}
		}
		if n := e.count(e.space.GCUntil(e.clock.now().Add(24 * time.Hour))); n != 0 {
			t.Errorf("%d staging leases are left", n)
		}
		if err := e.Delete(t.Context(), sid("s"), Precondition{}); err != nil {
			t.Fatal(err)
		}
		e.onlyHousekeeping()
	})
}

// count returns how many keys there are in a range.
func (e *env) count(r keys.Range) int {
	e.t.Helper()
	n := 0
	err := kv.Read(e.t.Context(), e.db, func(ctx context.Context, tx kv.Tx) error {
		n = 0
		rows := tx.GetRange(kv.FirstGreaterOrEqual(r.Begin), kv.FirstGreaterOrEqual(r.End), kv.RangeOptions{})
		for more := true; more; {
			batch, m, err := rows.Next(ctx)
			if err != nil {
				return err
			}
			n, more = n+len(batch), m
		}
		return nil
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return n
}

// onlyHousekeeping fails if anything is left of any stream once the witnesses
// of forks are of no more use.
func (e *env) onlyHousekeeping() {
	e.t.Helper()
	e.clock.advance(forkWitness)
	if err := e.collectGarbage(e.t.Context()); err != nil {
		e.t.Fatal(err)
	}
	left := e.count(e.space.All()) - e.count(e.space.BatchRange()) - 1 // the format version
	if left != 0 {
		e.t.Errorf("%d keys are left after the last stream went", left)
	}
}

func TestDeleteLeavesNothingAndRecreateIsAnotherStream(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		ctx := t.Context()
		first, err := e.Create(ctx, CreateRequest{ID: sid("s"), ContentType: "text/plain", Body: []byte("old")})
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.Append(ctx, AppendRequest{ID: sid("s"), ContentType: "text/plain", Body: []byte("more"),
			Producer: &Producer{"p", 0, 0}, Seq: ptr("1")})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Delete(ctx, sid("s"), Precondition{}); err != nil {
			t.Fatal(err)
		}
		e.onlyHousekeeping()
		e.mustFail(e.Delete(ctx, sid("s"), Precondition{}), CodeNotFound)
		second := e.create("s", "text/plain", "")
		if second.Incarnation == first.Stream.Incarnation {
			t.Fatal("the incarnation did not change")
		}
		// Neither bytes nor producer nor sequence state survive.
		r, err := e.Append(ctx, AppendRequest{ID: sid("s"), ContentType: "text/plain", Body: []byte("new"),
			Producer: &Producer{"p", 0, 0}, Seq: ptr("1")})
		if err != nil || r.Duplicate {
			t.Fatalf("%+v %v", r, err)
		}
		if p := e.all("s"); string(p.Data) != "new" {
			t.Fatalf("%q", p.Data)
		}
		stale := Precondition{Incarnation: first.Stream.Incarnation, Set: true}
		_, err = e.Append(ctx, AppendRequest{ID: sid("s"), ContentType: "text/plain", Body: []byte("x"), Precondition: stale})
		if got := e.mustFail(err, CodeIncarnation); got.Incarnation != second.Incarnation {
			t.Fatalf("%+v", got)
		}
		e.mustFail(e.Delete(ctx, sid("s"), stale), CodeIncarnation)
		_, _, err = e.Head(ctx, sid("s"), stale)
		e.mustFail(err, CodeIncarnation)
	})
}

func TestForksShareOffsetsAndOutliveTheirSource(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		ctx := t.Context()
		e.create("src", "text/plain", "")
		a := e.post("src", "aaa")
		b := e.post("src", "bbb")
		fork := func(name, from string, f Fork) Stream {
			t.Helper()
			f.Source = sid(from)
			r, err := e.Create(ctx, CreateRequest{ID: sid(name), Fork: &f})
			if err != nil || !r.Created {
				t.Fatalf("%s: %+v %v", name, r, err)
			}
			return r.Stream
		}
		if st := fork("at-a", "src", Fork{Offset: &a}); st.Tail != a || st.ContentType != "text/plain" {
			t.Fatalf("%+v", st)
		}
		if st := fork("sub", "src", Fork{Offset: &a, SubOffset: 2}); st.Tail.Compare(a) <= 0 || !st.Tail.Less(b) {
			t.Fatalf("%+v", st)
		}
		fork("tail", "src", Fork{})
		start := keys.StartOffset
		fork("empty", "src", Fork{Offset: &start})
		e.post("src", "ccc")
		e.post("sub", "+sub")
		fork("grandchild", "sub", Fork{})
		e.post("grandchild", "+grand")
		for name, want := range map[string]string{
			"at-a": "aaa", "sub": "aaabb+sub", "tail": "aaabbb", "empty": "", "grandchild": "aaabb+sub+grand", "src": "aaabbbccc",
		} {
			if p := e.all(name); string(p.Data) != want || !p.UpToDate {
				t.Errorf("%s holds %q, want %q", name, p.Data, want)
			}
		}
		if p := e.from("grandchild", From{Offset: a}); string(p.Data) != "bb+sub+grand" {
			t.Errorf("%q", p.Data)
		}
		_, err := e.Create(ctx, CreateRequest{ID: sid("x"), Fork: &Fork{Source: sid("src"), Offset: &a, SubOffset: 7}})
		e.mustFail(err, CodeBadFork)
		beyond := keys.MakeOffset(keys.Versionstamp{0: 0x99}, 0, 1)
		_, err = e.Create(ctx, CreateRequest{ID: sid("x"), Fork: &Fork{Source: sid("src"), Offset: &beyond}})
		e.mustFail(err, CodeBadFork)
		_, err = e.Create(ctx, CreateRequest{ID: sid("x"), Fork: &Fork{Source: sid("nobody")}})
		e.mustFail(err, CodeSourceNotFound)

		// The source is hidden while forks need it.
		if err := e.Delete(ctx, sid("src"), Precondition{}); err != nil {
			t.Fatal(err)
		}
		e.mustFail(e.Delete(ctx, sid("src"), Precondition{}), CodeSoftDeleted)
		_, err = e.Create(ctx, CreateRequest{ID: sid("src")})
		e.mustFail(err, CodePathDeleted)
		_, err = e.Create(ctx, CreateRequest{ID: sid("x"), Fork: &Fork{Source: sid("src")}})
		e.mustFail(err, CodeSourceDeleted)
		if p := e.all("grandchild"); string(p.Data) != "aaabb+sub+grand" {
			t.Errorf("after its source's deletion: %q", p.Data)
		}
		for _, name := range []string{"at-a", "tail", "empty", "sub", "grandchild"} {
			if err := e.Delete(ctx, sid(name), Precondition{}); err != nil {
				t.Fatal(err)
			}
		}
		e.onlyHousekeeping()
	})
}

func TestSlidingTTLAndReaper(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		ctx := t.Context()
		ttl := func(name string) {
			t.Helper()
			_, err := e.Create(ctx, CreateRequest{ID: sid(name), ContentType: "text/plain", Expiry: Expiry{HasTTL: true, TTL: 10}})
			if err != nil {
				t.Fatal(err)
			}
		}
		renew := map[string]func() error{
			"read": func() error { e.all("read"); return nil },
			"now":  func() error { e.from("now", From{Now: true}); return nil },
			"append": func() error {
				e.post("append", "x")
				return nil
			},
			"close": func() error { _, err := e.Append(ctx, AppendRequest{ID: sid("close"), Close: true}); return err },
			"producer-close": func() error {
				_, err := e.Append(ctx, AppendRequest{ID: sid("producer-close"), Close: true, Producer: &Producer{"p", 0, 0}})
				return err
			},
			"put": func() error {
				_, err := e.Create(ctx, CreateRequest{ID: sid("put"), ContentType: "text/plain", Expiry: Expiry{HasTTL: true, TTL: 10}})
				return err
			},
			"head": func() error { _, _, err := e.Head(ctx, sid("head"), Precondition{}); return err },
			"idle": func() error { return nil },
		}
		for name := range renew {
			ttl(name)
		}
		e.clock.advance(8 * time.Second)
		for name, f := range renew {
			if err := f(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		e.clock.advance(7 * time.Second)
		for name := range renew {
			_, _, err := e.Head(ctx, sid(name), Precondition{})
			if dead := name == "head" || name == "idle"; dead != isCode(err, CodeNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		// An expired path can be created anew, with any configuration.
		if _, err := e.Create(ctx, CreateRequest{ID: sid("idle"), ContentType: "image/png"}); err != nil {
			t.Fatal(err)
		}
		e.clock.advance(time.Hour)
		for range 3 {
			if err := e.reap(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if n := e.count(e.space.MetaRange("")); n != 1 {
			t.Errorf("%d streams are left, want the one without a TTL", n)
		}
		if err := e.Delete(ctx, sid("idle"), Precondition{}); err != nil {
			t.Fatal(err)
		}
		e.onlyHousekeeping()
	})
}

func TestSnapshotRetentionBootstrap(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		ctx := t.Context()
		e.create("s", "application/json", "{\"a\":1}\n")
		post := func(body string) keys.Offset {
			t.Helper()
			r, err := e.Append(ctx, AppendRequest{ID: sid("s"), ContentType: "application/json", Body: []byte(body)})
			if err != nil {
				t.Fatal(err)
			}
			return r.Next
		}
		first := e.all("s").Next
		second := post("{\"b\":2}\n{\"c\":3}\n")
		publish := func(at keys.Offset, body string) (Snapshot, error) {
			_, snap, err := e.PublishSnapshot(ctx, PublishRequest{ID: sid("s"), Offset: at, ContentType: "image/png", Body: strings.NewReader(body), MaxBytes: 4 << 20})
			return snap, err
		}
		_, err := e.Retain(ctx, sid("s"), Precondition{}, first)
		e.mustFail(err, CodeRetentionConflict)
		_, err = publish(second.WithCount(second.Count()-1), "x")
		e.mustFail(err, CodeBadOffset)
		_, err = publish(keys.MakeOffset(keys.Versionstamp{0: 0x99}, 0, 1), "x")
		e.mustFail(err, CodeSnapshotConflict)
		one, err := publish(first, "one")
		if err != nil {
			t.Fatal(err)
		}
		if again, err := publish(first, "one"); err != nil || again != one {
			t.Fatalf("%+v %v", again, err)
		}
		_, err = publish(first, "two")
		e.mustFail(err, CodeSnapshotConflict)
		big := strings.Repeat("snapshot!", 400_000)
		two, err := publish(second, big)
		if err != nil || two.Size != int64(len(big)) {
			t.Fatalf("%+v %v", two, err)
		}
		_, err = publish(second, strings.Repeat("x", 5<<20))
		e.mustFail(err, CodeTooLarge)
		_, _, err = e.PublishSnapshot(ctx, PublishRequest{ID: sid("s"), Offset: second, MaxBytes: 4 << 20,
			Body: io.MultiReader(strings.NewReader(big), iotest.ErrReader(io.ErrUnexpectedEOF))})
		if err == nil {
			t.Fatal("a body that broke off was published")
		}
		_, err = publish(first, "one")
		e.mustFail(err, CodeSnapshotConflict)
		_, err = e.OpenSnapshot(ctx, sid("s"), Precondition{}, first)
		e.mustFail(err, CodeSnapshotNotFound)
		body, err := e.OpenSnapshot(ctx, sid("s"), Precondition{}, second)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(body.Body)
		if err != nil || string(got) != big || body.Snapshot != two {
			t.Fatalf("%d bytes, %v", len(got), err)
		}

		third := post("{\"d\":4}\n")
		st, err := e.Retain(ctx, sid("s"), Precondition{}, second)
		if err != nil || st.Retained != second {
			t.Fatalf("%+v %v", st, err)
		}
		for _, from := range []From{{AtStart: true}, {Offset: first}} {
			_, err = e.Read(ctx, ReadRequest{ID: sid("s"), From: from, MaxBytes: 100})
			if got := e.mustFail(err, CodeRetained); got.Offset != second {
				t.Fatalf("%+v", got)
			}
		}
		_, err = e.Retain(ctx, sid("s"), Precondition{}, first)
		e.mustFail(err, CodeRetentionConflict)
		_, err = e.Retain(ctx, sid("s"), Precondition{}, third)
		e.mustFail(err, CodeRetentionConflict)
		if _, err := e.Retain(ctx, sid("s"), Precondition{}, second); err != nil {
			t.Fatal(err)
		}
		boot, err := e.Bootstrap(ctx, sid("s"), Precondition{}, 8<<20)
		if err != nil || boot.Snapshot.Snapshot != two || string(boot.Updates.Data) != "{\"d\":4}\n" || !boot.Updates.UpToDate {
			t.Fatalf("%+v %v", boot, err)
		}
		if got, err := io.ReadAll(boot.Snapshot.Body); err != nil || string(got) != big {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		// Retained to the tail, the stream is empty and the tail still known.
		if _, err := publish(third, "three"); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Retain(ctx, sid("s"), Precondition{}, third); err != nil {
			t.Fatal(err)
		}
		if p := e.from("s", From{Offset: third}); p.Next != third || len(p.Data) != 0 || !p.UpToDate {
			t.Fatalf("%+v", p)
		}
		e.clock.advance(24 * time.Hour)
		if err := e.collectGarbage(ctx); err != nil {
			t.Fatal(err)
		}
		if n := e.count(e.space.BlobsRange(st.Incarnation)); n != 1 {
			t.Errorf("%d chunks are left, want the last snapshot's", n)
		}
		if err := e.Delete(ctx, sid("s"), Precondition{}); err != nil {
			t.Fatal(err)
		}
		e.onlyHousekeeping()
	})
}

func TestPurgeFencesTheBucketForEver(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		ctx := t.Context()
		in := func(i int) StreamID { return StreamID{"bucket", fmt.Sprint("s", i)} }
		for i := range purgePage + 20 {
			if _, err := e.Create(ctx, CreateRequest{ID: in(i), Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := e.Create(ctx, CreateRequest{ID: StreamID{"bucket", "fork"}, Fork: &Fork{Source: in(0)}}); err != nil {
			t.Fatal(err)
		}
		kept, err := e.Create(ctx, CreateRequest{ID: StreamID{"bucket2", "s"}})
		if err != nil {
			t.Fatal(err)
		}
		last := 0
		if err := e.PurgeBucket(ctx, "bucket", func(n int) { last = n }); err != nil || last != purgePage+21 {
			t.Fatalf("removed %d: %v", last, err)
		}
		_, _, err = e.Head(ctx, in(3), Precondition{})
		e.mustFail(err, CodeNotFound)
		_, err = e.Create(ctx, CreateRequest{ID: in(3)})
		e.mustFail(err, CodeNotFound)
		if _, _, err := e.Head(ctx, kept.Stream.ID, Precondition{}); err != nil {
			t.Fatal(err)
		}
		if err := e.Delete(ctx, kept.Stream.ID, Precondition{}); err != nil {
			t.Fatal(err)
		}
		e.clock.advance(forkWitness)
		if err := e.collectGarbage(ctx); err != nil {
			t.Fatal(err)
		}
		if left := e.count(e.space.All()) - e.count(e.space.BatchRange()) - 2; left != 0 {
			t.Errorf("%d keys are left besides the fence", left)
		}
	})
}
