package fdblayer

import (
	"context"
	"sync"
	"testing"
	"time"

	"headwater/fdblayer/kv"
	"headwater/keys"
)

// followers is a Followers that a test tells what to answer.
type followers struct {
	followed bool
	mu       sync.Mutex
	born     []StreamID
	changed  []StreamID
	purged   []string
}

func (f *followers) Followed(kv.Tx, keys.Space, StreamID) Verdict { return f }

func (f *followers) Wait(context.Context) (bool, error) { return f.followed, nil }

func (f *followers) Born(_ context.Context, id StreamID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.born = append(f.born, id)
}

func (f *followers) Changed(id StreamID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed = append(f.changed, id)
}

func (f *followers) Purged(_ context.Context, bucket string) error {
	f.purged = append(f.purged, bucket)
	return nil
}

// marked reports whether a stream is marked, and takes the mark away.
func (e *env) marked(id StreamID) bool {
	e.t.Helper()
	var mark []byte
	_, err := e.Update(e.t.Context(), func(ctx context.Context, tx kv.Tx, _ kv.Attempt) (err error) {
		key := e.space.SubMark(id.Bucket, id.Stream)
		mark, err = tx.Get(key).Wait(ctx)
		tx.Clear(key)
		return err
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return mark != nil
}

func (e *env) follow(id StreamID, on bool) {
	e.t.Helper()
	_, err := e.Update(e.t.Context(), func(ctx context.Context, tx kv.Tx, _ kv.Attempt) error {
		seen, err := e.See(ctx, tx, []StreamID{id})
		if err != nil {
			return err
		}
		if on {
			e.Follow(tx, seen[0])
		} else {
			e.Unfollow(tx, seen[0])
		}
		return nil
	})
	if err != nil {
		e.t.Fatal(err)
	}
}

// Every change of a followed stream leaves a mark: birth, append, close,
// deletion, the end of a TTL, a purge. One that nobody follows leaves none.
func TestFollowedStreamsLeaveMarks(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		f := &followers{followed: true}
		s := e.frontend(func(o *Options) { o.Followers = f })
		create := func(id StreamID, x Expiry) {
			t.Helper()
			if _, err := s.Create(t.Context(), CreateRequest{ID: id, ContentType: "text/plain", Expiry: x}); err != nil {
				t.Fatal(err)
			}
		}
		want := func(what string, id StreamID, on bool) {
			t.Helper()
			if e.marked(id) != on {
				t.Errorf("%s: marked %v", what, !on)
			}
		}
		id := sid("followed")
		create(id, Expiry{})
		want("birth", id, true)
		if _, err := s.Append(t.Context(), AppendRequest{ID: id, ContentType: "text/plain", Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		want("append", id, true)
		if _, err := s.Read(t.Context(), ReadRequest{ID: id, MaxBytes: 10}); err != nil {
			t.Fatal(err)
		}
		want("read", id, false)
		if _, err := s.Append(t.Context(), AppendRequest{ID: id, Close: true}); err != nil {
			t.Fatal(err)
		}
		want("close", id, true)
		if err := s.Delete(t.Context(), id, Precondition{}); err != nil {
			t.Fatal(err)
		}
		want("deletion", id, true)
		if len(f.born) != 1 || len(f.changed) != 2 {
			t.Errorf("told of %d births and %d changes", len(f.born), len(f.changed))
		}

		short := sid("short")
		create(short, Expiry{HasTTL: true, TTL: 1})
		want("birth", short, true)
		e.clock.advance(2 * time.Second)
		if err := s.reap(t.Context()); err != nil {
			t.Fatal(err)
		}
		want("end of a TTL", short, true)

		fork := sid("source")
		create(fork, Expiry{})
		want("birth", fork, true)
		if _, err := s.Create(t.Context(), CreateRequest{ID: sid("fork"), Fork: &Fork{Source: fork}}); err != nil {
			t.Fatal(err)
		}
		want("a fork's birth", sid("fork"), true)
		if err := s.Delete(t.Context(), fork, Precondition{}); err != nil {
			t.Fatal(err)
		}
		want("soft deletion", fork, true)

		in := StreamID{"bucket", "a"}
		create(in, Expiry{})
		want("birth", in, true)
		if err := s.PurgeBucket(t.Context(), "bucket", func(int) {}); err != nil {
			t.Fatal(err)
		}
		want("purge", in, true)
		if len(f.purged) != 1 || f.purged[0] != "bucket" {
			t.Errorf("told of purges %v", f.purged)
		}

		f.followed = false
		plain := sid("plain")
		create(plain, Expiry{})
		if _, err := s.Append(t.Context(), AppendRequest{ID: plain, ContentType: "text/plain", Body: []byte("x"), Close: true}); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), plain, Precondition{}); err != nil {
			t.Fatal(err)
		}
		want("nobody follows", plain, false)
	})
}

// A lane that remembers a stream learns that somebody follows it now, or
// nobody does: no append slips past between.
func TestWarmLanesLearnOfFollowers(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		s := e.frontend(func(o *Options) { o.Followers = &followers{} })
		post := func() {
			t.Helper()
			if _, err := e.appendAs(s, "s", "x", nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		e.create("s", "text/plain", "")
		for range 3 {
			post()
		}
		if e.marked(sid("s")) {
			t.Fatal("marked without a follower")
		}
		e.follow(sid("s"), true)
		if !e.marked(sid("s")) {
			t.Fatal("a link leaves no mark")
		}
		before := s.Stats()
		for range 5 {
			post()
			if !e.marked(sid("s")) {
				t.Fatal("an append left no mark")
			}
		}
		if after := s.Stats(); after.WarmCommits == before.WarmCommits {
			t.Error("appends to a followed stream are never warm")
		}
		e.follow(sid("s"), false)
		post()
		if e.marked(sid("s")) {
			t.Fatal("marked though nobody follows any more")
		}
	})
}

// The past of a stream can be read off its offsets.
func TestTailAsOf(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		st := e.create("s", "text/plain", "")
		tails := []keys.Offset{st.Tail}
		for range 5 {
			tails = append(tails, e.post("s", "x"))
		}
		fork := e.mustFork("fork", "s")
		_, err := e.Update(t.Context(), func(ctx context.Context, tx kv.Tx, _ kv.Attempt) error {
			seen, err := e.See(ctx, tx, []StreamID{sid("s"), sid("fork"), sid("none")})
			if err != nil {
				return err
			}
			for i, tail := range tails[1:] {
				got, err := e.TailAsOf(ctx, tx, seen[0], tail.Versionstamp())
				if err != nil {
					return err
				}
				if got != tails[i] {
					t.Errorf("before append %d the tail was %v, not %v", i, tails[i], got)
				}
			}
			got, err := e.TailAsOf(ctx, tx, seen[1], tails[1].Versionstamp())
			if err != nil {
				return err
			}
			if got != fork.Tail || seen[1].Birth != fork.Tail {
				t.Errorf("the tail of a fork was %v before its birth at %v", got, fork.Tail)
			}
			if seen[2].Exists || !seen[0].Exists || seen[0].Tail != tails[5] {
				t.Errorf("%+v", seen)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func (e *env) mustFork(id, source string) Stream {
	e.t.Helper()
	r, err := e.Create(e.t.Context(), CreateRequest{ID: sid(id), Fork: &Fork{Source: sid(source)}})
	if err != nil {
		e.t.Fatal(err)
	}
	return r.Stream
}
