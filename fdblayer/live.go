package fdblayer

import (
	"context"
	"unicode/utf8"

	"headwater/keys"
)

// LiveReader follows one incarnation of a stream (PROTOCOL.md 5.7, 5.8). Not
// safe for concurrent use.
type LiveReader struct {
	store *Store
	topic *topic // nil until the first wait
	req   ReadRequest
	id    StreamID
	inc   keys.Incarnation
	event Event
	open  bool
}

// Event is a piece that all readers of a stream on this frontend may share.
type Event struct {
	Piece
	shared *shared // nil for a piece read for one reader alone
}

// Shared reports whether other readers hold the same piece, so that another
// one costs no memory.
func (e *Event) Shared() bool { return e.shared != nil }

// Encoded returns build's result for this event, made once for each key and
// shared by all readers. It must depend on nothing but the key and the piece's
// data and offsets, and must not be modified.
func (e *Event) Encoded(key int, build func(Piece) []byte) []byte {
	if e.shared == nil {
		return build(e.Piece)
	}
	return e.shared.encoded(key, build)
}

// Live opens a live reader and returns the piece there is now, which may be
// empty. The reader is pinned to the incarnation it found. Close it after use.
func (s *Store) Live(ctx context.Context, req ReadRequest) (*LiveReader, Piece, error) {
	if err := s.hub.admit(); err != nil {
		return nil, Piece{}, err
	}
	p, err := s.Read(ctx, req)
	if err != nil {
		s.hub.leave()
		return nil, Piece{}, err
	}
	r := &LiveReader{store: s, req: req, id: req.ID, inc: p.Stream.Incarnation, open: true}
	r.req.Precondition = Precondition{Incarnation: r.inc, Set: true}
	r.req.From = From{Offset: p.Next}
	return r, p, nil
}

// Next waits for the piece that follows the last one returned. It returns a
// piece with data, or an empty one that is Closed, or ctx's error, or an
// [*Error] that ends the reader: CodeNotFound, CodeSoftDeleted,
// CodeIncarnation (recreated), CodeRetained, CodeDraining, CodeUnavailable.
// The event is valid until the next call.
func (r *LiveReader) Next(ctx context.Context) (*Event, error) {
	if r.topic == nil {
		//nolint:contextcheck // a topic outlives the reader that starts it
		t, err := r.store.hub.attach(r.id, r.inc)
		if err != nil {
			return nil, err
		}
		r.topic = t
	}
	for {
		found, changed, err := r.topic.next(&r.event, r.req)
		switch {
		case err != nil:
			return nil, err
		case found == ringHit:
			r.req.From.Offset = r.event.Next
			return &r.event, nil
		case found == ringMiss:
			ev, err := r.catchUp(ctx)
			if ev != nil || err != nil {
				return ev, err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// catchUp reads from the database what the ring does not hold. It returns nil
// where there is nothing to hand out yet: half a UTF-8 character.
func (r *LiveReader) catchUp(ctx context.Context) (*Event, error) {
	p, err := r.store.Read(ctx, r.req)
	if err != nil {
		return nil, err
	}
	if len(p.Data) == 0 && !p.Closed {
		return nil, nil
	}
	r.req.From.Offset = p.Next
	r.event = Event{Piece: p}
	return &r.event, nil
}

// Close releases the reader. It may be called more than once.
func (r *LiveReader) Close() {
	if !r.open {
		return
	}
	r.open = false
	if r.topic != nil {
		r.store.hub.detach(r.topic)
	}
	r.store.hub.leave()
}

// ringAnswer is what a topic has for a reader.
type ringAnswer int

const (
	ringWait ringAnswer = iota // nothing is new
	ringHit                    // the event was filled in
	ringMiss                   // something is new, but not in a form for this reader
)

// next fills in the event that begins at the reader's position, if the ring
// holds one that suits it, and returns the channel that is closed at the
// topic's next change.
func (t *topic) next(ev *Event, req ReadRequest) (ringAnswer, <-chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	pos := req.From.Offset
	switch {
	case t.err != nil:
		return ringWait, nil, t.err
	case !t.primed || t.tail.Less(pos):
		return ringWait, t.changed, nil
	case t.tail == pos && t.closed == nil:
		return ringWait, t.changed, nil
	case t.tail == pos:
		*ev = Event{Piece: *t.closed}
		return ringHit, t.changed, nil
	}
	for i := len(t.events) - 1; i >= 0; i-- {
		e := t.events[i]
		if e.piece.Start.Less(pos) {
			break
		}
		if e.piece.Start != pos {
			continue
		}
		if len(e.piece.Data) > req.MaxBytes || req.WholeRunes && !e.runes && e.piece.Stream.Text() {
			break
		}
		*ev = Event{Piece: e.piece, shared: e}
		last := i == len(t.events)-1
		ev.UpToDate = ev.UpToDate && last
		ev.Closed = ev.Closed && last
		return ringHit, t.changed, nil
	}
	return ringMiss, t.changed, nil
}

// wholeRunes reports whether b neither begins nor ends inside a UTF-8
// character.
func wholeRunes(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	last, size := utf8.DecodeLastRune(b)
	return utf8.RuneStart(b[0]) && (last != utf8.RuneError || size > 1)
}
