package extensions

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// patience bounds every request, so that a server that hangs fails a test.
const patience = 40 * time.Second

// The headers of the protocol and its extensions.
const (
	hIncarnation    = "Stream-Incarnation"
	hNext           = "Stream-Next-Offset"
	hUpToDate       = "Stream-Up-To-Date"
	hClosed         = "Stream-Closed"
	hRetained       = "Stream-Retained-Offset"
	hSnapshotOffset = "Stream-Snapshot-Offset"
	hSnapshotDigest = "Stream-Snapshot-Digest"
	hDataType       = "Stream-Data-Content-Type"
	hDataEncoding   = "Stream-Sse-Data-Encoding"

	typeJSON   = "application/json"
	typeNDJSON = "application/x-ndjson"
	typeBytes  = "application/octet-stream"
	typeText   = "text/plain"
)

// response is an answer, read to its end.
type response struct {
	e      *env
	what   string
	status int
	header http.Header
	body   []byte
}

// do sends a request to the next server. headers are names and values in turn;
// a name given twice is sent twice.
func (e *env) do(method, target string, body []byte, headers ...string) *response {
	e.Helper()
	r, err := e.try(method, target, body, headers...)
	if err != nil {
		e.Fatal(err)
	}
	return r
}

// try is do for goroutines that may not end the test.
func (e *env) try(method, target string, body []byte, headers ...string) (*response, error) {
	ctx, cancel := context.WithTimeout(e.Context(), patience)
	defer cancel()
	res, err := e.send(ctx, method, target, bytes.NewReader(body), headers...)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: reading the body: %w", method, target, err)
	}
	return &response{e, method + " " + target, res.StatusCode, res.Header, got}, nil
}

// send returns when the response's header is there; the caller closes its body.
func (e *env) send(ctx context.Context, method, target string, body io.Reader, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, e.base()+target, body)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header[http.CanonicalHeaderKey(headers[i])] = append(req.Header[http.CanonicalHeaderKey(headers[i])], headers[i+1])
	}
	return e.client.Do(req)
}

func (r *response) String() string {
	body := r.body
	if len(body) > 300 {
		body = append(bytes.Clone(body[:300]), "..."...)
	}
	return fmt.Sprintf("%s: %d %q", r.what, r.status, body)
}

// want ends the test unless the status is one of those given.
func (r *response) want(status ...int) *response {
	r.e.Helper()
	for _, s := range status {
		if r.status == s {
			return r
		}
	}
	r.e.Fatalf("%v, want status %v", r, status)
	return r
}

// wantHeader fails the test unless the header has the value.
func (r *response) wantHeader(name, value string) *response {
	r.e.Helper()
	if got := r.header.Values(name); len(got) != 1 || got[0] != value {
		r.e.Errorf("%s: %d with %s %q, want %q", r.what, r.status, name, got, value)
	}
	return r
}

// wantNo fails the test if the header is there.
func (r *response) wantNo(name string) *response {
	r.e.Helper()
	if got, ok := r.header[http.CanonicalHeaderKey(name)]; ok {
		r.e.Errorf("%s: %d with %s %q, want none", r.what, r.status, name, got)
	}
	return r
}

// need returns the header's one value and ends the test if there is none.
func (r *response) need(name string) string {
	r.e.Helper()
	got := r.header.Values(name)
	if len(got) != 1 || got[0] == "" {
		r.e.Fatalf("%s: %d with %s %q, want one value", r.what, r.status, name, got)
	}
	return got[0]
}

func (r *response) wantBody(want string) *response {
	r.e.Helper()
	if string(r.body) != want {
		r.e.Errorf("%s: %d, body\n%s\nwant\n%s", r.what, r.status, clip(r.body), clip([]byte(want)))
	}
	return r
}

func (r *response) next() string { r.e.Helper(); return r.need(hNext) }

func (r *response) incarnation() string { r.e.Helper(); return r.need(hIncarnation) }

func (r *response) upToDate() bool { return strings.EqualFold(r.header.Get(hUpToDate), "true") }

