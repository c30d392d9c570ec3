package frontend

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"headwater/fdblayer"
	"headwater/fdblayer/kv/embedded"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	goleak.VerifyTestMain(m)
}

// patience bounds what a test waits for; nothing takes nearly as long.
const patience = 20 * time.Second

// service is a frontend on a store of its own, and its clock.
type service struct {
	*testing.T
	url    string
	store  *fdblayer.Store
	front  *Frontend
	client *http.Client
	ahead  atomic.Int64 // how far the clock is ahead
}

// serve starts a service on the embedded engine, in memory.
func serve(t *testing.T, change ...func(*Options)) *service {
	t.Helper()
	s := &service{T: t}
	s.open(change...)
	srv := httptest.NewServer(s.front.Handler())
	s.url = srv.URL
	t.Cleanup(srv.Close)
	return s
}

// open makes the store and the frontend.
func (s *service) open(change ...func(*Options)) {
	s.Helper()
	now := func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }
	db, err := embedded.Open(s.Context(), embedded.Options{InMemory: true})
	if err != nil {
		s.Fatal(err)
	}
	s.store, err = fdblayer.Open(s.Context(), db, fdblayer.Options{SweepInterval: -1, Now: now})
	if err != nil {
		s.Fatal(err)
	}
	opts := Options{Now: now}
	for _, c := range change {
		c(&opts)
	}
	s.front = New(s.store, opts)
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100}
	s.client = &http.Client{Transport: transport}
	s.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(s.store.Close(ctx), db.Close()); err != nil {
			s.Error(err)
		}
	})
}

// response is an answer, read to its end.
type response struct {
	s      *service
	what   string
	status int
	header http.Header
	body   string
}

// do sends a request. headers are names and values in turn.
func (s *service) do(method, path, body string, headers ...string) *response {
	s.Helper()
	return s.send(method, path, strings.NewReader(body), headers...)
}

func (s *service) send(method, path string, body io.Reader, headers ...string) *response {
	s.Helper()
	r, err := s.try(method, path, body, headers...)
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// try is send for goroutines that may not end the test.
func (s *service) try(method, path string, body io.Reader, headers ...string) (*response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	res, err := s.request(ctx, method, path, body, headers...)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %d, reading the body: %w", method, path, res.StatusCode, err)
	}
	return &response{s, method + " " + path, res.StatusCode, res.Header, string(b)}, nil
}

func (s *service) request(ctx context.Context, method, path string, body io.Reader, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, body)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	return s.client.Do(req)
}

func (r *response) String() string {
	body := r.body
	if len(body) > 300 {
		body = body[:300] + "..."
	}
	return fmt.Sprintf("%s: %d %q", r.what, r.status, body)
}

func (r *response) want(status int) *response {
	r.s.Helper()
	if r.status != status {
		r.s.Fatalf("%v, want %d", r, status)
	}
	return r
}

func (r *response) wantBody(body string) *response {
	r.s.Helper()
	if r.body != body {
		r.s.Fatalf("%v, want body %q", r, body)
	}
	return r
}

func (r *response) wantHeader(name, value string) *response {
	r.s.Helper()
	if got := r.header.Values(name); len(got) != 1 || got[0] != value {
		r.s.Fatalf("%v with %s %q, want %q", r, name, got, value)
	}
	return r
}

func (r *response) wantNo(name string) *response {
	r.s.Helper()
	if got := r.header.Values(name); len(got) != 0 {
		r.s.Fatalf("%v with %s %q, want none", r, name, got)
	}
	return r
}

// wantProblem checks the status and the problem body of an error.
func (r *response) wantProblem(status int, code fdblayer.Code) *response {
	r.s.Helper()
	r.want(status).wantHeader("Content-Type", "application/problem+json")
	var p problem
	if err := json.Unmarshal([]byte(r.body), &p); err != nil {
		r.s.Fatalf("%v: %v", r, err)
	}
	if p.Status != status || p.Code != code || p.Title == "" || p.Detail == "" || p.Type == "" {
		r.s.Fatalf("%v, want code %s", r, code)
	}
	if strings.Count(r.body, "\n") != 1 || !strings.HasSuffix(r.body, "\n") {
		r.s.Fatalf("%v: not one line", r)
	}
	return r
}

