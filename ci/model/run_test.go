package model

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"headwater/ci/engines"
	"headwater/fdblayer"
	"headwater/fdblayer/kv"
	"headwater/frontend"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "seed of the run; 0 draws one")
	stepsFlag = flag.Int("steps", 4000, "requests per run")
)

// run is one comparison: frontends over one store, the model, and the dice.
type run struct {
	t      *testing.T
	rng    *rand.Rand
	bases  []string
	client *http.Client
	world  *world
	clock  atomic.Int64
	step   int
	log    []string
}

// TestFrontendsAgreeWithTheModel sends random requests to random frontends
// over one store and compares every answer with the model's.
func TestFrontendsAgreeWithTheModel(t *testing.T) {
	engines.Each(t, func(t *testing.T, db kv.Database) {
		seed := *seedFlag
		if seed == 0 {
			seed = rand.Uint64()
		}
		steps := *stepsFlag
		if testing.Short() {
			steps = min(steps, 500)
		}
		t.Logf("seed %d, %d steps; repeat with -seed=%d", seed, steps, seed)
		r := newRun(t, db, seed)
		for r.step = range steps {
			r.next()
			if t.Failed() {
				from := max(0, len(r.log)-25)
				t.Fatalf("the last requests:\n%s", strings.Join(r.log[from:], "\n"))
			}
		}
	})
}

