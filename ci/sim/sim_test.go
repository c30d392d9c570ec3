package sim

import (
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"headwater/fdblayer"
	"headwater/fdblayer/kv"
	"headwater/keys"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "first seed; 0 draws one")
	runsFlag   = flag.Int("runs", 3, "histories, each with the seed after that of the one before")
	roundsFlag = flag.Int("rounds", 4, "rounds of a history; after each, faults pause and everything is read")
	stepsFlag  = flag.Int("steps", 60, "requests of a client in a round")
	repeatFlag = flag.Int("repeat", 1, "how often to run each seed")
	largeFlag  = flag.Bool("large", false, "append bodies that have to be staged now and then")
)

const (
	frontends = 3
	clients   = 6
	followers = 5
	streams   = 4
)

// TestHistories makes random histories and holds what clients see of them
// against what is promised.
func TestHistories(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64N(1 << 40)
	}
	runs := *runsFlag
	if testing.Short() {
		runs = min(runs, 1)
	}
	total, faults := 0, map[string]int{}
	for i := range uint64(runs) {
		for range *repeatFlag {
			ok := t.Run(fmt.Sprint(seed+i), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSim(t, seed+i)
					s.run()
					total += s.h.steps
					for what, n := range s.c.faults {
						faults[what] += n
					}
				})
			})
			if !ok {
				t.Fatalf("run this history again with -seed=%d -runs=1 -rounds=%d -steps=%d -repeat=20", seed+i, *roundsFlag, *stepsFlag)
			}
		}
	}
	var lines []string
	for what, n := range faults {
		lines = append(lines, fmt.Sprintf("%8d %s", n, what))
	}
	sort.Strings(lines)
	t.Logf("seeds from %d: %d histories, %d steps, faults:\n%s", seed, runs**repeatFlag, total, strings.Join(lines, "\n"))
}

type sim struct {
	t         *testing.T
	c         *cluster
	h         *history
	dice      *dice
	clients   []*client
	followers []*follower
}

func newSim(t *testing.T, seed uint64) *sim {
	s := &sim{t: t, c: newCluster(t, seed, frontends), h: newHistory(), dice: newDice(seed, 0)}
	seq := &atomic.Int64{}
	for i := range clients {
		s.clients = append(s.clients, &client{c: s.c, h: s.h, dice: newDice(seed, uint64(1+i)), id: i, names: streams, large: *largeFlag,
			tuples: map[keys.Incarnation]*tuple{}, seq: seq})
	}
	for i := range followers {
		s.followers = append(s.followers, &follower{c: s.c, h: s.h, dice: newDice(seed, uint64(100+i)), names: streams})
	}
	return s
}

func (s *sim) run() {
	ctx, stop := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	for _, f := range s.followers {
		reading.Go(func() { f.run(ctx) })
	}
	for round := 0; round < *roundsFlag && !s.h.failed() && !s.t.Failed(); round++ {
		s.round()
		s.audit()
	}
	stop()
	reading.Wait()
	if !s.h.failed() {
		s.empty()
	}
	s.c.close()
	if why := s.h.report(); why != "" {
		s.t.Error(why)
	}
}

// round lets everybody act while everything goes wrong.
func (s *sim) round() {
	s.c.weather.Store([]int32{0, 3, 10, 25, 60}[s.dice.n(5)])
	done := make(chan struct{})
	var chaos, working sync.WaitGroup
	for _, cl := range s.clients {
		working.Go(func() {
			for range *stepsFlag {
				if s.h.failed() {
					return
				}
				cl.step()
			}
		})
	}
	chaos.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(s.dice.upTo(time.Second)):
			}
			switch s.dice.n(10) {
			case 0, 1, 2:
				s.c.replace(true)
			case 3:
				s.c.replace(false)
			case 4, 5, 6:
				s.c.count("clock jumped")
				s.c.ahead.Add(int64(s.dice.upTo(20 * time.Minute)))
			case 7:
				if s.dice.in(1, 4) {
					s.c.count("clock jumped")
					s.c.ahead.Add(int64(s.dice.upTo(6 * time.Hour)))
				}
			}
		}
	})
	working.Wait()
	close(done)
	chaos.Wait()
	s.c.weather.Store(0)
	time.Sleep(25 * time.Second) // late commits land, leases end, readers arrive
}

