package extensions

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"time"
)

// event is one SSE event; data has its data lines joined by LF.
type event struct {
	name, data string
}

// control is the payload of a control event.
type control struct {
	StreamNextOffset string
	StreamCursor     string
	UpToDate         bool
	StreamClosed     bool
}

// eventStream is an open SSE response.
type eventStream struct {
	e      *env
	what   string
	res    *http.Response
	lines  *bufio.Reader
	cancel context.CancelFunc
}

// sse opens a live=sse read and ends the test unless it is answered 200. It is
// closed with the test.
func (s *stream) sse(query string, headers ...string) *eventStream {
	s.e.Helper()
	es, r, err := s.e.trySSE(s.path+"?live=sse&"+query, headers...)
	if err != nil {
		s.e.Fatal(err)
	}
	if r != nil {
		r.want(200)
	}
	s.e.Cleanup(es.close)
	return es
}

// trySSE opens an SSE read. An answer other than 200 is returned as a response.
func (e *env) trySSE(target string, headers ...string) (*eventStream, *response, error) {
	ctx, cancel := context.WithTimeout(e.Context(), patience)
	res, err := e.send(ctx, "GET", target, http.NoBody, headers...) //nolint:bodyclose // closed by eventStream.close
	if err != nil {
		cancel()
		return nil, nil, err
	}
	es := &eventStream{e, "GET " + target, res, bufio.NewReader(res.Body), cancel}
	if res.StatusCode == http.StatusOK {
		return es, nil, nil
	}
	defer es.close()
	body, err := io.ReadAll(res.Body)
	return nil, &response{e, es.what, res.StatusCode, res.Header, body}, err
}

func (es *eventStream) close() {
	es.cancel()
	_ = es.res.Body.Close()
}

// tryNext reads one event; io.EOF is the end of the response.
func (es *eventStream) tryNext() (event, error) {
	var ev event
	var data []string
	for {
		line, err := es.lines.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) && (ev.name != "" || data != nil || line != "") {
				err = io.ErrUnexpectedEOF
			}
			return event{}, err
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			if ev.name == "" && data == nil {
				continue
			}
			ev.data = strings.Join(data, "\n")
			return ev, nil
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			ev.name = value
		case "data":
			data = append(data, value)
		}
	}
}

func (es *eventStream) next() event {
	es.e.Helper()
	ev, err := es.tryNext()
	if err != nil {
		es.e.Fatalf("%s: %v", es.what, err)
	}
	return ev
}

func parseControl(ev event) (control, error) {
	var c control
	if ev.name != "control" {
		return c, fmt.Errorf("event %q, want control", ev.name)
	}
	if err := json.Unmarshal([]byte(ev.data), &c); err != nil {
		return c, fmt.Errorf("control %q: %w", ev.data, err)
	}
	if c.StreamNextOffset == "" {
		return c, fmt.Errorf("control %q without streamNextOffset", ev.data)
	}
	return c, nil
}

// batch is a data event, decoded, and the control event after it.
type batch struct {
	data    []byte
	control control
}

// batches reads data events, each with its control event, until one is up to
// date. A leading control event without data is returned as a batch without.
func (es *eventStream) batches() []batch {
	es.e.Helper()
	var all []batch
	for {
		var b batch
		ev := es.next()
		if ev.name == "data" {
			b.data = es.decode(ev)
			ev = es.next()
		}
		c, err := parseControl(ev)
		if err != nil {
			es.e.Fatalf("%s: %v, after %d batches", es.what, err, len(all))
		}
		b.control = c
		all = append(all, b)
		if c.UpToDate || c.StreamClosed {
			return all
		}
	}
}

func (es *eventStream) decode(ev event) []byte {
	es.e.Helper()
	if es.res.Header.Get(hDataEncoding) != "base64" {
		return []byte(ev.data)
	}
	b, err := base64.StdEncoding.DecodeString(strings.NewReplacer("\n", "", "\r", "").Replace(ev.data))
	if err != nil {
		es.e.Fatalf("%s: data event: %v", es.what, err)
	}
	return b
}

// endsWithError reads to the end of the response, which must come, and must be
// an error event with nothing after it.
func (es *eventStream) endsWithError() {
	es.e.Helper()
	var last event
	for {
		ev, err := es.tryNext()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			es.e.Fatalf("%s: %v", es.what, err)
		}
		last = ev
	}
	if last.name != "error" {
		es.e.Errorf("%s: the last event is %q %s, want an error event", es.what, last.name, clip([]byte(last.data)))
	}
}

// part is one part of a bootstrap.
type part struct {
	contentType string
	body        []byte
}

// bootstrap is a bootstrap response, taken apart.
type bootstrap struct {
	*response
	boundary string
	snapshot part
	updates  []part
}

func (s *stream) bootstrap(headers ...string) bootstrap {
	s.e.Helper()
	r := s.e.do("GET", s.path+"/bootstrap", nil, headers...).want(200)
	b, err := parseBootstrap(r)
	if err != nil {
		s.e.Fatal(err)
	}
	return b
}

// firstPart returns the first part of a bootstrap response that is not read yet.
func firstPart(res *http.Response) (*multipart.Part, error) {
	_, params, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	return multipart.NewReader(res.Body, params["boundary"]).NextRawPart()
}

func parseBootstrap(r *response) (bootstrap, error) {
	b := bootstrap{response: r}
	media, params, err := mime.ParseMediaType(r.header.Get("Content-Type"))
	if err != nil || media != "multipart/mixed" || params["boundary"] == "" {
		return b, fmt.Errorf("%s: Content-Type %q, want multipart/mixed with a boundary", r.what, r.header.Get("Content-Type"))
	}
	b.boundary = params["boundary"]
	mr := multipart.NewReader(strings.NewReader(string(r.body)), b.boundary)
	for i := 0; ; i++ {
		p, err := mr.NextRawPart()
		if errors.Is(err, io.EOF) {
			if i == 0 {
				return b, fmt.Errorf("%s: no first part", r.what)
			}
			return b, nil
		}
		if err != nil {
			return b, fmt.Errorf("%s: part %d: %w", r.what, i, err)
		}
		body, err := io.ReadAll(p)
		if err != nil {
			return b, fmt.Errorf("%s: part %d: %w", r.what, i, err)
		}
		got := part{p.Header.Get("Content-Type"), body}
		if i == 0 {
			b.snapshot = got
		} else {
			b.updates = append(b.updates, got)
		}
	}
}

// content is the update parts, joined.
func (b bootstrap) content() string {
	var s strings.Builder
	for _, p := range b.updates {
		s.Write(p.body)
	}
	return s.String()
}

// answer is what a long-poll in the background came back with.
type answer struct {
	*response
	err error
}

// longPoll starts a long-poll at offset and returns where its answer will be.
// It gives the server a moment to register the reader; a test must not depend on it.
func (s *stream) longPoll(offset, query string, headers ...string) <-chan answer {
	s.e.Helper()
	done := make(chan answer, 1)
	target := s.path + "?live=long-poll&offset=" + offset + query
	go func() {
		r, err := s.e.try("GET", target, nil, headers...)
		done <- answer{r, err}
	}()
	time.Sleep(100 * time.Millisecond)
	return done
}

// wait returns the answer of a background long-poll.
func (e *env) wait(done <-chan answer) *response {
	e.Helper()
	a := <-done
	if a.err != nil {
		e.Fatal(a.err)
	}
	return a.response
}
