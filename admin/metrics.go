package admin

import (
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"headwater/fdblayer"
	"headwater/frontend"
	"headwater/subscriptions"
)

// Sources are where numbers are read when somebody asks for them. Each may be
// nil; what it would have told is then left out.
type Sources struct {
	Store         func() fdblayer.Stats
	Frontend      func() frontend.Stats
	Subscriptions func() subscriptions.Stats
}

// Build says what the process runs.
type Build struct {
	Version, Revision, GoVersion string
	// Engine is the store's kind, as --store names it.
	Engine string
}

// Metrics are the numbers of one process, in a registry of their own. As a
// [frontend.Observer] they count its requests. Safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	sources  Sources
	build    Build

	requests *prometheus.CounterVec
	errors   *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	in, out  *prometheus.CounterVec
}

var _ frontend.Observer = (*Metrics)(nil)

// latencyBuckets go from below the fastest commit to the longest live read.
var latencyBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// NewMetrics returns Metrics that know no source yet.
func NewMetrics(build Build) *Metrics {
	byRoute := []string{"method", "route", "surface"}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		build:    build,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headwater_http_requests_total",
			Help: "Requests served, by what was answered.",
		}, append(byRoute, "status")),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headwater_http_request_errors_total",
			Help: "Requests that ended with an error, by the code its problem body has.",
		}, []string{"code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "headwater_http_request_duration_seconds",
			Help:    "Time from a request's header to the end of its response. Live reads (routes stream_long_poll and stream_sse) wait on purpose.",
			Buckets: latencyBuckets,
			// For scrapers that can take them; others get the buckets above.
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  100,
			NativeHistogramMinResetDuration: time.Hour,
		}, byRoute),
		in: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headwater_http_received_bytes_total",
			Help: "Bytes of request bodies.",
		}, []string{"route"}),
		out: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headwater_http_sent_bytes_total",
			Help: "Bytes of response bodies.",
		}, []string{"route"}),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "headwater_build_info",
		Help: "Always 1; the labels say what runs.",
		ConstLabels: prometheus.Labels{
			"version": build.Version, "revision": build.Revision, "goversion": build.GoVersion, "engine": build.Engine,
		},
	})
	info.Set(1)
	m.registry.MustRegister(
		m.requests, m.errors, m.seconds, m.in, m.out, info,
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(
			collectors.MetricsGC, collectors.MetricsMemory, collectors.MetricsScheduler,
		)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Read makes m show what the sources tell. It must be called at most once.
func (m *Metrics) Read(s Sources) {
	m.sources = s
	m.registry.MustRegister(newCollector(s))
}

// Observe implements [frontend.Observer].
func (m *Metrics) Observe(o frontend.Observation) {
	m.requests.WithLabelValues(o.Method, o.Route, o.Surface, statusText(o.Status)).Inc()
	m.seconds.WithLabelValues(o.Method, o.Route, o.Surface).Observe(o.Took.Seconds())
	if o.Code != "" {
		m.errors.WithLabelValues(o.Code).Inc()
	}
	if o.BytesIn > 0 {
		m.in.WithLabelValues(o.Route).Add(float64(o.BytesIn))
	}
	if o.BytesOut > 0 {
		m.out.WithLabelValues(o.Route).Add(float64(o.BytesOut))
	}
}

// statusTexts are the statuses that are answered; strconv keeps only numbers
// below 100 at hand.
var statusTexts = func() (t [600]string) {
	for i := 100; i < len(t); i++ {
		t[i] = strconv.Itoa(i)
	}
	return t
}()

func statusText(status int) string {
	if status < 100 || status >= len(statusTexts) {
		return "other"
	}
	return statusTexts[status]
}

// Bounds of a scrape.
const (
	scrapes       = 4
	scrapeTimeout = 10 * time.Second
)

func (m *Metrics) handler(log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelError),
		ErrorHandling:       promhttp.ContinueOnError,
		EnableOpenMetrics:   true,
		MaxRequestsInFlight: scrapes,
		Timeout:             scrapeTimeout,
	})
}