func clip(b []byte) string {
	if len(b) > 600 {
		return fmt.Sprintf("%q... (%d bytes)", b[:600], len(b))
	}
	return fmt.Sprintf("%q", b)
}

// stream is a stream the test made.
type stream struct {
	e           *env
	path        string
	contentType string
	// start is the offset of its first byte, incarnation its token.
	start, incarnation string
}

// create makes an empty stream of its own for the test.
func (e *env) create(contentType string, headers ...string) *stream {
	e.Helper()
	s := &stream{e: e, path: e.path(e.name()), contentType: contentType}
	s.put(headers...)
	return s
}

// put creates s anew and learns its first offset and its incarnation.
func (s *stream) put(headers ...string) {
	s.e.Helper()
	r := s.e.do("PUT", s.path, nil, append([]string{"Content-Type", s.contentType}, headers...)...).want(201)
	s.start, s.incarnation = r.next(), r.incarnation()
}

// add appends and returns the offset after what it appended.
func (s *stream) add(data string) string {
	s.e.Helper()
	return s.post(data).want(204).next()
}

func (s *stream) post(data string, headers ...string) *response {
	s.e.Helper()
	return s.e.do("POST", s.path, []byte(data), append([]string{"Content-Type", s.contentType}, headers...)...)
}

func (s *stream) head(headers ...string) *response {
	s.e.Helper()
	return s.e.do("HEAD", s.path, nil, headers...)
}

// get reads; query is what follows the question mark.
func (s *stream) get(query string, headers ...string) *response {
	s.e.Helper()
	return s.e.do("GET", s.path+"?"+query, nil, headers...)
}

// stored reads from offset on, NDJSON where the stream is JSON: the stored
// bytes on either surface.
func (s *stream) stored(offset string) string {
	s.e.Helper()
	var all []byte
	for range 10_000 {
		r := s.get("offset="+offset, "Accept", typeNDJSON).want(200)
		all = append(all, r.body...)
		offset = r.next()
		if r.upToDate() {
			return string(all)
		}
		if len(r.body) == 0 {
			s.e.Fatalf("%v: no bytes and not up to date", r)
		}
	}
	s.e.Fatal("never up to date")
	return ""
}

func (s *stream) publish(offset, body string, headers ...string) *response {
	s.e.Helper()
	return s.e.do("PUT", s.path+"/snapshot/"+offset, []byte(body), headers...)
}

func (s *stream) retain(offset string, headers ...string) *response {
	s.e.Helper()
	return s.e.do("PUT", s.path+"/retention/"+offset, nil, headers...)
}

func (s *stream) snapshot(offset string, headers ...string) *response {
	s.e.Helper()
	return s.e.do("GET", s.path+"/snapshot/"+offset, nil, headers...)
}

func (s *stream) remove(headers ...string) *response {
	s.e.Helper()
	return s.e.do("DELETE", s.path, nil, headers...)
}

// recreate deletes the stream and creates it again.
func (s *stream) recreate() {
	s.e.Helper()
	s.remove().want(204)
	s.put()
}

// insideFirstMessage returns an offset that is no message boundary of a JSON
// stream: the server's own, from a read cut inside the message after from.
func (s *stream) insideMessage(from string) string {
	s.e.Helper()
	r := s.get("offset="+from+"&max_bytes=1", "Accept", typeNDJSON).want(200)
	if len(r.body) != 1 {
		s.e.Fatalf("%v: %d bytes for max_bytes=1", r, len(r.body))
	}
	return r.next()
}

// beyondTail returns an offset of the server's own making that this stream's
// tail has not reached: the tail of a stream that is longer and newer.
func (s *stream) beyondTail() string {
	s.e.Helper()
	other := s.e.create(s.contentType)
	filler := `"` + strings.Repeat("x", 5000) + `"`
	tail := other.add(filler)
	if own := s.head().want(200).next(); own >= tail {
		s.e.Fatalf("offset %s of a longer stream does not sort after tail %s", tail, own)
	}
	return tail
}

// eventually waits until f is true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("not in %v: %s", patience, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
