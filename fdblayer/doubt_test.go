package fdblayer

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"headwater/ci/engines"
	"headwater/fdblayer/kv"
	"headwater/fdblayer/kv/kvtest"
	"headwater/keys"
)

// tapped is a database that tells of every commit, and can be made to stall or
// to fail. Its functions may be nil, and may be set while it is used.
type tapped struct {
	kv.Database
	begin     atomic.Pointer[func() kv.Tx]
	committed atomic.Pointer[func(err error)]
}

func (d *tapped) Begin() kv.Tx {
	if f := d.begin.Load(); f != nil {
		return (*f)()
	}
	return tappedTx{d.Database.Begin(), d}
}

type tappedTx struct {
	kv.Tx
	d *tapped
}

func (t tappedTx) Commit(ctx context.Context) error {
	err := t.Tx.Commit(ctx)
	if f := t.d.committed.Load(); f != nil {
		(*f)(err)
	}
	return err
}

// tapped is a frontend over a tapped database, with faults below the tap.
func (e *env) tapped(mod func(*Options)) (*Store, *tapped, *kvtest.Faulted) {
	e.t.Helper()
	f := kvtest.Faulty(keepOpen{e.db}, nil)
	d := &tapped{Database: f}
	real := e.db
	e.db = d
	s := e.frontend(mod)
	e.db = real
	return s, d, f
}

// A live reader whose position is dropped by retention before its topic has
// looked is told so, and the topic goes on for those behind it.
func TestRetentionPastATopic(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		ctx := t.Context()
		e.create("s", "text/plain", "")
		s, d, _ := e.tapped(nil)
		behind, _ := follow(t, s, "s", From{Now: true})
		ended := make(chan error, 1)
		go func() {
			_, err := behind.Next(soon(t))
			ended <- err
		}()
		for s.hub.waiting() < 1 {
			time.Sleep(time.Millisecond)
		}
		gate := make(chan struct{})
		stall := func() kv.Tx { <-gate; return d.Database.Begin() }
		d.begin.Store(&stall)
		last := e.post("s", "dropped")
		_, _, err := e.PublishSnapshot(ctx, PublishRequest{ID: sid("s"), Offset: last, Body: strings.NewReader("all of it"), MaxBytes: 100})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Retain(ctx, sid("s"), Precondition{}, last); err != nil {
			t.Fatal(err)
		}
		close(gate)
		select {
		case err := <-ended:
			e.mustFail(err, CodeRetained)
		case <-time.After(10 * time.Second):
			t.Fatal("the reader whose position is gone still waits")
		}
		after, _ := follow(t, s, "s", From{Offset: last})
		e.post("s", "kept")
		if ev, err := after.Next(soon(t)); err != nil || string(ev.Data) != "kept" {
			t.Fatalf("%+v %v", ev, err)
		}
	})
}

// A fork that was made, though nobody could say so, and was then deleted by
// somebody else is not made again.
func TestForkIsNotMadeTwice(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create("src", "text/plain", "bytes")
		s, d, f := e.tapped(nil)
		f.SetPlan(kvtest.Once(nil, kvtest.Fault{Fate: kvtest.Applied}))
		remove := func(err error) {
			if err != nil {
				if err := e.Delete(t.Context(), sid("fork"), Precondition{}); err != nil {
					t.Error(err)
				}
			}
		}
		d.committed.Store(&remove)
		r, err := s.Create(t.Context(), CreateRequest{ID: sid("fork"), Fork: &Fork{Source: sid("src")}})
		if err != nil || !r.Created {
			t.Fatalf("%+v %v", r, err)
		}
		_, _, err = e.Head(t.Context(), sid("fork"), Precondition{})
		e.mustFail(err, CodeNotFound)
		if err := e.Delete(t.Context(), sid("src"), Precondition{}); err != nil {
			t.Fatal(err)
		}
		e.clock.advance(time.Hour)
		if err := e.collectGarbage(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.onlyHousekeeping()
	})
}

