package bench

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fake is a small Durable Streams server in memory, which can be told to break
// its promises.
type fake struct {
	// store decides what an append adds to a stream; nil adds the message.
	store func(n int, messages [][]byte, message []byte) [][]byte
	// deliver decides what a live reader gets instead of a message.
	deliver func(n int, message []byte) []byte
	// answer may choose an append's status, and say that it is not to be stored.
	answer func(n int) (status int, drop bool)
	// eventsPerStream ends an event stream after so many events, between the
	// data and its control event; 0 never does.
	eventsPerStream int
	longPollFor     time.Duration

	mu      sync.Mutex
	appends int
	streams map[string]*fakeStream
}

type fakeStream struct {
	contentType string
	messages    [][]byte
	grown       chan struct{} // closed and replaced at each append
	producers   map[string]int
	snapshot    []byte
	snapshotAt  int
}

func serveFake(t *testing.T, f *fake) string {
	t.Helper()
	f.streams = map[string]*fakeStream{}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	return srv.URL
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	path, sub := r.URL.Path, ""
	for _, s := range []string{"/snapshot/", "/bootstrap"} {
		if before, after, found := strings.Cut(path, s); found {
			path, sub = before, s
			if n, err := strconv.Atoi(after); err == nil && r.Method == "PUT" {
				f.streams[path].snapshot, f.streams[path].snapshotAt = body, n
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
	}
	s := f.streams[path]
	if r.Method == "PUT" {
		f.streams[path] = &fakeStream{contentType: r.Header.Get("Content-Type"), grown: make(chan struct{}), producers: map[string]int{}}
		w.WriteHeader(http.StatusCreated)
		return
	}
	if s == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	switch r.Method {
	case "POST":
		f.post(w, r, s, body)
	case "DELETE":
		delete(f.streams, path)
		w.WriteHeader(http.StatusNoContent)
	case "GET":
		if sub == "/bootstrap" {
			s.bootstrap(w)
			return
		}
		f.get(w, r, s)
	}
}

func (f *fake) post(w http.ResponseWriter, r *http.Request, s *fakeStream, body []byte) {
	if id := r.Header.Get("Producer-Id"); id != "" {
		seq, _ := strconv.Atoi(r.Header.Get("Producer-Seq"))
		if want := s.producers[id]; seq > want {
			w.Header().Set("Producer-Expected-Seq", strconv.Itoa(want))
			w.WriteHeader(http.StatusConflict)
			return
		} else if seq < want {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		s.producers[id]++
	}
	f.appends++
	status := http.StatusNoContent
	if f.answer != nil {
		chosen, drop := f.answer(f.appends)
		set(&chosen, status)
		if status = chosen; drop {
			w.WriteHeader(status)
			return
		}
	}
	messages := [][]byte{body}
	if isJSON(s.contentType) && body[0] == '[' {
		messages = bytes.SplitAfter(body[1:len(body)-1], []byte("},"))
		for i, m := range messages {
			messages[i] = bytes.TrimSuffix(m, []byte(","))
		}
	}
	for _, m := range messages {
		if f.store != nil {
			s.messages = f.store(f.appends, s.messages, m)
		} else {
			s.messages = append(s.messages, m)
		}
	}
	close(s.grown)
	s.grown = make(chan struct{})
	w.Header().Set("Stream-Next-Offset", strconv.Itoa(len(s.messages)))
	w.WriteHeader(status)
}

func (f *fake) get(w http.ResponseWriter, r *http.Request, s *fakeStream) {
	at, _ := strconv.Atoi(r.URL.Query().Get("offset"))
	at = max(at, 0)
	switch r.URL.Query().Get("live") {
	case "sse":
		f.sse(w, r, s, at)
		return
	case "long-poll":
		timeout := time.After(f.longPollFor + time.Millisecond)
		for waiting := true; waiting && at == len(s.messages); {
			grown := s.grown
			f.mu.Unlock()
			select {
			case <-grown:
			case <-timeout:
				waiting = false
			case <-r.Context().Done():
				waiting = false
			}
			f.mu.Lock()
		}
		w.Header().Set("Stream-Cursor", "a b")
		if at == len(s.messages) {
			w.Header().Set("Stream-Next-Offset", strconv.Itoa(at))
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
	// Two answers for what is more than a little, so that clients go on.
	to := len(s.messages)
	if to-at > 100 {
		to = (to + at) / 2
	}
	w.Header().Set("Stream-Next-Offset", strconv.Itoa(to))
	if to == len(s.messages) {
		w.Header().Set("Stream-Up-To-Date", "true")
	}
	for _, m := range s.messages[at:to] {
		_, _ = w.Write(m)
		if isJSON(s.contentType) {
			_, _ = w.Write([]byte("\n"))
		}
	}
}

func (f *fake) sse(w http.ResponseWriter, r *http.Request, s *fakeStream, at int) {
	encoded := !isJSON(s.contentType) && !strings.HasPrefix(s.contentType, "text/")
	if encoded {
		w.Header().Set("Stream-Sse-Data-Encoding", "base64")
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	events := 0
	for r.Context().Err() == nil {
		for ; at < len(s.messages); at++ {
			m := s.messages[at]
			if f.deliver != nil {
				m = f.deliver(at, m)
			}
			switch {
			case isJSON(s.contentType):
				fmt.Fprintf(w, "event: data\ndata: [\ndata: %s\ndata: ]\n\n", m)
			case encoded:
				text := base64.StdEncoding.EncodeToString(m)
				fmt.Fprintf(w, "event: data\ndata:%s\ndata:%s\n\n", text[:10], text[10:])
			default:
				fmt.Fprintf(w, ": comment\r\nevent: data\r\ndata: %s\r\n\r\n", m)
			}
			if events++; events == f.eventsPerStream {
				return
			}
			fmt.Fprintf(w, "event: control\ndata: {\"streamNextOffset\":\"%d\",\"upToDate\":true}\n\n", at+1)
		}
		grown := s.grown
		f.mu.Unlock()
		_ = out.Flush()
		select {
		case <-grown:
		case <-r.Context().Done():
		}
		f.mu.Lock()
	}
}

func (s *fakeStream) bootstrap(w http.ResponseWriter) {
	mw := multipart.NewWriter(w)
	w.Header().Set("Content-Type", "multipart/mixed; boundary="+mw.Boundary())
	// The last message is left for the ordinary read that must follow.
	w.Header().Set("Stream-Next-Offset", strconv.Itoa(len(s.messages)-1))
	for _, p := range append([][]byte{s.snapshot}, s.messages[s.snapshotAt:len(s.messages)-1]...) {
		part, err := mw.CreatePart(textproto.MIMEHeader{})
		if err != nil {
			return
		}
		_, _ = part.Write(p)
	}
	_ = mw.Close()
}
