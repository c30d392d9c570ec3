package sim

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"headwater/fdblayer"
	"headwater/fdblayer/kv"
	"headwater/fdblayer/kv/embedded"
	"headwater/fdblayer/kv/kvtest"
)

// dice are random choices that many goroutines make.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newDice(seed, stream uint64) *dice {
	return &dice{rng: rand.New(rand.NewPCG(seed, stream))}
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

// in reports true in k of n cases.
func (d *dice) in(k, n int) bool { return d.n(n) < k }

func (d *dice) upTo(t time.Duration) time.Duration { return time.Duration(d.n(int(t) + 1)) }

// cluster is frontends over one engine that goes wrong.
type cluster struct {
	t    testing.TB
	db   kv.Database
	dice *dice
	// weather is how many of 100 commits and reads go wrong.
	weather atomic.Int32
	// ahead is how far the clock of all frontends has jumped.
	ahead atomic.Int64

	mu     sync.Mutex
	fronts []*front
	dying  sync.WaitGroup
	faults map[string]int
	next   int
}

// front is one life of a frontend.
type front struct {
	*fdblayer.Store
	name  int
	lossy *lossy
}

func newCluster(t testing.TB, seed uint64, fronts int) *cluster {
	db, err := embedded.Open(context.Background(), embedded.Options{
		InMemory: true, CacheBytes: 4 << 20, MemTableBytes: 16 << 20, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, db: db, dice: newDice(seed, 1000), faults: make(map[string]int)}
	for range fronts {
		c.fronts = append(c.fronts, c.open())
	}
	return c
}

func (c *cluster) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// maxSkew is how far a frontend's clock may be from the others'.
const maxSkew = 2 * time.Second

func (c *cluster) open() *front {
	c.mu.Lock()
	c.next++
	name := c.next
	c.mu.Unlock()
	l := &lossy{c: c, gone: make(chan struct{})}
	l.Database = kvtest.Faulty(keepOpen{c.db}, func(cm kvtest.Commit) kvtest.Fault { return c.fate(l, cm) })
	skew := c.dice.upTo(maxSkew) - maxSkew/2
	var store *fdblayer.Store
	for {
		var err error
		store, err = fdblayer.Open(context.Background(), l, fdblayer.Options{
			Lanes:         1 + c.dice.n(2),
			CommitTimeout: 300*time.Millisecond + c.dice.upTo(5*time.Second),
			ReadTimeout:   3 * time.Second,
			SnapshotGrace: 24 * time.Hour,
			SweepInterval: time.Second,
			Now:           func() time.Time { return c.now().Add(skew) },
			Logger:        slog.New(slog.DiscardHandler),
		})
		if err == nil {
			break
		}
		if kv.Code(err) == 0 {
			c.t.Errorf("open: %v", err)
			return nil
		}
		time.Sleep(time.Second)
	}
	return &front{Store: store, name: name, lossy: l}
}

// keepOpen keeps a wrapper's Close from the engine that others still use.
type keepOpen struct{ kv.Database }

func (keepOpen) Close() error { return nil }

func (c *cluster) any() *front {
	i := c.dice.n(1 << 30)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fronts[i%len(c.fronts)]
}

func (c *cluster) all() []*front {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*front(nil), c.fronts...)
}

// replace ends a frontend and starts another in its place: after Close, or in
// the middle of what it does.
func (c *cluster) replace(crash bool) {
	fresh := c.open()
	c.mu.Lock()
	i := c.dice.n(len(c.fronts))
	old := c.fronts[i]
	c.fronts[i] = fresh
	c.mu.Unlock()
	if crash {
		c.count("frontend killed")
		old.lossy.kill()
	} else {
		c.count("frontend restarted")
	}
	c.dying.Go(func() { c.end(old, crash) })
}

func (c *cluster) end(f *front, crash bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := f.Close(ctx)
	if err != nil && !crash && c.weather.Load() == 0 && ctx.Err() != nil {
		c.t.Errorf("frontend %d did not close: %v", f.name, err)
	}
	f.lossy.kill()
	_ = f.lossy.Database.Close() // waits for the late commits
}

func (c *cluster) close() {
	for _, f := range c.all() {
		c.end(f, false)
	}
	c.dying.Wait()
	if err := c.db.Close(); err != nil {
		c.t.Error(err)
	}
}

func (c *cluster) count(what string) {
	c.mu.Lock()
	c.faults[what]++
	c.mu.Unlock()
}

// fate decides what becomes of a commit that writes.
func (c *cluster) fate(l *lossy, _ kvtest.Commit) kvtest.Fault {
	if l.dead.Load() || !c.dice.in(int(c.weather.Load()), 100) {
		return kvtest.Fault{}
	}
	pick := func(codes ...int) int { return codes[c.dice.n(len(codes))] }
	switch n := c.dice.n(100); {
	case n < 25:
		c.count("commit refused")
		return kvtest.Fault{Fate: kvtest.Refuse, Code: pick(kv.CodeNotCommitted, kv.CodeTransactionTooOld, kv.CodeFutureVersion,
			kv.CodeProcessBehind, kv.CodeDatabaseLocked, kv.CodeCommitProxyMemoryLimit)}
	case n < 50:
		c.count("commit applied, outcome unknown")
		return kvtest.Fault{Fate: kvtest.Applied, Code: pick(kv.CodeCommitUnknownResult, kv.CodeClusterVersionChanged, kv.CodeTransactionTimedOut)}
	case n < 75:
		c.count("commit dropped, outcome unknown")
		return kvtest.Fault{Fate: kvtest.Dropped, Code: pick(kv.CodeCommitUnknownResult, kv.CodeClusterVersionChanged, kv.CodeTransactionTimedOut)}
	case n < 90:
		// Only after these codes may FoundationDB still apply it.
		c.count("commit late, outcome unknown")
		return kvtest.Fault{Fate: kvtest.Late, Hold: after(c.dice.upTo(6*time.Second) / time.Duration(1+c.dice.n(1000))),
			Code: pick(kv.CodeTransactionTimedOut, kv.CodeTransactionCancelled, kv.CodeOperationCancelled)}
	}
	c.count("commit stalled")
	return kvtest.Fault{Hold: after(c.dice.upTo(3 * time.Second))}
}

