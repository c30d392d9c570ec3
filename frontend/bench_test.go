package frontend

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"headwater/fdblayer"
	"headwater/fdblayer/kv/embedded"
)

// nowhere is a ResponseWriter that keeps nothing.
type nowhere struct {
	header http.Header
	status int
}

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n *nowhere) WriteHeader(status int)      { n.status = status }

// BenchmarkHandler measures what a request costs besides the network, with the
// store in memory.
func BenchmarkHandler(b *testing.B) {
	db, err := embedded.Open(b.Context(), embedded.Options{InMemory: true})
	if err != nil {
		b.Fatal(err)
	}
	store, err := fdblayer.Open(b.Context(), db, fdblayer.Options{SweepInterval: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _, _ = store.Close(b.Context()), db.Close() }()
	h := New(store, Options{}).Handler()
	serve := func(b *testing.B, method, target, body string, want int) {
		b.Helper()
		req := httptest.NewRequest(method, target, http.NoBody)
		req.Header.Set("Content-Type", "application/json")
		b.ReportAllocs()
		for b.Loop() {
			if body != "" {
				req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
			}
			w := &nowhere{header: http.Header{}}
			h.ServeHTTP(w, req)
			if w.status != want {
				b.Fatalf("status %d", w.status)
			}
		}
	}
	w := httptest.NewRecorder()
	req := httptest.NewRequest("PUT", "/v1/stream/s", strings.NewReader(`{"n":1}`))
	req.Header.Set("Content-Type", "application/json")
	h.ServeHTTP(w, req)
	tail := w.Header().Get(hNextOffset)
	b.Run("health", func(b *testing.B) { serve(b, "GET", "/healthz", "", 200) })
	b.Run("not found", func(b *testing.B) { serve(b, "GET", "/v1/stream/none", "", 404) })
	b.Run("head", func(b *testing.B) { serve(b, "HEAD", "/v1/stream/s", "", 200) })
	b.Run("read", func(b *testing.B) { serve(b, "GET", "/v1/stream/s?offset=-1&max_bytes=100", "", 200) })
	b.Run("read at the tail", func(b *testing.B) { serve(b, "GET", "/v1/stream/s?offset="+tail, "", 200) })
	b.Run("append", func(b *testing.B) {
		serve(b, "POST", "/v1/stream/s", `{"text": "`+strings.Repeat("x", 80)+`"}`, 204)
	})
}
