package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// workload is one way to use a server.
type workload struct {
	about    string
	defaults Config
	// live tells that writers are paced and readers are waited for.
	live bool
	run  func(ctx context.Context, r *run) error
}

// Workloads are the names of all workloads, in order.
func Workloads() []string { return slices.Sorted(maps.Keys(workloads)) }

// About describes a workload in one line.
func About(name string) string { return workloads[name].about }

// ErrViolation is returned by [Run], beside the result, where a record was
// lost, repeated, out of order or altered.
var ErrViolation = errors.New("the server broke its promises")

// ErrUnclean is returned by [Run], beside the result, where requests failed
// for other reasons than being refused for overload.
var ErrUnclean = errors.New("requests failed")

// Run runs one workload. A result that comes with [ErrViolation] or
// [ErrUnclean] is whole, but its figures mean nothing.
func Run(ctx context.Context, c Config) (Result, error) {
	c, err := c.withDefaults()
	if err != nil {
		return Result{}, err
	}
	r, err := newRun(ctx, c)
	if err != nil {
		return Result{}, err
	}
	defer r.http.CloseIdleConnections()
	w := workloads[c.Workload]
	if err := w.run(ctx, r); err != nil {
		return Result{}, fmt.Errorf("%s: %w", c.Workload, err)
	}
	res := r.result()
	if !c.Keep {
		if err := r.deleteStreams(ctx); err != nil {
			return res, fmt.Errorf("%s: removing the run's streams: %w", c.Workload, err)
		}
	}
	switch {
	case !res.Verification.Skipped && !res.Verification.OK():
		return res, fmt.Errorf("%s: %w: %s", c.Workload, ErrViolation, res.Verification)
	case len(res.Errors) > 0:
		return res, fmt.Errorf("%s: %w: %v", c.Workload, ErrUnclean, res.Errors)
	}
	return res, nil
}

// run is the state of one run.
type run struct {
	cfg         Config
	write, read target
	http        *http.Client
	record      record
	clock       clock
	// id is part of the name of every stream of the run.
	id string

	window
	// warmFrom and warmTo are the measured time for live readers, who begin
	// before it is fixed; it is empty till then.
	warmFrom, warmTo atomic.Int64
	latency          *recorder // from the intended time
	service          *recorder // from the actual sending; open loop only
	delivery         *recorder // from the intended time of the append to its receipt
	done             counter   // operations that ended within the measured time
	bytes            counter   // what they carried
	events           counter   // records that live readers received, in all

	usage usage
	extra []Figure

	mu      sync.Mutex // guards what follows
	streams []*stream  // to delete in the end
	found   Verification
	errors  map[string]int64
	refused map[string]int64
	perSec  []float64
}

// window is when operations are issued and when they are measured, on the
// run's clock. It is fixed when all connections stand.
type window struct{ start, warm, end int64 }

// clock is the run's only clock: nanoseconds since it began, monotonic.
type clock struct{ zero time.Time }

func (c clock) now() int64                   { return int64(time.Since(c.zero)) }
func (c clock) until(ns int64) time.Duration { return time.Duration(ns - c.now()) }

func newRun(ctx context.Context, c Config) (*run, error) {
	r := &run{
		cfg:      c,
		record:   newRecord(c.Size),
		clock:    clock{time.Now()},
		id:       rand.Text()[:10],
		latency:  newRecorder(),
		service:  newRecorder(),
		delivery: newRecorder(),
		errors:   map[string]int64{},
		refused:  map[string]int64{},
	}
	var err error
	if r.write, err = parseTarget(ctx, c, c.URL); err != nil {
		return nil, err
	}
	if r.read, err = parseTarget(ctx, c, c.ReadURL); err != nil {
		return nil, err
	}
	r.http = &http.Client{Transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: c.Timeout}).DialContext,
		MaxIdleConnsPerHost: maxSetup + c.Readers,
		ReadBufferSize:      256 << 10,
		DisableCompression:  true,
		// A server that answers nothing must not hold the run for ever.
		ResponseHeaderTimeout: c.Timeout,
	}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return r, nil
}

// operation does one thing and says how many bytes of records it carried. k
// counts the worker's own, intended is when it was to begin. A *statusError is
// counted and passed over, any other error ends the run.
type operation func(k int, intended int64) (bytes int, err error)

