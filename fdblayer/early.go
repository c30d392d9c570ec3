package fdblayer

import "time"

// A pipelined producer has several requests in flight, and between it and the
// lane they may overtake each other. Refusing the one that comes first with 409
// makes the client send it again; so it waits a moment for its predecessor
// instead (PROTOCOL.md 5.2.1 wants validation in order, and leaves open how).
const (
	// earlyWindow is the most sequence numbers that may be missing. Official
	// clients have five requests in flight.
	earlyWindow = 16
	// earlyRequests and earlyBytes bound what waits in one lane.
	earlyRequests = 1024
	earlyBytes    = 1 << 20
)

// waiting is the requests of one lane that came before their predecessor.
// Owned by the lane's goroutine.
type waiting struct {
	requests []*pending
	bytes    int
}

// early reports whether an outcome is a gap that the next moment may close.
// The wait is measured by the machine's clock: it is about the network.
func (l *lane) early(p *pending, o *outcome, now time.Time) bool {
	if o.err == nil || o.err.Code != CodeProducerGap || o.err.Received-o.err.Expected > earlyWindow {
		return false
	}
	if p.until.IsZero() {
		p.until = now.Add(l.store.opts.PredecessorWait)
	}
	return now.Before(p.until)
}

// add keeps a request for later; it reports false if there is no room.
func (w *waiting) add(p *pending) bool {
	if len(w.requests) >= earlyRequests || w.bytes+p.size() > earlyBytes {
		return false
	}
	w.requests = append(w.requests, p)
	w.bytes += p.size()
	return true
}

// due removes the requests whose time is up, or whose producer has written to
// their stream in work.
func (w *waiting) due(work []*pending, now time.Time, all bool) []*pending {
	if len(w.requests) == 0 {
		return nil
	}
	type writer struct {
		id       StreamID
		producer string
	}
	came := make(map[writer]bool, len(work))
	for _, p := range work {
		if p.append != nil && p.append.Producer != nil {
			came[writer{p.id, p.append.Producer.ID}] = true
		}
	}
	var due []*pending
	rest := w.requests[:0]
	for _, p := range w.requests {
		if all || !now.Before(p.until) || came[writer{p.id, p.append.Producer.ID}] {
			if all {
				p.until = now
			}
			due = append(due, p)
			w.bytes -= p.size()
		} else {
			rest = append(rest, p)
		}
	}
	clear(w.requests[len(rest):])
	w.requests = rest
	return due
}

// wait is how long until the first request's time is up.
func (w *waiting) wait(now time.Time) time.Duration {
	first := w.requests[0].until
	for _, p := range w.requests {
		if p.until.Before(first) {
			first = p.until
		}
	}
	return max(first.Sub(now), 0)
}

// judgeAll judges every request of a batch in order, and those that came too
// early again once their predecessors have been.
func (b *batch) judgeAll(a *attempt, vs *views, now time.Time) {
	wall := time.Now()
	var early []int
	for i, p := range b.work {
		a.outcomes[i] = judge(vs.get(p.id), p, now)
		if b.lane.early(p, &a.outcomes[i], wall) {
			early = append(early, i)
		}
	}
	for again := len(early) > 0; again; {
		again = false
		rest := early[:0]
		for _, i := range early {
			a.outcomes[i] = judge(vs.get(b.work[i].id), b.work[i], now)
			if b.lane.early(b.work[i], &a.outcomes[i], wall) {
				rest = append(rest, i)
			} else {
				again = true
			}
		}
		early = rest
		again = again && len(early) > 0
	}
	for _, i := range early {
		a.outcomes[i].early = true
	}
}
