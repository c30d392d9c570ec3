package fdblayer

import (
	"bytes"
	"errors"
	"math"
	"time"

	"headwater/fdblayer/kv"
	"headwater/keys"
)

// A lane remembers the streams of its last commits: after a commit at version
// V it knows the state of each as of V. A batch whose streams are all
// remembered needs no read and no read version from the database. It reads as
// of the least V-1, declares by hand the conflicts that its reads would have
// made, and writes blind: one round trip. What anybody else changed since
// makes the resolver refuse it, and it is tried again with real reads.
//
// V-1 and not V: conflict means a write version greater than the read version,
// and transactions that commit together share a version. As of V, a close or
// delete that committed beside V would not be seen.
//
// With V-1 a lane would conflict with what it wrote itself at V. So it
// remembers no stream whose meta key it wrote; and producers and Stream-Seq,
// which most commits write, are guarded by parts (see guarded).
const (
	// warmAge is how old a memory may be. Conflicts can be checked for five
	// seconds; the rest is room for the commit.
	warmAge = 3500 * time.Millisecond
	// warmReal is how often a real read version is taken anyway, so that the
	// cluster's admission control is not bypassed for long.
	warmReal = 500 * time.Millisecond
	// warmStreams and warmProducers bound what a lane remembers.
	warmStreams   = 20_000
	warmProducers = 64
)

// errNotWarm says a warm batch has to be tried with real reads.
var errNotWarm = errors.New("fdblayer: not warm")

// memory is what one lane remembers. Owned by the lane's goroutine.
type memory struct {
	streams map[StreamID]*remembered
	// real is when a read version was last taken from the database.
	real time.Time
}

// known is a piece of state and the version, and the time, it was proved at.
type known[T any] struct {
	value   T
	version int64
	at      time.Time
}

func (k known[T]) fresh(now time.Time) bool {
	return k.version > 0 && !now.Before(k.at) && now.Sub(k.at) <= warmAge
}

// remembered is what a lane knows of one stream. Its parts were proved at
// versions of their own: a producer that was not in the last batch is known as
// of an earlier one, and conflicts are then checked from there.
type remembered struct {
	meta      known[*meta]
	touched   time.Time
	seq       known[*string]
	producers map[string]known[producerState]
}

func (m *memory) empty() bool { return len(m.streams) == 0 }

func (m *memory) clear() { m.streams = nil }

// serves reports whether every request of a batch can be judged from memory.
func (m *memory) serves(work []*pending, now time.Time) bool {
	if len(m.streams) == 0 || now.Sub(m.real) > warmReal || now.Before(m.real) {
		return false
	}
	for _, p := range work {
		if p.append == nil || p.staged != nil {
			return false
		}
		r := m.streams[p.id]
		if r == nil || !r.meta.fresh(now) {
			return false
		}
		if p.append.Seq != nil && !r.seq.fresh(now) {
			return false
		}
		if pr := p.append.Producer; pr != nil && !r.producers[pr.ID].fresh(now) {
			return false
		}
		if at, ok := deadline(r.meta.value, lastTouch(r.meta.value, r.touched)); ok && !now.Before(at) {
			return false
		}
	}
	return true
}

// recall makes the views of a batch, and the transaction what it would be had
// it read them.
func (m *memory) recall(tx kv.Tx, s *Store, work []*pending) *views {
	vs := &views{byID: make(map[StreamID]*view, len(work))}
	version := int64(math.MaxInt64)
	for _, p := range work {
		r := m.streams[p.id]
		v := vs.byID[p.id]
		if v == nil {
			v = &view{id: p.id, meta: r.meta.value, touched: r.touched}
			v.packer.json = MediaType(v.meta.contentType) == "application/json"
			vs.byID[p.id] = v
			vs.order = append(vs.order, v)
			version = min(version, r.meta.version)
		}
		if p.append.Seq != nil && !v.seqKnown {
			v.seq, v.seqKnown = r.seq.value, true
			version = min(version, r.seq.version)
		}
		if pr := p.append.Producer; pr != nil {
			if v.producers == nil {
				v.producers = make(map[string]producerState)
			}
			if _, ok := v.producers[pr.ID]; !ok {
				v.producers[pr.ID] = r.producers[pr.ID].value
				version = min(version, r.producers[pr.ID].version)
			}
		}
	}
	tx.SetReadVersion(version - 1)
	for _, v := range vs.order {
		tx.AddReadConflictKey(s.space.Meta(v.id.Bucket, v.id.Stream))
		if v.seqKnown {
			s.guard(tx, s.space.Seq(v.meta.incarnation))
		}
		for id := range v.producers {
			s.guard(tx, s.space.Producer(v.meta.incarnation, id))
		}
	}
	return vs
}