// loop connects the workers, then lets each repeat its operation until the time
// is up, and returns when all have finished their last one. prepare runs once
// for each worker, before any of them begins; its operation is used by one
// goroutine.
func (r *run) loop(ctx context.Context, workers int, prepare func(ctx context.Context, i int) (operation, error)) error {
	// The connections live as long as this context: the first worker that fails
	// ends the operations of the others.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ops := make([]operation, workers)
	err := each(ctx, workers, func(_ context.Context, i int) (err error) {
		ops[i], err = prepare(ctx, i)
		return err
	})
	if err != nil {
		return err
	}
	r.begin()
	sampled := make(chan error, 1)
	go func() { sampled <- r.sample(ctx) }()
	err = all(ctx, workers, func(_ context.Context, i int) error {
		err := r.work(ctx, i, workers, ops[i])
		if err != nil {
			cancel(err)
		}
		return err
	})
	return errors.Join(err, <-sampled)
}

func (r *run) begin() {
	r.start = r.clock.now()
	r.warm = r.start + int64(r.cfg.Warmup)
	r.end = r.warm + int64(r.cfg.Duration)
}

// refusalPause is how long a worker waits that was refused for overload.
const refusalPause = 10 * time.Millisecond

func (r *run) work(ctx context.Context, i, workers int, op operation) error {
	open := r.cfg.Rate > 0
	for k := 0; ; k++ {
		intended := r.clock.now()
		if open {
			// The workers' times interleave evenly.
			intended = r.start + int64((float64(k)*float64(workers)+float64(i))*1e9/r.cfg.Rate)
		}
		if intended >= r.end || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		begun := intended
		if open {
			if err := r.wait(ctx, intended, workers); err != nil {
				return err
			}
			begun = r.clock.now()
			if begun > r.end+int64(r.cfg.Timeout) {
				// Else an overloaded server would hold the run for the whole
				// backlog, one timeout after the other.
				return r.giveUp()
			}
		}
		n, err := op(k, intended)
		ended := r.clock.now()
		if err != nil {
			var status *statusError
			if !errors.As(err, &status) {
				return err
			}
			if r.count(status) {
				if err := sleep(ctx, refusalPause); err != nil {
					return err
				}
			}
			continue
		}
		if ended >= r.warm && ended < r.end {
			r.done.add(i, 1)
			r.bytes.add(i, int64(n))
		}
		// What began within the time is measured whenever it ends: leaving the
		// slow ones out would be the omission that open loops are there to avoid.
		if intended >= r.warm {
			r.latency.record(i, ended-intended)
			if open {
				r.service.record(i, ended-begun)
			}
		}
	}
}

// statusError is an answer that is not the one asked for.
type statusError struct {
	what   string
	status int
	body   string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: status %d %s", e.what, e.status, e.body)
}

// refusal tells an answer of an overloaded server.
func (e *statusError) refusal() bool {
	return e.status == http.StatusTooManyRequests || e.status == http.StatusServiceUnavailable
}

// count books an unwanted answer and reports whether it was a refusal.
func (r *run) count(e *statusError) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.refusal() {
		r.refused[fmt.Sprint(e.status)]++
		return true
	}
	r.fault(e.Error())
	return false
}

// fault books a failure by its text; r.mu is held.
func (r *run) fault(what string) {
	const kinds = 20
	if _, known := r.errors[what]; !known && len(r.errors) >= kinds {
		what = "others"
	}
	r.errors[what]++
}

// giveUp books that operations were left out since the server was too slow.
func (r *run) giveUp() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault(fmt.Sprintf("writers gave up, more than %v behind the rate", r.cfg.Timeout))
	return nil
}

func (r *run) verified(v Verification) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found.add(v)
}

// The runtime's timers are up to a millisecond late when nothing else goes on,
// which is more than a good server needs for an append. So a few workers sleep
// the last of it in the kernel; that takes a thread each, and is not for many.
const (
	timerSlack = 1500 * time.Microsecond
	maxNappers = 16
)

// wait returns at the intended time, or at once if that is past.
func (r *run) wait(ctx context.Context, intended int64, workers int) error {
	if workers > maxNappers {
		return sleep(ctx, r.clock.until(intended))
	}
	if err := sleep(ctx, r.clock.until(intended)-timerSlack); err != nil {
		return err
	}
	nap(r.clock.until(intended))
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// maxSetup is how many requests are under way at once before and after
// measuring.
const maxSetup = 16

// each calls f for 0 to n-1, at most maxSetup at once, and ends the others when
// one fails.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	var next atomic.Int64
	return all(ctx, min(n, maxSetup), func(ctx context.Context, _ int) error {
		for {
			i := int(next.Add(1)) - 1
			if i >= n {
				return nil
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := f(ctx, i); err != nil {
				return err
			}
		}
	})
}

// all calls f for 0 to n-1 at once; the first error ends the others.
func all(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			if err := f(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}