// An attempt of a batch that was given up in doubt may land during the next
// batch of its lane, and must not pass for the witness of that one.
func TestLateCommitOfTheBatchBefore(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create("s", "text/plain", "")
		s, d, f := e.tapped(func(o *Options) { o.CommitTimeout = 300 * time.Millisecond })
		hold := make(chan struct{})
		f.SetPlan(func(c kvtest.Commit) kvtest.Fault {
			if c.N == 0 {
				return kvtest.Fault{Fate: kvtest.Late, Hold: hold}
			}
			return kvtest.Fault{Fate: kvtest.Refuse, Code: kv.CodeDatabaseLocked}
		})
		_, err := e.appendAs(s, "s", "<one>", nil, nil)
		e.mustFail(err, CodeUnknownOutcome)

		f.SetPlan(kvtest.Once(nil, kvtest.Fault{Fate: kvtest.Applied}))
		land := func(err error) {
			if err != nil {
				close(hold)
				f.Settle()
			}
		}
		d.committed.Store(&land)
		if _, err := e.appendAs(s, "s", "<two>", nil, nil); err != nil {
			t.Fatal(err)
		}
		if p := e.all("s"); strings.Count(string(p.Data), "<two>") != 1 || strings.Count(string(p.Data), "<one>") > 1 {
			t.Fatalf("%q", p.Data)
		}
	})
}

// A refusal is final even where an earlier attempt, which may yet land, was
// judged otherwise by the clock.
func TestRefusalBarsTheAttemptInDoubt(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		_, err := e.Create(t.Context(), CreateRequest{ID: sid("s"), ContentType: "text/plain",
			Expiry: Expiry{At: e.clock.now().Add(time.Minute), AtText: "soon"}})
		if err != nil {
			t.Fatal(err)
		}
		s, d, f := e.tapped(nil)
		hold := make(chan struct{})
		f.SetPlan(kvtest.Once(nil, kvtest.Fault{Fate: kvtest.Late, Hold: hold}))
		expire := func(err error) {
			if err != nil {
				e.clock.advance(time.Hour)
			}
		}
		d.committed.Store(&expire)
		_, err = e.appendAs(s, "s", "x", nil, nil)
		e.mustFail(err, CodeNotFound)
		close(hold)
		if landed, _ := f.Settle(); landed != 0 {
			t.Error("the append was refused and then applied")
		}
	})
}

// Where a write is known to have been applied and only its answer can't be
// completed, the answer does not claim that nothing was applied.
func TestAppliedIsNeverCalledUnavailable(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create("s", "text/plain", "x")
		dead := engines.Embedded(t)
		if err := dead.Close(); err != nil {
			t.Fatal(err)
		}
		s, d, _ := e.tapped(nil)
		die := func(err error) {
			begin := dead.Begin
			d.begin.Store(&begin)
		}
		for what, do := range map[string]func() error{
			"close": func() error {
				_, err := s.Append(t.Context(), AppendRequest{ID: sid("s"), Close: true})
				return err
			},
		} {
			d.committed.Store(&die)
			err := do()
			d.begin.Store(nil)
			d.committed.Store(nil)
			if !isCode(err, CodeUnknownOutcome) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// A stream that has expired stays so, whoever believes to be reading it.
func TestTouchDoesNotResurrect(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		r, err := e.Create(t.Context(), CreateRequest{ID: sid("s"), ContentType: "text/plain", Expiry: Expiry{HasTTL: true, TTL: 10}})
		if err != nil {
			t.Fatal(err)
		}
		e.clock.advance(time.Minute)
		if err := e.touch(t.Context(), sid("s"), r.Stream.Incarnation, e.now()); err != nil {
			t.Fatal(err)
		}
		_, _, err = e.Head(t.Context(), sid("s"), Precondition{})
		e.mustFail(err, CodeNotFound)
	})
}

