package fdblayer

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"headwater/fdblayer/kv"
	"headwater/fdblayer/kv/kvtest"
	"headwater/keys"
)

// faulty puts faults between the first frontend and the engine. The plan holds
// from the next commit on.
func (e *env) faulty(plan kvtest.Plan) (*Store, *kvtest.Faulted) {
	e.t.Helper()
	f := kvtest.Faulty(keepOpen{e.db}, nil)
	real := e.db
	e.db = f
	s := e.frontend(nil)
	e.db = real
	f.SetPlan(plan)
	return s, f
}

// keepOpen keeps a wrapper's Close from the engine that others still use.
type keepOpen struct{ kv.Database }

func (keepOpen) Close() error { return nil }

// batches are the commits of lanes: they write a witness.
func (e *env) batches(c kvtest.Commit) bool {
	return c.Wrote(e.space.BatchRange().Begin)
}

// A batch whose outcome is in doubt is applied once, whatever became of the
// commit, with and without a producer, warm and cold.
func TestUnknownOutcomesAreResolvedByLooking(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		for _, fate := range []kvtest.Fate{kvtest.Applied, kvtest.Dropped} {
			for _, code := range []int{kv.CodeCommitUnknownResult, kv.CodeClusterVersionChanged, kv.CodeTransactionTimedOut} {
				for n := range 5 {
					id := fmt.Sprintf("s-%d-%d-%d", fate, code, n)
					e.create(id, "text/plain", "")
					s, f := e.faulty(kvtest.Script(map[int]kvtest.Fault{n: {Fate: fate, Code: code}}))
					var want strings.Builder
					var last keys.Offset
					for i := range 5 {
						fmt.Fprintf(&want, "<%d>", i)
						var p *Producer
						if i%2 == 1 {
							p = &Producer{"p", 0, uint64(i / 2)}
						}
						r, err := e.appendAs(s, id, fmt.Sprintf("<%d>", i), p, nil)
						if err != nil || r.Duplicate {
							t.Fatalf("%s, append %d: %+v %v", id, i, r, err)
						}
						last = r.Next
					}
					if p := e.all(id); string(p.Data) != want.String() || p.Next != last {
						t.Fatalf("%s: %q up to %v, acknowledged %v", id, p.Data, p.Next, last)
					}
					if s.Stats().Unknown == 0 {
						t.Errorf("%s: the fault was not met", id)
					}
					f.Settle()
				}
			}
		}
	})
}

// A commit that lands after the batch was tried again, or its caller was told
// that nobody knows, does not apply anything twice.
func TestLateCommitsAreRefused(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		for _, warm := range []bool{false, true} {
			id := fmt.Sprint("s-warm-", warm)
			e.create(id, "text/plain", "")
			hold := make(chan struct{})
			s, f := e.faulty(nil)
			want := ""
			if warm {
				for i := range 2 {
					want += fmt.Sprint(i)
					if _, err := e.appendAs(s, id, fmt.Sprint(i), nil, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			f.SetPlan(kvtest.Once(e.batches, kvtest.Fault{Fate: kvtest.Late, Hold: hold}))
			want += "once"
			if _, err := e.appendAs(s, id, "once", nil, nil); err != nil {
				t.Fatal(err)
			}
			close(hold)
			f.Settle()
			if p := e.all(id); string(p.Data) != want {
				t.Fatalf("%s: %q, want %q", id, p.Data, want)
			}
		}
	})
}

// One that lands between the retry's look and its commit refuses the retry,
// which then finds its witness.
func TestCommitThatLandsDuringTheRetry(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create("s", "text/plain", "")
		first, second := make(chan struct{}), make(chan struct{})
		s, f := e.faulty(nil)
		n := 0
		f.SetPlan(func(c kvtest.Commit) kvtest.Fault {
			if !e.batches(c) {
				return kvtest.Fault{}
			}
			n++
			switch n {
			case 1:
				return kvtest.Fault{Fate: kvtest.Late, Hold: first}
			case 2:
				// The retry is about to commit: let the first one land before it.
				close(first)
				go func() {
					for e.count(e.space.BatchRange()) == 0 {
						time.Sleep(time.Millisecond)
					}
					close(second)
				}()
				return kvtest.Fault{Hold: second}
			}
			return kvtest.Fault{}
		})
		if _, err := e.appendAs(s, "s", "once", nil, nil); err != nil {
			t.Fatal(err)
		}
		f.Settle()
		if p := e.all("s"); string(p.Data) != "once" {
			t.Fatalf("%q", p.Data)
		}
	})
}

