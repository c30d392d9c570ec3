package subscriptions

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var t0 = time.UnixMilli(1_750_000_000_000)

const lease = 10 * time.Second

// at is a state and the steps to it, so that tables read as a story.
func story(steps ...func(*state)) state {
	var s state
	for _, f := range steps {
		f(&s)
	}
	return s
}

func appended(s *state)           { s.hasWork(t0) }
func issueWebhook(s *state)       { s.issue(t0, lease, "w_1", true) }
func issuePull(s *state)          { s.issue(t0, lease, "w_1", false) }
func failNow(s *state)            { s.fail(t0, "status", 500, 0) }
func announceNow(s *state)        { s.announced(t0) }
func claimNow(s *state)           { s.claim(t0, lease, "worker") }
func acceptNow(s *state)          { s.accepted() }
func later(d time.Duration) int64 { return ms(t0.Add(d)) }

func TestTransitions(t *testing.T) {
	for name, c := range map[string]struct {
		got   state
		phase phase
		due   int64
		lease int64
	}{
		"work wakes an idle one":         {story(appended), ready, later(0), 0},
		"a webhook's lease starts":       {story(appended, issueWebhook), delivering, later(lease), later(lease)},
		"a pull-wake's does not":         {story(appended, issuePull), announcing, later(announceTimeout), 0},
		"an event waits for a claim":     {story(appended, issuePull, announceNow), woken, later(firstReminder), 0},
		"a claim takes the lease":        {story(appended, issuePull, announceNow, claimNow), held, later(lease), later(lease)},
		"a claim may beat the event":     {story(appended, issuePull, claimNow, announceNow), held, later(lease), later(lease)},
		"work does not disturb a wake":   {story(appended, issueWebhook, appended), delivering, later(lease), later(lease)},
		"an accepted wake is held":       {story(appended, issueWebhook, acceptNow), held, later(lease), later(lease)},
		"a failure backs off":            {story(appended, issueWebhook, failNow), backoff, later(time.Second), later(lease)},
		"a callback answers a failure":   {story(appended, issueWebhook, failNow, func(s *state) { s.renew(t0, lease) }), held, later(lease), later(lease)},
		"a failure after one is late":    {story(appended, issueWebhook, func(s *state) { s.renew(t0, lease) }, failNow), held, later(lease), later(lease)},
		"an event that fails waits":      {story(appended, issuePull, failNow), announcing, later(time.Second), 0},
		"an end without work is idle":    {story(appended, issueWebhook, func(s *state) { s.end(t0, false) }), idle, 0, 0},
		"an end with work is due":        {story(appended, issueWebhook, func(s *state) { s.end(t0, true) }), ready, later(0), 0},
		"the end of a lease ends it":     {story(appended, issueWebhook, func(s *state) { s.tick(t0.Add(lease), false) }), idle, 0, 0},
		"nothing is due before its time": {story(appended, issueWebhook, func(s *state) { s.tick(t0.Add(lease-1), true) }), delivering, later(lease), later(lease)},
	} {
		if c.got.Phase != c.phase || c.got.Due != c.due || c.got.LeaseUntil != c.lease {
			t.Errorf("%s: %+v", name, c.got)
		}
	}
}

func TestTickActions(t *testing.T) {
	for name, c := range map[string]struct {
		s       state
		at      time.Duration
		pending bool
		want    action
		phase   phase
	}{
		"ready with work":         {story(appended), 0, true, wake, ready},
		"ready without":           {story(appended), 0, false, nothing, idle},
		"lease over with work":    {story(appended, issueWebhook, acceptNow), lease, true, wake, ready},
		"retry due":               {story(appended, issueWebhook, failNow), time.Second, true, wake, ready},
		"retry of nothing":        {story(appended, issueWebhook, failNow), time.Second, false, nothing, idle},
		"event not written":       {story(appended, issuePull), announceTimeout, true, announce, announcing},
		"event nobody answers":    {story(appended, issuePull, announceNow), firstReminder, true, announce, announcing},
		"event of work that went": {story(appended, issuePull, announceNow), firstReminder, false, nothing, idle},
	} {
		if got := c.s.tick(t0.Add(c.at), c.pending); got != c.want || c.s.Phase != c.phase {
			t.Errorf("%s: %v, %+v", name, got, c.s)
		}
	}
}

func TestRetriesDoubleToAMinuteWithin20Percent(t *testing.T) {
	for i, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60, 60} {
		w := time.Duration(seconds) * time.Second
		if got := retryDelay(i+1, 0); got != w {
			t.Errorf("attempt %d waits %v, want %v", i+1, got, w)
		}
		if lo, hi := retryDelay(i+1, -1), retryDelay(i+1, 1); lo != w*8/10 || hi != w*12/10 {
			t.Errorf("attempt %d waits %v to %v", i+1, lo, hi)
		}
	}
	if got := retryDelay(1<<40, 1); got != 72*time.Second {
		t.Error(got)
	}
}

// Whatever happens in whatever order, the invariants of PROTOCOL.md 7.3 hold.
func TestStateInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s state
		now := t0
		webhook := rapid.Bool().Draw(t, "webhook")
		seen := map[uint64]string{}
		pending := false
		begin := func() {
			id := "w_" + rapid.StringN(4, 4, -1).Draw(t, "id")
			s.issue(now, lease, id, webhook)
			if old, ok := seen[s.Generation]; ok {
				t.Fatalf("generation %d twice: %q and %q", s.Generation, old, id)
			}
			seen[s.Generation] = id
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			before := s
			switch rapid.SampledFrom([]string{"work", "time", "tick", "accept", "fail", "announced", "renew", "claim", "end"}).Draw(t, "step") {
			case "work":
				pending = true
				s.hasWork(now)
			case "time":
				now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
			case "tick":
				if s.tick(now, pending) == wake {
					begin()
				}
			case "accept":
				s.accepted()
			case "fail":
				s.fail(now, "x", 0, rapid.Float64Range(-1, 1).Draw(t, "jitter"))
			case "announced":
				s.announced(now)
			case "renew":
				if s.current(now, s.Generation, s.WakeID) {
					s.renew(now, lease)
				}
			case "claim":
				if !webhook && !s.leased(now) && pending {
					if s.WakeID == "" || s.Phase == held {
						s.end(now, true)
						begin()
					}
					s.claim(now, lease, "w")
				}
			case "end":
				if s.current(now, s.Generation, s.WakeID) {
					pending = rapid.Bool().Draw(t, "left")
					s.end(now, pending)
				}
			}
			if s.Generation < before.Generation {
				t.Fatalf("the generation went back: %+v -> %+v", before, s)
			}
			if (s.Phase == idle) != (s.Due == 0) {
				t.Fatalf("only an idle subscription has nothing due: %+v", s)
			}
			if s.Phase == idle && pending {
				t.Fatalf("work is left and nobody will look: %+v -> %+v", before, s)
			}
			if (s.WakeID == "") != (s.Phase == idle || s.Phase == ready) {
				t.Fatalf("a wake id belongs to a wake: %+v", s)
			}
			if s.leased(now) && s.Due > s.LeaseUntil && s.Phase != backoff {
				t.Fatalf("the lease ends before anybody looks: %+v", s)
			}
		}
		b, err := decodeState(s.encode())
		if err != nil || b != s {
			t.Fatalf("%+v became %+v (%v)", s, b, err)
		}
	})
}
