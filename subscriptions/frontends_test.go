package subscriptions

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"headwater/fdblayer/kv"
	"headwater/fdblayer/kv/kvtest"
)

func TestMain(m *testing.M) {
	// The cluster that tests share, and its client, end with the process.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("headwater/ci/fdbcluster.spawn.func1"),
		goleak.IgnoreAnyFunction("github.com/apple/foundationdb/bindings/go/src/fdb._Cfunc_fdb_run_network"))
}

// Frontends that do the same work at the same time do it once.
func TestFrontendsShareTheWork(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		nodes := []*node{e.node, e.frontend(nil), e.frontend(nil)}
		r := newReceiver(t, done)
		e.create("wake", "")
		e.put("hook", hook(r, "events/*"))
		e.put("pull", pull("events/*"))
		for i := range 20 {
			e.node = nodes[i%len(nodes)]
			if i == 0 {
				e.create("events/a", `0`)
			} else {
				e.post("events/a", fmt.Sprint(i))
			}
			var all sync.WaitGroup
			for _, n := range nodes {
				all.Go(func() { n.work(t) })
			}
			all.Wait()
			e.work(t)
			if n := len(r.deliveries()); n != i+1 {
				t.Fatalf("event %d: %d deliveries", i, n)
			}
		}
		seen := map[uint64]bool{}
		for _, d := range r.deliveries() {
			if seen[d.Generation] {
				t.Fatalf("generation %d was delivered twice", d.Generation)
			}
			seen[d.Generation] = true
		}
		if ev := e.events("wake"); len(ev) != 1 {
			t.Fatalf("%d wake events in one generation", len(ev))
		}
	})
}

// A frontend that dies with a delivery under way can't even note it. Its lease
// ends, another takes over with another generation, and what the dead one's
// receiver has to say is fenced.
func TestALeaseOfADeadFrontendIsTakenOver(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		first := make(chan delivered, 1)
		hold := make(chan struct{})
		r := newReceiver(t, func(w http.ResponseWriter, req *http.Request, d delivered) {
			if d.Generation == 1 {
				first <- d
				<-hold
			}
			done(w, req, d)
		})
		e.put("s", hook(r, "events/*"))
		e.create("events/a", `1`)
		real := e.db
		faults := kvtest.Faulty(keepOpen{real}, nil)
		e.db = faults
		dead := e.frontend(nil)
		e.db = real
		worked := make(chan struct{})
		go func() {
			defer close(worked)
			dead.marks(t)
			dead.due(t)
		}()
		d := <-first
		faults.SetPlan(func(kvtest.Commit) kvtest.Fault { return kvtest.Fault{Fate: kvtest.Refuse, Code: kv.CodeIOError} })
		close(hold)
		<-worked
		e.clock.advance(10*time.Second - time.Millisecond)
		e.work(t)
		if n := len(r.deliveries()); n != 1 {
			t.Fatalf("%d deliveries under the dead one's lease", n)
		}
		e.clock.advance(time.Millisecond)
		e.work(t)
		if got := r.deliveries(); len(got) != 2 || got[1].Generation != 2 {
			t.Fatalf("%d deliveries", len(got))
		}
		_, err := e.Callback(t.Context(), ID{Name: "s"}, d.CallbackToken, AckRequest{WakeID: d.WakeID, Generation: 1, Done: true})
		mustFail(t, err, CodeFenced)
		if l, _ := e.cursor("s", "events/a"); l.Acked.IsStart() {
			t.Fatal("the second delivery was not acked")
		}
		faults.SetPlan(nil)
	})
}

// Whatever commit has an unknown outcome, applied or not, every operation does
// what it says once.
func TestUnknownOutcomes(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ delivered) { io.WriteString(w, `{"done":true}`) })
		real := e.db
		for _, fate := range []kvtest.Fate{kvtest.Applied, kvtest.Dropped} {
			for n := range 24 {
				faults := kvtest.Faulty(keepOpen{real}, nil)
				e.db = faults
				e.node = e.frontend(nil)
				e.db = real
				name := fmt.Sprintf("%d-%d", fate, n)
				path := "events-" + name + "/a"
				cfg := pull("events-"+name+"/*", "x-"+name)
				cfg.WakeStream = "wake-" + name
				faults.SetPlan(kvtest.Script(map[int]kvtest.Fault{n: {Fate: fate}}))
				e.create(cfg.WakeStream, "")
				e.put(name, cfg)
				h := hook(r, cfg.Pattern)
				e.put("hook-"+name, h)
				tail := e.create(path, `1`).Tail
				e.work(t)
				c := e.claim(name, "w")
				if c.Generation != 1 || len(c.Streams) != 2 || !c.Streams[0].Pending {
					t.Fatalf("%s: %+v", name, c)
				}
				if next, err := e.Ack(t.Context(), ID{Name: name}, c.Token, request(c, true, Ack{path, tail.String()})); err != nil || next {
					t.Fatal(name, next, err)
				}
				e.post(path, `2`)
				e.work(t)
				c = e.claim(name, "w")
				if err := e.Release(t.Context(), ID{Name: name}, c.Token, request(c, false)); err != nil {
					t.Fatal(name, err)
				}
				e.work(t)
				if ev := e.events(cfg.WakeStream); len(ev) != 3 || ev[2].Generation != 3 {
					t.Fatalf("%s: %+v", name, ev)
				}
				if s := e.get("hook-" + name); s.Delivery.Generation != 2 || s.Delivery.Phase != "idle" {
					t.Fatalf("%s: %+v", name, s.Delivery)
				}
				for _, sub := range []string{name, "hook-" + name} {
					if err := e.Delete(t.Context(), ID{Name: sub}); err != nil {
						t.Fatal(err)
					}
				}
				e.empty()
				if faults.Count(fate) != 1 {
					t.Fatalf("%s: the fault did not happen", name)
				}
			}
		}
	})
}
