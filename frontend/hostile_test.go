package frontend

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"headwater/fdblayer"
	"headwater/fdblayer/kv/embedded"
)

var noPrecondition fdblayer.Precondition

func parse(t *testing.T, path string) target {
	t.Helper()
	got, err := parsePath(path)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// untouched is a stream that must not change, and the check that it did not.
func (s *service) untouched() func() {
	p := s.create("victim", "text/plain")
	s.add(p, "text/plain", "as it was")
	before := s.do("HEAD", p, "").want(200).header
	return func() {
		s.Helper()
		after := s.do("HEAD", p, "").want(200).header
		for _, h := range []string{hNextOffset, hIncarnation, hClosed, hRetainedOffset, hSnapshotOffset} {
			if before.Get(h) != after.Get(h) {
				s.Errorf("%s was %q and is %q", h, before.Get(h), after.Get(h))
			}
		}
		s.get(p).want(200).wantBody("as it was")
	}
}

func TestHalfSentBodiesChangeNothing(t *testing.T) {
	s := serve(t)
	check := s.untouched()
	head := func(method, path string) string {
		return method + " " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
	}
	tail := s.do("HEAD", "/v1/stream/victim", "").next()
	for _, request := range []string{
		head("POST", "/v1/stream/victim") + "Content-Length: 100\r\n\r\nhalf",
		head("POST", "/v1/stream/victim") + "Content-Length: 100\r\n\r\n",
		head("POST", "/v1/stream/victim") + "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
		head("POST", "/v1/stream/victim") + "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n",
		head("POST", "/v1/stream/victim") + "Transfer-Encoding: chunked\r\n\r\n4\r\nhal",
		head("PUT", "/v1/stream/fresh") + "Content-Length: 100\r\n\r\nhalf",
		head("PUT", "/v1/stream/victim/snapshot/"+tail) + "Content-Length: 100\r\n\r\nhalf",
		head("PUT", "/v1/stream/victim/snapshot/"+tail) + "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
	} {
		conn := s.dial()
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		// Half closed, the server can still say why.
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
			if res.StatusCode != 400 {
				t.Errorf("%q: %s", request, res.Status)
			}
			_ = res.Body.Close()
		}
	}
	check()
	s.do("HEAD", "/v1/stream/fresh", "").want(404)
}

func TestSlowBodiesAreGivenUp(t *testing.T) {
	s := serve(t, func(o *Options) { o.BodyTimeout = 100 * time.Millisecond })
	check := s.untouched()
	tail := s.do("HEAD", "/v1/stream/victim", "").next()
	for _, path := range []string{"POST /v1/stream/victim", "PUT /v1/stream/fresh", "PUT /v1/stream/victim/snapshot/" + tail, "GET /v1/stream/victim"} {
		res := s.raw(path + " HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\nhalf")
		if res == nil || res.status != 408 || res.header.Get("X-Content-Type-Options") == "" {
			t.Errorf("%s: %v, want 408", path, res)
		}
	}
	check()
	// A slow client that goes on, piece by piece, is served.
	s = serve(t, func(o *Options) { o.BodyTimeout = 2 * time.Second })
	body, w := io.Pipe()
	go func() {
		for range 5 {
			time.Sleep(20 * time.Millisecond)
			_, _ = io.WriteString(w, "drip ")
		}
		_ = w.Close()
	}()
	s.send("PUT", "/v1/stream/s", body, "Content-Type", "text/plain").want(201)
	s.get("/v1/stream/s").wantBody("drip drip drip drip drip ")
}

// After its body, a connection is read on to notice that the client went away;
// the deadline of the body must not be taken for that.
func TestBodyTimeoutEndsWithTheBody(t *testing.T) {
	s := serve(t, func(o *Options) { o.BodyTimeout = 50 * time.Millisecond })
	p := s.create("s", "text/plain")
	tail := s.do("HEAD", p, "").next()
	begun := time.Now()
	s.do("GET", p+"?live=long-poll&timeout_ms=400&offset="+tail, "a body").want(204)
	if time.Since(begun) < 300*time.Millisecond {
		t.Error("the poll did not wait")
	}
	e := s.sse(p + "?live=sse&offset=" + tail)
	e.control()
	time.Sleep(150 * time.Millisecond)
	s.add(p, "text/plain", "x")
	e.want("data")
}

