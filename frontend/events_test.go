package frontend

import (
	"encoding/base64"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

func textLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func escape(s string) string { return url.QueryEscape(s) }

func record(f *Frontend, method, target string, h http.Header, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, target, strings.NewReader(body))
	req.Header = h
	res := httptest.NewRecorder()
	f.Handler().ServeHTTP(res, req)
	return res
}

func TestEventHeaders(t *testing.T) {
	s := serve(t)
	for _, c := range []struct{ path, ctype, accept, encoding, data string }{
		{"/v1/stream/t", "text/plain; charset=utf-8", "", "", "text/plain; charset=utf-8"},
		{"/v1/stream/b", "image/png", "", "base64", "image/png"},
		{"/v1/stream/j", "application/json", "text/event-stream", "", "application/json"},
		{"/v1/stream/j", "application/json", "text/event-stream, application/x-ndjson", "", "application/x-ndjson"},
		{"/abcd/j", "application/json", "text/event-stream", "", "application/x-ndjson"},
		{"/abcd/j", "application/json", "text/event-stream, application/json", "", "application/json"},
	} {
		s.do("PUT", c.path, "", "Content-Type", c.ctype)
		e := s.sse(c.path+"?offset=-1&live=sse", "Accept", c.accept)
		h := e.res.Header
		if h.Get("Content-Type") != "text/event-stream" || h.Get("Cache-Control") != "no-cache" || h.Get("X-Accel-Buffering") != "no" ||
			h.Get(hSSEEncoding) != c.encoding || h.Get(hDataContentType) != c.data || h.Get(hIncarnation) == "" || h.Get("Content-Length") != "" {
			t.Errorf("%s %q: %v", c.path, c.accept, h)
		}
	}
}

// One data event, one control event after it, from the past to the present.
func TestEventsArePaired(t *testing.T) {
	s := serve(t)
	p := s.create("s", "application/json")
	for range 3 {
		s.add(p, "application/json", `[{"n":1},{"n":2}]`)
	}
	e := s.sse(p + "?offset=-1&live=sse&max_bytes=16")
	var offsets []string
	for i := 0; ; i++ {
		if d := e.want("data"); d != `[{"n":1},{"n":2}]` {
			t.Fatalf("data %q", d)
		}
		c := e.control()
		offsets = append(offsets, c.StreamNextOffset)
		if c.UpToDate != (i == 2) || c.StreamCursor == "" {
			t.Errorf("control %d: %+v", i, c)
		}
		if c.UpToDate {
			break
		}
	}
	tail := s.add(p, "application/json", "3")
	if d := e.want("data"); d != "[3]" {
		t.Errorf("data %q", d)
	}
	if c := e.control(); c.StreamNextOffset != tail || !c.UpToDate {
		t.Errorf("%+v", c)
	}
	for i := 1; i < len(offsets); i++ {
		if offsets[i] <= offsets[i-1] {
			t.Errorf("offsets %q", offsets)
		}
	}
	s.do("POST", p, "4", "Content-Type", "application/json", "Stream-Closed", "true").want(204)
	if d := e.want("data"); d != "[4]" {
		t.Errorf("data %q", d)
	}
	if c := e.control(); !c.StreamClosed || c.StreamCursor != "" {
		t.Errorf("%+v", c)
	}
	e.wantEnd()
}

func TestEventsOfEmptyAndClosedStreams(t *testing.T) {
	s := serve(t)
	p := s.create("s", "text/plain")
	e := s.sse(p + "?offset=-1&live=sse")
	if c := e.control(); c.StreamNextOffset != s.get(p).next() || !c.UpToDate || c.StreamClosed {
		t.Errorf("%+v", c)
	}
	p = s.create("c", "text/plain", "Stream-Closed", "true")
	e = s.sse(p + "?offset=now&live=sse")
	if c := e.control(); !c.UpToDate || !c.StreamClosed || c.StreamCursor != "" {
		t.Errorf("%+v", c)
	}
	e.wantEnd()
}

