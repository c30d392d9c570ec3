package fdblayer

import (
	"context"

	"headwater/fdblayer/kv"
	"headwater/keys"
)

// Retain drops what lies before offset (extensions 2.2). Exactly that offset
// becomes the earliest retained one.
//
// Reads: the view, the snapshot pointer, whether there are forks; by snapshot
// the tail and the record that offset lies in. Conflict set: meta, snapshot
// pointer, forks. Witness: the retained offset itself.
func (s *Store) Retain(ctx context.Context, id StreamID, pre Precondition, offset keys.Offset) (Stream, error) {
	var st Stream
	_, err := s.transact(ctx, func(ctx context.Context, tx kv.Tx, _ kv.Attempt) error {
		v, err := s.see(ctx, tx, id, s.now())
		if err != nil {
			return err
		}
		if err := s.judgeRetention(ctx, tx, v, offset); err != nil {
			return err
		}
		if e := v.mismatch(pre); e != nil {
			return e
		}
		st = v.stream()
		if offset == v.meta.retained {
			return nil
		}
		m := *v.meta
		m.retained, st.Retained = offset, offset
		tx.Set(s.space.Meta(id.Bucket, id.Stream), m.encode())
		forks, err := s.hasForks(ctx, tx, m.incarnation)
		if err != nil || forks {
			// Forks may still read what goes out of this stream's sight.
			return err
		}
		return s.dropLog(ctx, tx, &m, offset)
	})
	return st, err
}

func (s *Store) judgeRetention(ctx context.Context, tx kv.Tx, v *seen, offset keys.Offset) error {
	if offset.Less(v.meta.retained) {
		return v.refuse(errorf(CodeRetentionConflict, "retention can't move backward")).err
	}
	snap, err := s.snapshotPointer(ctx, tx, v.meta.incarnation)
	if err != nil {
		return err
	}
	if snap == nil {
		return v.refuse(errorf(CodeRetentionConflict, "retention needs a published snapshot")).err
	}
	if snap.snapshot.Offset.Less(offset) {
		return v.refuse(errorf(CodeRetentionConflict, "the retained offset is newer than the latest snapshot")).err
	}
	return s.judgeBoundary(ctx, tx, v, offset)
}

// judgeBoundary refuses an offset that is no position of the stream or, for
// JSON, lies inside a message.
func (s *Store) judgeBoundary(ctx context.Context, tx kv.Reader, v *seen, offset keys.Offset) error {
	exists, boundary, err := s.locate(ctx, tx, v.meta, offset, v.tail)
	switch {
	case err != nil:
		return err
	case !exists:
		return v.refuse(errorf(CodeBadOffset, "the offset is no position of this stream")).err
	case v.stream().JSON() && !boundary:
		return v.refuse(errorf(CodeBadOffset, "the offset lies inside a message")).err
	}
	return nil
}

// dropLog clears the stream's own records that end at offset or before, and
// the staged bodies of those that have one.
func (s *Store) dropLog(ctx context.Context, tx kv.Tx, m *meta, offset keys.Offset) error {
	tx.ClearRange(kv.Range(s.space.LogUntil(m.incarnation, offset)))
	staged := kv.Range(s.space.StagedUntil(m.incarnation, offset))
	err := kv.Each(ctx, tx, staged, kv.RangeOptions{}, func(row kv.KeyValue) error {
		if len(row.Value) != len(keys.BlobID{}) {
			return errCorrupt
		}
		tx.ClearRange(kv.Range(s.space.BlobRange(m.incarnation, keys.BlobID(row.Value))))
		return nil
	})
	if err == nil {
		tx.ClearRange(staged)
	}
	return err
}
