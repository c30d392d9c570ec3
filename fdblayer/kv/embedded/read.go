package embedded

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"headwater/fdblayer/kv"
)

// batchBytes ends a batch of a range read, as it does in a reply of
// FoundationDB's storage servers. The row that reaches it is still included.
const batchBytes = 80_000

// endOfKeys is the first key past user space. The engine's own keys are there.
var endOfKeys = []byte{0xff}

// view is what one read sees: a snapshot under the transaction's own writes.
type view struct {
	snap *pebble.Snapshot
	over *overlay // nil if the transaction wrote nothing
}

var errUnreadable = &kv.Error{Code: kv.CodeAccessedUnreadable}

// get returns the value of key, nil if it is absent.
func (v view) get(key []byte) ([]byte, error) {
	var e written
	if v.over != nil {
		if v.over.unreadable.overlaps(key, successor(key)) {
			return nil, errUnreadable
		}
		var ok bool
		if e, ok = v.over.find(key); ok && e.unreadable {
			return nil, errUnreadable
		}
		if ok && e.known {
			return clone(e.value), nil
		}
	}
	base, err := getCopy(v.snap, key)
	if err != nil || len(e.ops) == 0 {
		return base, err
	}
	return clone(e.over(base)), nil
}

// getCopy reads one key; the answer belongs to the caller.
func getCopy(r pebble.Reader, key []byte) ([]byte, error) {
	b, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, len(b)), b...)
	return out, closer.Close()
}

// cursor walks the keys that a view holds in [lo, hi), in one direction.
type cursor struct {
	view
	lo, hi  []byte
	reverse bool

	iter *pebble.Iterator
	// base is the database's row the walk stands before.
	baseKey, baseValue []byte
	baseOK             bool
	// own is the transaction's own row the walk stands before.
	ownKey []byte
	own    written
	ownOK  bool
}

func (v view) cursor(lo, hi []byte, reverse bool) (*cursor, error) {
	iter, err := v.snap.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
	if err != nil {
		return nil, err
	}
	c := &cursor{view: v, lo: lo, hi: hi, reverse: reverse, iter: iter}
	if reverse {
		err = c.loadBase(iter.Last())
	} else {
		err = c.loadBase(iter.First())
	}
	if err != nil {
		return nil, errors.Join(err, iter.Close())
	}
	if v.over != nil {
		if reverse {
			c.ownKey, c.own, c.ownOK = v.over.next(hi, lo, true)
		} else {
			c.ownKey, c.own, c.ownOK = v.over.next(lo, hi, false)
		}
	}
	return c, nil
}

func (c *cursor) close() error { return c.iter.Close() }

// loadBase takes the row the iterator stands on, over what the transaction
// cleared.
func (c *cursor) loadBase(ok bool) error {
	for ok && c.over != nil {
		hole, in := c.over.cleared.holding(c.iter.Key())
		if !in {
			break
		}
		if c.reverse {
			ok = c.iter.SeekLT(hole.begin)
		} else {
			ok = c.iter.SeekGE(hole.end)
		}
	}
	c.baseOK = ok
	if !ok {
		return c.iter.Error()
	}
	v, err := c.iter.ValueAndErr()
	c.baseKey, c.baseValue = c.iter.Key(), v
	return err
}

// next returns the next row, valid until the next call; a nil key ends the walk.
func (c *cursor) next() (key, value []byte, err error) {
	for c.baseOK || c.ownOK {
		var order int
		switch {
		case !c.baseOK:
			order = 1
		case !c.ownOK:
			order = -1
		default:
			if order = bytes.Compare(c.baseKey, c.ownKey); c.reverse {
				order = -order
			}
		}
		if order < 0 {
			// The iterator's memory is reused when it moves.
			kv := append(append(make([]byte, 0, len(c.baseKey)+len(c.baseValue)), c.baseKey...), c.baseValue...)
			n := len(c.baseKey)
			return kv[:n:n], kv[n:], c.stepBase()
		}
		key = c.ownKey
		if c.own.unreadable {
			return nil, nil, errUnreadable
		}
		if order == 0 {
			if value = c.own.over(c.baseValue); !c.own.known {
				value = clone(value)
			}
			if err := c.stepBase(); err != nil {
				return nil, nil, err
			}
		} else {
			value = c.own.over(nil)
		}
		if c.reverse {
			c.ownKey, c.own, c.ownOK = c.over.next(key, c.lo, true)
		} else {
			c.ownKey, c.own, c.ownOK = c.over.next(successor(key), c.hi, false)
		}
		if value != nil {
			return clone(key), clone(value), nil
		}
	}
	return nil, nil, nil
}

func (c *cursor) stepBase() error {
	if c.reverse {
		return c.loadBase(c.iter.Prev())
	}
	return c.loadBase(c.iter.Next())
}

// scan reads rows of [lo, hi) until limit rows, batchBytes or the end. extent
// is the part of the range that it saw: all of it where more is false.
func (v view) scan(lo, hi []byte, limit int, reverse bool) (rows []kv.KeyValue, extent span, more bool, err error) {
	c, err := v.cursor(lo, hi, reverse)
	if err != nil {
		return nil, span{}, false, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	extent = span{lo, hi}
	size := 0
	for {
		key, value, err := c.next()
		if err != nil {
			return nil, span{}, false, err
		}
		if key == nil {
			break
		}
		rows = append(rows, kv.KeyValue{Key: key, Value: value})
		size += len(key) + len(value)
		if limit > 0 && len(rows) == limit || size >= batchBytes {
			more = true
			if reverse {
				extent.begin = key
			} else {
				extent.end = successor(key)
			}
			break
		}
	}
	if v.over != nil && v.over.unreadable.overlaps(extent.begin, extent.end) {
		return nil, span{}, false, errUnreadable
	}
	return rows, extent, more, nil
}

// resolve finds the key a selector names, and what was read to find it.
func (v view) resolve(sel kv.Selector) (key []byte, extent span, err error) {
	start := sel.Key
	if sel.OrEqual {
		start = successor(sel.Key)
	}
	lo, hi, steps, reverse := start, endOfKeys, sel.Offset, false
	if sel.Offset <= 0 {
		lo, hi, steps, reverse = nil, start, 1-sel.Offset, true
	}
	if bytes.Compare(start, endOfKeys) >= 0 {
		if !reverse {
			return clone(endOfKeys), span{}, nil
		}
		hi = endOfKeys
	}
	if reverse && len(hi) == 0 {
		return []byte{}, span{}, nil // and Pebble takes an empty bound for none
	}
	c, err := v.cursor(lo, hi, reverse)
	if err != nil {
		return nil, span{}, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for range steps {
		if key, _, err = c.next(); err != nil {
			return nil, span{}, err
		}
		if key == nil {
			break
		}
	}
	extent = span{lo, hi}
	switch {
	case key == nil && reverse:
		key = []byte{}
	case key == nil:
		key = clone(endOfKeys)
	case reverse:
		extent.begin = key
	default:
		extent.end = successor(key)
	}
	if v.over != nil && v.over.unreadable.overlaps(extent.begin, extent.end) {
		return nil, span{}, errUnreadable
	}
	return key, extent, nil
}
