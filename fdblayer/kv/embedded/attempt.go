package embedded

import (
	"bytes"
	"context"
	"sync"

	"headwater/fdblayer/kv"
)

var (
	errCancelled    = &kv.Error{Code: kv.CodeTransactionCancelled}
	errUsedInCommit = &kv.Error{Code: kv.CodeUsedDuringCommit}
)

// attempt is one run of a transaction, from Begin or Reset to Commit, Cancel or
// the next Reset. mu guards all of it: futures are waited for from any
// goroutine, and a later batch of a range read adds to the conflicts.
type attempt struct {
	db *DB

	mu sync.Mutex
	// ended is why it can no longer be used; nil while it can.
	ended error
	// failed is the first mistake of a call that returns no error.
	failed error

	// version is what it reads at and is judged from, once hasVersion. at is
	// the published version behind it, pinned, once a read needed it.
	hasVersion bool
	version    int64
	at         *version

	log     []mutation
	stamped bool // log has a versionstamped operation
	over    *overlay
	quiet   bool   // the next write adds no conflict
	reads   []span // read conflicts
	writes  []span // write conflicts besides those of log
	size    int
	watches []*watch
	mem     arena

	committed int64
	stamp     [kv.VersionstampLen]byte
}

func newAttempt(db *DB) *attempt { return &attempt{db: db, committed: -1} }

// end makes the attempt unusable, unless it has ended, and lets go of what it
// holds. Watches that were not armed end with err.
func (a *attempt) end(err *kv.Error) {
	a.mu.Lock()
	if a.ended == nil {
		a.ended = err
	}
	a.release(err)
	a.mu.Unlock()
}

// release lets go of what a commit under way does not need.
func (a *attempt) release(err error) {
	if a.at != nil {
		a.db.win.unpin(a.at)
		a.at = nil
	}
	for _, w := range a.watches {
		w.reg.finish(w, err)
	}
	a.watches = nil
}

func (a *attempt) usable() error {
	if a.ended != nil {
		return a.ended
	}
	return a.failed
}

func (a *attempt) fail(err error) {
	if a.failed == nil {
		a.failed = err
	}
}

// readVersion chooses the version if it is not chosen.
func (a *attempt) readVersion() (int64, error) {
	if err := a.usable(); err != nil {
		return 0, err
	}
	if !a.hasVersion {
		v, err := a.db.win.current()
		if err != nil {
			return 0, err
		}
		a.at, a.version, a.hasVersion = v, v.num, true
	}
	return a.version, nil
}

// base returns the published version to read from. The error is future_version
// if it is not there yet.
func (a *attempt) base() (*version, error) {
	if _, err := a.readVersion(); err != nil {
		return nil, err
	}
	if a.at == nil {
		v, err := a.db.win.at(a.version)
		if err != nil {
			return nil, err
		}
		a.at = v
	}
	return a.at, nil
}

// overlay returns the transaction's writes so far, nil if there are none.
func (a *attempt) overlay() *overlay {
	if len(a.log) == 0 {
		return nil
	}
	if a.over == nil {
		a.over = newOverlay()
	}
	a.over.catchUp(a.log)
	return a.over
}

// addRead records that the outcome depends on s, but for what over settles.
// The memory of s must be the transaction's.
func (a *attempt) addRead(s span, over *overlay) {
	add := func(s span) {
		a.reads = append(a.reads, s)
		a.size += s.size()
	}
	if over == nil {
		add(s)
		return
	}
	over.dependent(s, add)
}

// read runs fn on what the transaction sees now, and records the conflict that
// fn returns. With mu held.
func (a *attempt) read(v *version, over *overlay, snapshot bool, fn func(view) (seen span, err error)) error {
	snap, err := a.db.win.begin(v)
	if err != nil {
		return err
	}
	defer a.db.win.end(v)
	seen, err := fn(view{snap, over})
	if err != nil {
		return err
	}
	if !snapshot && (seen.begin != nil || seen.end != nil) {
		a.addRead(seen, over)
	}
	return nil
}

// issue runs fn at once if its version is there, and in the future's Wait if it
// is yet to come. Either way fn sees the writes made before issue was called.
func (a *attempt) issue(snapshot bool, fn func(view) ([]byte, span, error)) kv.Value {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.usable(); err != nil {
		return &future{err: err}
	}
	f := &future{}
	run := func(v *version, over *overlay) error {
		return a.read(v, over, snapshot, func(v view) (s span, err error) {
			f.value, s, err = fn(v)
			return s, err
		})
	}
	v, err := a.base()
	if err == nil {
		err = run(v, a.overlay())
	}
	if kv.Code(err) == kv.CodeFutureVersion {
		f.later = a.later(run)
		return f
	}
	f.err = err
	return f
}

// later returns a function that waits for the attempt's version, then runs run
// on the writes made so far.
func (a *attempt) later(run func(*version, *overlay) error) func(context.Context) error {
	over := a.overlay()
	if over != nil {
		over = over.clone()
	}
	num := a.version
	return func(ctx context.Context) error {
		v, err := a.db.win.await(ctx, num)
		if err != nil {
			return err
		}
		defer a.db.win.unpin(v)
		a.mu.Lock()
		defer a.mu.Unlock()
		if err := a.usable(); err != nil {
			return err
		}
		return run(v, over)
	}
}

func (a *attempt) get(key []byte, snapshot bool) kv.Value {
	if bytes.Compare(key, endOfKeys) >= 0 {
		return &future{err: &kv.Error{Code: kv.CodeKeyOutsideLegalRange}}
	}
	key = clone(key)
	return a.issue(snapshot, func(v view) ([]byte, span, error) {
		val, err := v.get(key)
		return val, pointSpan(key), err
	})
}

func (a *attempt) getKey(sel kv.Selector, snapshot bool) kv.Value {
	if bytes.Compare(sel.Key, endOfKeys) > 0 {
		return &future{err: &kv.Error{Code: kv.CodeKeyOutsideLegalRange}}
	}
	sel.Key = clone(sel.Key)
	return a.issue(snapshot, func(v view) ([]byte, span, error) {
		key, seen, err := v.resolve(sel)
		return clone(key), seen, err
	})
}

// future is a point read. Where later is set it runs in the first Wait.
type future struct {
	mu    sync.Mutex
	later func(context.Context) error
	value []byte
	err   error
}

func (f *future) Wait(ctx context.Context) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.later != nil {
		err := f.later(ctx)
		if err != nil && ctx.Err() != nil {
			return nil, err // another Wait may go on
		}
		f.later, f.err = nil, err
	}
	return f.value, f.err
}

// arena copies keys and values into a few large blocks.
type arena struct {
	block []byte
	next  int
}

const (
	arenaFirst = 1 << 10
	arenaMost  = 64 << 10
)

func (m *arena) copy(b []byte) []byte {
	if len(b) > arenaMost/4 {
		return clone(b)
	}
	if cap(m.block)-len(m.block) < len(b) {
		m.next = min(max(2*m.next, arenaFirst), arenaMost)
		m.block = make([]byte, 0, max(m.next, len(b)))
	}
	n := len(m.block)
	m.block = append(m.block, b...)
	return m.block[n:len(m.block):len(m.block)]
}
