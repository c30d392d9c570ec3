package embedded

import (
	"bytes"
	"context"
	"sync/atomic"

	"headwater/fdblayer/kv"
)

// tx is a kv.Tx. Everything a transaction gathers is in its attempt, which
// futures refer to; Reset begins a new one and ends the old.
type tx struct {
	db  *DB
	cur atomic.Pointer[attempt]
}

var (
	_ kv.Database = (*DB)(nil)
	_ kv.Tx       = (*tx)(nil)
)

// Begin implements kv.Database.
func (db *DB) Begin() kv.Tx {
	t := &tx{db: db}
	t.cur.Store(newAttempt(db))
	return t
}

func (t *tx) Reset() { t.cur.Swap(newAttempt(t.db)).end(errCancelled) }

func (t *tx) Cancel() { t.cur.Load().end(errCancelled) }

func (t *tx) Get(key []byte) kv.Value { return t.cur.Load().get(key, false) }

func (t *tx) GetKey(sel kv.Selector) kv.Value { return t.cur.Load().getKey(sel, false) }

func (t *tx) GetRange(begin, end kv.Selector, opt kv.RangeOptions) kv.Rows {
	return t.cur.Load().getRange(begin, end, opt, false)
}

func (t *tx) Snapshot() kv.Reader { return snapshotReader{t} }

// snapshotReader reads without conflict ranges.
type snapshotReader struct{ t *tx }

func (s snapshotReader) Get(key []byte) kv.Value { return s.t.cur.Load().get(key, true) }

func (s snapshotReader) GetKey(sel kv.Selector) kv.Value { return s.t.cur.Load().getKey(sel, true) }

func (s snapshotReader) GetRange(begin, end kv.Selector, opt kv.RangeOptions) kv.Rows {
	return s.t.cur.Load().getRange(begin, end, opt, true)
}

func (t *tx) ReadVersion(ctx context.Context) (int64, error) {
	a := t.cur.Load()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.readVersion()
}

func (t *tx) SetReadVersion(version int64) {
	a := t.cur.Load()
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.hasVersion:
		a.fail(&kv.Error{Code: codeReadVersionAlreadySet})
	case version <= 0:
		a.fail(&kv.Error{Code: codeVersionInvalid})
	default:
		a.hasVersion, a.version = true, version
	}
}

// The codes of mistakes that nobody tells apart.
const (
	codeReadVersionAlreadySet = 2010
	codeVersionInvalid        = 2011
)

func (t *tx) Set(key, value []byte) { t.write(mutation{kind: set, key: key, param: value}) }

func (t *tx) Clear(key []byte) { t.write(mutation{kind: clearKey, key: key}) }

func (t *tx) ClearRange(r kv.Range) { t.write(mutation{kind: clearRange, key: r.Begin, param: r.End}) }

func (t *tx) Atomic(op kv.AtomicOp, key, param []byte) {
	m := mutation{kind: atomicOp, op: op, key: key, param: param}
	switch op {
	case kv.SetVersionstampedKey:
		m.kind = stampedKey
	case kv.SetVersionstampedValue:
		m.kind = stampedValue
	}
	t.write(m)
}

func (t *tx) write(m mutation) {
	a := t.cur.Load()
	a.mu.Lock()
	defer a.mu.Unlock()
	m.quiet, a.quiet = a.quiet, false
	if err := a.usable(); err != nil {
		a.fail(err)
		return
	}
	if err := checkMutation(m); err != nil {
		a.fail(err)
		return
	}
	m.key, m.param = a.mem.copy(m.key), a.mem.copy(m.param)
	a.log = append(a.log, m)
	a.size += len(m.key) + len(m.param)
	a.stamped = a.stamped || m.kind == stampedKey || m.kind == stampedValue
	if !m.quiet {
		a.size += 2*len(m.key) + 1
	}
}

func checkMutation(m mutation) error {
	if m.kind == clearRange {
		if bytes.Compare(m.key, m.param) > 0 {
			return &kv.Error{Code: kv.CodeInvertedRange}
		}
		if bytes.Compare(m.param, endOfKeys) > 0 {
			return &kv.Error{Code: kv.CodeKeyOutsideLegalRange}
		}
		return nil
	}
	if bytes.Compare(m.key, endOfKeys) >= 0 {
		return &kv.Error{Code: kv.CodeKeyOutsideLegalRange}
	}
	fits := true
	switch m.kind {
	case stampedKey:
		_, fits = stampPlace(m.key)
	case stampedValue:
		_, fits = stampPlace(m.param)
	}
	if !fits {
		return &kv.Error{Code: kv.CodeClientInvalidOperation, Detail: "no place for the versionstamp"}
	}
	// The suffix of a versionstamped operand counts, as in FoundationDB.
	if len(m.key) > kv.MaxKeySize {
		return &kv.Error{Code: kv.CodeKeyTooLarge}
	}
	if len(m.param) > kv.MaxValueSize {
		return &kv.Error{Code: kv.CodeValueTooLarge}
	}
	return nil
}

func (t *tx) AddReadConflictKey(key []byte) { t.conflict(key, successor(key), true) }

func (t *tx) AddReadConflictRange(r kv.Range) { t.conflict(r.Begin, r.End, true) }

func (t *tx) AddWriteConflictKey(key []byte) { t.conflict(key, successor(key), false) }

func (t *tx) AddWriteConflictRange(r kv.Range) { t.conflict(r.Begin, r.End, false) }

func (t *tx) conflict(begin, end []byte, read bool) {
	a := t.cur.Load()
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.usable()
	switch {
	case err != nil:
	case bytes.Compare(begin, end) > 0:
		err = &kv.Error{Code: kv.CodeInvertedRange}
	case bytes.Compare(end, endOfKeys) > 0 && bytes.Compare(begin, endOfKeys) >= 0:
		err = &kv.Error{Code: kv.CodeKeyOutsideLegalRange}
	case bytes.Equal(begin, end):
		return
	}
	if err != nil {
		a.fail(err)
		return
	}
	s := rangeSpan(a.mem.copy(begin), a.mem.copy(end))
	if read {
		a.addRead(s, a.overlay())
		return
	}
	a.writes = append(a.writes, s)
	a.size += s.size()
}

func (t *tx) SetNextWriteNoConflict() {
	a := t.cur.Load()
	a.mu.Lock()
	a.quiet = true
	a.mu.Unlock()
}

// SetPriorityBatch does nothing: one process has no admission control.
func (t *tx) SetPriorityBatch() {}

func (t *tx) CommittedVersion() int64 {
	a := t.cur.Load()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.committed
}

func (t *tx) Versionstamp() [kv.VersionstampLen]byte {
	a := t.cur.Load()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stamp
}
