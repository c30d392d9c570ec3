package frontend

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"headwater/fdblayer"
)

// recorder is an Observer that keeps what it is told.
type recorder struct {
	mu   sync.Mutex
	seen []Observation
}

func (r *recorder) Observe(o Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, o)
}

func (r *recorder) last(n int) (Observation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seen) != n {
		return Observation{}, false
	}
	return r.seen[n-1], true
}

// Every request is told of once, as what it was, with what it took and cost.
func TestObserver(t *testing.T) {
	rec := &recorder{}
	s := serve(t, func(o *Options) { o.Observer = rec })
	n := 0
	// told waits for the next observation: it is made after the response.
	told := func(what string, want Observation) {
		t.Helper()
		n++
		var got Observation
		s.eventually(what+" is told of", func() bool {
			var ok bool
			got, ok = rec.last(n)
			return ok
		})
		if got.Took <= 0 || got.Took > patience {
			t.Errorf("%s took %v", what, got.Took)
		}
		got.Took = 0
		if got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
		}
	}
	const bucket = "/pets/s"
	text := []string{"Content-Type", "text/plain"}
	for _, c := range []struct {
		method, path, body string
		headers            []string
		want               Observation
	}{
		{"PUT", "/v1/stream/a/b", "hello", text, Observation{Method: "PUT", Route: "stream", Surface: "base", Status: 201, BytesIn: 5}},
		{"PUT", bucket, "", text, Observation{Method: "PUT", Route: "stream", Surface: "bucket", Status: 201}},
		{"POST", "/v1/stream/a/b", " world", text, Observation{Method: "POST", Route: "stream", Surface: "base", Status: 204, BytesIn: 6}},
		{"GET", "/v1/stream/a/b?offset=-1", "", nil, Observation{Method: "GET", Route: "stream", Surface: "base", Status: 200, BytesOut: 11}},
		{"GET", "/v1/stream/a/b?offset=-1&live=long-poll", "", nil, Observation{Method: "GET", Route: "stream_long_poll", Surface: "base", Status: 200, BytesOut: 11}},
		{"HEAD", bucket, "", nil, Observation{Method: "HEAD", Route: "stream", Surface: "bucket", Status: 200}},
		{"PUT", "/pets", "", nil, Observation{Method: "PUT", Route: "bucket", Surface: "bucket", Status: 201}},
		{"HEAD", bucket + "/bootstrap", "", nil, Observation{Method: "HEAD", Route: "bootstrap", Surface: "bucket", Status: 200}},
		{"HEAD", bucket + "/snapshot/" + strings.Repeat("0", 32), "", nil, Observation{Method: "HEAD", Route: "snapshot", Surface: "bucket", Status: 404, Code: "snapshot_not_found"}},
		{"HEAD", "/v1/stream/none", "", nil, Observation{Method: "HEAD", Route: "stream", Surface: "base", Status: 404, Code: "stream_not_found"}},
		{"HEAD", "/v1/stream/a//b", "", nil, Observation{Method: "HEAD", Route: "none", Surface: "none", Status: 400, Code: "invalid_path"}},
		{"HEAD", "/readyz", "", nil, Observation{Method: "HEAD", Route: "ready", Surface: "none", Status: 200}},
		{"HEAD", "/healthz", "", nil, Observation{Method: "HEAD", Route: "health", Surface: "none", Status: 200}},
		{"OPTIONS", bucket, "", nil, Observation{Method: "OPTIONS", Route: "stream", Surface: "bucket", Status: 204}},
		{"DELETE", bucket, "", nil, Observation{Method: "DELETE", Route: "stream", Surface: "bucket", Status: 204}},
	} {
		s.do(c.method, c.path, c.body, c.headers...).want(c.want.Status)
		told(c.method+" "+c.path, c.want)
	}
	r := s.do("BREW", "/v1/stream/a/b", "").want(405)
	told("BREW", Observation{Method: "OTHER", Route: "stream", Surface: "base", Status: 405, Code: "method_not_allowed", BytesOut: int64(len(r.body))})

	// An SSE response is told of at its end, with why it ended.
	e := s.sse("/v1/stream/a/b?offset=now&live=sse")
	e.control()
	if st := s.front.Stats(); st.Open != 1 || st.Draining {
		t.Errorf("%+v", st)
	}
	s.do("DELETE", "/v1/stream/a/b", "").want(204)
	var got []Observation
	s.eventually("the end of an SSE response is told of", func() bool {
		rec.mu.Lock()
		defer rec.mu.Unlock()
		got = append(got[:0], rec.seen[n:]...)
		return len(got) == 2
	})
	n += 2
	if got[0].Method == "GET" {
		got[0], got[1] = got[1], got[0]
	}
	if o := got[1]; o.Route != routeEvents || o.Status != 200 || o.Code != "stream_not_found" || o.BytesOut == 0 {
		t.Errorf("%+v", o)
	}
	s.eventually("nothing is held", func() bool { return s.front.Stats() == Stats{} })
}

// What a client does not take is neither counted as sent nor a fault of ours,
// and a panic is one.
func TestObserverOfResponsesThatFail(t *testing.T) {
	rec := &recorder{}
	s := serve(t, func(o *Options) { o.Observer = rec; o.WriteTimeout = 100 * time.Millisecond })
	p := s.create("s", "application/octet-stream")
	var tail string
	for range 24 {
		tail = s.add(p, "application/octet-stream", strings.Repeat("x", 1<<20))
	}
	s.do("PUT", p+"/snapshot/"+tail, strings.Repeat("x", 24<<20)).want(204)
	const before = 26
	s.eventually("all is told of", func() bool { _, ok := rec.last(before); return ok })
	conn := s.dial()
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET "+p+"/snapshot/"+tail+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	var o Observation
	s.eventually("the response that was cut is told of", func() bool {
		var ok bool
		o, ok = rec.last(before + 1)
		return ok
	})
	if o.Status != http.StatusOK || o.Code != codeCut || o.BytesOut >= 24<<20 {
		t.Errorf("%+v", o)
	}

	s.front.store = nil // whatever comes now is a fault
	s.get(p).want(500)
	s.eventually("a panic is told of", func() bool { _, ok := rec.last(before + 2); return ok })
	if o, _ := rec.last(before + 2); o.Status != 500 || o.Code != string(fdblayer.CodeInternal) || o.Route != "stream" {
		t.Errorf("%+v", o)
	}
}