// audit reads everything on every frontend.
func (s *sim) audit() {
	for i := range streams {
		name := "s" + fmt.Sprint(i)
		tails := map[keys.Offset]bool{}
		for _, f := range s.c.all() {
			if tail, ok := s.readAll(f, name); ok {
				tails[tail] = true
			}
		}
		if len(tails) > 1 {
			s.h.mu.Lock()
			s.h.fail("%s ends at different places on different frontends: %v", name, tails)
			s.h.mu.Unlock()
		}
	}
	s.h.settle()
	for _, f := range s.followers {
		for range 6 { // one that reads small pieces may need a while
			if f.behind() == "" {
				break
			}
			time.Sleep(10 * time.Second)
		}
		if why := f.behind(); why != "" {
			s.h.mu.Lock()
			s.h.fail("%s", why)
			s.h.mu.Unlock()
		}
	}
}

func (s *sim) readAll(f *front, name string) (tail keys.Offset, ok bool) {
	req := fdblayer.ReadRequest{ID: sid(name), MaxBytes: 4 << 20}
	o := s.h.begin(s.c, f, "audit", name)
	st, _, err := f.Head(context.Background(), sid(name), fdblayer.Precondition{})
	s.h.mu.Lock()
	s.h.end(s.c, f, o, err)
	if err == nil {
		s.h.seen(o, st, false)
	}
	s.h.mu.Unlock()
	if err != nil {
		return tail, false
	}
	req.Precondition = fdblayer.Precondition{Incarnation: st.Incarnation, Set: true}
	req.From = fdblayer.From{Offset: st.Retained}
	for {
		o := s.h.begin(s.c, f, "audit", name)
		p, err := f.Read(context.Background(), req)
		s.h.mu.Lock()
		s.h.end(s.c, f, o, err)
		if err == nil {
			s.h.observe(o, p)
		}
		s.h.mu.Unlock()
		if err != nil {
			return tail, false // it may have expired meanwhile; that was judged
		}
		if p.UpToDate {
			return p.Next, true
		}
		req.From.Offset = p.Next
	}
}

// empty deletes every stream and checks that nothing is left of any.
func (s *sim) empty() {
	f := s.c.all()[0]
	for range 3 { // a name may be held for forks that go later in a round
		for i := range streams {
			err := f.Delete(context.Background(), sid("s"+fmt.Sprint(i)), fdblayer.Precondition{})
			if code := codeOf(err); err != nil && code != fdblayer.CodeNotFound && code != fdblayer.CodeSoftDeleted {
				s.t.Errorf("delete: %v", err)
			}
		}
	}
	s.c.ahead.Add(int64(48 * time.Hour))
	time.Sleep(2 * time.Minute)
	left, err := keysLeft(s.c.db, f.Space())
	if err != nil {
		s.t.Error(err)
	}
	if len(left) > 0 {
		s.h.mu.Lock()
		s.h.fail("%d keys are left of streams that are gone:\n%s", len(left), strings.Join(left[:min(len(left), 20)], "\n"))
		s.h.mu.Unlock()
	}
}

// keysLeft returns the keys besides those of frontends and of the deployment.
func keysLeft(db kv.Database, space keys.Space) (left []string, err error) {
	all, batches := space.All(), space.BatchRange()
	err = kv.Read(context.Background(), db, func(ctx context.Context, tx kv.Tx) error {
		left = nil
		rows := tx.GetRange(kv.FirstGreaterOrEqual(all.Begin), kv.FirstGreaterOrEqual(all.End), kv.RangeOptions{})
		for more := true; more; {
			batch, m, err := rows.Next(ctx)
			if err != nil {
				return err
			}
			more = m
			for _, row := range batch {
				k := string(row.Key)
				witness := k >= string(batches.Begin) && k < string(batches.End)
				if !witness && k != string(space.System("format")) && k != string(space.Lease("sweep")) {
					left = append(left, hex.EncodeToString(row.Key))
				}
			}
		}
		return nil
	})
	return left, err
}