// No event of text ends inside a character, and none is held back for ever.
func TestTextEventsHoldWholeCharacters(t *testing.T) {
	s := serve(t)
	want := strings.Repeat("aé☃🌊", 20)
	p := s.create("s", "text/plain")
	s.add(p, "text/plain", want)
	e := s.sse(p + "?offset=-1&live=sse&max_bytes=1")
	got := ""
	for {
		d := e.want("data")
		if d == "" || strings.ContainsRune(d, '\ufffd') {
			t.Fatalf("data %q", d)
		}
		got += d
		if e.control().UpToDate {
			break
		}
	}
	if got != want {
		t.Errorf("got %q", got)
	}
	s.add(p, "text/plain", "☃"[:1])
	s.add(p, "text/plain", "☃"[1:])
	if d := e.want("data"); d != "☃" {
		t.Errorf("data %q", d)
	}
}

func TestBinaryEvents(t *testing.T) {
	s := serve(t)
	p := s.create("s", "application/octet-stream")
	want := "\x00\xff\xe2\x98" // ends like half a character, and is none
	s.add(p, "application/octet-stream", want)
	e := s.sse(p + "?offset=-1&live=sse&max_bytes=3")
	got := ""
	for got != want {
		b, err := base64.StdEncoding.DecodeString(e.want("data"))
		if err != nil || len(b) == 0 || len(b) > 3 {
			t.Fatalf("%q, %v", b, err)
		}
		got += string(b)
		if c := e.control(); c.UpToDate != (got == want) {
			t.Errorf("%+v after %q", c, got)
		}
	}
	s.add(p, "application/octet-stream", "\xe2")
	if d := e.want("data"); d != "4g==" {
		t.Errorf("data %q", d)
	}
}

func TestKeepAliveAndMaxAge(t *testing.T) {
	s := serve(t, func(o *Options) { o.EventsKeepAlive = 30 * time.Millisecond; o.EventsMaxAge = 300 * time.Millisecond })
	p := s.create("s", "text/plain")
	e := s.sse(p + "?offset=-1&live=sse")
	e.control()
	comments := 0
	for {
		ev, err := e.next()
		if err == io.EOF {
			break
		}
		if err != nil || ev.name != ":" {
			t.Fatalf("%+v, %v", ev, err)
		}
		if comments++; comments == 2 {
			s.add(p, "text/plain", "x")
			e.want("data")
			e.control()
		}
	}
	if comments < 3 {
		t.Errorf("%d comments", comments)
	}
}

func TestEventsEndWithAnErrorEvent(t *testing.T) {
	s := serve(t)
	for name, end := range map[string]func(p string){
		"delete":   func(p string) { s.do("DELETE", p, "").want(204) },
		"recreate": func(p string) { s.do("DELETE", p, "").want(204); s.create("s", "text/plain") },
	} {
		p := s.create("s", "text/plain")
		e := s.sse(p + "?offset=-1&live=sse")
		e.control()
		poll := make(chan *response, 1)
		tail := s.do("HEAD", p, "").next()
		go func() {
			r, err := s.try("GET", p+"?live=long-poll&timeout_ms=60000&offset="+tail, http.NoBody)
			if err != nil {
				t.Error(err)
			}
			poll <- r
		}()
		s.eventually("both readers are there", func() bool { return s.store.Stats().LiveReaders == 2 })
		end(p)
		data := e.want("error")
		if !strings.Contains(data, `"code":"stream_not_found"`) && !strings.Contains(data, `"code":"incarnation_mismatch"`) {
			t.Errorf("%s: error %q", name, data)
		}
		e.wantEnd()
		if r := <-poll; r != nil && r.status != 404 && r.status != 412 {
			t.Errorf("%s: %v", name, r)
		}
		s.do("DELETE", p, "")
	}
}

func TestEventCursorsGoUp(t *testing.T) {
	s := serve(t)
	p := s.create("s", "text/plain")
	first := s.sse(p + "?offset=-1&live=sse").control().StreamCursor
	e := s.sse(p + "?offset=-1&live=sse&cursor=" + first)
	last := e.control().StreamCursor
	if parseCursor(last) <= parseCursor(first) {
		t.Errorf("cursor %s is followed by %s", first, last)
	}
	for range 3 {
		s.add(p, "text/plain", "x")
		e.want("data")
		c := e.control().StreamCursor
		if parseCursor(c) < parseCursor(last) {
			t.Errorf("cursor %s is followed by %s", last, c)
		}
		last = c
	}
	s.ahead.Add(int64(100 * time.Hour))
	s.add(p, "text/plain", "x")
	e.want("data")
	if c := e.control().StreamCursor; parseCursor(c) <= parseCursor(last) {
		t.Errorf("cursor %s is followed by %s", last, c)
	}
}
