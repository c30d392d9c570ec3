package subscriptions

import "sync/atomic"

// counters count what this frontend does for subscriptions.
type counters struct {
	wakes, delivered, failed, announced, expired, fenced, parked atomic.Int64
}

// Stats are counters since the Service was made.
type Stats struct {
	// Wakes are wakes begun or announced again by this frontend; Delivered are
	// webhooks that were taken, Announced wake events written, Failed either
	// that failed.
	Wakes, Delivered, Announced, Failed int64
	// Expired are leases that ended by themselves, Fenced requests refused for
	// a wake that was not current.
	Expired, Fenced int64
	// Parked counts waits for a place at a webhook's host.
	Parked int64
	// Busy is how many deliveries and tasks are under way.
	Busy int
}

// Stats returns the Service's counters.
func (s *Service) Stats() Stats {
	c := &s.counts
	s.sched.mu.Lock()
	busy := len(s.sched.busy)
	s.sched.mu.Unlock()
	return Stats{
		Wakes: c.wakes.Load(), Delivered: c.delivered.Load(), Announced: c.announced.Load(), Failed: c.failed.Load(),
		Expired: c.expired.Load(), Fenced: c.fenced.Load(), Parked: c.parked.Load(), Busy: busy,
	}
}