// remember keeps what an attempt that committed has proved.
func (m *memory) remember(a *attempt, stamp keys.Versionstamp, now time.Time) {
	if a.version <= 0 {
		return
	}
	if m.streams == nil {
		m.streams = make(map[StreamID]*remembered)
	}
	for _, v := range a.views {
		if v.meta == nil || v.metaChanged || v.meta.closed || v.meta.softDeleted {
			delete(m.streams, v.id)
			continue
		}
		r := m.streams[v.id]
		if r == nil || r.meta.value.incarnation != v.meta.incarnation {
			if len(m.streams) >= warmStreams {
				m.evict(now)
			}
			r = &remembered{}
			m.streams[v.id] = r
		}
		r.learn(v, a.version, stamp, now)
	}
}

// learn takes over what a view has proved at a version.
func (r *remembered) learn(v *view, version int64, stamp keys.Versionstamp, now time.Time) {
	r.meta = known[*meta]{v.meta, version, now}
	r.touched = v.touched
	if v.seqKnown {
		r.seq = known[*string]{v.seq, version, now}
	}
	for id, st := range v.producers {
		if r.producers == nil {
			r.producers = make(map[string]known[producerState])
		}
		if st.next.stamp {
			copy(st.next.offset[:], stamp[:])
			st.next.stamp = false
		}
		r.producers[id] = known[producerState]{st, version, now}
	}
	for id, k := range r.producers {
		if len(r.producers) <= warmProducers {
			break
		}
		if k.version != version || len(r.producers) > 2*warmProducers {
			delete(r.producers, id)
		}
	}
}

// evict makes room by dropping what is of no more use, and if all is, half.
func (m *memory) evict(now time.Time) {
	for id, r := range m.streams {
		if !r.meta.fresh(now) {
			delete(m.streams, id)
		}
	}
	for id := range m.streams {
		if len(m.streams) <= warmStreams/2 {
			return
		}
		delete(m.streams, id)
	}
}

// forget drops the streams of a batch that failed.
func (m *memory) forget(work []*pending) {
	for _, p := range work {
		delete(m.streams, p.id)
	}
}

// guarded reads a key that a frontend's own commits must not conflict over.
func (s *Store) guarded(tx kv.Tx, key []byte) kv.Value {
	s.guard(tx, key)
	return tx.Snapshot().Get(key)
}

// guard makes the transaction conflict with what other frontends write under
// key. The conflicts of such a key are declared on parts below it, one a
// frontend: a writer declares its own part (claim), a reader all others. What
// this frontend writes itself comes from the one lane its stream hashes to,
// one commit at a time.
func (s *Store) guard(tx kv.Tx, key []byte) {
	own := s.part(key)
	tx.AddReadConflictRange(kv.Range{Begin: own[:len(key)+1], End: own})
	tx.AddReadConflictRange(kv.Range{Begin: append(bytes.Clone(own), 0), End: append(bytes.Clone(key), 1)})
}

// claim declares the next write, which must be of key, on this frontend's part.
func (s *Store) claim(tx kv.Tx, key []byte) {
	tx.AddWriteConflictKey(s.part(key))
	tx.SetNextWriteNoConflict()
}

// part is this frontend's part of a guarded key.
func (s *Store) part(key []byte) []byte {
	b := append(make([]byte, 0, len(key)+1+len(s.frontend)), key...)
	return append(append(b, 0), s.frontend[:]...)
}
