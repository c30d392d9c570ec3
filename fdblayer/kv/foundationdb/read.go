//go:build foundationdb

package foundationdb

import (
	"context"
	"math"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"headwater/fdblayer/kv"
)

// Get implements [kv.Reader].
func (t *tx) Get(key []byte) kv.Value { return t.get(key, serializable) }

// GetKey implements [kv.Reader].
func (t *tx) GetKey(sel kv.Selector) kv.Value { return t.getKey(sel, serializable) }

// GetRange implements [kv.Reader].
func (t *tx) GetRange(begin, end kv.Selector, opt kv.RangeOptions) kv.Rows {
	return t.getRange(begin, end, opt, serializable)
}

// Snapshot implements [kv.Tx].
func (t *tx) Snapshot() kv.Reader { return snapshot{t} }

// snapshot is the view of a transaction whose reads add no conflict ranges.
// The binding's Snapshot has an Options method that calls itself without end;
// options are only ever set on the transaction.
type snapshot struct{ t *tx }

func (s snapshot) Get(key []byte) kv.Value         { return s.t.get(key, isSnapshot) }
func (s snapshot) GetKey(sel kv.Selector) kv.Value { return s.t.getKey(sel, isSnapshot) }
func (s snapshot) GetRange(begin, end kv.Selector, opt kv.RangeOptions) kv.Rows {
	return s.t.getRange(begin, end, opt, isSnapshot)
}

// Which view of a transaction reads.
const (
	serializable = false
	isSnapshot   = true
)

// ReadVersion implements [kv.Tx].
func (t *tx) ReadVersion(ctx context.Context) (int64, error) {
	f, err := issue(t, serializable, fdb.ReadTransaction.GetReadVersion)
	if err != nil {
		return 0, err
	}
	return await(ctx, t, f)
}

func (t *tx) get(key []byte, snapshot bool) kv.Value {
	f, err := issue(t, snapshot, func(r fdb.ReadTransaction) fdb.FutureByteSlice { return r.Get(fdb.Key(key)) })
	if err != nil {
		return failed{err}
	}
	return &value[[]byte]{t, f}
}

func (t *tx) getKey(sel kv.Selector, snapshot bool) kv.Value {
	f, err := issue(t, snapshot, func(r fdb.ReadTransaction) fdb.FutureKey { return r.GetKey(selector(sel)) })
	if err != nil {
		return failed{err}
	}
	return &value[fdb.Key]{t, f}
}

func selector(s kv.Selector) fdb.KeySelector {
	return fdb.KeySelector{Key: fdb.Key(s.Key), OrEqual: s.OrEqual, Offset: s.Offset}
}

// issue runs read, which puts a read on its way, unless t has ended.
func issue[F any](t *tx, snapshot bool, read func(fdb.ReadTransaction) F) (f F, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended != nil {
		return f, t.ended
	}
	if snapshot {
		return read(t.tr.Snapshot()), nil
	}
	return read(t.tr), nil
}

// future is what the binding's futures have in common.
type future[V any] interface {
	IsReady() bool
	Get() (V, error)
}

// await waits for f, a future of t. If ctx ends first it ends t.
func await[V any](ctx context.Context, t *tx, f future[V]) (V, error) {
	if !f.IsReady() {
		if ctx.Err() != nil {
			var none V
			return none, context.Cause(ctx)
		}
		defer t.guard(ctx)()
	}
	v, err := f.Get()
	return v, t.fail(err)
}

// guard ends t when ctx ends, until the function it returns is called.
func (t *tx) guard(ctx context.Context) (release func() bool) {
	return onEnd(ctx, func() { t.end(context.Cause(ctx)) })
}

// onEnd calls f when ctx ends, until release is called; release reports whether
// it did. No goroutine of it is left after release.
func onEnd(ctx context.Context, f func()) (release func() bool) {
	if ctx.Done() == nil {
		return func() bool { return false }
	}
	ran := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ran)
		f()
	})
	return func() bool {
		if stop() {
			return false
		}
		<-ran
		return true
	}
}

