package subscriptions

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// phase is where a subscription stands. The values are part of the format.
type phase uint8

const (
	// idle: no wake is in flight and no lease is held.
	idle phase = iota
	// ready: there is pending work, and a wake is due.
	ready
	// delivering: a webhook request is under way, under the wake's lease.
	delivering
	// announcing: the event of a pull-wake is not known to be written.
	announcing
	// woken: the event is written, and nobody has claimed the wake.
	woken
	// held: a worker or a receiver holds the lease.
	held
	// backoff: a delivery failed, and the next attempt has its time. The wake
	// stays current until then, or until its lease ends: a receiver that timed
	// out may be at work.
	backoff
)

func (p phase) String() string {
	names := [...]string{"idle", "ready", "delivering", "announcing", "woken", "held", "backoff"}
	if int(p) < len(names) {
		return names[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// Bounds of the schedule (PROTOCOL.md 7.1).
const (
	firstRetry  = time.Second
	lastRetry   = time.Minute
	retryJitter = 0.2
	// announceTimeout is how long an event may take to be written before
	// another frontend writes it.
	announceTimeout = 5 * time.Second
	// An event nobody answers is written again, ever less often: whoever read
	// it may have died before the claim.
	firstReminder = time.Minute
	lastReminder  = time.Hour
)

// state is what changes about a subscription. Its methods are the rules of
// PROTOCOL.md 7.3: they do no I/O and read no clock, so that tests drive them
// alone. Times are in milliseconds of Unix time, 0 for none.
type state struct {
	// Bucket and Name name the subscription.
	Bucket string `json:"bucket"`
	Name   string `json:"name"`
	// Generation counts wakes. WakeID is empty while no wake is current.
	Generation uint64 `json:"generation"`
	WakeID     string `json:"wake_id,omitempty"`
	Phase      phase  `json:"phase"`
	// Holder is the worker of a claim.
	Holder     string `json:"holder,omitempty"`
	LeaseUntil int64  `json:"lease_until,omitempty"`
	// Due is when the schedule looks at the subscription next.
	Due int64 `json:"due,omitempty"`
	// Attempts counts failures in a row; Announced the events of this wake.
	Attempts  int `json:"attempts,omitempty"`
	Announced int `json:"announced,omitempty"`
	// LastError says why the last attempt failed, in a word; LastStatus what
	// the receiver answered.
	LastError   string `json:"last_error,omitempty"`
	LastErrorAt int64  `json:"last_error_at,omitempty"`
	LastStatus  int    `json:"last_status,omitempty"`
	// What happened so far.
	Delivered uint64 `json:"delivered,omitempty"`
	Failed    uint64 `json:"failed,omitempty"`
	Expired   uint64 `json:"expired,omitempty"`
	// Op is the operation that wrote this, the witness of unknown outcomes.
	Op string `json:"op,omitempty"`
}

func (s state) encode() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	return b
}

func decodeState(b []byte) (state, error) {
	var s state
	if err := json.Unmarshal(b, &s); err != nil {
		return state{}, fmt.Errorf("subscriptions: corrupt state: %w", err)
	}
	return s, nil
}

func ms(t time.Time) int64 { return t.UnixMilli() }

// leased reports whether the current wake's lease holds at now.
func (s *state) leased(now time.Time) bool {
	return s.WakeID != "" && ms(now) < s.LeaseUntil && (s.Phase == delivering || s.Phase == held || s.Phase == backoff)
}

// current reports whether a request speaks for the wake that holds the lease.
func (s *state) current(now time.Time, generation uint64, wakeID string) bool {
	return s.leased(now) && s.Generation == generation && s.WakeID == wakeID
}

// hasWork notes that there is pending work. Only an idle subscription is woken;
// any other looks for itself when its wake ends.
func (s *state) hasWork(now time.Time) {
	if s.Phase == idle {
		s.Phase, s.Due = ready, ms(now)
	}
}

// issue begins a new wake.
func (s *state) issue(now time.Time, lease time.Duration, wakeID string, webhook bool) {
	s.Generation++
	s.WakeID, s.Holder, s.Announced = wakeID, "", 0
	if webhook {
		s.Phase, s.LeaseUntil = delivering, ms(now.Add(lease))
		s.Due = s.LeaseUntil
		return
	}
	s.Phase, s.LeaseUntil = announcing, 0
	s.Due = ms(now.Add(announceTimeout))
}

// accepted says a receiver took the wake and will call back.
func (s *state) accepted() {
	if s.Phase == delivering {
		s.Delivered++
		s.settle()
		s.Phase = held
	}
}

// settle forgets the failures so far.
func (s *state) settle() { s.Attempts, s.LastError, s.LastErrorAt, s.LastStatus = 0, "", 0, 0 }

// fail plans the next attempt. jitter is within [-1, 1]. A delivery that a
// callback has answered meanwhile did not fail.
func (s *state) fail(now time.Time, why string, status int, jitter float64) {
	if s.Phase != delivering && s.Phase != announcing {
		return
	}
	s.Attempts++
	s.Failed++
	s.LastError, s.LastErrorAt, s.LastStatus = why, ms(now), status
	s.Due = ms(now.Add(retryDelay(s.Attempts, jitter)))
	if s.Phase == delivering {
		s.Phase = backoff
	}
}

func retryDelay(attempts int, jitter float64) time.Duration {
	return doubled(firstRetry, lastRetry, attempts, retryJitter*jitter)
}

// doubled is the n-th of a doubling series, from 1, stretched by a fraction.
func doubled(first, last time.Duration, n int, stretch float64) time.Duration {
	d := float64(first) * math.Pow(2, float64(min(max(n, 1), 32)-1))
	return time.Duration(min(d, float64(last)) * (1 + stretch))
}

// announced says the event of the current wake is written.
func (s *state) announced(now time.Time) {
	if s.Phase != announcing {
		return
	}
	s.settle()
	s.Phase = woken
	s.Announced++
	s.Due = ms(now.Add(doubled(firstReminder, lastReminder, s.Announced, 0)))
}

// renew extends the lease: the holder is alive.
func (s *state) renew(now time.Time, lease time.Duration) {
	if s.Phase != held {
		s.Delivered++
	}
	s.settle()
	s.Phase, s.LeaseUntil = held, ms(now.Add(lease))
	s.Due = s.LeaseUntil
}

// claim gives the lease of the current wake to a worker.
func (s *state) claim(now time.Time, lease time.Duration, worker string) {
	s.Holder = worker
	s.renew(now, lease)
}

// end ends the current wake.
func (s *state) end(now time.Time, pending bool) {
	s.WakeID, s.Holder, s.LeaseUntil, s.Announced, s.Due = "", "", 0, 0, 0
	s.Phase = idle
	if pending {
		s.hasWork(now)
	}
}

// action is what a subscription whose time has come needs.
type action uint8

const (
	nothing  action = iota
	wake            // begin a new wake
	announce        // write the current wake's event
)

// tick says what is due at now, and ends what has come to its end. pending
// tells whether there is work left.
func (s *state) tick(now time.Time, pending bool) action {
	if s.Due == 0 || ms(now) < s.Due {
		return nothing
	}
	switch s.Phase {
	case delivering, held:
		s.Expired++
		s.end(now, pending)
	case backoff:
		// Failures go on counting over the attempts of a retry.
		s.end(now, pending)
	case announcing:
		if pending {
			s.Due = ms(now.Add(announceTimeout))
			return announce
		}
		s.end(now, false)
	case woken:
		if pending {
			s.Phase, s.Due = announcing, ms(now.Add(announceTimeout))
			return announce
		}
		s.end(now, false)
	}
	switch {
	case s.Phase == ready && pending:
		return wake
	case s.Phase == ready, s.Phase == idle:
		s.end(now, false)
		s.settle()
	}
	return nothing
}
