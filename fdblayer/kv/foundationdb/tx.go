//go:build foundationdb

package foundationdb

import (
	"bytes"
	"context"
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
// cancel. But a reset transaction would go on as a fresh one, at another read
// version. So reads are issued under mu, only while ended is nil, and a range
// read, whose later replies the binding asks for by itself, looks at ended again
// before it hands out rows.
type tx struct {
	db *database
	tr fdb.Transaction

	// Owner's: the goroutine that uses the transaction.
	wrote   bool // the commit needs the network
	watched bool // the commit activates watches
	err     error
	version int64
	stamp   [kv.VersionstampLen]byte

	mu         sync.Mutex
	ended      error // why every use fails until Reset, or nil
	committing bool  // the C transaction must be left alone
}

var _ kv.Tx = (*tx)(nil)

// end makes every use of t fail with err from now on, until Reset. A commit
// under way is left to end first.
func (t *tx) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil {
		t.ended = err
	}
	if !t.committing {
		t.tr.Reset()
	}
}

func (t *tx) endedWith() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
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

// Cancel implements [kv.Tx].
func (t *tx) Cancel() { t.end(&kv.Error{Code: kv.CodeTransactionCancelled}) }

// Reset implements [kv.Tx].
func (t *tx) Reset() {
	t.wrote, t.watched, t.err = false, false, nil
	t.version, t.stamp = -1, [kv.VersionstampLen]byte{}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = nil
	t.tr.Reset()
}

// note keeps the first error of a call that has no result; Commit returns it.
func (t *tx) note(err error) {
	if err != nil && t.err == nil {
		t.err = engineError(err)
	}
}

// SetReadVersion implements [kv.Tx].
func (t *tx) SetReadVersion(version int64) { t.tr.SetReadVersion(version) }

// Set implements [kv.Tx].
func (t *tx) Set(key, value []byte) {
	t.wrote = true
	t.tr.Set(fdb.Key(key), value)
}

// Clear implements [kv.Tx].
func (t *tx) Clear(key []byte) {
	t.wrote = true
	t.tr.Clear(fdb.Key(key))
}

// ClearRange implements [kv.Tx].
func (t *tx) ClearRange(r kv.Range) {
	t.wrote = true
	if t.ordered(r) {
		t.tr.ClearRange(keyRange(r))
	}
}

// ordered refuses a range that ends before it begins. libfdb_c aborts the
// process on clearing one.
func (t *tx) ordered(r kv.Range) bool {
	if bytes.Compare(r.Begin, r.End) <= 0 {
		return true
	}
	t.note(&kv.Error{Code: kv.CodeInvertedRange, Detail: "range end lies before its begin"})
	return false
}

func keyRange(r kv.Range) fdb.KeyRange {
	return fdb.KeyRange{Begin: fdb.Key(r.Begin), End: fdb.Key(r.End)}
}

// Atomic implements [kv.Tx].
func (t *tx) Atomic(op kv.AtomicOp, key, param []byte) {
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
		t.note(&kv.Error{Code: kv.CodeClientInvalidOperation})
	}
}

// AddReadConflictKey implements [kv.Tx].
func (t *tx) AddReadConflictKey(key []byte) { t.note(t.tr.AddReadConflictKey(fdb.Key(key))) }

// AddReadConflictRange implements [kv.Tx].
func (t *tx) AddReadConflictRange(r kv.Range) {
	if t.ordered(r) {
		t.note(t.tr.AddReadConflictRange(keyRange(r)))
	}
}

// AddWriteConflictKey implements [kv.Tx].
func (t *tx) AddWriteConflictKey(key []byte) {
	t.wrote = true
	t.note(t.tr.AddWriteConflictKey(fdb.Key(key)))
}

// AddWriteConflictRange implements [kv.Tx].
func (t *tx) AddWriteConflictRange(r kv.Range) {
	t.wrote = true
	if t.ordered(r) {
		t.note(t.tr.AddWriteConflictRange(keyRange(r)))
	}
}

// SetNextWriteNoConflict implements [kv.Tx].
func (t *tx) SetNextWriteNoConflict() { t.note(t.tr.Options().SetNextWriteNoWriteConflictRange()) }

// SetPriorityBatch implements [kv.Tx].
func (t *tx) SetPriorityBatch() { t.note(t.tr.Options().SetPriorityBatch()) }

// deadTx stands for a transaction that could not begin.
type deadTx struct{ err error }

var _ kv.Tx = deadTx{}

func (d deadTx) Get([]byte) kv.Value                                        { return failed{d.err} }
func (d deadTx) GetKey(kv.Selector) kv.Value                                { return failed{d.err} }
func (d deadTx) GetRange(kv.Selector, kv.Selector, kv.RangeOptions) kv.Rows { return failedRows{d.err} }
func (d deadTx) Snapshot() kv.Reader                                        { return d }
func (d deadTx) ReadVersion(context.Context) (int64, error)                 { return 0, d.err }
func (d deadTx) Watch([]byte) kv.Watch                                      { return failedWatch{d.err} }
func (d deadTx) Commit(context.Context) error                               { return d.err }
func (d deadTx) CommittedVersion() int64                                    { return -1 }
func (d deadTx) Versionstamp() (stamp [kv.VersionstampLen]byte)             { return stamp }
func (d deadTx) SetReadVersion(int64)                                       {}
func (d deadTx) Set(_, _ []byte)                                            {}
func (d deadTx) Clear([]byte)                                               {}
func (d deadTx) ClearRange(kv.Range)                                        {}
func (d deadTx) Atomic(kv.AtomicOp, []byte, []byte)                         {}
func (d deadTx) AddReadConflictKey([]byte)                                  {}
func (d deadTx) AddReadConflictRange(kv.Range)                              {}
func (d deadTx) AddWriteConflictKey([]byte)                                 {}
func (d deadTx) AddWriteConflictRange(kv.Range)                             {}
func (d deadTx) SetNextWriteNoConflict()                                    {}
func (d deadTx) SetPriorityBatch()                                          {}
func (d deadTx) Reset()                                                     {}
func (d deadTx) Cancel()                                                    {}
