package subscriptions

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"headwater/ci/engines"
	"headwater/fdblayer"
	"headwater/fdblayer/kv"
	"headwater/fdblayer/kv/kvtest"
	"headwater/keys"
)

// The bar is ten minutes: go test -run Chaos -chaos 10m ./subscriptions
var chaosTime = flag.Duration("chaos", 5*time.Second, "how long TestChaos kills frontends")

const (
	chaosNodes   = 3
	chaosStreams = 6
	chaosLease   = time.Second
	// chaosFaults is the share of commits that go wrong, half of them with an
	// unknown outcome.
	chaosFaults = 0.03
)

// chaos is a deployment whose frontends are killed at random, while events are
// appended, a webhook's receiver and pull-wake workers misbehave, and all of it
// is recorded.
type chaos struct {
	t      *testing.T
	db     kv.Database
	prefix []byte
	log    *slog.Logger
	seed   uint64

	turn  sync.RWMutex
	nodes [chaosNodes]*victim
	kills int

	history
	wrote [chaosStreams]atomic.Int64
}

type victim struct {
	*node
	faults *kvtest.Faulted
}

// history is what the outside saw.
type history struct {
	mu sync.Mutex
	// holders is who was told of a generation, by subscription.
	holders map[string]map[uint64]string
	// cursors are the furthest seen, by subscription and stream.
	cursors  map[string]keys.Offset
	problems []string
	woken    int
}

func (h *history) problem(format string, args ...any) {
	h.problems = append(h.problems, fmt.Sprintf(format, args...))
}

// hold records that a generation was given to a holder.
func (h *history) hold(sub string, generation uint64, holder string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.woken++
	if h.holders[sub] == nil {
		h.holders[sub] = map[uint64]string{}
	}
	if other, ok := h.holders[sub][generation]; ok {
		h.problem("%s: generation %d was held by %s and by %s", sub, generation, other, holder)
	}
	h.holders[sub][generation] = holder
}

// see records a cursor.
func (h *history) see(sub, stream string, at keys.Offset) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := sub + " " + stream
	if at.Less(h.cursors[k]) {
		h.problem("%s: the cursor went from %v back to %v", k, h.cursors[k], at)
	}
	h.cursors[k] = at
}

func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	engines.Each(t, func(t *testing.T, db kv.Database) {
		c := &chaos{t: t, db: db, prefix: fmt.Appendf(nil, "chaos-%d", time.Now().UnixNano()), seed: rand.Uint64(),
			log: slog.New(slog.DiscardHandler)}
		c.holders, c.cursors = map[string]map[uint64]string{}, map[string]keys.Offset{}
		t.Logf("seed %d", c.seed)
		c.run()
	})
}

func (c *chaos) run() {
	t := c.t
	for i := range c.nodes {
		c.nodes[i] = c.start(uint64(i))
	}
	r := httptest.NewServer(http.HandlerFunc(c.receive))
	defer r.Close()
	c.retry("wake stream", func(n *node) error {
		_, err := n.store.Create(t.Context(), fdblayer.CreateRequest{ID: fdblayer.StreamID{Stream: "wake"}, ContentType: "application/json"})
		return err
	})
	c.retry("hook", func(n *node) error {
		_, _, err := n.Put(t.Context(), ID{Name: "hook"}, Config{Type: Webhook, Pattern: "events/*", URL: r.URL, Lease: chaosLease}, "")
		return err
	})
	c.retry("pull", func(n *node) error {
		_, _, err := n.Put(t.Context(), ID{Name: "pull"}, Config{Type: PullWake, Pattern: "events/**", WakeStream: "wake", Lease: chaosLease}, "")
		return err
	})

	stop := make(chan struct{})
	over := make(chan struct{})
	var writers, others sync.WaitGroup
	for i := range chaosStreams {
		writers.Go(func() { c.write(i, stop) })
	}
	for i := range 3 {
		others.Go(func() { c.workFor(fmt.Sprintf("worker-%d", i), uint64(i), over) })
	}
	others.Go(func() { c.watch(over) })
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		c.kill(stop)
	}()
	time.Sleep(*chaosTime)
	close(stop)
	writers.Wait()
	<-killed
	c.settle()
	close(over)
	others.Wait()
	for _, v := range c.nodes {
		v.end(t)
	}
	total := int64(0)
	for i := range c.wrote {
		total += c.wrote[i].Load()
	}
	t.Logf("%d events, %d wakes held, %d kills", total, c.woken, c.kills)
	for _, p := range c.problems {
		t.Error(p)
	}
	if c.woken == 0 || total == 0 || c.kills == 0 {
		t.Error("nothing happened")
	}
}

