package bench

import (
	"context"
	"fmt"
	"time"
)

// usage is what the client and the server used within the measured time.
type usage struct {
	client processUse
	server *processUse
}

// processUse is the use of one process.
type processUse struct {
	cpu float64 // seconds of CPU
	// rss and peak are of the end.
	rss, peak int64
}

func (u usage) serverCPU() float64 { return u.server.cpu }

// sample waits for the measured time to begin and to end, and notes what both
// processes used in it. Meanwhile it says how the run goes.
func (r *run) sample(ctx context.Context) error {
	r.warmFrom.Store(r.warm)
	r.warmTo.Store(r.end)
	if err := r.watch(ctx, r.warm, "warm-up"); err != nil {
		return err
	}
	client, server, err := r.use()
	if err != nil {
		return err
	}
	if err := r.watch(ctx, r.end, "measuring"); err != nil {
		return err
	}
	client2, server2, err := r.use()
	if err != nil {
		return err
	}
	client2.cpu -= client.cpu
	r.usage.client = client2
	if r.cfg.PID != 0 {
		server2.cpu -= server.cpu
		r.usage.server = &server2
	}
	return nil
}

func (r *run) use() (client, server processUse, err error) {
	if client, err = ownUse(); err != nil {
		return client, server, err
	}
	if r.cfg.PID != 0 {
		server, err = useOf(r.cfg.PID)
	}
	return client, server, err
}

func (r *run) serverMemory() (int64, error) {
	if r.cfg.PID == 0 {
		return 0, nil
	}
	u, err := useOf(r.cfg.PID)
	return u.rss, err
}

// watch waits until the given time and shows each second's progress.
func (r *run) watch(ctx context.Context, until int64, phase string) error {
	done, events := r.done.total(), r.events.total()
	for {
		left := r.clock.until(until)
		if left <= 0 {
			return nil
		}
		step := min(left, time.Second)
		if err := sleep(ctx, step); err != nil {
			return err
		}
		d, e := r.done.total(), r.events.total()
		perSec := float64(d-done) / step.Seconds()
		if phase == "measuring" && step == time.Second {
			r.mu.Lock()
			r.perSec = append(r.perSec, perSec)
			r.mu.Unlock()
		}
		if r.cfg.Progress != nil {
			line := fmt.Sprintf("%s, %v left: %.0f ops/s", phase, r.clock.until(until).Round(time.Second), perSec)
			if e > events {
				line += fmt.Sprintf(", %.0f events/s", float64(e-events)/step.Seconds())
			}
			if h := r.latency.merged(); h.TotalCount() > 0 {
				line += fmt.Sprintf(", p50 %.2f ms, p99 %.2f ms so far", float64(h.ValueAtQuantile(50))/1e6, float64(h.ValueAtQuantile(99))/1e6)
			}
			r.say("%s", line)
		}
		done, events = d, e
	}
}

// say writes a line of progress.
func (r *run) say(format string, args ...any) {
	if r.cfg.Progress != nil {
		// Progress that nobody can read is no reason to end a run.
		_, _ = fmt.Fprintf(r.cfg.Progress, "%s: "+format+"\n", append([]any{r.cfg.Workload}, args...)...)
	}
}
