package embedded

import (
	"bytes"
	"context"
	"sync"

	"headwater/fdblayer/kv"
)

// rows is a range read under way. Between batches it holds nothing open: each
// Next seeks anew, which costs microseconds, where an open iterator would keep
// memory and files from being freed until somebody remembers to close it.
type rows struct {
	a        *attempt
	snapshot bool
	reverse  bool
	left     int // rows to go; 0 means no limit

	mu sync.Mutex
	// begin and end are the range's selectors, until they are resolved into lo
	// and hi, which then close in on what is not read yet.
	begin, end kv.Selector
	resolved   bool
	lo, hi     []byte
	done       bool
	// first is the batch read when the read was issued.
	first *batch
	later func(context.Context) error
}

type batch struct {
	rows []kv.KeyValue
	more bool
	err  error
}

func (a *attempt) getRange(begin, end kv.Selector, opt kv.RangeOptions, snapshot bool) kv.Rows {
	r := &rows{a: a, snapshot: snapshot, reverse: opt.Reverse, left: max(opt.Limit, 0), begin: begin, end: end}
	r.begin.Key, r.end.Key = clone(begin.Key), clone(end.Key)
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.usable()
	if err == nil && (bytes.Compare(begin.Key, endOfKeys) > 0 || bytes.Compare(end.Key, endOfKeys) > 0) {
		err = &kv.Error{Code: kv.CodeKeyOutsideLegalRange}
	}
	if err != nil {
		r.first = &batch{err: err}
		return r
	}
	v, err := a.base()
	if kv.Code(err) == kv.CodeFutureVersion {
		r.later = a.later(r.fetch)
		return r
	}
	if err == nil {
		err = r.fetch(v, a.overlay())
	}
	if err != nil {
		r.first = &batch{err: err}
	}
	return r
}

func (r *rows) Next(ctx context.Context) ([]kv.KeyValue, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == nil && !r.done {
		if err := r.fetchNow(ctx); err != nil {
			return nil, false, err
		}
	}
	b := r.first
	if b == nil {
		return nil, false, nil
	}
	if b.err != nil {
		return nil, false, b.err
	}
	r.first = nil
	return b.rows, b.more, nil
}

func (r *rows) fetchNow(ctx context.Context) error {
	if r.later != nil {
		err := r.later(ctx)
		if err == nil {
			r.later = nil
		}
		return err
	}
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	v, err := r.a.base()
	if err != nil {
		return err
	}
	return r.fetch(v, r.a.overlay())
}

// fetch reads the next batch into first. With the attempt's mu held.
func (r *rows) fetch(v *version, over *overlay) error {
	if !r.resolved {
		if err := r.resolve(v, over); err != nil {
			return err
		}
	}
	if bytes.Compare(r.lo, r.hi) >= 0 {
		r.done, r.first = true, &batch{}
		return nil
	}
	b := &batch{}
	err := r.a.read(v, over, r.snapshot, func(v view) (span, error) {
		found, seen, more, err := v.scan(r.lo, r.hi, r.left, r.reverse)
		if err != nil {
			return span{}, err
		}
		b.rows, b.more = found, more
		if r.reverse {
			r.hi = seen.begin
		} else {
			r.lo = seen.end
		}
		return rangeSpan(seen.begin, seen.end), nil
	})
	if err != nil {
		return err
	}
	if r.left > 0 {
		r.left -= len(b.rows)
		// FoundationDB says there is more when a limit ends the read; here the
		// caller asked for no more, and is not made to call again to hear it.
		b.more = b.more && r.left > 0
	}
	r.done, r.first = !b.more, b
	return nil
}

// resolve turns the selectors into keys. The usual ones name a bound of the
// range without a look at the database.
func (r *rows) resolve(v *version, over *overlay) error {
	if r.begin.Offset >= r.end.Offset && bytes.Compare(bound(r.begin), bound(r.end)) >= 0 {
		r.resolved = true
		return nil
	}
	one := func(sel kv.Selector) (key []byte, err error) {
		if sel.Offset == 1 {
			return bound(sel), nil
		}
		err = r.a.read(v, over, r.snapshot, func(v view) (seen span, err error) {
			key, seen, err = v.resolve(sel)
			return rangeSpan(seen.begin, seen.end), err
		})
		return key, err
	}
	lo, err := one(r.begin)
	if err != nil {
		return err
	}
	hi, err := one(r.end)
	if err != nil {
		return err
	}
	if bytes.Compare(hi, endOfKeys) > 0 {
		hi = endOfKeys
	}
	r.lo, r.hi, r.resolved = lo, hi, true
	return nil
}

// bound is where a selector starts to count from.
func bound(sel kv.Selector) []byte {
	if sel.OrEqual {
		return successor(sel.Key)
	}
	return sel.Key
}