func (r *response) next() string { r.s.Helper(); return r.need(hNextOffset) }

func (r *response) need(name string) string {
	r.s.Helper()
	got := r.header.Get(name)
	if got == "" {
		r.s.Fatalf("%v without %s", r, name)
	}
	return got
}

// create makes a stream and returns its path.
func (s *service) create(name, contentType string, headers ...string) string {
	s.Helper()
	path := "/v1/stream/" + name
	s.do("PUT", path, "", append(headers, "Content-Type", contentType)...).want(201)
	return path
}

// add appends and returns the offset after it.
func (s *service) add(path, contentType, body string) string {
	s.Helper()
	return s.do("POST", path, body, "Content-Type", contentType).want(204).next()
}

func (s *service) get(path string, headers ...string) *response {
	s.Helper()
	return s.do("GET", path, "", headers...)
}

// eventReader reads an SSE response.
type eventReader struct {
	s      *service
	res    *http.Response
	lines  *bufio.Reader
	cancel context.CancelFunc
}

type event struct{ name, data string }

type controlEvent struct {
	StreamNextOffset, StreamCursor string
	UpToDate, StreamClosed         bool
}

func (s *service) sse(path string, headers ...string) *eventReader {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	res, err := s.request(ctx, "GET", path, http.NoBody, headers...) //nolint:bodyclose // close does, at the end of the test
	if err != nil {
		cancel()
		s.Fatal(err)
	}
	e := &eventReader{s, res, bufio.NewReader(res.Body), cancel}
	s.Cleanup(e.close)
	if res.StatusCode != 200 {
		b, _ := io.ReadAll(res.Body)
		s.Fatalf("SSE %s: %d %s", path, res.StatusCode, b)
	}
	return e
}

func (e *eventReader) close() {
	e.cancel()
	_ = e.res.Body.Close()
}

// next returns the next event, or a comment as the event ":"; io.EOF is the end.
func (e *eventReader) next() (event, error) {
	var ev event
	var data []string
	for {
		line, err := e.lines.ReadString('\n')
		if err != nil {
			if line != "" || ev.name != "" {
				err = io.ErrUnexpectedEOF
			}
			return ev, err
		}
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "":
			ev.data = strings.Join(data, "\n")
			return ev, nil
		case line[0] == ':':
			ev.name = ":"
		case strings.HasPrefix(line, "event: "):
			ev.name = line[len("event: "):]
		case strings.HasPrefix(line, "data:"):
			data = append(data, line[len("data:"):])
		default:
			return ev, fmt.Errorf("line %q", line)
		}
	}
}

func (e *eventReader) want(name string) string {
	e.s.Helper()
	ev, err := e.next()
	if err != nil || ev.name != name {
		e.s.Fatalf("event %q %q, %v, want %s", ev.name, ev.data, err, name)
	}
	return ev.data
}

func (e *eventReader) control() controlEvent {
	e.s.Helper()
	var c controlEvent
	if err := json.Unmarshal([]byte(e.want("control")), &c); err != nil || c.StreamNextOffset == "" {
		e.s.Fatalf("control %+v, %v", c, err)
	}
	return c
}

// wantEnd fails the test unless the response ends here, and ends cleanly.
func (e *eventReader) wantEnd() {
	e.s.Helper()
	if ev, err := e.next(); !errors.Is(err, io.EOF) {
		e.s.Fatalf("event %q %q, %v, want the end", ev.name, ev.data, err)
	}
}

// dial opens a connection of its own.
func (s *service) dial() net.Conn {
	s.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		s.Fatal(err)
	}
	return conn
}

// raw sends bytes on a connection of their own and returns the response without
// its body, nil if the server closed without one.
func (s *service) raw(request string) *response {
	s.Helper()
	conn := s.dial()
	if _, err := io.WriteString(conn, request); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		s.Logf("write: %v", err) // the server may have closed already
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	return &response{s, fmt.Sprintf("%.60q", request), res.StatusCode, res.Header, ""}
}

// eventually waits for a condition.
func (s *service) eventually(what string, ok func() bool) {
	s.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("never came true: %s", what)
		}
	}
}
