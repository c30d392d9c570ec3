package fdblayer

import (
	"bytes"
	"context"
	"slices"
	"time"
	"unicode/utf8"

	"headwater/fdblayer/kv"
	"headwater/keys"
)

// look reads what every request about an existing stream is judged by.
func (s *Store) look(ctx context.Context, tx kv.Tx, id StreamID, now time.Time) (*view, error) {
	raw, err := tx.Get(s.space.Meta(id.Bucket, id.Stream)).Wait(ctx)
	if err != nil {
		return nil, err
	}
	v := &view{id: id}
	if err := v.setMeta(raw); err != nil {
		return nil, err
	}
	if v.meta == nil || !v.meta.expiry.HasTTL {
		return v, s.settleExpiry(ctx, tx, v, now)
	}
	touched, err := tx.Snapshot().Get(s.space.Touch(v.meta.incarnation)).Wait(ctx)
	if err != nil {
		return nil, err
	}
	v.touched = decodeTouch(touched)
	return v, s.settleExpiry(ctx, tx, v, now)
}

// seen is a stream and its tail at one read version.
type seen struct {
	*view
	tail keys.Offset
}

// see looks at a stream that must exist.
func (s *Store) see(ctx context.Context, tx kv.Tx, id StreamID, now time.Time) (*seen, error) {
	v, err := s.look(ctx, tx, id, now)
	if err != nil {
		return nil, err
	}
	if e := v.missing(now); e != nil {
		return nil, e
	}
	tail, err := s.tail(ctx, s.lastRecord(tx, v.meta.incarnation), v.meta)
	return &seen{v, tail}, err
}

func (s *seen) stream() Stream { return streamOf(s.id, s.meta, s.tail) }

// Head returns a stream's metadata and its visible snapshot, nil for none
// (PROTOCOL.md 5.5, extensions 2.4). It does not renew a TTL.
func (s *Store) Head(ctx context.Context, id StreamID, pre Precondition) (Stream, *Snapshot, error) {
	var st Stream
	var snap *Snapshot
	err := s.read(ctx, func(ctx context.Context, tx kv.Tx) error {
		v, err := s.see(ctx, tx, id, s.now())
		if err != nil {
			return err
		}
		if e := v.mismatch(pre); e != nil {
			return e
		}
		p, err := s.snapshotPointer(ctx, tx, v.meta.incarnation)
		if err != nil {
			return err
		}
		st, snap = v.stream(), p.public()
		return nil
	})
	return st, snap, err
}

// Read returns one piece of a stream, empty at the tail (PROTOCOL.md 5.6,
// extensions 9). It reflects every append acknowledged before it was called,
// by whichever frontend, and it renews a sliding TTL.
func (s *Store) Read(ctx context.Context, req ReadRequest) (Piece, error) {
	var p Piece
	err := s.visit(ctx, req.ID, func(ctx context.Context, tx kv.Tx, now time.Time) (*view, error) {
		v, err := s.see(ctx, tx, req.ID, now)
		if err != nil {
			return nil, err
		}
		p, err = s.piece(ctx, tx, v, req)
		return v.view, err
	})
	return p, err
}

// visit runs fn in a read transaction and then renews the TTL of the stream it
// looked at.
func (s *Store) visit(ctx context.Context, id StreamID, fn func(ctx context.Context, tx kv.Tx, now time.Time) (*view, error)) error {
	var v *view
	now := s.now()
	err := s.read(ctx, func(ctx context.Context, tx kv.Tx) error {
		var err error
		v, err = fn(ctx, tx, now)
		return err
	})
	if err != nil {
		return err
	}
	if touchDue(v.meta, v.touched, now) {
		return s.touch(ctx, id, v.meta.incarnation, now)
	}
	return nil
}

// piece reads from where the request says, at the transaction's version.
func (s *Store) piece(ctx context.Context, tx kv.Tx, v *seen, req ReadRequest) (Piece, error) {
	pos, e := v.resolve(req.From)
	if e != nil {
		return Piece{}, e
	}
	if req.WholeMessages && v.stream().JSON() {
		if ok, err := s.atMessage(ctx, tx, v, pos); err != nil {
			return Piece{}, err
		} else if !ok {
			return Piece{}, errorf(CodeBadOffset, "the offset lies inside a message; read it as application/x-ndjson")
		}
	}
	if e := v.mismatch(req.Precondition); e != nil {
		return Piece{}, e
	}
	data, next, err := s.collect(ctx, tx, v, pos, req)
	if err != nil {
		return Piece{}, err
	}
	p := Piece{Stream: v.stream(), Start: pos, Next: next, Data: data, UpToDate: next == v.tail}
	p.Closed = p.UpToDate && v.meta.closed
	return p, nil
}

