package embedded

import (
	"context"
	"crypto/sha256"
	"sync"
	"sync/atomic"

	"github.com/RaduBerinde/btreemap"

	"headwater/fdblayer/kv"
)

// registry is the watches of one store. An idle watch is a struct in a list of
// its key: no goroutine, and a channel only once somebody waits for it.
//
// A watch is put into the registry before the value it expects is compared with
// the newest published one, and the committer looks into the registry after it
// published. So of a change and a watch armed at the same time, at least one
// sees the other.
type registry struct {
	max int
	// armed is the number of watched keys, to be read without mu: the committer
	// skips all of it while it is 0.
	armed atomic.Int64

	mu     sync.Mutex
	closed bool
	live   int
	byKey  map[string]*watch
	// inOrder holds the same keys, for clears of ranges.
	inOrder *btreemap.BTreeMap[string, struct{}]
}

// watch is a kv.Watch. Its fields are guarded by reg.mu.
type watch struct {
	reg  *registry
	key  string
	seen fingerprint
	// next and prev link the watches of one key; byKey holds the first.
	next, prev *watch
	state      watchState
	err        error
	done       chan struct{} // made by the first Wait
}

type watchState uint8

const (
	unarmed watchState = iota // its transaction has not committed
	armed
	over // fired, or ended with err
)

func newRegistry(limit int) *registry {
	return &registry{
		max:     limit,
		byKey:   make(map[string]*watch),
		inOrder: btreemap.New[string, struct{}](overlayDegree, compareStrings),
	}
}

func compareStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// fingerprint stands for a value, or its absence. Long values are hashed: a
// watch may live for days, and the value it saw is of no use to anyone else.
type fingerprint string

func fingerprintOf(value []byte) fingerprint {
	switch {
	case value == nil:
		return ""
	case len(value) <= sha256.Size:
		return fingerprint("=" + string(value))
	}
	sum := sha256.Sum256(value)
	return fingerprint("#" + string(sum[:]))
}

// add counts a new watch in; past the limit the watch it returns has ended.
func (r *registry) add(key []byte) *watch {
	w := &watch{reg: r, key: string(key)}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		w.state, w.err = over, kv.ErrClosed
	case r.live >= r.max:
		w.state, w.err = over, &kv.Error{Code: kv.CodeTooManyWatches}
	default:
		r.live++
	}
	return w
}

// arm makes w fire when its key changes from now on.
func (r *registry) arm(w *watch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.state != unarmed {
		return
	}
	if r.closed {
		r.finishLocked(w, kv.ErrClosed)
		return
	}
	w.state = armed
	first := r.byKey[w.key]
	if first == nil {
		r.inOrder.ReplaceOrInsert(w.key, struct{}{})
		r.armed.Add(1)
	} else {
		first.prev, w.next = w, first
	}
	r.byKey[w.key] = w
}

// finish ends w: it fires if err is nil.
func (r *registry) finish(w *watch, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finishLocked(w, err)
}

func (r *registry) finishLocked(w *watch, err error) {
	if w.state == over {
		return
	}
	if w.state == armed {
		r.unlink(w)
	}
	w.state, w.err = over, err
	r.live--
	if w.done != nil {
		close(w.done)
	}
}

func (r *registry) unlink(w *watch) {
	if w.next != nil {
		w.next.prev = w.prev
	}
	switch {
	case w.prev != nil:
		w.prev.next = w.next
	case w.next != nil:
		r.byKey[w.key] = w.next
	default:
		delete(r.byKey, w.key)
		r.inOrder.Delete(w.key)
		r.armed.Add(-1)
	}
	w.next, w.prev = nil, nil
}

// touched returns those of the written keys that are watched.
func (r *registry) touched(written []span) []string {
	var keys []string
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range written {
		if s.isPoint() {
			if w := r.byKey[string(s.begin)]; w != nil {
				keys = append(keys, w.key)
			}
			continue
		}
		for k := range r.inOrder.Ascend(btreemap.GE(string(s.begin)), btreemap.LT(string(s.end))) {
			keys = append(keys, k)
		}
	}
	return keys
}

// changed fires the watches on key that expect another value than now.
func (r *registry) changed(key string, now fingerprint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := r.byKey[key]; w != nil; {
		next := w.next
		if w.seen != now {
			r.finishLocked(w, nil)
		}
		w = next
	}
}

// close ends every watch with kv.ErrClosed.
func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, w := range r.byKey {
		for w != nil {
			next := w.next
			r.finishLocked(w, kv.ErrClosed)
			w = next
		}
	}
}

// Wait implements kv.Watch.
func (w *watch) Wait(ctx context.Context) error {
	w.reg.mu.Lock()
	if w.state == over {
		defer w.reg.mu.Unlock()
		return w.err
	}
	if w.done == nil {
		w.done = make(chan struct{})
	}
	done := w.done
	w.reg.mu.Unlock()
	select {
	case <-done:
		// err was set before done was closed and does not change.
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Cancel implements kv.Watch.
func (w *watch) Cancel() {
	w.reg.finish(w, &kv.Error{Code: kv.CodeOperationCancelled})
}

// Watch implements kv.Tx.
func (t *tx) Watch(key []byte) kv.Watch {
	a := t.cur.Load()
	w := a.db.watches.add(key)
	value, err := a.get(key, false).Wait(context.Background()) // answered, or future_version
	if err == nil {
		w.seen = fingerprintOf(value)
		a.mu.Lock()
		if err = a.usable(); err == nil && w.state == unarmed {
			a.watches = append(a.watches, w)
		}
		a.mu.Unlock()
	}
	if err != nil {
		a.db.watches.finish(w, err)
	}
	return w
}

// arm activates the watches of a transaction that committed.
func (db *DB) arm(watches []*watch) {
	for _, w := range watches {
		db.watches.arm(w)
	}
	for _, w := range watches {
		now, err := db.valueNow([]byte(w.key))
		if err != nil || now != w.seen {
			db.watches.finish(w, nil) // on an error: let the caller read and see it
		}
	}
}

func (db *DB) valueNow(key []byte) (fingerprint, error) {
	v, err := db.win.current()
	if err != nil {
		return "", err
	}
	defer db.win.unpin(v)
	snap, err := db.win.begin(v)
	if err != nil {
		return "", err
	}
	defer db.win.end(v)
	value, err := getCopy(snap, key)
	return fingerprintOf(value), err
}

// wake fires the watches on what was written and differs now.
func (db *DB) wake(written []span) {
	for _, key := range db.watches.touched(written) {
		now, err := db.valueNow([]byte(key))
		if err != nil {
			now = unknownValue
		}
		db.watches.changed(key, now)
	}
}

// unknownValue differs from every fingerprint, so it fires.
const unknownValue fingerprint = "?"
