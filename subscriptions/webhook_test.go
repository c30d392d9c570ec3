package subscriptions

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"headwater/keys"
)

// receiver is a webhook's receiver, on the loopback that the development
// switch allows.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	got    []delivered
	answer func(w http.ResponseWriter, r *http.Request, d delivered)
}

type delivered struct {
	wakeBody
	raw       []byte
	signature string
}

func newReceiver(t testing.TB, answer func(w http.ResponseWriter, r *http.Request, d delivered)) *receiver {
	t.Helper()
	rc := &receiver{answer: answer}
	rc.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		d := delivered{raw: raw, signature: r.Header.Get("Webhook-Signature")}
		if err != nil || json.Unmarshal(raw, &d.wakeBody) != nil || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("a bad request: %q %v", raw, err)
		}
		rc.mu.Lock()
		rc.got = append(rc.got, d)
		answer := rc.answer
		rc.mu.Unlock()
		answer(w, r, d)
	}))
	t.Cleanup(rc.Close)
	return rc
}

func (r *receiver) deliveries() []delivered {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]delivered(nil), r.got...)
}

func (r *receiver) last(t testing.TB) delivered {
	t.Helper()
	got := r.deliveries()
	if len(got) == 0 {
		t.Fatal("nothing was delivered")
	}
	return got[len(got)-1]
}

func (r *receiver) answers(f func(w http.ResponseWriter, r *http.Request, d delivered)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

func done(w http.ResponseWriter, _ *http.Request, _ delivered) { io.WriteString(w, `{"done":true}`) }
func taken(w http.ResponseWriter, _ *http.Request, _ delivered) {
	w.WriteHeader(http.StatusAccepted)
}
func refused(w http.ResponseWriter, _ *http.Request, _ delivered) {
	w.WriteHeader(http.StatusServiceUnavailable)
}

func hook(r *receiver, pattern string) Config {
	return Config{Type: Webhook, Pattern: pattern, URL: r.URL + "/hook", Lease: 10 * time.Second}
}

func TestSynchronousDoneAcksTheSnapshot(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		r := newReceiver(t, done)
		e.put("s", hook(r, "events/*"))
		st := e.create("events/a", `1`)
		// More arrives while the receiver is at work.
		r.answers(func(w http.ResponseWriter, req *http.Request, d delivered) {
			if d.Generation == 1 {
				e.post("events/a", `2`)
				e.marks(t)
			}
			done(w, req, d)
		})
		e.work(t)
		got := r.deliveries()
		if len(got) != 2 {
			t.Fatalf("%d deliveries", len(got))
		}
		first, second := got[0], got[1]
		if first.SubscriptionID != "s" || first.Generation != 1 || first.CallbackURL != "http://here//s/callback" ||
			len(first.Streams) != 1 || first.Streams[0] != (streamBody{"events/a", Glob, keys.StartOffset.String(), st.Tail.String(), true}) {
			t.Fatalf("%+v", first)
		}
		if second.Generation != 2 || second.WakeID == first.WakeID || second.Streams[0].Acked != st.Tail.String() || second.Streams[0].Tail == st.Tail.String() {
			t.Fatalf("%+v", second)
		}
		if l, _ := e.cursor("s", "events/a"); l.Acked.String() != second.Streams[0].Tail {
			t.Fatalf("%+v", l)
		}
		if s := e.get("s"); s.Failed || s.Delivery.Phase != "idle" || s.Delivery.Delivered != 2 {
			t.Fatalf("%+v", s.Delivery)
		}
	})
}

