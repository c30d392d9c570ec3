package fdblayer

import (
	"context"

	"headwater/fdblayer/kv"
	"headwater/keys"
)

// Delete removes a stream and all its data (PROTOCOL.md 5.4); one that forks
// depend on is only hidden, until the last of them goes.
//
// Reads: the meta key, the last access where a TTL slides, whether there are
// forks. Conflict set: all of these, so neither an append nor a new fork can
// slip past. Witness: the incarnation. An attempt with an unknown outcome that
// finds it gone, or hidden, has been the one, or another delete has been:
// either way the stream that was to go is gone.
func (s *Store) Delete(ctx context.Context, id StreamID, pre Precondition) error {
	var tried, gone keys.Incarnation
	_, err := s.transact(ctx, func(ctx context.Context, tx kv.Tx, at kv.Attempt) error {
		now := s.now()
		v, err := s.look(ctx, tx, id, now)
		if err != nil {
			return err
		}
		if at.Unknown && !tried.IsZero() && (v.meta == nil || v.meta.incarnation != tried || v.meta.softDeleted) {
			gone = tried
			return nil
		}
		if e := v.missing(now); e != nil {
			return e
		}
		if e := v.mismatch(pre); e != nil {
			return e
		}
		tried, gone = v.meta.incarnation, v.meta.incarnation
		forks, err := s.hasForks(ctx, tx, v.meta.incarnation)
		if err != nil {
			return err
		}
		if forks {
			s.hide(tx, id, v.meta)
			return nil
		}
		return s.remove(ctx, tx, id, v.meta)
	})
	if err == nil {
		s.hub.kick(gone)
	}
	return err
}

// hide makes a stream soft-deleted and wakes who reads it.
func (s *Store) hide(tx kv.Tx, id StreamID, m *meta) {
	hidden := *m
	hidden.softDeleted = true
	tx.Set(s.space.Meta(id.Bucket, id.Stream), hidden.encode())
	tx.Atomic(kv.SetVersionstampedValue, s.space.Tail(m.incarnation), wakeValue[:])
	if m.followed {
		s.markChanged(tx, id)
	}
}

// remove clears everything of a stream that no fork depends on, and gives up
// the reference it holds if it is a fork itself: a source that was only kept
// for it goes too, and so on up the chain, whose length is bounded.
func (s *Store) remove(ctx context.Context, tx kv.Tx, id StreamID, m *meta) error {
	for {
		s.clear(tx, id, m)
		if m.fork == nil {
			return nil
		}
		parent, err := s.releaseSource(ctx, tx, m)
		if err != nil || parent == nil {
			return err
		}
		id, m = m.fork.source, parent
	}
}

// clear removes the keys of one incarnation. Clearing the wake key fires the
// watches on it.
func (s *Store) clear(tx kv.Tx, id StreamID, m *meta) {
	inc := m.incarnation
	if m.followed {
		s.markChanged(tx, id)
	}
	tx.Clear(s.space.Meta(id.Bucket, id.Stream))
	for _, r := range []keys.Range{
		s.space.LogRange(inc), s.space.StagedRange(inc), s.space.BlobsRange(inc),
		s.space.ProducerRange(inc), s.space.ForkRange(inc),
	} {
		tx.ClearRange(kv.Range(r))
	}
	for _, k := range [][]byte{s.space.Tail(inc), s.space.Seq(inc), s.space.Touch(inc), s.space.Snapshot(inc)} {
		tx.Clear(k)
	}
}

// releaseSource drops the fork's reference. It returns the source's metadata
// if the source was hidden and this was its last fork.
func (s *Store) releaseSource(ctx context.Context, tx kv.Tx, m *meta) (*meta, error) {
	f := m.fork
	tx.Clear(s.space.Fork(f.sourceIncarnation, m.incarnation))
	raw, err := tx.Get(s.space.Meta(f.source.Bucket, f.source.Stream)).Wait(ctx)
	if err != nil || raw == nil {
		return nil, err
	}
	parent, err := decodeMeta(raw)
	if err != nil || parent.incarnation != f.sourceIncarnation || !parent.softDeleted {
		return nil, err
	}
	more, err := s.hasForks(ctx, tx, parent.incarnation)
	if err != nil || more {
		return nil, err
	}
	return parent, nil
}
