package embedded

import (
	"bytes"
	"slices"

	"github.com/RaduBerinde/btreemap"

	"headwater/fdblayer/kv"
)

// mutation is one write of a transaction. For a clear of a range param is the
// end.
type mutation struct {
	kind  mutationKind
	op    kv.AtomicOp // of atomicOp
	quiet bool        // adds no write conflict
	key   []byte
	param []byte
}

type mutationKind uint8

const (
	set mutationKind = iota
	clearKey
	clearRange
	atomicOp      // a read-modify-write
	stampedKey    // SetVersionstampedKey
	stampedValue  // SetVersionstampedValue
	overlayDegree = 16
)

// written is what a transaction's own writes say of one key. It is a value:
// changing a key replaces it, so a clone of the overlay keeps what it had.
type written struct {
	// known means that value is the value, whatever the database holds; nil is
	// absent. Otherwise ops turn the database's value into it.
	known bool
	value []byte
	ops   []mutation
	// unreadable marks a key whose value is known at the commit. Like in
	// FoundationDB it lasts until the key is cleared: a later set does not end it.
	unreadable bool
}

// over returns the value the transaction sees where the database has base.
func (e written) over(base []byte) []byte {
	if e.known {
		return e.value
	}
	v := base
	for _, m := range e.ops {
		v = applyAtomic(m.op, v, m.param)
	}
	return v
}

// overlay is a transaction's writes as an index that reads go through. It is
// built from the log of mutations when the first read after a write needs it,
// so a transaction that writes blind never pays for it.
type overlay struct {
	applied int // mutations of the log that are in here
	keys    *btreemap.BTreeMap[[]byte, written]
	cleared spanSet
	// unreadable are the places that a versionstamped key may take.
	unreadable spanSet
}

func newOverlay() *overlay {
	return &overlay{keys: btreemap.New[[]byte, written](overlayDegree, bytes.Compare)}
}

// clone returns a copy that later writes do not reach.
func (o *overlay) clone() *overlay {
	return &overlay{o.applied, o.keys.Clone(), slices.Clone(o.cleared), slices.Clone(o.unreadable)}
}

// catchUp brings the rest of the log in.
func (o *overlay) catchUp(log []mutation) {
	for _, m := range log[o.applied:] {
		o.apply(m)
	}
	o.applied = len(log)
}

func (o *overlay) apply(m mutation) {
	switch m.kind {
	case set:
		o.put(m.key, written{known: true, value: m.param})
	case clearKey:
		o.keys.ReplaceOrInsert(m.key, written{known: true})
		o.unreadable.remove(m.key, successor(m.key))
	case clearRange:
		o.clear(m.key, m.param)
	case atomicOp:
		e, ok := o.find(m.key)
		switch {
		case ok && e.known:
			e.value = applyAtomic(m.op, e.value, m.param)
		case ok:
			e.ops = append(slices.Clip(e.ops), m)
		default:
			e.ops = []mutation{m}
		}
		o.put(m.key, e)
	case stampedValue:
		o.put(m.key, written{known: true, unreadable: true})
	case stampedKey:
		lo, hi := stampedKeyRange(m.key)
		o.unreadable.add(lo, hi)
	}
}

func (o *overlay) put(key []byte, e written) {
	if _, old, ok := o.keys.Get(key); ok && old.unreadable {
		e.unreadable = true
	}
	o.keys.ReplaceOrInsert(key, e)
}

// stampedKeyRange returns the keys that a versionstamped key may become.
func stampedKeyRange(param []byte) (begin, end []byte) {
	at, _ := stampPlace(param)
	begin = clone(param[:len(param)-stampSuffix])
	clear(begin[at : at+kv.VersionstampLen])
	end = clone(begin)
	for i := range kv.VersionstampLen {
		end[at+i] = 0xff
	}
	return begin, append(end, 0)
}

func (o *overlay) clear(begin, end []byte) {
	if bytes.Compare(begin, end) >= 0 {
		return
	}
	var gone [][]byte
	for k := range o.keys.Ascend(btreemap.GE(begin), btreemap.LT(end)) {
		gone = append(gone, k)
	}
	for _, k := range gone {
		o.keys.Delete(k)
	}
	o.unreadable.remove(begin, end)
	o.cleared.add(begin, end)
}

// find returns what the transaction wrote to key; ok is false if nothing.
func (o *overlay) find(key []byte) (e written, ok bool) {
	if _, e, ok := o.keys.Get(key); ok {
		return e, true
	}
	if _, ok := o.cleared.holding(key); ok {
		return written{known: true}, true
	}
	return written{}, false
}

// next returns the first written key of [from, end), or in reverse the last one
// of [end, from).
func (o *overlay) next(from, end []byte, reverse bool) (key []byte, e written, ok bool) {
	if reverse {
		for k, e := range o.keys.Descend(btreemap.LT(from), btreemap.GE(end)) {
			return k, e, true
		}
		return nil, written{}, false
	}
	for k, e := range o.keys.Ascend(btreemap.GE(from), btreemap.LT(end)) {
		return k, e, true
	}
	return nil, written{}, false
}

// dependent calls fn for the parts of r whose content the transaction's own
// writes do not settle: those are what a read of r takes from the database.
func (o *overlay) dependent(r span, fn func(span)) {
	if r.isPoint() {
		if e, ok := o.find(r.begin); !ok || !e.known {
			fn(r)
		}
		return
	}
	at := r.begin
	emit := func(end []byte) {
		if bytes.Compare(at, end) < 0 {
			fn(rangeSpan(at, end))
		}
	}
	cleared := o.cleared[o.cleared.from(r.begin):]
	cut := func(begin, end []byte) {
		emit(begin)
		if bytes.Compare(end, at) > 0 {
			at = end
		}
	}
	for k, e := range o.keys.Ascend(btreemap.GE(r.begin), btreemap.LT(r.end)) {
		for len(cleared) > 0 && bytes.Compare(cleared[0].begin, k) < 0 {
			cut(cleared[0].begin, cleared[0].end)
			cleared = cleared[1:]
		}
		if e.known {
			cut(k, successor(k))
		}
	}
	for len(cleared) > 0 && bytes.Compare(cleared[0].begin, r.end) < 0 {
		cut(cleared[0].begin, cleared[0].end)
		cleared = cleared[1:]
	}
	emit(r.end)
}
