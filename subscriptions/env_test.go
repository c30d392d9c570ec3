package subscriptions

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"headwater/ci/engines"
	"headwater/fdblayer"
	"headwater/fdblayer/kv"
	"headwater/keys"
)

// clock is a clock that tests set.
type clock struct{ ms atomic.Int64 }

func (c *clock) now() time.Time          { return time.UnixMilli(c.ms.Load()) }
func (c *clock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// env is one deployment. Its services are driven by hand: nothing happens
// unless a test says so.
type env struct {
	t      testing.TB
	db     kv.Database
	clock  *clock
	prefix []byte
	*node
}

// node is one frontend.
type node struct {
	*Service
	store *fdblayer.Store
}

func newEnv(t testing.TB, db kv.Database) *env {
	t.Helper()
	e := &env{t: t, db: db, clock: &clock{}, prefix: []byte("subs-" + rand.Text())}
	e.clock.ms.Store(1_750_000_000_000)
	e.node = e.frontend(nil)
	return e
}

// onEngines runs test against a fresh deployment on every engine there is.
func onEngines(t *testing.T, test func(t *testing.T, e *env)) {
	t.Helper()
	engines.Each(t, func(t *testing.T, db kv.Database) { test(t, newEnv(t, db)) })
}

func (e *env) frontend(mod func(*Options)) *node {
	e.t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	if os.Getenv("TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	index := NewIndex()
	store, err := fdblayer.Open(e.t.Context(), e.db, fdblayer.Options{
		Prefix: e.prefix, Now: e.clock.now, SweepInterval: -1, Logger: log, Followers: index,
	})
	if err != nil {
		e.t.Fatal(err)
	}
	o := Options{Now: e.clock.now, Logger: log, AllowLocalhost: true, CallbackURL: func(origin string, id ID) string {
		return origin + "/" + id.Bucket + "/" + id.Name + "/callback"
	}}
	if mod != nil {
		mod(&o)
	}
	s := New(store, index, o)
	s.jitter = func() float64 { return 0 }
	n := &node{s, store}
	e.t.Cleanup(func() { n.kill(e.t) })
	return n
}

// kill ends a frontend without letting it finish anything.
func (n *node) kill(t testing.TB) {
	t.Helper()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	n.Service.Close(gone)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := n.store.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// work does everything there is to do now: marks, and what is due.
func (n *node) work(t testing.TB) {
	t.Helper()
	for range 100 {
		did := n.marks(t)
		if due := n.due(t); due+did == 0 {
			return
		}
	}
	t.Fatal("there is always more to do")
}

func (n *node) marks(t testing.TB) (did int) {
	t.Helper()
	for _, h := range n.Service.shards {
		ids, watch, err := h.marks(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if watch != nil {
			watch.Cancel()
		}
		for _, id := range ids {
			if err := n.reconcile(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			did++
		}
	}
	return did
}

// due carries out what is due, one after the other.
func (n *node) due(t testing.TB) (did int) {
	t.Helper()
	rows, err := n.page(t.Context(), n.space.SubDueRange(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		e, err := n.parseDue(row)
		if err != nil {
			t.Fatal(err)
		}
		if e.due.After(n.now()) {
			break
		}
		n.do(t.Context(), e)
		did++
	}
	return did
}

func (e *env) create(path, body string) fdblayer.Stream {
	e.t.Helper()
	return e.createIn("", path, body)
}

func (e *env) createIn(bucket, path, body string) fdblayer.Stream {
	e.t.Helper()
	if body != "" {
		body += "\n"
	}
	r, err := e.store.Create(e.t.Context(), fdblayer.CreateRequest{
		ID: fdblayer.StreamID{Bucket: bucket, Stream: path}, ContentType: "application/json", Body: []byte(body),
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return r.Stream
}

func (e *env) post(path, body string) keys.Offset {
	e.t.Helper()
	return e.node.post(e.t, path, body)
}

func (n *node) post(t testing.TB, path, body string) keys.Offset {
	t.Helper()
	r, err := n.store.Append(t.Context(), fdblayer.AppendRequest{
		ID: fdblayer.StreamID{Stream: path}, ContentType: "application/json", Body: []byte(body + "\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.Next
}

func (e *env) remove(path string) {
	e.t.Helper()
	if err := e.store.Delete(e.t.Context(), fdblayer.StreamID{Stream: path}, fdblayer.Precondition{}); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) put(name string, cfg Config) Subscription {
	e.t.Helper()
	sub, created, err := e.Put(e.t.Context(), ID{Name: name}, cfg, "http://here")
	if err != nil || !created {
		e.t.Fatal(created, err)
	}
	return sub
}

func (e *env) get(name string) Subscription {
	e.t.Helper()
	sub, err := e.Get(e.t.Context(), ID{Name: name})
	if err != nil {
		e.t.Fatal(err)
	}
	return sub
}

// cursor returns the link of a subscription to a stream; ok is false for none.
func (e *env) cursor(name, path string) (Link, bool) {
	e.t.Helper()
	for _, l := range e.get(name).Links {
		if l.Path == path {
			return l, true
		}
	}
	return Link{}, false
}

func mustFail(t testing.TB, err error, want Code) *Error {
	t.Helper()
	var got *Error
	if !errors.As(err, &got) || got.Code != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	return got
}
