package fdblayer

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"headwater/fdblayer/kv"
	"headwater/keys"
)

func (e *env) appendAs(s *Store, id, body string, p *Producer, seq *string) (AppendResult, error) {
	return s.Append(e.t.Context(), AppendRequest{ID: sid(id), ContentType: "text/plain", Body: []byte(body), Producer: p, Seq: seq})
}

// A lane that has just committed to a stream commits to it again without a
// read, whether or not producers and sequences are in play.
func TestWarmCommitsDoNotRead(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create("s", "text/plain", "")
		e.post("s", "cold") // a create writes the meta key, so this one reads
		before := e.Stats()
		const n = 50
		for i := range n {
			var p *Producer
			if i%2 == 0 {
				p = &Producer{"p", 0, uint64(i / 2)}
			}
			r, err := e.appendAs(e.Store, "s", "x", p, ptr(fmt.Sprintf("%04d", i)))
			if err != nil || r.Duplicate {
				t.Fatal(i, r, err)
			}
		}
		after := e.Stats()
		// The first with a producer and a sequence has to read them; a slow
		// machine may take a real read version now and then.
		if warm := after.WarmCommits - before.WarmCommits; warm < n/2 {
			t.Errorf("%d of %d commits were warm", warm, n)
		}
		if after.Conflicts != before.Conflicts {
			t.Errorf("a lone frontend had %d conflicts", after.Conflicts-before.Conflicts)
		}
		if r, err := e.appendAs(e.Store, "s", "x", &Producer{"p", 0, 3}, nil); err != nil || !r.Duplicate || r.ProducerSeq != n/2-1 {
			t.Fatalf("%+v %v", r, err)
		}
		_, err := e.appendAs(e.Store, "s", "x", nil, ptr("0001"))
		e.mustFail(err, CodeSequence)
	})
}

// What another frontend changed is never missed by a warm batch: a close, a
// delete and recreate, a producer's epoch, a sequence.
func TestWarmCommitsSeeWhatOthersChanged(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		other := e.frontend(nil)
		warmUp := func(id string) Stream {
			t.Helper()
			st := e.create(id, "text/plain", "")
			for i := range 3 {
				if _, err := e.appendAs(e.Store, id, "x", &Producer{"p", 0, uint64(i)}, ptr(fmt.Sprint(i))); err != nil {
					t.Fatal(err)
				}
			}
			return st
		}
		warmUp("closed")
		if _, err := other.Append(t.Context(), AppendRequest{ID: sid("closed"), Close: true}); err != nil {
			t.Fatal(err)
		}
		_, err := e.appendAs(e.Store, "closed", "x", nil, nil)
		e.mustFail(err, CodeClosed)

		st := warmUp("recreated")
		if err := other.Delete(t.Context(), sid("recreated"), Precondition{}); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Create(t.Context(), CreateRequest{ID: sid("recreated"), ContentType: "text/plain"}); err != nil {
			t.Fatal(err)
		}
		if r, err := e.appendAs(e.Store, "recreated", "new", nil, nil); err != nil || r.Incarnation == st.Incarnation {
			t.Fatalf("%+v %v", r, err)
		}
		if p := e.all("recreated"); string(p.Data) != "new" {
			t.Fatalf("%q", p.Data)
		}

		warmUp("fenced")
		if _, err := e.appendAs(other, "fenced", "x", &Producer{"p", 1, 0}, nil); err != nil {
			t.Fatal(err)
		}
		_, err = e.appendAs(e.Store, "fenced", "x", &Producer{"p", 0, 3}, nil)
		if got := e.mustFail(err, CodeStaleEpoch); got.Epoch != 1 {
			t.Fatalf("%+v", got)
		}

		warmUp("sequenced")
		if _, err := e.appendAs(other, "sequenced", "x", nil, ptr("8")); err != nil {
			t.Fatal(err)
		}
		_, err = e.appendAs(e.Store, "sequenced", "x", nil, ptr("7"))
		e.mustFail(err, CodeSequence)
	})
}

