package sim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"headwater/fdblayer"
	"headwater/keys"
)

// follower is a client that follows streams, one after another, and comes back
// to where it was whenever a frontend sends it away.
type follower struct {
	c     *cluster
	h     *history
	dice  *dice
	names int

	mu sync.Mutex
	// on is the life that is followed, up to next; nil between two.
	on   *life
	next keys.Offset
	via  *front
}

func (fl *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		fl.follow(ctx, "s"+fmt.Sprint(fl.dice.n(fl.names)))
		select {
		case <-time.After(fl.dice.upTo(time.Second)):
		case <-ctx.Done():
		}
	}
}

func (fl *follower) set(l *life, next keys.Offset, via *front) {
	fl.mu.Lock()
	fl.on, fl.next, fl.via = l, next, via
	fl.mu.Unlock()
}

// follow follows a stream to its end.
func (fl *follower) follow(ctx context.Context, name string) {
	defer fl.set(nil, keys.Offset{}, nil)
	req := fdblayer.ReadRequest{
		ID: sid(name), From: fdblayer.From{AtStart: true},
		MaxBytes: 500 + fl.dice.n(1<<uint(4+fl.dice.n(18))), WholeRunes: fl.dice.in(1, 3),
	}
	if fl.dice.in(1, 3) {
		req.From = fdblayer.From{Now: true}
	}
	for ctx.Err() == nil {
		end, next, inc := fl.connect(ctx, req)
		if end {
			return
		}
		if inc != (keys.Incarnation{}) {
			req.From = fdblayer.From{Offset: next}
			req.Precondition = fdblayer.Precondition{Incarnation: inc, Set: true}
		}
		select {
		case <-time.After(fl.dice.upTo(200 * time.Millisecond)):
		case <-ctx.Done():
		}
	}
}

// note runs the bookkeeping of one answer; it reports what ends the reader.
func (fl *follower) note(f *front, o *op, err error, p fdblayer.Piece) *life {
	fl.h.mu.Lock()
	defer fl.h.mu.Unlock()
	if err == nil && !f.lossy.dead.Load() {
		fl.h.moment++
		o.ret, o.returned = fl.h.moment, fl.c.now()
		fl.h.log = append(fl.h.log, fmt.Sprintf("%v #%d frontend %d: %s %s %v to %v (%d bytes) closed %v", o.returned.Format("05.000"), o.n, f.name, o.kind, o.name, p.Start, p.Next, len(p.Data), p.Closed))
		return fl.h.observe(o, p)
	}
	fl.h.end(fl.c, f, o, err)
	return nil
}

// connect follows over one connection. inc is zero if there was none.
func (fl *follower) connect(ctx context.Context, req fdblayer.ReadRequest) (end bool, next keys.Offset, inc keys.Incarnation) {
	f := fl.c.any()
	o := fl.h.begin(fl.c, f, "connect", req.ID.Stream)
	o.pre = req.Precondition.Incarnation
	r, p, err := f.Live(ctx, req)
	if ctx.Err() != nil {
		if err == nil {
			r.Close()
		}
		return true, next, inc
	}
	l := fl.note(f, o, err, p)
	if err != nil {
		return !again(f, err), next, inc
	}
	defer r.Close()
	if l == nil { // its frontend is dead
		return false, next, inc
	}
	next, inc = p.Next, p.Stream.Incarnation
	if p.Closed {
		return true, next, inc
	}
	for {
		fl.set(l, next, f)
		o := fl.h.begin(fl.c, f, "live", req.ID.Stream)
		o.pre = inc
		ev, err := r.Next(ctx)
		if ctx.Err() != nil {
			return true, next, inc
		}
		if err != nil {
			fl.note(f, o, err, fdblayer.Piece{})
			fl.set(nil, next, f)
			return !again(f, err), next, inc
		}
		fl.h.mu.Lock()
		if ev.Start != next {
			fl.h.fail("#%d: an event of %s begins at %v, the last one ended at %v", o.n, req.ID.Stream, ev.Start, next)
		}
		if len(ev.Data) == 0 && !ev.Closed || len(ev.Data) > max(req.MaxBytes, 4) {
			fl.h.fail("#%d: an event of %s holds %d bytes, closed %v, at most %d were asked for", o.n, req.ID.Stream, len(ev.Data), ev.Closed, req.MaxBytes)
		}
		fl.h.mu.Unlock()
		if fl.note(f, o, nil, ev.Piece) == nil {
			return false, next, inc
		}
		next = ev.Next
		if ev.Closed {
			return true, next, inc
		}
	}
}

// again reports whether a reader that was sent away with err comes back.
func again(f *front, err error) bool {
	switch codeOf(err) {
	case fdblayer.CodeUnavailable, fdblayer.CodeDraining, fdblayer.CodeOverloaded, fdblayer.CodeUnknownOutcome:
		return true
	}
	return f.lossy.dead.Load()
}

// behind returns why a follower has not seen what it must have seen once
// nothing has moved for a while; "" if it has.
func (fl *follower) behind() string {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.h.mu.Lock()
	defer fl.h.mu.Unlock()
	if fl.on == nil || fl.via.lossy.dead.Load() {
		return ""
	}
	o := &op{name: fl.on.name, call: fl.h.moment + 1, ret: fl.h.moment + 2, called: fl.c.now(), returned: fl.c.now()}
	switch {
	case !fl.h.mustBeAlive(fl.on, o):
		return ""
	case fl.on.closed != nil:
		return fmt.Sprintf("a reader of %s on frontend %d, at %v, still waits, #%d had closed it at %v", fl.on.name, fl.via.name, fl.next, fl.on.closed.n, *fl.on.closedAt)
	}
	for _, a := range fl.on.acked {
		if fl.next.Less(a.next) {
			return fmt.Sprintf("a reader of %s on frontend %d waits at %v, #%d was acknowledged at %v", fl.on.name, fl.via.name, fl.next, a.op.n, a.next)
		}
	}
	if fl.next.Less(fl.on.retained) {
		return fmt.Sprintf("a reader of %s on frontend %d waits at %v, which was dropped", fl.on.name, fl.via.name, fl.next)
	}
	return ""
}
