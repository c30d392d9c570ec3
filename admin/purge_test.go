package admin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"headwater/ci/engines"
	"headwater/fdblayer"
	"headwater/fdblayer/kv"
	"headwater/frontend"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	// FoundationDB's client and a test cluster last as long as the process.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/apple/foundationdb/bindings/go/src/fdb.executeWithRunningNetworkThread.func1"),
		goleak.IgnoreAnyFunction("headwater/ci/fdbcluster.spawn.func1"))
}

const patience = 20 * time.Second

// purgerFunc is a Purger.
type purgerFunc func(ctx context.Context, bucket string, progress func(int)) error

func (f purgerFunc) PurgeBucket(ctx context.Context, bucket string, progress func(int)) error {
	return f(ctx, bucket, progress)
}

// plane starts a Plane and returns its URL.
func plane(t *testing.T, purger Purger) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := New(Options{Metrics: NewMetrics(Build{}), Purger: purger, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	p.Start(ctx, l)
	t.Cleanup(func() {
		cancel()
		client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

// client is the tests' own; they close its idle connections.
var client = &http.Client{Transport: &http.Transport{}}

// answer is a response without its body.
type answer struct {
	StatusCode int
	Status     string
	Header     http.Header
}

func send(t *testing.T, method, url, body string, header ...string) (answer, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Status, res.Header}, string(b)
}

// progress parses the lines of an answer.
func progress(t *testing.T, body string) []Progress {
	t.Helper()
	var lines []Progress
	for line := range strings.Lines(body) {
		var p Progress
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&p); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, p)
	}
	return lines
}

// nobody is a Purger that must not be asked.
func nobody(t *testing.T) Purger {
	return purgerFunc(func(_ context.Context, bucket string, _ func(int)) error {
		t.Errorf("bucket %q was purged", bucket)
		return nil
	})
}

func TestPurgeRefusesWhatIsNoBucket(t *testing.T) {
	url := plane(t, nobody(t))
	for _, id := range []string{"", "abc", "v1", "Abcd", "ab.cd", "ab%2Fcd", "__ds%00", strings.Repeat("x", 65)} {
		res, body := send(t, "DELETE", url+"/buckets/"+id, "")
		var p struct {
			Status int
			Code   string
		}
		err := json.Unmarshal([]byte(body), &p)
		if res.StatusCode != 400 || res.Header.Get("Content-Type") != "application/problem+json" || err != nil || p.Status != 400 || p.Code != "invalid_bucket_id" {
			t.Errorf("%q: %s %s", id, res.Status, body)
		}
	}
	for _, m := range []string{"GET", "POST", "PUT"} {
		if res, _ := send(t, m, url+"/buckets/abcd", ""); res.StatusCode != 405 {
			t.Errorf("%s: %s", m, res.Status)
		}
	}
	// A page whose name resolves to this machine is another's.
	if res, body := send(t, "DELETE", url+"/buckets/abcd", "", "Host", "evil.example:4438"); res.StatusCode != 421 || !strings.Contains(body, "host_not_allowed") {
		t.Errorf("another host's name: %s %s", res.Status, body)
	}
}

func TestPurgeTellsHowItEnds(t *testing.T) {
	broken := &fdblayer.Error{Code: fdblayer.CodeUnavailable, Detail: "the store does not answer"}
	var fail error
	var steps []int
	url := plane(t, purgerFunc(func(_ context.Context, _ string, progress func(int)) error {
		for _, n := range steps {
			progress(n)
		}
		return fail
	}))
	for _, c := range []struct {
		name   string
		steps  []int
		err    error
		status int
		want   string
	}{
		{"done", []int{0, 100, 120}, nil, 200, `{"bucket":"abcd","removed":0}
{"bucket":"abcd","removed":100}
{"bucket":"abcd","removed":120}
{"bucket":"abcd","removed":120,"done":true}
`},
		{"fails in the middle", []int{0, 100}, broken, 200, `{"bucket":"abcd","removed":0}
{"bucket":"abcd","removed":100}
{"bucket":"abcd","removed":100,"error":"the store does not answer"}
`},
		{"fails before it began", nil, broken, 503, `{"type":"about:blank","title":"Service Unavailable","status":503,"code":"unavailable","detail":"the store does not answer"}
`},
		{"a fault", nil, errors.New("secret"), 500, `{"type":"about:blank","title":"Internal Server Error","status":500,"code":"internal_error","detail":"an internal error; the log has more"}
`},
	} {
		steps, fail = c.steps, c.err
		if res, body := send(t, "DELETE", url+"/buckets/abcd", ""); res.StatusCode != c.status || body != c.want {
			t.Errorf("%s: %s\n%s", c.name, res.Status, body)
		}
	}
}

// Purges are bounded in number, and end with the client that watches them.
func TestPurgesAreBounded(t *testing.T) {
	begun, ended := make(chan struct{}, maxPurges), make(chan error, maxPurges)
	url := plane(t, purgerFunc(func(ctx context.Context, _ string, progress func(int)) error {
		progress(0)
		begun <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var clients sync.WaitGroup
	for range maxPurges {
		clients.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodDelete, url+"/buckets/abcd", http.NoBody)
			if err != nil {
				t.Error(err)
				return
			}
			res, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			_, _ = io.Copy(io.Discard, res.Body)
		})
	}
	for range maxPurges {
		<-begun
	}
	res, body := send(t, "DELETE", url+"/buckets/abcd", "")
	if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
		t.Errorf("%s %s", res.Status, body)
	}
	cancel()
	clients.Wait()
	for range maxPurges {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// deployment is two frontends over one store's database, and the admin plane of
// the first.
type deployment struct {
	urls  []string
	admin string
}

func deploy(t *testing.T, db kv.Database) *deployment {
	t.Helper()
	d := &deployment{}
	prefix := []byte("admin-" + rand.Text())
	for i := range 2 {
		store, err := fdblayer.Open(t.Context(), db, fdblayer.Options{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := store.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		srv := httptest.NewServer(frontend.New(store, frontend.Options{}).Handler())
		t.Cleanup(srv.Close)
		t.Cleanup(client.CloseIdleConnections)
		d.urls = append(d.urls, srv.URL)
		if i == 0 {
			d.admin = plane(t, store)
		}
	}
	return d
}

// Over HTTP and two frontends: streams go, live readers are told, snapshots are
// gone, creates get 404 for ever, and another purge finds nothing.
func TestPurgeOfABucketThatIsUsed(t *testing.T) {
	engines.Each(t, func(t *testing.T, db kv.Database) {
		d := deploy(t, db)
		const streams = 150
		var last string
		for i := range streams {
			last = fmt.Sprintf("/pets/s%d", i)
			if res, body := send(t, "PUT", d.urls[i%2]+last, "one\n", "Content-Type", "text/plain"); res.StatusCode != 201 {
				t.Fatalf("create: %s %s", res.Status, body)
			}
		}
		if res, _ := send(t, "PUT", d.urls[0]+"/petshop/s", "kept", "Content-Type", "text/plain"); res.StatusCode != 201 {
			t.Fatal(res.Status)
		}
		res, _ := send(t, "HEAD", d.urls[0]+last, "")
		tail := res.Header.Get("Stream-Next-Offset")
		snapshot := last + "/snapshot/" + tail
		if res, body := send(t, "PUT", d.urls[1]+snapshot, strings.Repeat("x", 2<<20)); res.StatusCode != 204 {
			t.Fatalf("publish: %s %s", res.Status, body)
		}
		var readers sync.WaitGroup
		reading := make(chan struct{}, 4)
		for _, url := range d.urls {
			readers.Go(func() { waitsForSSE(t, url+last+"?offset=now&live=sse", reading) })
			readers.Go(func() {
				reading <- struct{}{}
				if res, body := send(t, "GET", url+last+"?live=long-poll&timeout_ms=15000&offset="+tail, ""); res.StatusCode != 404 {
					t.Errorf("long-poll: %s %s", res.Status, body)
				}
			})
		}
		for range 4 {
			<-reading
		}

		res, body := send(t, "DELETE", d.admin+"/buckets/pets", "")
		lines := progress(t, body)
		end := Progress{Bucket: "pets", Removed: streams, Done: true}
		if res.StatusCode != 200 || res.Header.Get("Content-Type") != "application/x-ndjson" || len(lines) < 4 || lines[0].Removed != 0 || lines[len(lines)-1] != end {
			t.Fatalf("purge: %s\n%s", res.Status, body)
		}
		readers.Wait()
		for i := range streams {
			if res, _ := send(t, "HEAD", fmt.Sprintf("%s/pets/s%d", d.urls[i%2], i), ""); res.StatusCode != 404 {
				t.Errorf("stream %d: %s", i, res.Status)
			}
		}
		for _, url := range d.urls {
			for what, want := range map[string]int{"GET " + snapshot: 404, "PUT " + last: 404, "PUT /pets/new": 404, "GET /petshop/s?offset=-1": 200, "PUT /pets": 201} {
				method, path, _ := strings.Cut(what, " ")
				if res, body := send(t, method, url+path, "", "Content-Type", "text/plain"); res.StatusCode != want {
					t.Errorf("%s: %s %s", what, res.Status, body)
				}
			}
		}
		_, body = send(t, "DELETE", d.admin+"/buckets/pets", "")
		end.Removed = 0
		if lines := progress(t, body); lines[len(lines)-1] != end {
			t.Errorf("another purge:\n%s", body)
		}
	})
}

// waitsForSSE reads events until the response ends, and wants it to end with an
// error event.
func waitsForSSE(t *testing.T, url string, reading chan<- struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Error(err)
		reading <- struct{}{}
		return
	}
	res, err := client.Do(req)
	if err != nil {
		t.Error(err)
		reading <- struct{}{}
		return
	}
	defer res.Body.Close()
	var events bytes.Buffer
	for s := bufio.NewScanner(res.Body); s.Scan(); {
		if events.Len() == 0 {
			reading <- struct{}{}
		}
		events.WriteString(s.Text() + "\n")
	}
	if s := events.String(); !strings.Contains(s, "event: error") || !strings.Contains(s, "not_found") {
		t.Errorf("SSE ended with\n%s", s)
	}
}