func TestTooLongBodies(t *testing.T) {
	s := serve(t, small)
	check := s.untouched()
	tail := s.do("HEAD", "/v1/stream/victim", "").next()
	for _, path := range []string{"POST /v1/stream/victim", "PUT /v1/stream/fresh", "PUT /v1/stream/victim/snapshot/" + tail} {
		// Announced and never sent: refused at once, not awaited.
		begun := time.Now()
		res := s.raw(path + " HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 1099511627776\r\n\r\n")
		if res == nil || res.status != 413 || time.Since(begun) > 5*time.Second {
			t.Errorf("%s: %v, want 413", path, res)
		}
		// Not announced: refused when it gets too long.
		method, p, _ := strings.Cut(path, " ")
		s.send(method, p, io.MultiReader(strings.NewReader(strings.Repeat("x", 5000))), "Content-Type", "text/plain").wantProblem(413, fdblayer.CodeTooLarge)
	}
	check()
	s.do("HEAD", "/v1/stream/fresh", "").want(404)
	s.do("POST", "/v1/stream/victim", strings.Repeat("x", 1000), "Content-Type", "text/plain").want(204)
}

func TestGarbage(t *testing.T) {
	s := serve(t)
	check := s.untouched()
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 4000)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	requests := []string{
		string(noise),
		"\r\n\r\n\r\n",
		"GET\r\n\r\n",
		"GET /v1/stream/victim\r\n\r\n",
		"DELETE /v1/stream/victim HTTP/9.9\r\nHost: x\r\n\r\n",
		"DELETE /v1/stream/victim HTTP/1.1\r\n\r\n", // no Host
		"DELETE /v1/stream/victim HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
		"POST /v1/stream/victim HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\nabc",
		"POST /v1/stream/victim HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\nContent-Type: text/plain\r\n\r\nabcd",
		"POST /v1/stream/victim HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: gzip\r\nContent-Type: text/plain\r\n\r\nabc",
		"DELETE /v1/stream/victim\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
		"DELETE /v1/stream/%victim HTTP/1.1\r\nHost: x\r\n\r\n",
		"PUT /v1/stream/victim HTTP/1.1\r\nHost: x\r\nStream-TTL: 1\r\nStream TTL: 1\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"CONNECT /v1/stream/victim HTTP/1.1\r\nHost: x\r\n\r\n",
		"DELETE /v1/stream/victim HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 2<<20) + "\r\n\r\n",
		"DELETE /v1/stream/victim/" + strings.Repeat("y", 2<<20) + " HTTP/1.1\r\nHost: x\r\n\r\n",
	}
	for _, request := range requests {
		res := s.raw(request)
		if res != nil && (res.status < 400 || res.status >= 600) {
			t.Errorf("%v", res)
		}
	}
	check()
}

// What parsers of requests disagree about must not smuggle a second one in.
func TestNoRequestHidesInABody(t *testing.T) {
	s := serve(t)
	check := s.untouched()
	hidden := "DELETE /v1/stream/victim HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, request := range []string{
		"POST /v1/stream/none HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: " + fmt.Sprint(len(hidden)) + "\r\n\r\n" + hidden,
		"GET /v1/stream/victim HTTP/1.1\r\nHost: x\r\nContent-Length: " + fmt.Sprint(len(hidden)) + "\r\n\r\n" + hidden,
		"PUT /v1/stream/victim/snapshot/x HTTP/1.1\r\nHost: x\r\nContent-Length: " + fmt.Sprint(len(hidden)) + "\r\n\r\n" + hidden,
		"PUT /v1/stream/none HTTP/1.1\r\nHost: x\r\nStream-TTL: x\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x", len(hidden)) + "\r\n" + hidden + "\r\n0\r\n\r\n",
	} {
		if res := s.raw(request); res == nil {
			t.Errorf("%.60q: no response", request)
		}
	}
	check()
}

// A client that does not read is cut off; others do not notice.
func TestSlowReadersAreCut(t *testing.T) {
	s := serve(t, func(o *Options) { o.WriteTimeout = 200 * time.Millisecond })
	p := s.create("s", "application/octet-stream")
	piece := strings.Repeat("x", 1<<20)
	for range 24 {
		s.add(p, "application/octet-stream", piece)
	}
	for _, query := range []string{"?offset=-1&live=sse", "?offset=-1", "?offset=-1&live=long-poll"} {
		conn := s.dial()
		if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET "+p+query+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		s.eventually(query+": nothing is held for the client any more", func() bool {
			time.Sleep(20 * time.Millisecond)
			full := s.front.opts.MaxResponsesInFlight
			if !s.front.responses.TryAcquire(full) {
				return false
			}
			s.front.responses.Release(full)
			return s.store.Stats().LiveReaders == 0 && s.front.running.Load() == 0
		})
	}
	s.get(p + "?max_bytes=10").want(200).wantBody(piece[:10])
}