// Many rounds of one frontend appending warm while another closes: no append
// is acknowledged at an offset after the close, and none that was acknowledged
// is missing. Run on a real cluster this meets commits of the same version.
func TestCloseRacesWarmAppends(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		other := e.frontend(nil)
		rounds := 60
		if testing.Short() {
			rounds = 15
		}
		for round := range rounds {
			id := fmt.Sprint("s", round)
			e.create(id, "text/plain", "")
			e.post(id, "start")
			var wg sync.WaitGroup
			var mu sync.Mutex
			acked := make(map[keys.Offset]bool)
			for w := range 4 {
				wg.Go(func() {
					for i := range 50 {
						r, err := e.appendAs(e.Store, id, "x", &Producer{fmt.Sprint(w), 0, uint64(i)}, nil)
						if err != nil {
							if !isCode(err, CodeClosed) {
								t.Error(err)
							}
							return
						}
						mu.Lock()
						acked[r.Next] = true
						mu.Unlock()
					}
				})
			}
			end, err := other.Append(t.Context(), AppendRequest{ID: sid(id), ContentType: "text/plain", Body: []byte("END"), Close: true})
			if err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			p := e.all(id)
			if p.Next != end.Next || !p.Closed || string(p.Data[len(p.Data)-3:]) != "END" {
				t.Fatalf("round %d: the stream ends in %q at %v, the close said %v", round, p.Data, p.Next, end.Next)
			}
			if got := len(p.Data) - len("start") - len("END"); got != len(acked) {
				t.Fatalf("round %d: %d appends are stored, %d were acknowledged", round, got, len(acked))
			}
		}
	})
}

// A lane drops what it remembers once it is of no more use.
func TestMemoryIsBounded(t *testing.T) {
	var m memory
	a := &attempt{version: 7}
	for i := range warmStreams + 100 {
		a.views = append(a.views, &view{id: sid(fmt.Sprint(i)), meta: &meta{incarnation: keys.NewIncarnation()}})
	}
	m.remember(a, keys.Versionstamp{}, t0)
	if len(m.streams) > warmStreams {
		t.Errorf("%d streams are remembered", len(m.streams))
	}
	v := &view{id: sid("p"), meta: &meta{}, producers: map[string]producerState{}}
	for i := range 10 * warmProducers {
		v.producers[fmt.Sprint(i)] = producerState{}
	}
	m.remember(&attempt{version: 8, views: []*view{v}}, keys.Versionstamp{}, t0)
	if n := len(m.streams[v.id].producers); n > 2*warmProducers {
		t.Errorf("%d producers are remembered", n)
	}
}

// A close that committed at the same version as a lane's last append is not
// missed by the next one, which is why a warm batch reads as of V-1. The
// engine's committer is kept busy, so that both commits fall into one group.
func TestCloseOfTheSameVersionIsSeen(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		other := e.frontend(nil)
		ctx := t.Context()
		met := 0
		for round := 0; round < 150 && met < 3; round++ {
			id := fmt.Sprint("s", round)
			e.create(id, "text/plain", "")
			e.post(id, "1")
			e.post(id, "2")
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := kv.Transact(ctx, e.db, func(_ context.Context, tx kv.Tx, _ kv.Attempt) error {
					for i := range 12 {
						tx.Set(append(e.space.System("busy"), byte(i)), make([]byte, 90_000))
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Millisecond)
			var mine, end AppendResult
			var mineErr, endErr error
			wg.Go(func() {
				end, endErr = other.Append(ctx, AppendRequest{ID: sid(id), ContentType: "text/plain", Body: []byte("end"), Close: true})
			})
			wg.Go(func() { mine, mineErr = e.appendAs(e.Store, id, "3", nil, nil) })
			wg.Wait()
			if endErr != nil {
				t.Fatal(endErr)
			}
			a, b := mine.Next.Versionstamp(), end.Next.Versionstamp()
			if mineErr != nil || [8]byte(a[:]) != [8]byte(b[:]) {
				continue
			}
			met++
			_, err := e.appendAs(e.Store, id, "late", nil, nil)
			e.mustFail(err, CodeClosed)
		}
		if met == 0 {
			t.Skip("no two commits shared a version")
		}
	})
}