func TestSignaturesVerify(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		r := newReceiver(t, done)
		e.put("s", hook(r, "events/*"))
		verify := func() string {
			t.Helper()
			e.work(t)
			d := r.last(t)
			m := regexp.MustCompile(`^t=(\d+),kid=(ds_[A-Za-z0-9_-]+),ed25519=([A-Za-z0-9_-]+)$`).FindStringSubmatch(d.signature)
			if m == nil {
				t.Fatalf("%q", d.signature)
			}
			if m[1] != fmt.Sprint(e.clock.now().Unix()) {
				t.Errorf("signed at %s, now is %d", m[1], e.clock.now().Unix())
			}
			sig, err := base64.RawURLEncoding.DecodeString(m[3])
			if err != nil {
				t.Fatal(err)
			}
			published, err := e.SigningKeys(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range published {
				if k.KID == m[2] {
					if !ed25519.Verify(k.Public, append([]byte(m[1]+"."), d.raw...), sig) {
						t.Fatal("the signature is wrong")
					}
					return m[2]
				}
			}
			t.Fatalf("%s is not published", m[2])
			return ""
		}
		e.create("events/a", `1`)
		first := verify()
		if again := e.frontend(nil); first != must(again.ActiveKID(t.Context())) {
			t.Fatal("another frontend has another key")
		}
		if err := e.RotateKeys(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(must(e.SigningKeys(t.Context()))); n != 2 {
			t.Fatalf("%d keys are published", n)
		}
		e.post("events/a", `2`)
		if kid := verify(); kid != first {
			t.Fatal("a key was used before receivers could know it")
		}
		e.clock.advance(activateAfter)
		e.post("events/a", `3`)
		if kid := verify(); kid == first {
			t.Fatal("the new key is not used")
		}
		e.clock.advance(retireAfter - time.Second)
		if n := len(must(e.SigningKeys(t.Context()))); n != 2 {
			t.Fatalf("%d keys are published within the replay window", n)
		}
		e.clock.advance(time.Second)
		if n := len(must(e.SigningKeys(t.Context()))); n != 1 {
			t.Fatalf("%d keys are published after it", n)
		}
		// Of age by itself.
		e.clock.advance(91 * 24 * time.Hour)
		if n := len(must(e.SigningKeys(t.Context()))); n != 2 {
			t.Fatalf("%d keys: an old one was not replaced", n)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestCallbacksAckAndAreFenced(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		ctx, id := t.Context(), ID{Name: "s"}
		r := newReceiver(t, taken)
		e.put("s", hook(r, "events/*"))
		st := e.create("events/a", `1`)
		e.work(t)
		d := r.last(t)
		req := AckRequest{WakeID: d.WakeID, Generation: d.Generation, Acks: []Ack{{"events/a", st.Tail.String()}}}
		// Heartbeats hold the lease.
		for range 3 {
			e.clock.advance(9 * time.Second)
			if next, err := e.Callback(ctx, id, d.CallbackToken, req); err != nil || next {
				t.Fatal(next, err)
			}
			e.work(t)
		}
		if n := len(r.deliveries()); n != 1 {
			t.Fatalf("%d deliveries under a lease", n)
		}
		req.Done = true
		if next, err := e.Callback(ctx, id, d.CallbackToken, req); err != nil || next {
			t.Fatal(next, err)
		}
		_, err := e.Callback(ctx, id, d.CallbackToken, req)
		mustFail(t, err, CodeFenced)

		// Another subscription's token is worth nothing, nor is one of a life
		// that is over.
		e.put("t", hook(r, "events/*"))
		_, err = e.Callback(ctx, ID{Name: "t"}, d.CallbackToken, req)
		mustFail(t, err, CodeTokenInvalid)
		if err := e.Delete(ctx, id); err != nil {
			t.Fatal(err)
		}
		_, err = e.Callback(ctx, id, d.CallbackToken, req)
		mustFail(t, err, CodeNotFound)
		e.put("s", hook(r, "events/*"))
		_, err = e.Callback(ctx, id, d.CallbackToken, req)
		mustFail(t, err, CodeFenced)
		e.clock.advance(tokenLife)
		_, err = e.Callback(ctx, id, d.CallbackToken, req)
		mustFail(t, err, CodeTokenExpired)
	})
}

// A failed delivery is tried again after 1, 2, 4 ... 60 s, as a wake of its
// own, whichever frontend lives by then; an operator can cut it short.
func TestRetriesArePersisted(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		r := newReceiver(t, refused)
		e.put("s", hook(r, "events/*"))
		e.create("events/a", `1`)
		e.work(t)
		node := e.node
		for i, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
			want := time.Duration(seconds) * time.Second
			s := e.get("s")
			if d := s.Delivery; !s.Failed || d.Attempts != i+1 || d.LastError != "status" || d.LastStatus != 503 ||
				!d.NextAttempt.Equal(e.clock.now().Add(want)) || d.Generation != uint64(i+1) {
				t.Fatalf("attempt %d: %+v, now %v", i+1, d, e.clock.now())
			}
			node.kill(t)
			node = e.frontend(nil)
			e.node = node
			e.clock.advance(want - time.Millisecond)
			e.work(t)
			if n := len(r.deliveries()); n != i+1 {
				t.Fatalf("%d deliveries before the time of number %d", n, i+2)
			}
			e.clock.advance(time.Millisecond)
			e.work(t)
			if n := len(r.deliveries()); n != i+2 {
				t.Fatalf("%d deliveries at the time of number %d", n, i+2)
			}
		}
		r.answers(done)
		if err := e.Retry(t.Context(), ID{Name: "s"}); err != nil {
			t.Fatal(err)
		}
		e.work(t)
		if s := e.get("s"); s.Failed || s.Delivery.Phase != "idle" || s.Delivery.LastError != "" {
			t.Fatalf("%+v", s)
		}
	})
}