func TestOverload(t *testing.T) {
	s := serve(t, func(o *Options) { o.MaxBodiesInFlight = 100 << 10; o.MaxResponsesInFlight = 50 << 10 })
	check := s.untouched()
	s.do("POST", "/v1/stream/victim", strings.Repeat("x", 300<<10), "Content-Type", "text/plain").wantProblem(503, fdblayer.CodeOverloaded).need("Retry-After")
	check()
	p := s.create("s", "text/plain")
	for range 8 {
		s.add(p, "text/plain", strings.Repeat("x", 10<<10))
	}
	s.get(p).wantProblem(503, fdblayer.CodeOverloaded).wantNo("Etag").wantNo(hUpToDate).need("Retry-After")
	s.get(p + "?max_bytes=1000").want(200)

	s = serve(t, func(o *Options) { o.MaxRequests = 1 })
	p = s.create("s", "text/plain")
	// A live read that waits does not count, and health is always answered.
	e := s.sse(p + "?offset=now&live=sse")
	e.control()
	idle := func() bool { return s.front.running.Load() == 0 }
	s.eventually("the reader that waits does not count", idle)
	s.get(p).want(200)
	s.eventually("the read is over", idle)
	s.front.running.Add(1)
	s.get(p).wantProblem(503, codeTooManyRequests).need("Retry-After")
	s.do("POST", p, "x", "Content-Type", "text/plain").wantProblem(503, codeTooManyRequests)
	s.get("/healthz").want(200)
	s.get("/readyz").want(200)
	s.front.running.Add(-1)
	s.get(p).want(200).wantBody("")
	s.eventually("every place is given back", idle)
}

func TestPanicsAreAnswered(t *testing.T) {
	var log bytes.Buffer
	s := serve(t, func(o *Options) { o.Logger = textLog(&log) })
	s.front.store = nil
	s.get("/v1/stream/s").wantProblem(500, fdblayer.CodeInternal).wantHeader("X-Content-Type-Options", "nosniff")
	if !strings.Contains(log.String(), "panic") || !strings.Contains(log.String(), "goroutine") {
		t.Errorf("log: %s", log.String())
	}
}

// FuzzHeaders sends arbitrary values in every header of the protocol: whatever
// they are, the answer is one of the table's, never a 500.
func FuzzHeaders(f *testing.F) {
	f.Add("PUT", "text/plain", "1", "2030-01-01T00:00:00Z", "true", "p", "0", "body")
	f.Add("POST", "application/json", "x", "", "TRUE", "", "1e3", "[1,2")
	f.Add("GET", "*/*;q=x", "-1", "now", "W/\"", "*", "\"", "")
	db, err := embedded.Open(f.Context(), embedded.Options{InMemory: true})
	if err != nil {
		f.Fatal(err)
	}
	store, err := fdblayer.Open(f.Context(), db, fdblayer.Options{SweepInterval: -1})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _, _ = store.Close(context.Background()), db.Close() })
	front := New(store, Options{})
	f.Fuzz(func(t *testing.T, method, a, b, c, d, e, g, body string) {
		switch method {
		case "PUT", "POST", "GET", "HEAD", "DELETE":
		default:
			method = "POST"
		}
		h := http.Header{}
		names := []string{"Content-Type", hTTL, hExpiresAt, hClosed, hProducerID, hProducerEpoch, hProducerSeq, hSeq, hIncarnation, hForkedFrom, hForkOffset, hForkSubOffset, "Accept", "If-None-Match"}
		values := []string{a, b, c, d, e, g}
		for i, n := range names {
			if v := values[i%len(values)]; v != "" {
				h[n] = append(h[n], v)
			}
		}
		begun := time.Now()
		res := record(front, method, "/v1/stream/f?offset="+escape(c)+"&cursor="+escape(b), h, body)
		if took := time.Since(begun); took > patience/2 {
			t.Fatalf("%s %v %q: took %v", method, h, body, took)
		}
		if res.Code == 500 || res.Code >= 400 && res.Header().Get("Content-Type") != "application/problem+json" {
			t.Fatalf("%s %v %q: %d %s", method, h, body, res.Code, res.Body)
		}
	})
}
