package fdblayer

import (
	"context"

	"headwater/fdblayer/kv"
	"headwater/keys"
)

// purgePage is how many streams one transaction of a purge removes.
const purgePage = 100

// PurgeBucket removes a bucket with everything in it and bars its id for ever:
// later creates in it answer CodeNotFound (extensions 1.2). It is an operator's
// tool. progress is called with 0 once the bucket is fenced, and then after
// every page with the streams removed so far.
//
// The fence comes first, in a transaction of its own, and every create reads
// it; so no stream can appear behind the purge, and a purge that was cut off
// is completed by running it again. Until then what is left of the bucket can
// be read and appended to.
func (s *Store) PurgeBucket(ctx context.Context, bucket string, progress func(removed int)) error {
	if bucket == "" {
		return errorf(CodeNotFound, "the base surface can't be purged")
	}
	_, err := s.transact(ctx, func(_ context.Context, tx kv.Tx, _ kv.Attempt) error {
		tx.Set(s.space.Fence(bucket), []byte{})
		return nil
	})
	if err != nil {
		return err
	}
	if s.opts.Followers != nil {
		if err := s.opts.Followers.Purged(ctx, bucket); err != nil {
			return err
		}
	}
	progress(0)
	for total := 0; ; {
		n, err := s.purgePage(ctx, bucket)
		if err != nil {
			return err
		}
		total += n
		if n == 0 {
			return nil
		}
		progress(total)
	}
}

// purgePage removes the bucket's first streams.
//
// Conflict set: their meta keys, and the place of any before them. Witness:
// none is needed to do it again; but streams that an attempt with an unknown
// outcome has removed are not found by the next, and count all the same.
func (s *Store) purgePage(ctx context.Context, bucket string) (removed int, err error) {
	r := s.space.MetaRange(bucket)
	gone := make(map[keys.Incarnation]struct{}, purgePage)
	_, err = s.transact(ctx, func(ctx context.Context, tx kv.Tx, at kv.Attempt) error {
		if !at.Unknown {
			clear(gone)
		}
		return kv.Each(ctx, tx, kv.Range(r), kv.RangeOptions{Limit: purgePage}, func(row kv.KeyValue) error {
			_, name, err := s.space.ParseMeta(row.Key)
			if err != nil {
				return err
			}
			sm, err := decodeMeta(row.Value)
			if err != nil {
				return err
			}
			// Forks and their sources lie in one bucket: all go.
			s.clear(tx, StreamID{bucket, name}, sm)
			gone[sm.incarnation] = struct{}{}
			return nil
		})
	})
	if err != nil {
		return 0, err
	}
	for inc := range gone {
		s.hub.kick(inc)
	}
	return len(gone), nil
}