// On a bad day every operation still does what it says, once.
func TestBadDay(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		s, f := e.faulty(nil)
		f.SetPlan(kvtest.Random(7, 0.3, kvtest.Usual()...))
		ctx := t.Context()
		var wg sync.WaitGroup
		for w := range 6 {
			wg.Go(func() {
				for i := range 12 {
					id := fmt.Sprintf("s-%d-%d", w, i)
					fail := func(what string, err error) {
						if err != nil {
							t.Errorf("%s: %s: %v", id, what, err)
						}
					}
					c, err := s.Create(ctx, CreateRequest{ID: sid(id), ContentType: "text/plain", Body: []byte("a")})
					fail("create", err)
					if err == nil && !c.Created {
						t.Errorf("%s: a new stream was said to exist", id)
					}
					r, err := e.appendAs(s, id, "b", &Producer{"p", 0, 0}, ptr("1"))
					fail("append", err)
					if r.Duplicate {
						t.Errorf("%s: a first append was said to be a duplicate", id)
					}
					fk, err := s.Create(ctx, CreateRequest{ID: sid(id + "-fork"), Fork: &Fork{Source: sid(id)}})
					fail("fork", err)
					if err == nil && !fk.Created {
						t.Errorf("%s: a new fork was said to exist", id)
					}
					_, _, err = s.PublishSnapshot(ctx, PublishRequest{ID: sid(id), Offset: r.Next, Body: bytes.NewReader(make([]byte, 2<<20)), MaxBytes: 4 << 20})
					fail("publish", err)
					_, err = s.Retain(ctx, sid(id), Precondition{}, r.Next)
					fail("retain", err)
					_, err = s.Append(ctx, AppendRequest{ID: sid(id), ContentType: "text/plain", Body: []byte("c"), Close: true})
					fail("close", err)
					if p := e.from(id, From{Offset: r.Next}); string(p.Data) != "c" || !p.Closed {
						t.Errorf("%s: %q after retention", id, p.Data)
					}
					if p := e.all(id + "-fork"); string(p.Data) != "ab" {
						t.Errorf("%s: the fork holds %q", id, p.Data)
					}
					fail("delete", s.Delete(ctx, sid(id), Precondition{}))
					fail("delete fork", s.Delete(ctx, sid(id+"-fork"), Precondition{}))
				}
			})
		}
		wg.Wait()
		f.SetPlan(nil)
		f.Settle()
		e.clock.advance(24 * time.Hour)
		for range 4 {
			if err := e.collectGarbage(ctx); err != nil {
				t.Fatal(err)
			}
		}
		e.onlyHousekeeping()
	})
}

// While the store does not answer, a write ends in bounded time with an error
// that tells whether it may have been applied.
func TestWritesEndInBoundedTime(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create("s", "text/plain", "")
		for _, c := range []struct {
			fault kvtest.Fault
			want  Code
		}{
			{kvtest.Fault{Fate: kvtest.Refuse, Code: kv.CodeDatabaseLocked}, CodeUnavailable},
			{kvtest.Fault{Fate: kvtest.Dropped}, CodeUnknownOutcome},
		} {
			f := kvtest.Faulty(keepOpen{e.db}, nil)
			real := e.db
			e.db = f
			s := e.frontend(func(o *Options) { o.CommitTimeout = 300 * time.Millisecond })
			e.db = real
			f.SetPlan(kvtest.Every(1, c.fault))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			_, err := e.appendAs(s, "s", "x", nil, nil)
			if got := e.mustFail(err, c.want); got.RetryAfter <= 0 || ctx.Err() != nil {
				t.Errorf("%+v", got)
			}
			cancel()
			f.SetPlan(nil)
		}
		if p := e.all("s"); len(p.Data) != 0 {
			t.Errorf("%q was applied", p.Data)
		}
	})
}
