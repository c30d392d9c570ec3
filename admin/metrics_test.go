package admin

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"headwater/fdblayer"
	"headwater/frontend"
	"headwater/subscriptions"
)

func TestObservingAllocatesNothing(t *testing.T) {
	m := NewMetrics(Build{})
	o := observation()
	o.Code = "not_found"
	m.Observe(o)
	if n := testing.AllocsPerRun(1000, func() { m.Observe(o) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Every source has numbers of its own, none is taken for another, and names and
// help keep Prometheus' conventions.
func TestMetricsShowTheirSources(t *testing.T) {
	m := NewMetrics(Build{Version: "1.2.3", Revision: "abc", GoVersion: "go0", Engine: "memory"})
	m.Read(Sources{
		Store: func() fdblayer.Stats {
			return fdblayer.Stats{WarmCommits: 1, ColdCommits: 2, Requests: 3, Conflicts: 4, Unknown: 5, LiveReaders: 6, Topics: 7, QueuedRequests: 8, QueuedBytes: 9}
		},
		Frontend: func() frontend.Stats {
			return frontend.Stats{Open: 10, Running: 11, BodyBytes: 12, ResponseBytes: 13, Draining: true}
		},
		Subscriptions: func() subscriptions.Stats {
			return subscriptions.Stats{Wakes: 14, Delivered: 15, Announced: 16, Failed: 17, Expired: 18, Fenced: 19, Parked: 20, Busy: 21}
		},
	})
	o := observation()
	m.Observe(o)
	o.Status, o.Code = 409, "stream_closed"
	m.Observe(o)
	want := `
headwater_build_info{engine="memory",goversion="go0",revision="abc",version="1.2.3"} 1
headwater_draining 1
headwater_http_received_bytes_total{route="stream"} 200
headwater_http_request_body_bytes_in_flight 12
headwater_http_request_errors_total{code="stream_closed"} 1
headwater_http_requests_in_flight 10
headwater_http_requests_running 11
headwater_http_requests_total{method="POST",route="stream",status="204",surface="base"} 1
headwater_http_requests_total{method="POST",route="stream",status="409",surface="base"} 1
headwater_http_response_bytes_in_flight 13
headwater_http_sent_bytes_total{route="stream"} 20
headwater_lane_commits_total{path="cold"} 2
headwater_lane_commits_total{path="warm"} 1
headwater_lane_conflicts_total 4
headwater_lane_queued_bytes 9
headwater_lane_queued_requests 8
headwater_lane_requests_total 3
headwater_lane_unknown_outcomes_total 5
headwater_live_readers 6
headwater_live_topics 7
headwater_subscription_busy 21
headwater_subscription_deliveries_total{result="failed"} 17
headwater_subscription_deliveries_total{result="wake_event"} 16
headwater_subscription_deliveries_total{result="webhook"} 15
headwater_subscription_fenced_total 19
headwater_subscription_leases_expired_total 18
headwater_subscription_parked_total 20
headwater_subscription_wakes_total 14
`
	p := New(Options{Metrics: m})
	text := get(t, p, "/metrics", 200)
	var got []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "headwater_") && !strings.Contains(line, "duration") {
			got = append(got, line)
		}
	}
	if s := strings.Join(got, ""); s != want[1:] {
		t.Errorf("got\n%s\nwant\n%s", s, want)
	}
	for _, line := range []string{
		`headwater_http_request_duration_seconds_bucket{method="POST",route="stream",surface="base",le="0.0025"} 0`,
		`headwater_http_request_duration_seconds_bucket{method="POST",route="stream",surface="base",le="0.005"} 2`,
		"go_goroutines ", "process_resident_memory_bytes ", "go_sched_latencies_seconds_count ",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no line %s", line)
		}
	}
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "headwater_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}

	var stats struct {
		Build         Build
		Store         fdblayer.Stats
		Frontend      frontend.Stats
		Subscriptions subscriptions.Stats
	}
	if err := json.Unmarshal([]byte(get(t, p, "/stats", 200)), &stats); err != nil {
		t.Fatal(err)
	}
	if stats.Build.Engine != "memory" || stats.Store.Topics != 7 || stats.Frontend.Running != 11 || stats.Subscriptions.Busy != 21 {
		t.Errorf("%+v", stats)
	}
}

// A scraper that asks for native histograms gets them, besides the buckets.
func TestMetricsHaveNativeHistograms(t *testing.T) {
	m := NewMetrics(Build{})
	m.Observe(observation())
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "headwater_http_request_duration_seconds" {
			h := f.GetMetric()[0].GetHistogram()
			if len(h.GetPositiveSpan()) == 0 || len(h.GetBucket()) != len(latencyBuckets) {
				t.Errorf("%v", h)
			}
			return
		}
	}
	t.Error("no histogram")
}

func TestWhatThePlaneServes(t *testing.T) {
	p := New(Options{Metrics: NewMetrics(Build{})})
	for path, status := range map[string]int{
		"/": 200, "/debug/pprof/": 200, "/debug/pprof/goroutine?debug=1": 200, "/debug/pprof/cmdline": 200,
		"/v1/stream/s": 404, "/buckets": 405, "/buckets/abcd": 405, "/healthz": 404,
	} {
		get(t, p, path, status)
	}
	var seen []string
	for _, host := range []string{"localhost", "localhost:4438", "127.0.0.1:4438", "[::1]:4438", "[::1]", "10.1.2.3:1", "evil.example", "evil.example:4438", "127.0.0.1.evil.example", ""} {
		if isAddress(host) {
			seen = append(seen, host)
		}
	}
	if want := []string{"localhost", "localhost:4438", "127.0.0.1:4438", "[::1]:4438", "[::1]", "10.1.2.3:1"}; !slices.Equal(seen, want) {
		t.Errorf("allowed hosts %q, want %q", seen, want)
	}
}

// get asks p by a connection that has no local address, as a recorder's.
func get(t *testing.T, p *Plane, path string, status int) string {
	t.Helper()
	w := httptest.NewRecorder()
	p.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != status {
		t.Fatalf("GET %s: %d, want %d: %v %s", path, w.Code, status, err, body)
	}
	return string(body)
}
