package embedded

import (
	"context"
	"sort"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"headwater/fdblayer/kv"
)

const (
	// versionsPerSecond is FoundationDB's rate.
	versionsPerSecond = int64(time.Second / time.Microsecond)
	// windowVersions is how far back reads reach, and conflicts are judged.
	windowVersions = int64(kv.MaxTransactionAge / time.Microsecond)
	// refreshVersions is how stale the newest version may get, while nothing
	// commits, before a new transaction is given a newer one.
	refreshVersions = versionsPerSecond / 20
	// reserveVersions is how many versions are reserved on disk at a time.
	reserveVersions = 3600 * versionsPerSecond
	// futureWait is how long a read waits for its version to come, as
	// FoundationDB's storage servers do.
	futureWait = time.Second
)

// version is one published version: the database as of num, and until a later
// one is published. Its fields are guarded by window.mu.
type version struct {
	num int64
	// until is the version that was published next; 0 for the newest.
	until int64
	snap  *pebble.Snapshot
	// reading counts the reads under way, which keep snap open.
	reading int
	// pinned counts the transactions that read at it. They keep it from being
	// thinned out, but not from growing too old.
	pinned int
	// dropped means that no read may begin.
	dropped bool
}

// window is the published versions that can be read. It hands out read versions
// and keeps the promise behind them: no later commit gets a version that was
// handed out. Old versions are dropped as new ones come, without a timer: an
// idle engine keeps the last 5 s of its snapshots, which cost it nothing.
type window struct {
	store *pebble.DB
	// now is the version by the clock.
	now func() int64
	// failed returns why the engine stopped, nil if it runs. Once it stopped it
	// answers no reads: what it was writing may be in the log, so "not there"
	// would be a guess.
	failed func() error
	// nudge tells the committer that the reserve runs low.
	nudge func()
	// thin is how many versions are kept before those that nobody reads at are
	// dropped early: those closer together than window/thin. A store that
	// syncs never gets there; one in memory publishes 100,000 a second.
	thin int

	mu sync.Mutex
	// versions are in order; the last one is the newest and never dropped.
	versions []*version
	// dead counts the dropped ones among versions.
	dead int
	// kept is the last version but the newest that was not thinned out.
	kept int64
	// writing is the version of the group that is being written; 0 if none.
	// While it is, the store holds writes that are not published.
	writing int64
	// reserve is the highest version that may be handed out: no later process
	// will hand out one that is not above it.
	reserve int64
	// arrived is closed when a version is published; nil if nobody waits.
	arrived chan struct{}
	closed  bool
	// idle is closed, once the window is closed, when the last read ends.
	idle chan struct{}
	open int // reads under way
}

func (w *window) refusal() error {
	if w.closed {
		return kv.ErrClosed
	}
	return w.failed()
}

func (w *window) newest() *version { return w.versions[len(w.versions)-1] }

// publish makes num the newest version, read from snap. It returns the
// snapshots to close once mu is free: closing takes Pebble's lock.
func (w *window) publish(num int64, snap *pebble.Snapshot) (stale []*pebble.Snapshot) {
	if n := len(w.versions); n > 0 {
		last := w.versions[n-1]
		last.until = num
		if n-w.dead > w.thin && last.pinned == 0 && last.num-w.kept < windowVersions/int64(w.thin) {
			stale = w.drop(last, stale)
		} else {
			w.kept = last.num
		}
	}
	w.versions = append(w.versions, &version{num: num, snap: snap})
	i := 0
	for ; w.versions[i].num < num-windowVersions; i++ {
		v := w.versions[i]
		if v.dropped {
			w.dead--
			continue
		}
		stale = w.drop(v, stale)
		w.dead--
	}
	if i > 0 {
		clear(w.versions[:i])
		w.versions = w.versions[i:]
	}
	if w.dead > 64 && w.dead > len(w.versions)/2 {
		w.compact()
	}
	if w.arrived != nil {
		close(w.arrived)
		w.arrived = nil
	}
	return stale
}

// compact forgets the dropped versions. at tells by until that one is missing.
func (w *window) compact() {
	kept := make([]*version, 0, 2*(len(w.versions)-w.dead))
	for _, v := range w.versions {
		if !v.dropped {
			kept = append(kept, v)
		}
	}
	w.versions = kept
	w.dead = 0
}

func (w *window) drop(v *version, stale []*pebble.Snapshot) []*pebble.Snapshot {
	v.dropped = true
	w.dead++
	if v.reading > 0 {
		return stale
	}
	snap := v.snap
	v.snap = nil
	return append(stale, snap)
}

func closeSnapshots(snaps []*pebble.Snapshot) {
	for _, s := range snaps {
		_ = s.Close() // fails never
	}
}

// refresh publishes the clock's version if the newest is older than slack and
// the store holds just what is published. Nothing is written for it: versions
// up to the reserve are ours.
func (w *window) refresh(slack int64) (stale []*pebble.Snapshot) {
	if w.writing != 0 {
		return nil
	}
	now := w.now()
	if now > w.reserve-reserveVersions/2 {
		w.nudge()
	}
	if now <= w.newest().num+slack || now > w.reserve {
		return nil
	}
	return w.publish(now, w.store.NewSnapshot())
}

