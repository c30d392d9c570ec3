package bench

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The histograms hold 1 µs to 10 min with three significant digits.
const (
	lowest  = int64(time.Microsecond)
	highest = int64(10 * time.Minute)
	digits  = 3
)

// shards is how many histograms a recorder spreads its users over. One per
// writer would be 150 kB times 500, and out of every cache.
const shards = 8

// recorder is a histogram that many goroutines write.
type recorder struct {
	shard [shards]struct {
		sync.Mutex
		h *hdrhistogram.Histogram
		_ [48]byte // keeps neighbours' locks out of one cache line
	}
}

func newRecorder() *recorder {
	r := &recorder{}
	for i := range r.shard {
		r.shard[i].h = hdrhistogram.New(lowest, highest, digits)
	}
	return r
}

// record adds a latency in nanoseconds for the user'th goroutine.
func (r *recorder) record(user int, ns int64) {
	s := &r.shard[user%shards]
	s.Lock()
	// The clamped value is in range, which is all that RecordValue can object to.
	_ = s.h.RecordValue(min(max(ns, lowest), highest))
	s.Unlock()
}

func (r *recorder) merged() *hdrhistogram.Histogram {
	all := hdrhistogram.New(lowest, highest, digits)
	for i := range r.shard {
		s := &r.shard[i]
		s.Lock()
		all.Merge(s.h)
		s.Unlock()
	}
	return all
}

// Latency is a distribution of times in milliseconds.
type Latency struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean_ms"`
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
	Max   float64 `json:"max_ms"`
}

func (r *recorder) latency() Latency {
	h := r.merged()
	ms := func(ns float64) float64 { return ns / 1e6 }
	at := func(q float64) float64 { return ms(float64(h.ValueAtQuantile(q))) }
	return Latency{
		Count: h.TotalCount(),
		Mean:  ms(h.Mean()),
		P50:   at(50), P90: at(90), P99: at(99), P999: at(99.9),
		Max: ms(float64(h.Max())),
	}
}

// counter is a number that many goroutines add to.
type counter struct {
	shard [shards]struct {
		n atomic.Int64
		_ [56]byte
	}
}

func (c *counter) add(user int, n int64) { c.shard[user%shards].n.Add(n) }

func (c *counter) total() (n int64) {
	for i := range c.shard {
		n += c.shard[i].n.Load()
	}
	return n
}