// start makes a frontend whose commits go wrong now and then.
func (c *chaos) start(seed uint64) *victim {
	f := kvtest.Faulty(keepOpen{c.db}, nil)
	index := NewIndex()
	store, err := fdblayer.Open(c.t.Context(), f, fdblayer.Options{
		Prefix: c.prefix, SweepInterval: -1, Logger: c.log, Followers: index,
		CommitTimeout: 3 * time.Second, ReadTimeout: 3 * time.Second,
	})
	if err != nil {
		c.t.Error(err)
	}
	s := New(store, index, Options{Logger: c.log, AllowLocalhost: true, DeliveryTimeout: time.Second, ScanInterval: 200 * time.Millisecond})
	s.Start()
	f.SetPlan(kvtest.Random(c.seed+seed, chaosFaults, kvtest.Usual()...))
	return &victim{&node{s, store}, f}
}

// keepOpen keeps a wrapper's Close from the engine that others still use.
type keepOpen struct{ kv.Database }

func (keepOpen) Close() error { return nil }

// die stops a frontend in the middle of whatever it does: from here on it
// reaches the store no more, so it can't even note what it did.
func (v *victim) die(t testing.TB) {
	v.faults.SetPlan(func(kvtest.Commit) kvtest.Fault { return kvtest.Fault{Fate: kvtest.Refuse, Code: kv.CodeIOError} })
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	v.Service.Close(gone)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_ = v.store.Close(ctx) // it can't forget its witnesses
}

func (v *victim) end(t testing.TB) {
	v.faults.SetPlan(nil)
	v.kill(t)
}

func (c *chaos) kill(stop <-chan struct{}) {
	rng := rand.New(rand.NewPCG(c.seed, 1))
	var dying sync.WaitGroup
	defer dying.Wait()
	for n := uint64(chaosNodes); ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(100+rng.IntN(700)) * time.Millisecond):
		}
		i := rng.IntN(chaosNodes)
		fresh := c.start(n)
		c.turn.Lock()
		old := c.nodes[i]
		c.nodes[i] = fresh
		c.kills++
		c.turn.Unlock()
		dying.Go(func() { old.die(c.t) })
	}
}

func (c *chaos) any() *node {
	c.turn.RLock()
	defer c.turn.RUnlock()
	return c.nodes[rand.N(chaosNodes)].node
}

// retry does something on one frontend or another until it succeeds.
func (c *chaos) retry(what string, do func(n *node) error) {
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = do(c.any()); err == nil {
			return
		}
	}
	c.t.Errorf("%s: %v", what, err)
}

// write appends numbered events to one stream, each once.
func (c *chaos) write(i int, stop <-chan struct{}) {
	id := fdblayer.StreamID{Stream: fmt.Sprintf("events/%d", i)}
	created := false
	for seq := uint64(0); ; {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rand.N(40)) * time.Millisecond):
		}
		c.retry("write", func(n *node) error {
			if !created {
				_, err := n.store.Create(c.t.Context(), fdblayer.CreateRequest{ID: id, ContentType: "application/json"})
				created = err == nil
				return err
			}
			_, err := n.store.Append(c.t.Context(), fdblayer.AppendRequest{
				ID: id, ContentType: "application/json", Body: fmt.Appendf(nil, "%d\n", seq),
				Producer: &fdblayer.Producer{ID: "writer", Seq: seq},
			})
			if err == nil {
				seq++
				c.wrote[i].Add(1)
			}
			return err
		})
	}
}

// receive is the webhook's receiver, which does everything that one can do.
func (c *chaos) receive(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	var d wakeBody
	if err != nil || json.Unmarshal(raw, &d) != nil {
		return // cut off by a kill
	}
	c.hold("hook", d.Generation, d.WakeID)
	switch rand.N(10) {
	case 0:
		w.WriteHeader(http.StatusInternalServerError)
	case 1:
		panic(http.ErrAbortHandler)
	case 2: // takes it and forgets
		w.WriteHeader(http.StatusAccepted)
	case 3, 4, 5: // calls back, and again after it
		w.WriteHeader(http.StatusAccepted)
		c.callback(d)
	case 6:
		time.Sleep(time.Duration(rand.N(300)) * time.Millisecond)
		fallthrough
	default:
		io.WriteString(w, `{"done":true}`)
	}
}

