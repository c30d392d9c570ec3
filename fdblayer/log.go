package fdblayer

import (
	"bytes"
	"context"
	"math"

	"headwater/fdblayer/kv"
	"headwater/keys"
)

// lastRecord starts to look for the end of the last record of an incarnation.
// The length is in the key, so no value is read. By snapshot: a tail is a
// fact of the read version, and must not conflict with appends.
func (s *Store) lastRecord(tx kv.Tx, inc keys.Incarnation) kv.Value {
	return tx.Snapshot().GetKey(kv.LastLessThan(s.space.LogRange(inc).End))
}

// tail returns the tail of a stream from what lastRecord found.
func (s *Store) tail(ctx context.Context, f kv.Value, m *meta) (keys.Offset, error) {
	key, err := f.Wait(ctx)
	if err != nil {
		return keys.Offset{}, err
	}
	tail := m.floor()
	inc, end, err := s.space.ParseLog(key)
	if err == nil && inc == m.incarnation && tail.Less(end) {
		tail = end
	}
	return tail, nil
}

// streamOf is what a client may know of a stream.
func streamOf(id StreamID, m *meta, tail keys.Offset) Stream {
	return Stream{
		ID: id, Incarnation: m.incarnation, ContentType: m.contentType, Expiry: m.expiry,
		Closed: m.closed, Tail: tail, Retained: m.retained,
	}
}

// segments are the parts a stream is read from, in order: what it inherited,
// then its own records.
func (m *meta) segments() []segment {
	own := segment{m.incarnation, endOfTime}
	if m.fork == nil {
		return []segment{own}
	}
	return append(append(make([]segment, 0, len(m.fork.segments)+1), m.fork.segments...), own)
}

// endOfTime is after every offset.
var endOfTime = keys.Offset(bytes.Repeat([]byte{0xff}, keys.OffsetLen))

// visit is one record of a walk: the bytes from skip to take of it.
type visit struct {
	record
	// owner is the incarnation the record hangs under.
	owner      keys.Incarnation
	skip, take uint32
}

// walk calls fn for every record that holds bytes after pos and before the
// tail, in order, until fn returns false. It reads by snapshot where tx is one.
func (s *Store) walk(ctx context.Context, tx kv.Reader, m *meta, pos keys.Offset, limit int,
	fn func(visit) (more bool, err error)) error {
	for _, seg := range m.segments() {
		if !pos.Less(seg.upto) {
			continue
		}
		more, err := s.walkSegment(ctx, tx, seg, pos, limit, fn)
		if err != nil || !more {
			return err
		}
		pos = seg.upto
	}
	return nil
}

func (s *Store) walkSegment(ctx context.Context, tx kv.Reader, seg segment, pos keys.Offset, limit int,
	fn func(visit) (bool, error)) (bool, error) {
	r := s.space.LogAfter(seg.incarnation, pos)
	end := r.End
	if seg.upto != endOfTime {
		// The record that the cut lies in ends at or after it.
		end = append(s.space.Log(seg.incarnation, seg.upto.WithCount(math.MaxUint32)), 0)
	}
	rows := tx.GetRange(kv.FirstGreaterOrEqual(r.Begin), kv.FirstGreaterOrEqual(end), kv.RangeOptions{Limit: limit})
	for {
		kvs, more, err := rows.Next(ctx)
		if err != nil {
			return false, err
		}
		for _, row := range kvs {
			v, ok, err := s.visitOf(row, seg, pos)
			if err != nil {
				return false, err
			}
			if !ok {
				return true, nil
			}
			again, err := fn(v)
			if err != nil || !again {
				return false, err
			}
			if v.take < v.end.Count() {
				return true, nil // the cut lies in this record
			}
		}
		if !more {
			return true, nil
		}
	}
}

// visitOf decodes a row and says which of its bytes lie between pos and the
// segment's cut; ok is false if none do.
func (s *Store) visitOf(row kv.KeyValue, seg segment, pos keys.Offset) (visit, bool, error) {
	_, end, err := s.space.ParseLog(row.Key)
	if err != nil {
		return visit{}, false, err
	}
	rec, err := decodeRecord(end, row.Value)
	if err != nil {
		return visit{}, false, err
	}
	v := visit{record: rec, owner: seg.incarnation, take: end.Count()}
	if end.SameRecord(pos) {
		v.skip = pos.Count()
	}
	if seg.upto.Less(end) {
		if !end.SameRecord(seg.upto) {
			return visit{}, false, nil
		}
		v.take = seg.upto.Count()
	}
	return v, v.take > v.skip, nil
}

// bytes returns the visited bytes, fetching those of a staged body. At most
// limit bytes are returned, from the front.
func (s *Store) bytes(ctx context.Context, tx kv.Reader, v visit, limit int) ([]byte, error) {
	take := v.take
	if uint64(v.skip)+uint64(limit) < uint64(take) {
		take = v.skip + uint32(limit)
	}
	if v.blob == nil {
		return v.inline[v.skip:take], nil
	}
	return s.blobBytes(ctx, tx, v.owner, v.blob.id, v.skip, take)
}

// locate reports whether pos is a position of the stream at or before its
// tail, and if the stream is JSON whether it lies between two messages.
func (s *Store) locate(ctx context.Context, tx kv.Reader, m *meta, pos, tail keys.Offset) (exists, boundary bool, err error) {
	switch {
	case pos == tail, pos == m.retained, pos.IsStart() && m.retained.IsStart():
		return true, true, nil
	case pos.Count() == 0 || tail.Less(pos) || pos.Less(m.retained):
		return false, false, nil
	}
	for _, seg := range m.segments() {
		if seg.upto.Less(pos) {
			continue
		}
		return s.locateIn(ctx, tx, seg, pos)
	}
	return false, false, nil
}

func (s *Store) locateIn(ctx context.Context, tx kv.Reader, seg segment, pos keys.Offset) (exists, boundary bool, err error) {
	begin := s.space.Log(seg.incarnation, pos)
	rows, _, err := tx.GetRange(kv.FirstGreaterOrEqual(begin), kv.FirstGreaterOrEqual(s.space.LogRange(seg.incarnation).End),
		kv.RangeOptions{Limit: 1}).Next(ctx)
	if err != nil || len(rows) == 0 {
		return false, false, err
	}
	_, end, err := s.space.ParseLog(rows[0].Key)
	if err != nil || !end.SameRecord(pos) {
		return false, false, err
	}
	rec, err := decodeRecord(end, rows[0].Value)
	if err != nil {
		return false, false, err
	}
	last, err := s.bytes(ctx, tx, visit{rec, seg.incarnation, pos.Count() - 1, pos.Count()}, 1)
	return err == nil, err == nil && last[0] == '\n', err
}