// value is a point read under way. The binding copies what it returns out of
// the C client's memory.
type value[B ~[]byte] struct {
	t *tx
	f future[B]
}

// Wait implements [kv.Value].
func (v *value[B]) Wait(ctx context.Context) ([]byte, error) { return await(ctx, v.t, v.f) }

// batchBytes ends a batch of rows, counted as the storage server counts its
// replies: with rowOverhead for each row. A batch is then one reply where the
// range lies on one server.
const (
	batchBytes  = 80_000
	rowOverhead = 24
)

func (t *tx) getRange(begin, end kv.Selector, opt kv.RangeOptions, snapshot bool) kv.Rows {
	if opt.Limit < 0 {
		return failedRows{&kv.Error{Code: codeRangeLimitsInvalid}}
	}
	// WantAll asks for whole replies (80 kB) from the first on, where the
	// default mode begins with 4 kB. Exact is not an option: it gathers all
	// rows up to the limit in the client, however large they are.
	o := fdb.RangeOptions{Limit: min(opt.Limit, math.MaxInt32), Reverse: opt.Reverse, Mode: fdb.StreamingModeWantAll}
	it, err := issue(t, snapshot, func(r fdb.ReadTransaction) *fdb.RangeIterator {
		return r.GetRange(fdb.SelectorRange{Begin: selector(begin), End: selector(end)}, o).Iterator()
	})
	if err != nil {
		return failedRows{err}
	}
	return &rows{t: t, it: it, life: t.life, left: opt.Limit}
}

// rows is a range read under way. The binding's iterator hides where a reply
// ends, and asks for the next one as soon as the last row of a reply is taken:
// there is always one reply of read-ahead, unless the range or its limit ends.
type rows struct {
	t    *tx
	it   *fdb.RangeIterator
	life int // of t
	left int // rows still wanted, where there was a limit
	done bool
	err  error
}

// Next implements [kv.Rows].
func (r *rows) Next(ctx context.Context) ([]kv.KeyValue, bool, error) {
	if r.done {
		return nil, false, r.err
	}
	if ctx.Err() != nil {
		return nil, true, context.Cause(ctx)
	}
	release := r.t.guard(ctx)
	batch, more, err := r.gather()
	release()
	if err = r.t.fail(err); err != nil {
		batch, more = nil, false
	}
	r.done, r.err = !more, err
	return batch, more, err
}

func (r *rows) gather() (batch []kv.KeyValue, more bool, err error) {
	for size := 0; size < batchBytes; {
		if !r.it.Advance() { // waits where a reply is under way
			return batch, false, nil
		}
		row, err := r.take()
		if err != nil {
			return nil, false, err
		}
		batch = append(batch, kv.KeyValue{Key: row.Key, Value: row.Value})
		size += len(row.Key) + len(row.Value) + rowOverhead
		if r.left--; r.left == 0 {
			return batch, false, nil
		}
	}
	return batch, true, nil
}

// take takes the next row of the reply at hand, and asks for the next reply with
// the last: in a C transaction that must still be this one's.
func (r *rows) take() (fdb.KeyValue, error) {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	switch {
	case r.t.ended != nil:
		return fdb.KeyValue{}, r.t.ended
	case r.t.life != r.life:
		return fdb.KeyValue{}, &kv.Error{Code: kv.CodeTransactionCancelled}
	}
	return r.it.Get()
}

// failed is a point read or a watch that ended before it began.
type failed struct{ err error }

func (f failed) Wait(context.Context) ([]byte, error) { return nil, f.err }

// failedRows is a range read that ended before it began.
type failedRows struct{ err error }

func (f failedRows) Next(context.Context) ([]kv.KeyValue, bool, error) { return nil, false, f.err }