func after(d time.Duration) <-chan struct{} {
	ch := make(chan struct{})
	time.AfterFunc(d, func() { close(ch) })
	return ch
}

// lossy is a frontend's way to the database: slow, faulty, and cut when the
// frontend is killed.
type lossy struct {
	kv.Database
	c    *cluster
	dead atomic.Bool
	gone chan struct{}
}

func (l *lossy) kill() {
	if l.dead.CompareAndSwap(false, true) {
		close(l.gone)
	}
}

func (l *lossy) Begin() kv.Tx { return &lossyTx{l.Database.Begin(), l} }

// delay is the time on the way, in which others act.
func (l *lossy) delay(ctx context.Context) error {
	d := l.c.dice.upTo(2 * time.Millisecond)
	if l.c.weather.Load() > 0 && l.c.dice.in(1, 100) {
		l.c.count("read or commit slowed down")
		d = l.c.dice.upTo(time.Second)
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	case <-l.gone:
		return kv.ErrClosed
	}
	return nil
}

// way is a read's way back.
func (l *lossy) way(ctx context.Context) error {
	if err := l.delay(ctx); err != nil {
		return err
	}
	if l.c.dice.in(int(l.c.weather.Load()), 1000) {
		l.c.count("read failed")
		codes := []int{kv.CodeTransactionTooOld, kv.CodeFutureVersion, kv.CodeProcessBehind, kv.CodeGrvProxyMemoryLimit}
		return &kv.Error{Code: codes[l.c.dice.n(len(codes))], Detail: "injected"}
	}
	return nil
}

type lossyTx struct {
	kv.Tx
	l *lossy
}

func (t *lossyTx) Get(key []byte) kv.Value         { return lossyValue{t.Tx.Get(key), t.l} }
func (t *lossyTx) GetKey(sel kv.Selector) kv.Value { return lossyValue{t.Tx.GetKey(sel), t.l} }
func (t *lossyTx) Snapshot() kv.Reader             { return lossyReader{t.Tx.Snapshot(), t.l} }
func (t *lossyTx) GetRange(begin, end kv.Selector, opt kv.RangeOptions) kv.Rows {
	return lossyRows{t.Tx.GetRange(begin, end, opt), t.l}
}

func (t *lossyTx) Commit(ctx context.Context) error {
	if err := t.l.delay(ctx); err != nil {
		return err
	}
	err := t.Tx.Commit(ctx)
	if t.l.delay(ctx) != nil {
		return kv.ErrClosed // who was killed hears nothing
	}
	return err
}

func (t *lossyTx) Watch(key []byte) kv.Watch { return lossyWatch{t.Tx.Watch(key), t.l} }

type lossyReader struct {
	r kv.Reader
	l *lossy
}

func (r lossyReader) Get(key []byte) kv.Value         { return lossyValue{r.r.Get(key), r.l} }
func (r lossyReader) GetKey(sel kv.Selector) kv.Value { return lossyValue{r.r.GetKey(sel), r.l} }
func (r lossyReader) GetRange(begin, end kv.Selector, opt kv.RangeOptions) kv.Rows {
	return lossyRows{r.r.GetRange(begin, end, opt), r.l}
}

type lossyValue struct {
	v kv.Value
	l *lossy
}

func (v lossyValue) Wait(ctx context.Context) ([]byte, error) {
	if err := v.l.way(ctx); err != nil {
		return nil, err
	}
	return v.v.Wait(ctx)
}

type lossyRows struct {
	r kv.Rows
	l *lossy
}

func (r lossyRows) Next(ctx context.Context) ([]kv.KeyValue, bool, error) {
	if err := r.l.way(ctx); err != nil {
		return nil, false, err
	}
	return r.r.Next(ctx)
}

type lossyWatch struct {
	w kv.Watch
	l *lossy
}

// Wait fires late, for nothing, or fails, but does not miss a change.
func (w lossyWatch) Wait(ctx context.Context) error {
	if w.l.c.weather.Load() == 0 {
		return w.w.Wait(ctx)
	}
	switch w.l.c.dice.n(20) {
	case 0:
		w.l.c.count("watch fired for nothing")
		return nil
	case 1:
		w.l.c.count("watch failed")
		return &kv.Error{Code: kv.CodeOperationCancelled, Detail: "injected"}
	case 2:
		w.l.c.count("watch fired late")
		err := w.w.Wait(ctx)
		select {
		case <-time.After(w.l.c.dice.upTo(3 * time.Second)):
		case <-ctx.Done():
		}
		return err
	}
	return w.w.Wait(ctx)
}
func (w lossyWatch) Cancel() { w.w.Cancel() }
