//go:build foundationdb

package foundationdb

import (
	"bytes"
	"sync"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"headwater/fdblayer/kv"
)

// tx is one transaction.
//
// Cancel may come from any goroutine at any time, and so may the end of the
// context of a wait. Both reset the C transaction instead of cancelling it: that
// fails its futures too, frees its arenas, and works in every client mode, where
// a transaction of the multi-version client that has no cluster yet ignores a
// cancel. After Cancel the C transaction serves another tx. So every call goes to
// it under mu, and only while ended is nil; no call under mu waits for anything.
type tx struct {
	db *database

	mu sync.Mutex // guards all below; version and stamp are the owner's after Commit
	// tr is this transaction's alone while held.
	tr   fdb.Transaction
	held bool
	// ended is why every use fails until Reset, or nil.
	ended error
	// committing leaves tr to the commit until that ends.
	committing bool
	// cancelled has the commit pass tr on when it ends.
	cancelled bool
	// abandoned says that tr may still be committing, so no other tx gets it.
	abandoned bool
	// life counts the Resets: a range read of an earlier life asks for no more.
	life    int
	wrote   bool  // the commit needs the network
	watched bool  // the commit activates watches
	err     error // the first error of a call that has no result

	version int64
	stamp   [kv.VersionstampLen]byte
}

var _ kv.Tx = (*tx)(nil)

// enter locks t for a call that is made only if t has not ended.
func (t *tx) enter() bool {
	t.mu.Lock()
	if t.ended != nil {
		t.mu.Unlock()
		return false
	}
	return true
}

// holdLocked gets t a C transaction, or ends it with the reason there is none.
func (t *tx) holdLocked() {
	if !t.held {
		t.tr, t.ended = t.db.transaction()
		t.held = t.ended == nil
	}
}

// end makes every use of t fail with err from now on, until Reset. A commit
// under way is left to end first.
func (t *tx) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil {
		t.ended = err
		if !t.committing {
			t.tr.Reset()
		}
	}
}

func (t *tx) endedWith() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// Cancel implements [kv.Tx].
func (t *tx) Cancel() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil {
		t.ended = &kv.Error{Code: kv.CodeTransactionCancelled}
	}
	t.cancelled = true
	if !t.committing {
		t.letGoLocked()
	}
}

// letGoLocked passes the C transaction on. Committed watches live on in it.
func (t *tx) letGoLocked() {
	if !t.held {
		return
	}
	t.tr.Reset()
	if !t.abandoned {
		t.db.handle.idle.Put(t.tr) //nolint:staticcheck // a struct of one pointer needs no allocation
	}
	t.tr, t.held, t.abandoned = fdb.Transaction{}, false, false
}

// Reset implements [kv.Tx].
func (t *tx) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.committing {
		return // a misuse: the outcome of the commit stays to be seen
	}
	t.wrote, t.watched, t.err, t.ended, t.cancelled = false, false, nil, nil, false
	t.version, t.stamp = -1, [kv.VersionstampLen]byte{}
	t.life++
	if t.held {
		t.tr.Reset()
	} else {
		t.holdLocked()
	}
}

// fail maps the binding's error of an operation of t. A transaction that was
// ended fails its futures with 1025; the reason is more use.
func (t *tx) fail(err error) error {
	if err == nil {
		return nil
	}
	err = engineError(err)
	if c := kv.Code(err); c == kv.CodeTransactionCancelled || c == kv.CodeOperationCancelled {
		if ended := t.endedWith(); ended != nil {
			return ended
		}
	}
	return err
}

// noteLocked keeps the first error of a call that has no result; Commit returns
// it.
func (t *tx) noteLocked(err error) {
	if err != nil && t.err == nil {
		t.err = engineError(err)
	}
}

// SetReadVersion implements [kv.Tx].
func (t *tx) SetReadVersion(version int64) {
	if t.enter() {
		defer t.mu.Unlock()
		t.tr.SetReadVersion(version)
	}
}

