package bench

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Config is one run. Its zero values mean the workload's own defaults, which
// [Config.withDefaults] fills in.
type Config struct {
	// Workload is a name of [Workloads].
	Workload string
	// URL is the server's base URL, ReadURL that of the server that live and
	// catch-up readers use; empty means URL.
	URL, ReadURL string
	// Layout is LayoutBase or LayoutBucket.
	Layout string
	// Bucket names the bucket of LayoutBucket.
	Bucket string
	// AllowRemote permits targets that are not on a loopback address.
	AllowRemote bool

	Warmup, Duration time.Duration
	// Timeout bounds the wait for one answer, and for what live readers still
	// have to receive when the writers have stopped.
	Timeout time.Duration

	// Writers is the number of connections that write, Readers of those that
	// read, Streams how many streams they use.
	Writers, Readers, Streams int
	// Size is that of a record in bytes, Batch how many records one request
	// carries where a stream is filled, Total the bytes a stream is filled with.
	Size, Batch int
	Total       int64
	// Rate is operations per second over all writers; 0 is a closed loop.
	Rate float64
	// InFlight is how many requests one producer keeps under way.
	InFlight int
	// Live is how fan-out's readers read: LiveSSE or LiveLongPoll.
	Live string
	// ContentType is that of the streams.
	ContentType string

	// PID is the server's process, whose CPU time and memory are sampled; 0 for
	// none.
	PID int
	// NoVerify is for a pseudo-server that stores nothing.
	NoVerify bool
	// Keep leaves the streams of the run in the server.
	Keep bool
	// Progress receives a line per second; nil for none.
	Progress io.Writer
}

// ErrConfig is returned by [Run] for a configuration that makes no sense.
var ErrConfig = errors.New("the benchmark's options")

// The layouts a server can have.
const (
	LayoutBase   = "base"   // /v1/stream/{path...}
	LayoutBucket = "bucket" // /{bucket}/{stream}
)

// The live modes of PROTOCOL.md 5.7 and 5.8.
const (
	LiveSSE      = "sse"
	LiveLongPoll = "long-poll"
)

// Bounds of what one process can do: 20,000 open files are a common limit, and
// a stream's records are followed in memory.
const (
	maxConnections = 19_500
	maxStreams     = 1_000_000
	maxSize        = 64 << 20
	maxBatchBytes  = 64 << 20
	maxTotal       = 64 << 30
	maxTime        = 24 * time.Hour
	maxRate        = 10_000_000
)

func (c Config) withDefaults() (Config, error) {
	w, ok := workloads[c.Workload]
	if !ok {
		return c, fmt.Errorf("%w: no workload %q: there are %s", ErrConfig, c.Workload, strings.Join(Workloads(), ", "))
	}
	set(&c.Layout, LayoutBase)
	set(&c.Bucket, "bench")
	set(&c.ReadURL, c.URL)
	set(&c.Duration, 10*time.Second)
	set(&c.Timeout, 30*time.Second)
	set(&c.Writers, w.defaults.Writers)
	set(&c.Readers, w.defaults.Readers)
	set(&c.Streams, w.defaults.Streams)
	set(&c.Size, w.defaults.Size)
	set(&c.Batch, w.defaults.Batch)
	set(&c.Total, w.defaults.Total)
	set(&c.Rate, w.defaults.Rate)
	set(&c.InFlight, w.defaults.InFlight)
	set(&c.Live, w.defaults.Live)
	set(&c.ContentType, w.defaults.ContentType)
	set(&c.ContentType, "application/octet-stream")
	if w.live && w.defaults.Rate != 0 && c.Rate == w.defaults.Rate {
		// One event per second and stream is the least that says something of
		// each.
		c.Rate = max(c.Rate, float64(c.Streams))
	}
	return c, c.check()
}

// set gives v the value d where it has none.
func set[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (c Config) check() error {
	within := func(name string, v, low, high int64) error {
		if v < low || v > high {
			return fmt.Errorf("%s is %d: it must be from %d to %d", name, v, low, high)
		}
		return nil
	}
	errs := []error{
		within("writers", int64(c.Writers), 0, maxConnections),
		within("readers", int64(c.Readers), 0, maxConnections),
		within("connections in all", int64(c.Writers)*int64(max(c.InFlight, 1))+int64(c.Readers), 1, maxConnections),
		within("streams", int64(c.Streams), 0, maxStreams),
		within("size", int64(c.Size), int64(minRecord), maxSize),
		within("bytes per request", int64(c.Batch)*int64(c.Size), 0, maxBatchBytes),
		within("total", c.Total, 0, maxTotal),
		within("pid", int64(c.PID), 0, 1<<31),
	}
	if c.Duration <= 0 || c.Duration > maxTime || c.Warmup < 0 || c.Warmup > maxTime || c.Timeout <= 0 || c.Timeout > maxTime {
		errs = append(errs, fmt.Errorf("duration, warm-up and timeout must be from 0 to %v", maxTime))
	}
	if c.Rate < 0 || c.Rate > maxRate {
		errs = append(errs, fmt.Errorf("rate is %g: it must be from 0 to %d", c.Rate, maxRate))
	}
	if c.Live != "" && c.Live != LiveSSE && c.Live != LiveLongPoll {
		errs = append(errs, fmt.Errorf("no live mode %q", c.Live))
	}
	if strings.ContainsAny(c.ContentType, "\r\n") {
		errs = append(errs, errors.New("the content type holds a line break"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}
