package fdblayer

import (
	"context"
	"sync"
	"time"

	"headwater/fdblayer/kv"
	"headwater/keys"
)

// hub wakes the live readers of this frontend.
//
// All readers of one incarnation share a topic: one goroutine, one watch on
// the wake key, one read of the new records per wake. A reader is a position
// and nothing else. If the topic's ring holds the piece that begins there, the
// reader takes it, and with it every encoding another reader has made of it;
// if not, because it is slow or wants smaller pieces, it reads from the
// database until it has caught up. So a slow reader costs nobody anything, and
// memory per topic is bounded by the ring.
//
// No wake-up is lost: the topic reads and arms its watch in one transaction,
// and a reader compares its position with the topic's end under the topic's
// lock, together with taking the channel it will wait on.
//
// Lock order: hub.mu before topic.mu. Neither is held over I/O.
type hub struct {
	store *Store
	work  sync.WaitGroup

	mu       sync.Mutex
	topics   map[keys.Incarnation]*topic
	readers  int
	draining bool
}

// Bounds of one topic.
const (
	// eventBytes is the most one event holds.
	eventBytes = 1 << 20
	// ringBytes and ringEvents bound what a topic keeps for readers that are
	// a little behind. The newest event is kept whatever its size.
	ringBytes  = 1 << 20
	ringEvents = 256
	// topicLinger is how long a topic outlives its last reader, so that
	// long-polls that come back find it armed.
	topicLinger = 5 * time.Second
	// topicRetry is the pause after a read that failed.
	topicRetry = 200 * time.Millisecond
)

func newHub(s *Store) *hub {
	return &hub{store: s, topics: make(map[keys.Incarnation]*topic)}
}

// admit counts a reader in.
func (h *hub) admit() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.draining:
		return errDraining
	case h.readers >= h.store.opts.MaxLiveReaders:
		return &Error{Code: CodeOverloaded, Detail: "too many live readers", RetryAfter: time.Second}
	}
	h.readers++
	return nil
}

func (h *hub) leave() {
	h.mu.Lock()
	h.readers--
	h.mu.Unlock()
}

var errDraining = &Error{Code: CodeDraining, Detail: "this frontend is shutting down", RetryAfter: time.Second}

// attach returns the topic of an incarnation, starting it if it is not there.
func (h *hub) attach(id StreamID, inc keys.Incarnation) (*topic, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return nil, errDraining
	}
	t := h.topics[inc]
	if t == nil {
		t = &topic{hub: h, id: id, incarnation: inc, changed: make(chan struct{})}
		var ctx context.Context
		ctx, t.cancel = context.WithCancel(h.store.ctx)
		h.topics[inc] = t
		h.work.Go(func() { t.run(ctx) })
	}
	t.mu.Lock()
	t.refs++
	if t.linger != nil {
		t.linger.Stop()
		t.linger = nil
	}
	t.mu.Unlock()
	return t, nil
}

// detach gives a topic up; the last reader's going ends it after a while.
func (h *hub) detach(t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refs--
	if t.refs > 0 {
		return
	}
	if t.err != nil || h.draining {
		h.drop(t)
		return
	}
	t.linger = time.AfterFunc(topicLinger, func() { h.retire(t) })
}

func (h *hub) retire(t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refs == 0 {
		h.drop(t)
	}
}

// drop ends a topic that nobody reads. Both locks are held.
func (h *hub) drop(t *topic) {
	t.cancel()
	if h.topics[t.incarnation] == t {
		delete(h.topics, t.incarnation)
	}
}

// kick makes the topic of an incarnation look at once: a commit of this
// frontend changed the stream.
func (h *hub) kick(inc keys.Incarnation) {
	h.mu.Lock()
	t := h.topics[inc]
	h.mu.Unlock()
	if t != nil {
		t.kick()
	}
}

// drain ends every reader and refuses new ones.
func (h *hub) drain() {
	h.mu.Lock()
	h.draining = true
	topics := make([]*topic, 0, len(h.topics))
	for _, t := range h.topics {
		topics = append(topics, t)
	}
	h.mu.Unlock()
	for _, t := range topics {
		t.end(errDraining)
		t.cancel()
	}
}

// wait returns once every topic has ended; the store's context has.
func (h *hub) wait() { h.work.Wait() }

// topic is one incarnation that is being followed.
type topic struct {
	hub         *hub
	id          StreamID
	incarnation keys.Incarnation
	cancel      context.CancelFunc

	mu     sync.Mutex
	refs   int
	linger *time.Timer
	// events are contiguous and end at tail. tail is valid once primed.
	events []*shared
	bytes  int
	primed bool
	tail   keys.Offset
	closed *Piece // the stream was found closed at tail
	err    *Error // the topic has ended
	// changed is closed, and replaced, at every change of the above.
	changed chan struct{}

	kicked bool
	awake  context.CancelFunc // ends the wait for the watch; nil while not waiting
}

// shared is one event and the encodings made of it.
type shared struct {
	piece Piece
	// runes says the data neither begin nor end inside a UTF-8 character, or
	// are no text.
	runes bool

	mu       sync.Mutex
	encoding map[int][]byte
}

func (e *shared) encoded(key int, build func(Piece) []byte) []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.encoding[key]
	if !ok {
		b = build(e.piece)
		if e.encoding == nil {
			e.encoding = make(map[int][]byte)
		}
		e.encoding[key] = b
	}
	return b
}

