package fdblayer

import (
	"context"
	"encoding/binary"
	"time"

	"headwater/fdblayer/kv"
	"headwater/keys"
)

// now is the time the rules see. Milliseconds, as everything stored is.
func (s *Store) now() time.Time { return time.UnixMilli(s.opts.Now().UnixMilli()) }

// A touch is little-endian because MAX compares it so.
func encodeTouch(t time.Time) []byte {
	return binary.LittleEndian.AppendUint64(nil, uint64(max(t.UnixMilli(), 0)))
}

func decodeTouch(b []byte) time.Time {
	if len(b) != 8 {
		return time.Time{}
	}
	return time.UnixMilli(int64(binary.LittleEndian.Uint64(b)))
}

// touch renews the sliding TTL of a stream.
//
// Reads: the view, so that a stream deleted meanwhile does not get a last
// access without a life, and one that has expired does not get another life:
// a process that was paused learns of the expiry last. Witness: none is needed,
// a touch may be applied twice.
func (s *Store) touch(ctx context.Context, id StreamID, inc keys.Incarnation, now time.Time) error {
	_, err := s.transact(ctx, func(ctx context.Context, tx kv.Tx, _ kv.Attempt) error {
		v, err := s.look(ctx, tx, id, s.now())
		if err != nil || v.meta == nil || v.meta.incarnation != inc || v.missing(s.now()) != nil {
			return err
		}
		tx.Atomic(kv.Max, s.space.Touch(inc), encodeTouch(now))
		return nil
	})
	return err
}

// indexExpiry leaves the reaper a note of when to look at a stream.
func (s *Store) indexExpiry(tx kv.Tx, id StreamID, m *meta, now time.Time) {
	if at, ok := deadline(m, now); ok {
		tx.Set(s.space.Expiry(at, id.Bucket, id.Stream), m.incarnation[:])
	}
}
