package subscriptions

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"headwater/fdblayer/kv"
	"headwater/keys"
)

const (
	// duePage is how many entries one look at the schedule reads, duePages how
	// many such looks one round makes past entries that can't be taken on now.
	duePage  = 256
	duePages = 16
)

// entry is one row of the schedule.
type entry struct {
	due  time.Time
	task keys.SubTask
	uid  keys.SubscriptionID
	id   ID
}

// scheduler takes on what is due: wakes, the ends of leases, retries, the
// linking of existing streams, the clearing of what was deleted. The schedule
// is an index in the store by time, and every item is a transaction that looks
// again, so any frontend may take any item at any time; one that dies leaves
// nothing undone. Frontends begin at random places, so that they seldom meet.
//
// It sleeps until the first entry it knows of is due. Entries that other
// frontends make it notices within the scan interval; as a rule they are taken
// by who made them.
type scheduler struct {
	service *Service
	wake    chan struct{} // capacity 1

	mu sync.Mutex
	// next is the earliest due time known of; 0 for none. again asks for a
	// round whatever the time.
	next  int64
	again bool
	// busy are the subscriptions worked on here, hosts how many requests are
	// under way to each host. parked are those found to wait for a host.
	busy   map[workKey]bool
	hosts  map[string]int
	parked map[workKey]string
}

type workKey struct {
	task keys.SubTask
	uid  keys.SubscriptionID
}

func (c *scheduler) init(s *Service) {
	c.service = s
	c.wake = make(chan struct{}, 1)
	c.busy = make(map[workKey]bool)
	c.hosts = make(map[string]int)
	c.parked = make(map[workKey]string)
}

// nudge tells that something will be due at a time; 0 is nothing.
func (c *scheduler) nudge(due int64) {
	if due == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == 0 || due < c.next {
		c.next = due
		c.signal()
	}
}

func (c *scheduler) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run looks at the schedule whenever something is due, until the service stops.
func (c *scheduler) run() {
	s := c.service
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-s.stopping:
			return
		case <-t.C:
		case <-c.wake:
			if d := c.early(); d > 0 {
				t.Reset(d)
				continue
			}
		}
		next, err := c.round(s.ctx)
		if err != nil && s.ctx.Err() == nil {
			s.log.Warn("looking at the schedule failed; trying again", "error", err)
		}
		t.Reset(c.settle(next))
	}
}

// early returns how long to go on sleeping after a signal: it may be of
// something that is due only later.
func (c *scheduler) early() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.again || c.next == 0 {
		return 0
	}
	return min(time.UnixMilli(c.next).Sub(c.service.now()), c.service.opts.ScanInterval)
}

// settle keeps when the first entry after a round is due and returns how long
// to sleep.
func (c *scheduler) settle(next int64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == 0 || next != 0 && next < c.next {
		c.next = next
	}
	return c.pause(c.next)
}

// pause is how long to sleep for an entry due at next.
func (c *scheduler) pause(next int64) time.Duration {
	s := c.service
	p := s.opts.ScanInterval
	if next != 0 {
		p = min(p, time.UnixMilli(next).Sub(s.now()))
	}
	return max(p, time.Millisecond)
}

// round takes on what is due, as far as there is room, and returns when the
// first entry after that is due.
func (c *scheduler) round(ctx context.Context) (next int64, err error) {
	s := c.service
	c.mu.Lock()
	c.next, c.again = 0, false
	c.mu.Unlock()
	now := s.now()
	r := s.space.SubDueRange()
	for range duePages {
		rows, err := s.page(ctx, r, duePage)
		if err != nil {
			return 0, err
		}
		var due []entry
		for _, row := range rows {
			e, err := s.parseDue(row)
			if err != nil {
				return 0, err
			}
			if e.due.After(now) {
				next = ms(e.due)
				break
			}
			due = append(due, e)
		}
		rand.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
		for _, e := range due {
			if !c.take(e) {
				return ms(now.Add(s.opts.ScanInterval)), nil // full; who ends gives a signal
			}
		}
		if next != 0 || len(rows) < duePage {
			return next, nil
		}
		r.Begin = after(rows[len(rows)-1].Key)
	}
	return 0, nil
}

func (s *Service) parseDue(row kv.KeyValue) (entry, error) {
	due, task, uid, err := s.space.ParseSubDue(row.Key)
	if err != nil {
		return entry{}, err
	}
	id, err := parseDueValue(row.Value)
	return entry{due, task, uid, id}, err
}

// take begins the work of an entry, unless it is under way here or waits for
// its host; it reports false if there is no room for more.
func (c *scheduler) take(e entry) bool {
	s := c.service
	k := workKey{e.task, e.uid}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.busy) >= s.opts.MaxDeliveries {
		return false
	}
	if c.busy[k] {
		return true
	}
	if host, ok := c.parked[k]; ok {
		if c.hosts[host] >= s.opts.MaxPerHost {
			return true
		}
		delete(c.parked, k)
	}
	select {
	case <-s.stopping:
		return false
	default:
	}
	c.busy[k] = true
	s.work.Go(func() {
		defer c.done(k)
		s.do(s.ctx, e)
	})
	return true
}

func (c *scheduler) done(k workKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	full := len(c.busy) >= c.service.opts.MaxDeliveries
	delete(c.busy, k)
	if full || len(c.parked) > 0 {
		c.again = true
		c.signal()
	}
}

// enterHost takes one of a host's places, or parks the work until there is one.
func (c *scheduler) enterHost(k workKey, host string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hosts[host] >= c.service.opts.MaxPerHost {
		if len(c.parked) >= duePage*duePages {
			clear(c.parked) // they are found again
		}
		c.parked[k] = host
		return false
	}
	c.hosts[host]++
	return true
}

func (c *scheduler) leaveHost(host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hosts[host]--; c.hosts[host] == 0 {
		delete(c.hosts, host)
	}
}

// do carries out one entry.
func (s *Service) do(ctx context.Context, e entry) {
	var err error
	switch e.task {
	case keys.SubTaskDeliver:
		err = s.doDeliver(ctx, e)
	case keys.SubTaskFill:
		err = s.fill(ctx, e)
	case keys.SubTaskDrop:
		err = s.drop(ctx, e)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("a task failed; it will be tried again", "subscription", e.id.Name, "bucket", e.id.Bucket, "task", e.task, "error", err)
		pauseFor(ctx, shardRetry)
	}
}

func pauseFor(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// doDeliver looks at a subscription whose time has come. The place at the
// webhook's host comes before the wake, so that a wake's lease doesn't run
// while it waits for one.
func (s *Service) doDeliver(ctx context.Context, e entry) error {
	host, err := s.hostOf(ctx, e.id)
	if err != nil {
		return err
	}
	if host != "" {
		if !s.sched.enterHost(workKey{e.task, e.uid}, host) {
			s.counts.parked.Add(1)
			return nil
		}
		defer s.sched.leaveHost(host)
	}
	w, err := s.tick(ctx, e)
	if err != nil || w == nil || w.action == nothing {
		return err
	}
	s.counts.wakes.Add(1)
	if w.Type == Webhook {
		s.deliver(ctx, w)
	} else {
		s.announce(ctx, w)
	}
	return nil
}

// hostOf returns the host of a webhook, "" for no webhook.
func (s *Service) hostOf(ctx context.Context, id ID) (string, error) {
	var url string
	err := s.store.View(ctx, func(ctx context.Context, tx kv.Tx) error {
		u, err := s.load(ctx, tx, id)
		if err == nil && u != nil {
			url = u.URL
		}
		return err
	})
	return hostOfURL(url), err
}