func (t *topic) kick() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kicked = true
	if t.awake != nil {
		t.awake()
	}
}

// broadcast wakes every reader. t.mu is held.
func (t *topic) broadcast() {
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *topic) end(e *Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = e
		t.broadcast()
	}
}

// publish adds what a round found.
func (t *topic) publish(p Piece) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.primed {
		t.primed = true
		t.tail = p.Next
		t.broadcast()
	}
	if t.tail.Less(p.Start) {
		// Retention passed the topic's end. Readers behind it have to learn
		// that from the database.
		t.events, t.bytes = nil, 0
		t.tail = p.Start
		t.broadcast()
	}
	if len(p.Data) > 0 {
		t.events = append(t.events, &shared{piece: p, runes: !p.Stream.Text() || wholeRunes(p.Data)})
		t.bytes += len(p.Data)
		for len(t.events) > 1 && (t.bytes > ringBytes || len(t.events) > ringEvents) {
			t.bytes -= len(t.events[0].piece.Data)
			t.events[0] = nil
			t.events = t.events[1:]
		}
		t.tail = p.Next
		t.broadcast()
	}
	if p.Closed && t.closed == nil {
		c := p
		c.Start, c.Data = p.Next, nil
		t.closed = &c
		t.broadcast()
	}
}

// run follows the stream until the topic is dropped or the stream ends.
func (t *topic) run(ctx context.Context) {
	for ctx.Err() == nil {
		watch, piece, err := t.round(ctx)
		switch {
		case err == nil:
			t.publish(piece)
			if watch != nil {
				t.sleep(ctx, watch, piece.Stream)
			}
		case ctx.Err() != nil:
			return
		case ends(err):
			t.end(internalError(err))
			return
		default:
			t.hub.store.opts.Logger.Warn("live read failed; trying again", "stream", t.id.Stream, "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(topicRetry):
			}
		}
	}
}

// ends reports whether an error of a round is about the stream, and not the store.
func ends(err error) bool {
	return isCode(err, CodeNotFound) || isCode(err, CodeSoftDeleted) || isCode(err, CodeIncarnation)
}

// round reads what is new. Where nothing is, it returns a watch that was armed
// by the transaction that found nothing.
func (t *topic) round(ctx context.Context) (kv.Watch, Piece, error) {
	s := t.hub.store
	t.mu.Lock()
	primed, tail := t.primed, t.tail
	t.kicked = false
	t.mu.Unlock()
	var watch kv.Watch
	var piece Piece
	err := s.read(ctx, func(ctx context.Context, tx kv.Tx) error {
		watch, piece = nil, Piece{}
		v, err := s.see(ctx, tx, t.id, s.now())
		if err != nil {
			return err
		}
		if e := v.mismatch(Precondition{Incarnation: t.incarnation, Set: true}); e != nil {
			return e
		}
		req := ReadRequest{MaxBytes: eventBytes, WholeMessages: true, From: From{Offset: tail}}
		req.From.Now = !primed || tail.Less(v.meta.retained) || v.tail.Less(tail)
		if piece, err = s.piece(ctx, tx, v, req); err != nil {
			return err
		}
		if piece.UpToDate && len(piece.Data) == 0 {
			watch = tx.Watch(s.space.Tail(t.incarnation))
		}
		return nil
	})
	return watch, piece, err
}

// sleep waits until the watch fires, a local commit kicks, or the clock has to
// do with the stream's expiry.
func (t *topic) sleep(ctx context.Context, watch kv.Watch, st Stream) {
	defer watch.Cancel()
	wctx, cancel := t.alarm(ctx, st)
	defer cancel()
	t.mu.Lock()
	if t.kicked {
		t.mu.Unlock()
		return
	}
	t.awake = cancel
	t.mu.Unlock()
	err := watch.Wait(wctx)
	t.mu.Lock()
	t.awake = nil
	read := t.refs > 0
	t.mu.Unlock()
	switch {
	case err != nil && wctx.Err() == nil:
		// The watch was lost. The next round arms another; not at once, lest a
		// store that can't keep watches be asked all the time.
		select {
		case <-ctx.Done():
		case <-time.After(topicRetry):
		}
	case st.Expiry.HasTTL && read && ctx.Err() == nil:
		s := t.hub.store
		if err := s.touch(ctx, t.id, t.incarnation, s.now()); err != nil && ctx.Err() == nil {
			s.opts.Logger.Warn("renewing a TTL failed", "stream", t.id.Stream, "error", err)
		}
	}
}

// alarm bounds a sleep by the stream's expiry: a stream with a sliding TTL
// lives while it is read, one with a deadline ends at it.
func (t *topic) alarm(ctx context.Context, st Stream) (context.Context, context.CancelFunc) {
	switch {
	case st.Expiry.HasTTL:
		ttl := time.Duration(min(st.Expiry.TTL, 1<<32)) * time.Second
		return context.WithTimeout(ctx, max(ttl/3, 10*time.Millisecond))
	case !st.Expiry.At.IsZero():
		return context.WithTimeout(ctx, max(st.Expiry.At.Sub(t.hub.store.now()), time.Millisecond))
	}
	return context.WithCancel(ctx)
}