// current returns the newest version, pinned.
func (w *window) current() (*version, error) {
	w.mu.Lock()
	if err := w.refusal(); err != nil {
		w.mu.Unlock()
		return nil, err
	}
	stale := w.refresh(refreshVersions)
	v := w.newest()
	v.pinned++
	w.mu.Unlock()
	closeSnapshots(stale)
	return v, nil
}

// at returns the published version that num reads from, pinned. The errors are
// too old, for one that is gone, and future, for one that is not there yet.
func (w *window) at(num int64) (*version, error) {
	w.mu.Lock()
	if err := w.refusal(); err != nil {
		w.mu.Unlock()
		return nil, err
	}
	slack := refreshVersions
	if num > w.newest().num {
		slack = 0
	}
	stale := w.refresh(slack)
	v, err := w.find(num)
	if err == nil {
		v.pinned++
	}
	w.mu.Unlock()
	closeSnapshots(stale)
	return v, err
}

func (w *window) find(num int64) (*version, error) {
	if num > w.newest().num {
		return nil, &kv.Error{Code: kv.CodeFutureVersion}
	}
	i := sort.Search(len(w.versions), func(i int) bool { return w.versions[i].num > num }) - 1
	if i < 0 || num < w.newest().num-windowVersions {
		return nil, &kv.Error{Code: kv.CodeTransactionTooOld}
	}
	v := w.versions[i]
	if v.dropped || v.until != 0 && v.until <= num {
		return nil, &kv.Error{Code: kv.CodeTransactionTooOld, Detail: "the version was thinned out"}
	}
	return v, nil
}

// await waits until at can answer for num, or futureWait has passed.
func (w *window) await(ctx context.Context, num int64) (*version, error) {
	deadline := time.Now().Add(futureWait)
	for {
		v, err := w.at(num)
		if kv.Code(err) != kv.CodeFutureVersion {
			return v, err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return nil, err
		}
		// If nothing commits, the clock alone will bring the version.
		if d := time.Duration(num-w.now()+1) * time.Microsecond; d > 0 && d < left {
			left = d
		}
		w.mu.Lock()
		if w.arrived == nil {
			w.arrived = make(chan struct{})
		}
		arrived := w.arrived
		passed := w.refusal() != nil || w.newest().num >= num
		w.mu.Unlock()
		if passed {
			continue
		}
		t := time.NewTimer(max(left, time.Millisecond))
		select {
		case <-arrived:
		case <-t.C:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		t.Stop()
		if ctx.Err() != nil {
			return nil, err
		}
	}
}

// unpin ends a transaction's claim on v.
func (w *window) unpin(v *version) {
	w.mu.Lock()
	v.pinned--
	w.mu.Unlock()
}

// begin lets one read of v start and returns what to read from; end must
// follow. The check is against the newest version, as on a storage server: one
// that stalls makes nobody too old.
func (w *window) begin(v *version) (*pebble.Snapshot, error) {
	w.mu.Lock()
	if err := w.refusal(); err != nil {
		w.mu.Unlock()
		return nil, err
	}
	stale := w.refresh(refreshVersions)
	if v.dropped {
		w.mu.Unlock()
		closeSnapshots(stale)
		return nil, &kv.Error{Code: kv.CodeTransactionTooOld}
	}
	v.reading++
	w.open++
	snap := v.snap
	w.mu.Unlock()
	closeSnapshots(stale)
	return snap, nil
}

func (w *window) end(v *version) {
	var stale *pebble.Snapshot
	w.mu.Lock()
	v.reading--
	w.open--
	if v.dropped && v.reading == 0 {
		stale, v.snap = v.snap, nil
	}
	if w.closed && w.open == 0 {
		close(w.idle)
	}
	w.mu.Unlock()
	if stale != nil {
		_ = stale.Close() // fails never
	}
}

// startWriting chooses the version of the next group: above every version that
// was handed out. The group must reserve more where it is above the reserve.
func (w *window) startWriting() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = max(w.now(), w.newest().num+1)
	return w.writing
}

// stopWriting ends a group that wrote nothing.
func (w *window) stopWriting() {
	w.mu.Lock()
	w.writing = 0
	w.mu.Unlock()
}

// written publishes a group that is durable.
func (w *window) written(num, reserve int64) {
	snap := w.store.NewSnapshot()
	w.mu.Lock()
	w.writing = 0
	w.reserve = reserve
	stale := w.publish(num, snap)
	w.mu.Unlock()
	closeSnapshots(stale)
}

// close refuses reads from now on, waits for those under way and closes the
// snapshots.
func (w *window) close() {
	w.mu.Lock()
	w.closed = true
	w.idle = make(chan struct{})
	if w.open == 0 {
		close(w.idle)
	}
	if w.arrived != nil {
		close(w.arrived)
		w.arrived = nil
	}
	w.mu.Unlock()
	<-w.idle
	var stale []*pebble.Snapshot
	w.mu.Lock()
	for _, v := range w.versions {
		if !v.dropped {
			stale = w.drop(v, stale)
		}
	}
	w.mu.Unlock()
	closeSnapshots(stale)
}
