package bench

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// runLive is tail-latency, long-poll and fan-out: paced writers, one for each
// stream, and live readers spread over the streams, all of which have an answer
// of the server before the first append.
func runLive(ctx context.Context, r *run) error {
	streams, err := r.createStreams(ctx, r.cfg.Streams, 1)
	if err != nil {
		return err
	}
	crowd, err := r.gather(ctx, streams)
	if err != nil {
		return err
	}
	defer crowd.leave()

	writers := min(r.cfg.Writers, len(streams))
	err = r.loop(ctx, writers, func(ctx context.Context, i int) (operation, error) {
		w := &writer{run: r}
		for j := i; j < len(streams); j += writers {
			w.outlets = append(w.outlets, r.newOutlet(streams[j], 0))
		}
		return w.connect(ctx)
	})
	if err != nil {
		return err
	}
	return crowd.finish(ctx)
}

// runIdle measures what live readers cost while nothing happens. Then one
// record goes to each stream, to see that they were really there.
func runIdle(ctx context.Context, r *run) error {
	streams, err := r.createStreams(ctx, r.cfg.Streams, 1)
	if err != nil {
		return err
	}
	crowd, err := r.gather(ctx, streams)
	if err != nil {
		return err
	}
	defer crowd.leave()

	r.begin()
	if err := r.sample(ctx); err != nil {
		return err
	}
	if r.usage.server != nil {
		us := r.usage.serverCPU() * 1e6 / r.cfg.Duration.Seconds() / float64(r.cfg.Readers)
		r.figure("server CPU per idle reader", us, "µs/s")
	}
	err = r.eachConn(ctx, r.write, len(streams), func(c *conn, i int) error {
		o := r.newOutlet(streams[i], 0)
		r.record.put(o.record, 0, o.source.issued.Add(1)-1, r.clock.now())
		res, err := c.do("POST", o.head, o.body, time.Now())
		if err == nil && res.status/100 != 2 {
			err = &statusError{"append", res.status, string(res.body)}
		}
		return err
	})
	if err != nil {
		return err
	}
	return crowd.finish(ctx)
}

// crowd is the live readers of a run.
type crowd struct {
	run     *run
	readers []*liveReader
	cancel  context.CancelFunc
	gone    sync.WaitGroup
	failed  chan error
}

// gather connects the readers and returns when each has an answer.
func (r *run) gather(ctx context.Context, streams []*stream) (*crowd, error) {
	c := &crowd{run: r, readers: make([]*liveReader, r.cfg.Readers), failed: make(chan error, r.cfg.Readers)}
	for i := range c.readers {
		c.readers[i] = r.newLiveReader(i, streams[i%len(streams)])
	}
	before, err := r.serverMemory()
	if err != nil {
		return nil, err
	}
	r.say("connecting %d readers", len(c.readers))
	rctx, cancel := context.WithCancel(ctx)
	c.cancel = cancel
	// A few at a time, or the listen queue overflows and SYNs are sent again a
	// second later.
	slots := make(chan struct{}, 64)
	var there sync.WaitGroup
	there.Add(len(c.readers))
	arrived := make(chan struct{})
	for _, l := range c.readers {
		select {
		case slots <- struct{}{}:
		case err := <-c.failed:
			c.leave()
			return nil, err
		case <-ctx.Done():
			c.leave()
			return nil, context.Cause(ctx)
		}
		c.gone.Go(func() {
			err := l.follow(rctx, func() {
				<-slots
				there.Done()
			})
			if err != nil {
				c.failed <- err
			}
		})
	}
	go func() {
		there.Wait()
		close(arrived)
	}()
	timeout := time.NewTimer(r.cfg.Timeout)
	defer timeout.Stop()
	select {
	case <-arrived:
	case err := <-c.failed:
		c.leave()
		return nil, err
	case <-timeout.C:
		c.leave()
		return nil, fmt.Errorf("not all of %d live readers had an answer within %v", len(c.readers), r.cfg.Timeout)
	case <-ctx.Done():
		c.leave()
		return nil, context.Cause(ctx)
	}
	if r.cfg.PID != 0 && len(c.readers) > 0 {
		after, err := r.serverMemory()
		if err != nil {
			c.leave()
			return nil, err
		}
		r.figure("server memory per connected reader", float64(after-before)/float64(len(c.readers)), "B")
	}
	return c, nil
}

// leave ends the readers.
func (c *crowd) leave() {
	c.cancel()
	c.gone.Wait()
}

// finish waits for what is still on its way, ends the readers, and books what
// they saw. The writers have stopped.
func (c *crowd) finish(ctx context.Context) error {
	deadline := time.NewTimer(c.run.cfg.Timeout)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for waiting := true; waiting; {
		select {
		case <-tick.C:
			waiting = !c.complete()
		case <-deadline.C:
			waiting = false
		case err := <-c.failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	c.leave()
	var responses int64
	for _, l := range c.readers {
		c.run.verified(l.check.finish(l.stream.sources))
		responses += l.responses
	}
	if c.run.cfg.Live == LiveSSE && responses > 0 {
		c.run.figure("event streams that the server ended and readers opened again", float64(responses), "")
	}
	select {
	case err := <-c.failed:
		return err
	default:
		return nil
	}
}

// complete reports that every reader has every record that was acknowledged.
func (c *crowd) complete() bool {
	for _, l := range c.readers {
		var sure int64
		for _, s := range l.stream.sources {
			sure += int64(s.issued.Load()) - int64(len(s.unsure))
		}
		if l.got.Load() < sure {
			return false
		}
	}
	return true
}
