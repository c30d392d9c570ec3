package fdblayer

import (
	"context"

	"headwater/fdblayer/kv"
)

// purgePage is how many streams one transaction of a purge removes.
const purgePage = 100

// PurgeBucket removes a bucket with everything in it and bars its id for ever:
// later creates in it answer CodeNotFound (extensions 1.2). It is an operator's
// tool. progress is called after every page with the streams removed so far.
//
// The fence comes first, in a transaction of its own, and every create reads
// it; so no stream can appear behind the purge, and a purge that was cut off
// is completed by running it again.
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

func (s *Store) purgePage(ctx context.Context, bucket string) (removed int, err error) {
	r := s.space.MetaRange(bucket)
	var gone []*meta
	_, err = s.transact(ctx, func(ctx context.Context, tx kv.Tx, _ kv.Attempt) error {
		gone = gone[:0]
		rows := tx.GetRange(kv.FirstGreaterOrEqual(r.Begin), kv.FirstGreaterOrEqual(r.End), kv.RangeOptions{Limit: purgePage})
		for more := true; more; {
			batch, m, err := rows.Next(ctx)
			if err != nil {
				return err
			}
			more = m
			for _, row := range batch {
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
				gone = append(gone, sm)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, m := range gone {
		s.hub.kick(m.incarnation)
	}
	return len(gone), nil
}