// The wake of a delivery that failed stays current until the next attempt: a
// receiver that answered badly may have been at work all the same.
func TestACallbackAnswersAFailedDelivery(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		r := newReceiver(t, refused)
		e.put("s", hook(r, "events/*"))
		st := e.create("events/a", `1`)
		e.work(t)
		d := r.last(t)
		req := AckRequest{WakeID: d.WakeID, Generation: d.Generation, Acks: []Ack{{"events/a", st.Tail.String()}}}
		if _, err := e.Callback(t.Context(), ID{Name: "s"}, d.CallbackToken, req); err != nil {
			t.Fatal(err)
		}
		e.clock.advance(5 * time.Second)
		e.work(t)
		if n := len(r.deliveries()); n != 1 || e.get("s").Failed {
			t.Fatalf("%d deliveries, %+v", n, e.get("s"))
		}
	})
}

// What a receiver answers is read up to a bound, waited for up to a bound, and
// a redirect is not followed.
func TestDeliveriesAreBounded(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.node = e.frontend(func(o *Options) { o.DeliveryTimeout = 200 * time.Millisecond })
		elsewhere := newReceiver(t, done)
		for name, c := range map[string]struct {
			answer func(w http.ResponseWriter, r *http.Request, d delivered)
			why    string
		}{
			"slow": {func(_ http.ResponseWriter, r *http.Request, _ delivered) {
				select {
				case <-r.Context().Done():
				case <-time.After(10 * time.Second):
				}
			}, "timeout"},
			"drip": {func(w http.ResponseWriter, r *http.Request, _ delivered) {
				for r.Context().Err() == nil {
					io.WriteString(w, " ")
					w.(http.Flusher).Flush()
					time.Sleep(10 * time.Millisecond)
				}
			}, "timeout"},
			"huge": {func(w http.ResponseWriter, _ *http.Request, _ delivered) {
				io.WriteString(w, strings.Repeat(" ", maxResponse)+`{"done":true}`)
			}, "response_too_large"},
			"redirect": {func(w http.ResponseWriter, r *http.Request, _ delivered) {
				http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
			}, "redirect"},
			"reset": {func(http.ResponseWriter, *http.Request, delivered) { panic(http.ErrAbortHandler) }, "transport"},
			"headers": {func(w http.ResponseWriter, _ *http.Request, _ delivered) {
				w.Header().Set("X-Long", strings.Repeat("x", 2*maxResponseHeader))
			}, "transport"},
		} {
			r := newReceiver(t, c.answer)
			e.put(name, hook(r, "events/"+name))
			e.create("events/"+name, `1`)
			e.work(t)
			if s := e.get(name); !s.Failed || s.Delivery.LastError != c.why {
				t.Errorf("%s: %+v", name, s.Delivery)
			}
		}
		if n := len(elsewhere.deliveries()); n != 0 {
			t.Errorf("the redirect was followed")
		}
		gone := newReceiver(t, done)
		e.put("gone", hook(gone, "events/gone"))
		gone.Close()
		e.create("events/gone", `1`)
		e.work(t)
		if s := e.get("gone"); !s.Failed || s.Delivery.LastError != "connection" {
			t.Errorf("%+v", s.Delivery)
		}
	})
}

