package frontend

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// listen serves on a listener of its own through a Server, and returns what
// tells it to drain and where it then ends.
func (s *service) listen(opts ServerOptions) (drain context.CancelFunc, ended <-chan error) {
	s.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(s.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	s.url = "http://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	stopped := make(chan struct{})
	srv := NewServer(s.front, opts)
	go func() {
		defer close(stopped)
		done <- srv.Serve(ctx, l)
	}()
	s.Cleanup(func() {
		cancel()
		<-stopped
	})
	return cancel, done
}

func (s *service) wantNoError(ended <-chan error) {
	s.Helper()
	select {
	case err := <-ended:
		if err != nil {
			s.Errorf("drain: %v", err)
		}
	case <-time.After(patience):
		s.Fatal("the server does not end")
	}
}

func TestDrain(t *testing.T) {
	s := &service{T: t}
	s.open()
	drain, ended := s.listen(ServerOptions{DrainDelay: 300 * time.Millisecond})
	p := s.create("s", "text/plain")
	s.add(p, "text/plain", "x")
	tail := s.do("HEAD", p, "").next()
	s.get("/readyz").want(200).wantBody("ok\n")

	e := s.sse(p + "?live=sse&offset=" + tail)
	e.control()
	poll := make(chan *response, 1)
	go func() {
		r, err := s.try("GET", p+"?live=long-poll&timeout_ms=60000&offset="+tail, http.NoBody)
		if err != nil {
			t.Error(err)
		}
		poll <- r
	}()
	// An append whose body is still on its way when the drain begins.
	body, w := io.Pipe()
	slow := make(chan *response, 1)
	go func() {
		r, err := s.try("POST", p, body, "Content-Type", "text/plain")
		if err != nil {
			t.Error(err)
		}
		slow <- r
	}()
	if _, err := io.WriteString(w, "be"); err != nil {
		t.Fatal(err)
	}
	s.eventually("one long-poll and one SSE reader are there", func() bool { return s.store.Stats().LiveReaders == 2 })

	drain()
	// Readiness fails first; requests are still served.
	s.eventually("not ready", func() bool {
		r, err := s.try("GET", "/readyz", http.NoBody)
		return err == nil && r.status == 503
	})
	s.get("/readyz").wantProblem(503, "draining").need("Retry-After")
	s.get("/healthz").want(200)
	s.get(p).want(200).wantBody("x")

	if r := <-poll; r != nil {
		r.want(204).wantHeader(hUpToDate, "true").wantHeader(hNextOffset, tail).need(hCursor)
	}
	if c := e.control(); c.StreamNextOffset != tail || !c.UpToDate || c.StreamClosed || c.StreamCursor == "" {
		t.Errorf("last control event %+v", c)
	}
	e.wantEnd()
	if _, err := io.WriteString(w, "cause"); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if r := <-slow; r != nil {
		r.want(204)
	}
	s.wantNoError(ended)
	if r, err := s.try("GET", "/healthz", http.NoBody); err == nil {
		t.Errorf("still serving: %v", r)
	}
	// The store is still the caller's: nothing acknowledged is lost.
	st, _, err := s.store.Head(t.Context(), parse(t, p).id, noPrecondition)
	if err != nil || st.Tail.String() == tail {
		t.Errorf("%+v, %v", st, err)
	}
}

// Live reads that come while the server drains are answered from what there is.
func TestLiveReadsDuringDrain(t *testing.T) {
	s := serve(t)
	p := s.create("s", "text/plain")
	s.add(p, "text/plain", "x")
	s.front.Drain()
	s.get(p+"?live=long-poll&timeout_ms=60000&offset=now").want(204).wantHeader(hUpToDate, "true").need(hCursor)
	s.get(p + "?live=long-poll&offset=-1").want(200).wantBody("x")
	e := s.sse(p + "?live=sse&offset=-1")
	e.want("data")
	if c := e.control(); !c.UpToDate {
		t.Errorf("%+v", c)
	}
	e.wantEnd()
	s.add(p, "text/plain", "y")
}

func TestDrainCutsWhatDoesNotEnd(t *testing.T) {
	s := &service{T: t}
	s.open()
	drain, ended := s.listen(ServerOptions{DrainTimeout: 200 * time.Millisecond})
	p := s.create("s", "text/plain")
	conn := s.dial()
	if _, err := io.WriteString(conn, "POST "+p+" HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\nhalf"); err != nil {
		t.Fatal(err)
	}
	s.eventually("the body is being read", func() bool { return s.front.bodies.TryAcquire(1) && releaseOne(s.front) })
	time.Sleep(50 * time.Millisecond)
	drain()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "cut") {
			t.Errorf("drain: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the server waits for ever")
	}
}

func releaseOne(f *Frontend) bool { f.bodies.Release(1); return true }