func newRun(t *testing.T, db kv.Database, seed uint64) *run {
	r := &run{t: t, rng: rand.New(rand.NewPCG(seed, 1)), client: &http.Client{}}
	r.clock.Store(1_800_000_000_000)
	r.world = &world{streams: map[string]*stream{}, now: time.UnixMilli(r.clock.Load())}
	prefix := fmt.Appendf(nil, "model-%d-%d", seed, time.Now().UnixNano())
	for range 3 {
		store, err := fdblayer.Open(t.Context(), db, fdblayer.Options{
			Prefix: prefix, SweepInterval: -1, PredecessorWait: -1,
			Now: func() time.Time { return time.UnixMilli(r.clock.Load()) },
		})
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(frontend.New(store, frontend.Options{}).Handler())
		t.Cleanup(func() {
			srv.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if err := store.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		r.bases = append(r.bases, srv.URL)
	}
	return r
}

func (r *run) pick(s ...string) string { return s[r.rng.IntN(len(s))] }
func (r *run) chance(percent int) bool { return r.rng.IntN(100) < percent }

func (r *run) name() string { return fmt.Sprintf("s%d", r.rng.IntN(6)) }

func (r *run) messages(contentType string) []string {
	var out []string
	for range 1 + r.rng.IntN(3) {
		m := fmt.Sprintf("%d-%d", r.step, r.rng.IntN(1000))
		if r.chance(3) {
			m += strings.Repeat("x", 40_000+r.rng.IntN(60_000))
		}
		if contentType == "application/json" {
			m = fmt.Sprintf(`{"n":"%s","v":[1.50e3,"é"]}`, m)
		}
		out = append(out, m)
	}
	return out
}

func body(contentType string, messages []string) string {
	if contentType == "application/json" && len(messages) > 0 {
		return "[ " + strings.Join(messages, " , ") + " ]"
	}
	return strings.Join(messages, "")
}

// next makes one random request and compares the answer.
func (r *run) next() {
	if r.chance(5) {
		// More than a tenth of a TTL, so that a renewal is never skipped as
		// too soon, and never just at its end.
		r.clock.Add((30 * time.Second).Milliseconds())
		r.world.now = time.UnixMilli(r.clock.Load())
	}
	switch n := r.rng.IntN(100); {
	case n < 18:
		r.create()
	case n < 60:
		r.append()
	case n < 66:
		name := r.name()
		r.do(http.MethodDelete, name, "", nil, "", r.world.remove(name))
	case n < 75:
		name := r.name()
		r.do(http.MethodHead, name, "", nil, "", r.world.head(name))
	default:
		r.read()
	}
}

func (r *run) create() {
	op := createOp{name: r.name(), contentType: r.pick("text/plain", "application/json")}
	h := http.Header{}
	if r.chance(25) {
		op.ttl = 100 * time.Second
		h.Set("Stream-TTL", "100")
	}
	if r.chance(10) {
		op.closed = true
		h.Set("Stream-Closed", r.pick("true", "TRUE", "True"))
	}
	if r.chance(35) {
		r.forkHeaders(&op, h)
	}
	if op.fork == nil && r.chance(50) {
		op.body = r.messages(op.contentType)
	}
	if op.contentType != "" {
		h.Set("Content-Type", op.contentType)
	}
	r.do(http.MethodPut, op.name, "", h, body(op.contentType, op.body), r.world.create(op))
}

func (r *run) forkHeaders(op *createOp, h http.Header) {
	f := &forkConfig{source: r.name(), at: -1}
	if f.source == op.name {
		return
	}
	h.Set("Stream-Forked-From", "/v1/stream/"+f.source)
	if r.chance(60) {
		op.contentType = ""
	}
	if src := r.world.streams[f.source]; src != nil && r.chance(60) {
		if ps := src.positions(); len(ps) > 0 {
			f.at = ps[r.rng.IntN(len(ps))]
			h.Set("Stream-Fork-Offset", src.tokens[f.at])
		}
	}
	if r.chance(30) {
		f.sub = r.rng.IntN(4)
		h.Set("Stream-Fork-Sub-Offset", fmt.Sprint(f.sub))
	}
	op.fork = f
}

func (r *run) append() {
	op := appendOp{name: r.name(), contentType: "text/plain"}
	if s := r.world.streams[op.name]; s != nil && r.chance(95) {
		op.contentType = s.contentType
	}
	h := http.Header{"Content-Type": {op.contentType}}
	if r.chance(8) {
		op.closing = true
		h.Set("Stream-Closed", "true")
	}
	if !op.closing || r.chance(50) {
		op.body = r.messages(op.contentType)
	}
	if r.chance(40) {
		op.producer = r.tuple(op.name)
		h.Set("Producer-Id", op.producer.id)
		h.Set("Producer-Epoch", fmt.Sprint(op.producer.epoch))
		h.Set("Producer-Seq", fmt.Sprint(op.producer.seq))
	}
	if r.chance(15) {
		op.seq = fmt.Sprintf("%06d", r.step-r.rng.IntN(200)+200)
		h.Set("Stream-Seq", op.seq)
	}
	r.do(http.MethodPost, op.name, "", h, body(op.contentType, op.body), r.world.append(op))
}

// tuple is mostly the next one of a producer, sometimes an old or a wrong one.
func (r *run) tuple(name string) *tuple {
	p := &tuple{id: r.pick("p", "q")}
	if s := r.world.streams[name]; s != nil {
		if st := s.producers[p.id]; st != nil {
			p.epoch, p.seq = st.epoch, st.seq+1
		}
	}
	switch {
	case r.chance(15):
		p.seq = max(0, p.seq-1)
	case r.chance(10):
		p.seq += 2
	case r.chance(10):
		p.epoch, p.seq = p.epoch+1, r.rng.IntN(2)
	case r.chance(10):
		p.epoch = max(0, p.epoch-1)
	}
	return p
}

func (r *run) read() {
	name := r.name()
	at, query := 0, r.pick("", "?offset=-1", "?offset=0000000000000000_0000000000000000")
	poll := false
	if s := r.world.streams[name]; s != nil {
		if ps := s.positions(); len(ps) > 0 && r.chance(60) {
			at = ps[r.rng.IntN(len(ps))]
			query = "?offset=" + s.tokens[at]
		}
		if query != "" && r.chance(25) && (at < len(s.data) || s.closed) {
			poll = true
			query += "&live=long-poll&timeout_ms=1"
		}
	}
	r.do(http.MethodGet, name, query, nil, "", r.world.read(name, at, poll))
}

// do sends a request to a random frontend and compares the answer.
func (r *run) do(method, name, query string, h http.Header, body string, want reply) {
	front := r.rng.IntN(len(r.bases))
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.bases[front]+"/v1/stream/"+name+query, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for k, v := range h {
		req.Header[k] = v
	}
	short := body
	if len(short) > 80 {
		short = fmt.Sprintf("%s... (%d bytes)", short[:60], len(body))
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	r.log = append(r.log, fmt.Sprintf("step %d, frontend %d: %s %s%s %v %s -> %d, next %s", r.step, front, method, name, query, h, short,
		resp.StatusCode, resp.Header.Get("Stream-Next-Offset")))
	r.compare(resp, string(got), want)
}

func (r *run) compare(resp *http.Response, body string, want reply) {
	t := r.t
	if resp.StatusCode != want.status {
		t.Errorf("status %d, the model says %d (%s)", resp.StatusCode, want.status, body)
		return
	}
	if want.body != nil && body != *want.body {
		t.Errorf("body %.200q (%d bytes), the model says %.200q (%d bytes)", body, len(body), *want.body, len(*want.body))
	}
	if want.upToDate && resp.Header.Get("Stream-Up-To-Date") != "true" {
		t.Error("Stream-Up-To-Date is missing")
	}
	if want.closed != (resp.Header.Get("Stream-Closed") == "true") {
		t.Errorf("Stream-Closed is %q, the model says %v", resp.Header.Get("Stream-Closed"), want.closed)
	}
	for k, v := range want.headers {
		if resp.Header.Get(k) != v {
			t.Errorf("%s is %q, the model says %q", k, resp.Header.Get(k), v)
		}
	}
	if want.incarnated {
		r.compareIncarnation(resp.Header.Get("Stream-Incarnation"), want)
	}
	if want.next >= 0 {
		r.compareOffset(resp.Header.Get("Stream-Next-Offset"), want)
	}
}

func (r *run) compareIncarnation(got string, want reply) {
	s := want.of
	if want.created != nil {
		for name, other := range r.world.streams {
			if other != s && other.incarnation == got {
				r.t.Errorf("the incarnation of %s is given out again", name)
			}
		}
		s.incarnation = got
	}
	if got == "" || got != s.incarnation {
		r.t.Errorf("Stream-Incarnation is %q, the stream's is %q", got, s.incarnation)
	}
}

// compareOffset checks that one position has one token and that tokens sort
// as positions do.
func (r *run) compareOffset(token string, want reply) {
	s := want.of
	if known, ok := s.tokens[want.next]; ok {
		if known != token {
			r.t.Errorf("position %d was %s and is now %s", want.next, known, token)
		}
		return
	}
	for p, other := range s.tokens {
		if (p < want.next) != (other < token) || other == token {
			r.t.Errorf("position %d is %s, but position %d is %s", want.next, token, p, other)
		}
	}
	s.tokens[want.next] = token
}