// Set implements [kv.Tx].
func (t *tx) Set(key, value []byte) {
	if t.enter() {
		defer t.mu.Unlock()
		t.wrote = true
		t.tr.Set(fdb.Key(key), value)
	}
}

// Clear implements [kv.Tx].
func (t *tx) Clear(key []byte) {
	if t.enter() {
		defer t.mu.Unlock()
		t.wrote = true
		t.tr.Clear(fdb.Key(key))
	}
}

// ClearRange implements [kv.Tx].
func (t *tx) ClearRange(r kv.Range) {
	if t.enter() {
		defer t.mu.Unlock()
		t.wrote = true
		if t.orderedLocked(r) {
			t.tr.ClearRange(keyRange(r))
		}
	}
}

// orderedLocked refuses a range that ends before it begins. libfdb_c aborts the
// process on clearing one.
func (t *tx) orderedLocked(r kv.Range) bool {
	if bytes.Compare(r.Begin, r.End) <= 0 {
		return true
	}
	t.noteLocked(&kv.Error{Code: kv.CodeInvertedRange, Detail: "range end lies before its begin"})
	return false
}

func keyRange(r kv.Range) fdb.KeyRange {
	return fdb.KeyRange{Begin: fdb.Key(r.Begin), End: fdb.Key(r.End)}
}

// Atomic implements [kv.Tx].
func (t *tx) Atomic(op kv.AtomicOp, key, param []byte) {
	if !t.enter() {
		return
	}
	defer t.mu.Unlock()
	t.wrote = true
	k := fdb.Key(key)
	switch op {
	case kv.Add:
		t.tr.Add(k, param)
	case kv.Max:
		t.tr.Max(k, param)
	case kv.ByteMax:
		t.tr.ByteMax(k, param)
	case kv.CompareAndClear:
		t.tr.CompareAndClear(k, param)
	case kv.SetVersionstampedKey:
		t.tr.SetVersionstampedKey(k, param)
	case kv.SetVersionstampedValue:
		t.tr.SetVersionstampedValue(k, param)
	default:
		t.noteLocked(&kv.Error{Code: kv.CodeClientInvalidOperation})
	}
}

// AddReadConflictKey implements [kv.Tx].
func (t *tx) AddReadConflictKey(key []byte) {
	if t.enter() {
		defer t.mu.Unlock()
		t.noteLocked(t.tr.AddReadConflictKey(fdb.Key(key)))
	}
}

// AddReadConflictRange implements [kv.Tx].
func (t *tx) AddReadConflictRange(r kv.Range) {
	if t.enter() {
		defer t.mu.Unlock()
		if t.orderedLocked(r) {
			t.noteLocked(t.tr.AddReadConflictRange(keyRange(r)))
		}
	}
}

// AddWriteConflictKey implements [kv.Tx].
func (t *tx) AddWriteConflictKey(key []byte) {
	if t.enter() {
		defer t.mu.Unlock()
		t.wrote = true
		t.noteLocked(t.tr.AddWriteConflictKey(fdb.Key(key)))
	}
}

// AddWriteConflictRange implements [kv.Tx].
func (t *tx) AddWriteConflictRange(r kv.Range) {
	if t.enter() {
		defer t.mu.Unlock()
		t.wrote = true
		if t.orderedLocked(r) {
			t.noteLocked(t.tr.AddWriteConflictRange(keyRange(r)))
		}
	}
}

// SetNextWriteNoConflict implements [kv.Tx].
func (t *tx) SetNextWriteNoConflict() {
	if t.enter() {
		defer t.mu.Unlock()
		t.noteLocked(t.tr.Options().SetNextWriteNoWriteConflictRange())
	}
}

// SetPriorityBatch implements [kv.Tx].
func (t *tx) SetPriorityBatch() {
	if t.enter() {
		defer t.mu.Unlock()
		t.noteLocked(t.tr.Options().SetPriorityBatch())
	}
}