func (c *chaos) callback(d wakeBody) {
	req := AckRequest{WakeID: d.WakeID, Generation: d.Generation, Done: rand.N(2) == 0}
	for _, s := range d.Streams {
		if rand.N(4) > 0 {
			req.Acks = append(req.Acks, Ack{s.Path, s.Tail})
		}
	}
	c.say("hook", func(n *node) error {
		_, err := n.Callback(c.t.Context(), ID{Name: "hook"}, d.CallbackToken, req)
		return err
	})
}

// say sends what a holder has to say, a few times if the store does not answer,
// and checks that a refusal is one that makes sense.
func (c *chaos) say(sub string, do func(n *node) error) {
	for range 3 {
		err := do(c.any())
		var refused *Error
		if err == nil || errors.As(err, &refused) && refused.Code == CodeFenced {
			return
		}
		if refused != nil && refused.Code != CodeInvalidOffset {
			c.history.mu.Lock()
			c.problem("%s: %v", sub, err)
			c.history.mu.Unlock()
			return
		}
	}
}

// workFor is one pull-wake worker: it acts on wake events and on nothing else,
// so a wake that is lost leaves work undone.
func (c *chaos) workFor(name string, seed uint64, over <-chan struct{}) {
	from := fdblayer.From{AtStart: true}
	for {
		select {
		case <-over:
			return
		case <-time.After(5 * time.Millisecond):
		}
		p, err := c.any().store.Read(c.t.Context(), fdblayer.ReadRequest{ID: fdblayer.StreamID{Stream: "wake"}, From: from, MaxBytes: 1 << 20})
		if err != nil || len(p.Data) == 0 {
			continue
		}
		from = fdblayer.From{Offset: p.Next}
		c.claimAndAck(name)
	}
}

func (c *chaos) claimAndAck(name string) {
	var got Claimed
	var err error
	for range 10 { // an error of the store is a reason to ask again
		got, err = c.any().Claim(c.t.Context(), ID{Name: "pull"}, name)
		var refused *Error
		if err == nil || errors.As(err, &refused) {
			break
		}
	}
	if err != nil {
		return
	}
	c.hold("pull", got.Generation, name)
	if rand.N(10) == 0 {
		return // dies with the claim; the lease ends
	}
	req := AckRequest{WakeID: got.WakeID, Generation: got.Generation}
	if rand.N(10) == 0 {
		c.say("pull", func(n *node) error { return n.Release(c.t.Context(), ID{Name: "pull"}, got.Token, req) })
		return
	}
	for _, s := range got.Streams {
		if rand.N(4) > 0 {
			req.Acks = append(req.Acks, Ack{s.Path, s.Tail.String()})
		}
	}
	req.Done = rand.N(5) > 0
	c.say("pull", func(n *node) error {
		_, err := n.Ack(c.t.Context(), ID{Name: "pull"}, got.Token, req)
		return err
	})
}

// watch looks at the cursors all the time.
func (c *chaos) watch(over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(10 * time.Millisecond):
		}
		for _, name := range []string{"hook", "pull"} {
			sub, err := c.any().Get(c.t.Context(), ID{Name: name})
			if err != nil {
				continue
			}
			for _, l := range sub.Links {
				c.see(name, l.Path, l.Acked)
			}
		}
	}
}

// settle waits until every event is acked by both subscriptions: nothing is
// appended any more, so if a wake was lost nothing would make up for it.
func (c *chaos) settle() {
	t := c.t
	tails := map[string]keys.Offset{}
	for i := range chaosStreams {
		path := fmt.Sprintf("events/%d", i)
		c.retry("tail", func(n *node) error {
			st, _, err := n.store.Head(t.Context(), fdblayer.StreamID{Stream: path}, fdblayer.Precondition{})
			tails[path] = st.Tail
			return err
		})
	}
	var missing string
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		missing = ""
		for _, name := range []string{"hook", "pull"} {
			acked := map[string]keys.Offset{}
			sub, err := c.any().Get(t.Context(), ID{Name: name})
			if err != nil {
				missing = err.Error()
				continue
			}
			for _, l := range sub.Links {
				acked[l.Path] = l.Acked
			}
			for path, tail := range tails {
				if acked[path] != tail {
					missing += fmt.Sprintf("%s %s: acked %v of %v; %+v\n", name, path, acked[path], tail, sub.Delivery)
				}
			}
		}
		if missing == "" {
			return
		}
	}
	t.Errorf("a wake was lost:\n%s", missing)
}