// Answers that are not {"done":true} mean that the receiver will call back.
func TestOnlyDoneIsDone(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		for i, body := range []string{``, `{}`, `{"done":false}`, `{"done":"true"}`, `[true]`, `done`, `{"done":true`, `null`} {
			r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ delivered) { io.WriteString(w, body) })
			name := fmt.Sprint(i)
			e.put(name, hook(r, "events/"+name))
			e.create("events/"+name, `1`)
			e.work(t)
			if s := e.get(name); s.Delivery.Phase != "held" || s.Failed {
				t.Errorf("%q: %+v", body, s.Delivery)
			}
		}
	})
}

// A subscription of many streams names those with work only, so many at most at
// a time, and the rest in the next wake.
func TestLargeSubscriptionsAreWokenInParts(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		r := newReceiver(t, done)
		const n = wakeStreams + 50
		paths := make([]string, n)
		for i := range paths {
			paths[i] = fmt.Sprintf("events/%04d", i)
			e.create(paths[i], "")
		}
		e.put("s", hook(r, "events/*"))
		e.post("events/0007", `1`)
		e.work(t)
		if d := r.last(t); len(d.Streams) != 1 || d.Streams[0].Path != "events/0007" {
			t.Fatalf("%d streams", len(d.Streams))
		}
		for _, p := range paths {
			e.post(p, `2`)
		}
		e.marksAll(t)
		e.work(t)
		got := r.deliveries()
		if len(got) != 3 || len(got[1].Streams) != wakeStreams || len(got[2].Streams) != n-wakeStreams {
			t.Fatalf("%d deliveries", len(got))
		}
	})
}

func (n *node) marksAll(t testing.TB) {
	t.Helper()
	for n.marks(t) > 0 {
	}
}

// The requests to one host are bounded, and a slow one doesn't hold up others.
func TestPlacesPerHost(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.node = e.frontend(func(o *Options) { o.MaxPerHost = 2; o.ScanInterval = 20 * time.Millisecond })
		release := make(chan struct{})
		var mu sync.Mutex
		now, most := 0, 0
		slow := newReceiver(t, func(w http.ResponseWriter, r *http.Request, d delivered) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			<-release
			mu.Lock()
			now--
			mu.Unlock()
			done(w, r, d)
		})
		fast := newReceiver(t, done)
		for i := range 6 {
			e.put(fmt.Sprint("slow", i), hook(slow, "events/*"))
		}
		cfg := hook(fast, "events/*")
		cfg.URL = strings.Replace(cfg.URL, "127.0.0.1", "localhost", 1)
		e.put("fast", cfg)
		e.Start()
		e.create("events/a", `1`)
		eventually(t, func() bool { return len(fast.deliveries()) == 1 && len(slow.deliveries()) == 2 })
		if e.Stats().Parked == 0 {
			t.Error("nothing waited for a place")
		}
		close(release)
		eventually(t, func() bool {
			for i := range 6 {
				if e.get(fmt.Sprint("slow", i)).Delivery.Phase != "idle" {
					return false
				}
			}
			return true
		})
		if most > 2 {
			t.Errorf("%d requests to one host at a time", most)
		}
	})
}

func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("it did not come to pass")
}

// A service that ends takes its deliveries to their end, or cuts them off when
// its time is over; another takes over when the lease ends.
func TestClose(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		release := make(chan struct{})
		r := newReceiver(t, func(w http.ResponseWriter, req *http.Request, d delivered) {
			select {
			case <-release:
			case <-req.Context().Done():
			}
			done(w, req, d)
		})
		e.put("s", hook(r, "events/*"))
		e.Start()
		e.create("events/a", `1`)
		eventually(t, func() bool { return len(r.deliveries()) == 1 })
		closed := make(chan error, 1)
		go func() { closed <- e.Close(context.Background()) }()
		select {
		case err := <-closed:
			t.Fatalf("closed over a delivery: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		close(release)
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
		if d := e.get("s").Delivery; d.Phase != "idle" {
			t.Fatalf("%+v", d)
		}
	})
}