// An answer that names the tail names it as it was when the request was
// judged, or not at all, whatever becomes of the stream before it is read.
func TestTailsAreThoseOfTheStream(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		for _, c := range []struct {
			name   string
			closed bool // before
			do     func(s *Store) (keys.Offset, error)
		}{
			{"close", false, func(s *Store) (keys.Offset, error) {
				r, err := s.Append(t.Context(), AppendRequest{ID: sid("s"), Close: true})
				return r.Next, err
			}},
			{"close again", true, func(s *Store) (keys.Offset, error) {
				r, err := s.Append(t.Context(), AppendRequest{ID: sid("s"), Close: true})
				return r.Next, err
			}},
			{"create again", false, func(s *Store) (keys.Offset, error) {
				r, err := s.Create(t.Context(), CreateRequest{ID: sid("s"), ContentType: "text/plain"})
				return r.Stream.Tail, err
			}},
			{"append to the closed", true, func(s *Store) (keys.Offset, error) {
				_, err := e.appendAs(s, "s", "x", nil, nil)
				got := e.mustFail(err, CodeClosed)
				if !got.HasOffset {
					t.Error("the refusal names no tail")
				}
				return got.Offset, nil
			}},
		} {
			for _, what := range []string{"deleted", "retained"} {
				e.create("s", "text/plain", "")
				tail := e.post("s", "bytes")
				if c.closed {
					if _, err := e.Append(t.Context(), AppendRequest{ID: sid("s"), Close: true}); err != nil {
						t.Fatal(err)
					}
				}
				s, d, _ := e.tapped(nil)
				begin := func() kv.Tx {
					tx := d.Database.Begin()
					d.begin.Store(nil)
					after := func() kv.Tx { // the next transaction comes too late
						d.begin.Store(nil)
						var err error
						if what == "deleted" {
							err = e.Delete(t.Context(), sid("s"), Precondition{})
						} else if _, _, err = e.PublishSnapshot(t.Context(), PublishRequest{ID: sid("s"), Offset: tail, Body: strings.NewReader("all"), MaxBytes: 100}); err == nil {
							_, err = e.Retain(t.Context(), sid("s"), Precondition{}, tail)
						}
						if err != nil {
							t.Error(err)
						}
						return d.Database.Begin()
					}
					d.begin.Store(&after)
					return tx
				}
				d.begin.Store(&begin)
				got, err := c.do(s)
				if err == nil && got != tail || err != nil && !isCode(err, CodeUnknownOutcome) {
					t.Errorf("%s, %s meanwhile: %v %v, want %v", c.name, what, got, err, tail)
				}
				d.begin.Store(nil)
				_ = e.Delete(t.Context(), sid("s"), Precondition{})
			}
		}
	})
}

// A request that changes nothing is answered with the stream as it was then,
// and not with what a later one of its batch makes of it.
func TestAnswersOfOneBatchAreInOrder(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create("s", "text/plain", "")
		before := e.post("s", "bytes")
		s, _, f := e.tapped(func(o *Options) { o.Lanes = 1 })
		gate := make(chan struct{})
		f.SetPlan(kvtest.Once(nil, kvtest.Fault{Hold: gate}))
		var work sync.WaitGroup
		var again CreateResult
		var end AppendResult
		do := func(fn func() error) {
			work.Go(func() {
				if err := fn(); err != nil {
					t.Error(err)
				}
			})
			// The lane takes them in this order.
			time.Sleep(20 * time.Millisecond)
		}
		do(func() error {
			_, err := s.Create(t.Context(), CreateRequest{ID: sid("other")})
			return err
		})
		do(func() (err error) {
			again, err = s.Create(t.Context(), CreateRequest{ID: sid("s"), ContentType: "text/plain"})
			return err
		})
		do(func() (err error) {
			end, err = s.Append(t.Context(), AppendRequest{ID: sid("s"), ContentType: "text/plain", Body: []byte("end"), Close: true})
			return err
		})
		close(gate)
		work.Wait()
		if again.Stream.Closed || again.Stream.Tail != before || !before.Less(end.Next) {
			t.Errorf("created again before the end: %+v, the tail was %v", again.Stream, before)
		}
	})
}