// resolve returns the position a read starts at.
func (s *seen) resolve(from From) (keys.Offset, *Error) {
	pos := from.Offset
	switch {
	case from.Now:
		return s.tail, nil
	case from.AtStart:
		pos = keys.StartOffset
	}
	if pos.Less(s.meta.retained) {
		e := errorf(CodeRetained, "the offset is before the earliest retained one")
		e.Offset, e.HasOffset, e.Incarnation = s.meta.retained, true, s.meta.incarnation
		return pos, e
	}
	if s.tail.Less(pos) {
		e := errorf(CodeOffsetBeyondTail, "the offset is beyond the tail")
		e.Offset, e.HasOffset, e.Incarnation = s.tail, true, s.meta.incarnation
		return pos, e
	}
	return pos, nil
}

// atMessage reports whether pos lies between two messages. Where a record
// starts at pos, its kind says so; only a position inside a record costs a
// look at the byte before it.
func (s *Store) atMessage(ctx context.Context, tx kv.Reader, v *seen, pos keys.Offset) (bool, error) {
	if pos == v.tail || pos.IsStart() {
		return true, nil
	}
	ok := true
	err := s.walk(ctx, tx, v.meta, pos, 1, func(r visit) (bool, error) {
		if r.skip == 0 {
			ok = !r.midMessage
			return false, nil
		}
		_, boundary, err := s.locate(ctx, tx, v.meta, pos, v.tail)
		ok = boundary
		return false, err
	})
	return ok, err
}

// collect gathers bytes from pos to the request's bound or the tail.
func (s *Store) collect(ctx context.Context, tx kv.Reader, v *seen, pos keys.Offset, req ReadRequest) ([]byte, keys.Offset, error) {
	st := v.stream()
	runes := req.WholeRunes && st.Text()
	c := collector{max: req.MaxBytes, whole: req.WholeMessages && st.JSON(), start: pos, next: pos}
	if runes {
		c.max = max(c.max, utf8.UTFMax)
	}
	if pos == v.tail {
		return nil, pos, nil
	}
	err := s.walk(ctx, tx, v.meta, pos, 0, func(r visit) (bool, error) {
		for r.skip < r.take {
			b, err := s.bytes(ctx, tx, r, c.want())
			if err != nil {
				return false, err
			}
			if !c.add(r, b) {
				return false, nil
			}
			r.skip += uint32(len(b))
		}
		return true, nil
	})
	if err != nil {
		return nil, pos, err
	}
	if runes && (c.next != v.tail || !v.meta.closed) {
		c.trimRune()
	}
	return c.data, c.next, nil
}

// collector grows a piece record by record and knows the offset of every cut.
type collector struct {
	max         int
	whole       bool
	data        []byte
	start, next keys.Offset
	// marks are the records in data, so that a cut can be named.
	marks []mark
	// boundary is the length of data up to the last whole message.
	boundary int
}

// mark is where a record's bytes begin in data.
type mark struct {
	at     int
	record keys.Offset
	skip   uint32
}

// want is how many bytes of the next record are of use.
func (c *collector) want() int {
	if c.whole && c.boundary == 0 {
		return max(c.max-len(c.data), maxRecord) // one whole message at least
	}
	return c.max - len(c.data)
}

// add takes the front b of a visited record; it reports whether more is wanted.
func (c *collector) add(r visit, b []byte) bool {
	c.marks = append(c.marks, mark{len(c.data), r.end, r.skip})
	from := len(c.data)
	c.grow(len(b))
	c.data = append(c.data, b...)
	c.next = r.end.WithCount(r.skip + uint32(len(b)))
	if !c.whole {
		return len(c.data) < c.max
	}
	if i := bytes.LastIndexByte(c.data[from:min(len(c.data), max(c.max, from))], '\n'); i >= 0 {
		c.boundary = from + i + 1
	}
	if len(c.data) < c.max {
		return true
	}
	if c.boundary == 0 {
		i := bytes.IndexByte(c.data[from:], '\n')
		if i < 0 {
			return true // the first message goes on
		}
		c.boundary = from + i + 1
	}
	c.cut(c.boundary)
	return false
}

// longPiece is the length from which a piece is taken to become as long as it
// may: growing it step by step would copy it again and again.
const longPiece = 512 << 10

// grow makes room for n more bytes.
func (c *collector) grow(n int) {
	need := len(c.data) + n
	switch {
	case need <= cap(c.data):
	case need < longPiece:
		c.data = slices.Grow(c.data, n)
	default:
		c.data = append(make([]byte, 0, max(need, c.max+maxRecord)), c.data...)
	}
}

// cut shortens data to n bytes.
func (c *collector) cut(n int) {
	if n >= len(c.data) {
		return
	}
	c.data = c.data[:n]
	for i := len(c.marks) - 1; i >= 0; i-- {
		m := c.marks[i]
		if m.at < n {
			c.next = m.record.WithCount(m.skip + uint32(n-m.at))
			c.marks = c.marks[:i+1]
			return
		}
	}
	c.next = c.start
	c.marks = nil
}

// trimRune drops a UTF-8 character that the end of data splits.
func (c *collector) trimRune() {
	n := len(c.data)
	for i := n - 1; i >= max(0, n-utf8.UTFMax+1); i-- {
		if !utf8.RuneStart(c.data[i]) {
			continue
		}
		if !utf8.FullRune(c.data[i:]) {
			c.cut(i)
		}
		return
	}
}
