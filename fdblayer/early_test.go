package fdblayer

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// Requests of a pipelined producer that overtake each other are applied in
// order, each once, without a refusal.
func TestRequestsThatOvertakeWaitForTheirPredecessor(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		s := e.frontend(func(o *Options) { o.PredecessorWait = 20 * time.Second })
		e.create("s", "text/plain", "")
		const n, window = 60, 5
		var want strings.Builder
		for first := 0; first < n; first += window {
			var wg sync.WaitGroup
			for _, i := range rand.Perm(window) {
				seq := first + i
				wg.Go(func() {
					r, err := e.appendAs(s, "s", fmt.Sprintf("<%d>", seq), &Producer{"p", 0, uint64(seq)}, nil)
					if err != nil || r.Duplicate {
						t.Errorf("%d: %+v %v", seq, r, err)
					}
				})
				time.Sleep(time.Millisecond) // so that they arrive in this order
			}
			wg.Wait()
		}
		for i := range n {
			fmt.Fprintf(&want, "<%d>", i)
		}
		if p := e.all("s"); string(p.Data) != want.String() {
			t.Fatalf("%q", p.Data)
		}
	})
}

// One whose predecessor does not come is refused with what was expected; one
// that is far ahead, at once.
func TestPredecessorWaitIsBounded(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create("s", "text/plain", "")
		_, err := e.appendAs(e.Store, "s", "x", &Producer{"p", 0, 3}, nil)
		if got := e.mustFail(err, CodeProducerGap); got.Expected != 0 || got.Received != 3 {
			t.Fatalf("%+v", got)
		}
		s := e.frontend(func(o *Options) { o.PredecessorWait = time.Hour })
		_, err = e.appendAs(s, "s", "x", &Producer{"p", 0, earlyWindow + 1}, nil)
		e.mustFail(err, CodeProducerGap)
	})
}

// What waits does not keep a frontend from shutting down.
func TestClosingEndsTheWaitForPredecessors(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create("s", "text/plain", "")
		s, err := Open(t.Context(), e.db, Options{Prefix: e.prefix, Now: e.clock.now, SweepInterval: -1, PredecessorWait: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			_, err := e.appendAs(s, "s", "x", &Producer{"p", 0, 1}, nil)
			got <- err
		}()
		time.Sleep(20 * time.Millisecond) // in either order the outcome is the same
		if err := s.Close(soon(t)); err != nil {
			t.Fatal(err)
		}
		if err := <-got; !isCode(err, CodeProducerGap) && !isCode(err, CodeDraining) {
			t.Fatal(err)
		}
	})
}
