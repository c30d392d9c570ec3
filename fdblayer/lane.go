package fdblayer

import (
	"context"
	"runtime"
	"sync"
	"time"

	"headwater/keys"
)

// Bounds of one batch. A transaction stays near FoundationDB's advice of 1 MB;
// one body may be larger, up to what fits in a transaction with room to spare.
const (
	batchBytes    = 1 << 20
	batchRequests = 4096
	// MaxInlineBody is the longest body that is written in one transaction; a
	// longer one is staged first and becomes visible by one small record.
	MaxInlineBody = 8 << 20
	// requestOverhead is what a request costs besides its body: its keys and
	// conflict ranges.
	requestOverhead = 512
)

// lane gathers writes into batches. Streams hash to lanes, so the writes of
// one stream on one frontend stay in order. A lane has one transaction in
// flight; what arrives meanwhile is the next batch. There is no timer: an idle
// lane commits a lone request at once, and a busy one batches exactly as much
// as the store is slow.
//
// run is the only goroutine that touches a batch; mu guards the queue alone and
// is never held over I/O.
type lane struct {
	store *Store
	index uint16
	done  chan struct{}

	mu     sync.Mutex
	queue  []*pending
	bytes  int
	closed bool
	wake   chan struct{} // capacity 1

	// attempt counts this lane's commits, to name their witnesses; warm is what
	// it remembers of them; doubt says that an attempt of an earlier batch may
	// yet land. All are owned by run.
	attempt uint64
	doubt   bool
	warm    memory
	waiting waiting
}

// pending is one write on its way through a lane.
type pending struct {
	id     StreamID
	create *CreateRequest
	fresh  *meta // what create would make
	append *AppendRequest
	staged *stagedBody

	taken bool // guarded by lane.mu
	// until is when a request that came before its predecessor is refused;
	// zero while it is not known to have. Owned by the lane's goroutine.
	until time.Time
	// out is valid once done is closed.
	out  outcome
	done chan struct{}
}

// stagedBody is a body that lies in blob chunks already, and the lease that
// keeps them, which the commit that makes them visible ends.
type stagedBody struct {
	ref         blobRef
	incarnation keys.Incarnation
	lease       []byte
	held        bool // whether the attempt found the lease
}

func (b *stagedBody) blob() *blobRef {
	if b == nil {
		return nil
	}
	return &b.ref
}

func (p *pending) size() int {
	n := requestOverhead
	if p.create != nil {
		n += len(p.create.Body)
	}
	if p.append != nil {
		n += len(p.append.Body)
	}
	return n
}

func newLane(s *Store, index uint16) *lane {
	return &lane{store: s, index: index, done: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// submit queues p and waits for its outcome. Where ctx ends first, p is taken
// back if its batch has not begun; else its outcome is waited for, because the
// caller's body is in use until then and the wait is bounded.
func (l *lane) submit(ctx context.Context, p *pending) error {
	p.done = make(chan struct{})
	if err := l.enqueue(p); err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		if l.withdraw(p) {
			return context.Cause(ctx)
		}
		<-p.done
	}
	if p.out.err != nil {
		return p.out.err
	}
	return nil
}

func (l *lane) enqueue(p *pending) error {
	size := p.size()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return &Error{Code: CodeDraining, Detail: "this frontend is shutting down", RetryAfter: time.Second}
	}
	if len(l.queue) >= l.store.opts.MaxQueuedRequests || l.bytes+size > l.store.opts.MaxQueuedBytes {
		return &Error{Code: CodeOverloaded, Detail: "too many writes are waiting", RetryAfter: time.Second}
	}
	l.queue = append(l.queue, p)
	l.bytes += size
	l.signal()
	return nil
}

func (l *lane) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// withdraw removes p from the queue; it reports false if its batch has begun.
func (l *lane) withdraw(p *pending) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.taken {
		return false
	}
	for i, q := range l.queue {
		if q == p {
			l.queue = append(l.queue[:i], l.queue[i+1:]...)
			l.bytes -= p.size()
			return true
		}
	}
	return false
}

// close lets run finish what is queued and end.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	l.signal()
	l.mu.Unlock()
}

// next returns the next batch; ok is false once the lane is closed and empty.
// Requests that waited for a predecessor come last, so that it is before them.
func (l *lane) next() (batch []*pending, ok bool) {
	batch, open := l.take()
	if len(batch) != 1 || batch[0].size() <= batchBytes {
		batch = append(batch, l.waiting.due(batch, time.Now(), !open)...)
	}
	return batch, open || len(batch) > 0
}

// take removes the next batch from the queue; open is false once the lane is
// closed and the queue empty.
func (l *lane) take() (batch []*pending, open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size, n := 0, 0
	for n < len(l.queue) && n < batchRequests {
		s := l.queue[n].size()
		if n > 0 && size+s > batchBytes {
			break
		}
		size += s
		l.queue[n].taken = true
		n++
	}
	batch = append(batch, l.queue[:n]...)
	rest := copy(l.queue, l.queue[n:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	l.bytes -= size
	return batch, n > 0 || !l.closed
}

func (l *lane) run() {
	defer close(l.done)
	for {
		// Let requests that are about to arrive join the batch. On an idle
		// system this costs nothing; on a busy one the lane would else take the
		// first of them alone, and a commit is dearer than a request.
		runtime.Gosched()
		work, ok := l.next()
		if !ok {
			return
		}
		if len(work) == 0 {
			l.rest()
			continue
		}
		l.commit(work)
	}
}

// rest waits for work. A lane that rests long enough for its memory to be of
// no more use drops it: an idle stream costs nothing.
func (l *lane) rest() {
	limit := warmAge
	switch {
	case len(l.waiting.requests) > 0:
		limit = l.waiting.wait(time.Now())
	case l.warm.empty():
		<-l.wake
		return
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-l.wake:
	case <-t.C:
		if limit == warmAge {
			l.warm.clear()
		}
	}
}

// commit carries a batch through to an outcome for every request in it.
func (l *lane) commit(work []*pending) {
	ctx, cancel := context.WithTimeoutCause(l.store.ctx, l.store.opts.CommitTimeout, errTimeout)
	defer cancel()
	b := newBatch(l, work)
	if err := b.run(ctx); err != nil {
		e := internalError(storeError(nil, err, false))
		for _, p := range work {
			p.out = outcome{err: e}
		}
	}
	for _, p := range work {
		if p.out.early && l.waiting.add(p) {
			continue
		}
		close(p.done)
	}
}

// Create makes a stream, or finds an equal one (PROTOCOL.md 5.1). A stream
// that has expired is replaced.
func (s *Store) Create(ctx context.Context, req CreateRequest) (CreateResult, error) {
	r, err := s.create(ctx, req)
	if err == nil && r.Created && r.followed && s.opts.Followers != nil {
		s.opts.Followers.Born(ctx, req.ID)
	}
	return r, err
}

func (s *Store) create(ctx context.Context, req CreateRequest) (CreateResult, error) {
	if req.Fork != nil {
		return s.createFork(ctx, req)
	}
	if len(req.Body) > MaxInlineBody {
		return s.createLarge(ctx, req)
	}
	p := &pending{id: req.ID, create: &req, fresh: s.freshMeta(&req)}
	if err := s.lane(req.ID).submit(ctx, p); err != nil {
		return CreateResult{}, err
	}
	return p.out.create, nil
}

// freshMeta is the metadata of the stream that an ordinary create makes.
func (s *Store) freshMeta(req *CreateRequest) *meta {
	m := &meta{
		incarnation: keys.NewIncarnation(),
		contentType: req.ContentType,
		expiry:      req.Expiry,
		created:     time.UnixMilli(s.opts.Now().UnixMilli()),
		closed:      req.Closed,
	}
	if m.contentType == "" {
		m.contentType = defaultContentType
	}
	return m
}

// Append adds bytes to a stream, closes it, or both in one step (PROTOCOL.md
// 5.2 and 5.3). It is applied wholly or not at all, and at most once.
func (s *Store) Append(ctx context.Context, req AppendRequest) (AppendResult, error) {
	if len(req.Body) == 0 && !req.Close {
		return AppendResult{}, errorf(CodeEmptyBody, "an append needs a body")
	}
	if len(req.Body) > MaxInlineBody {
		return s.appendLarge(ctx, req)
	}
	p := &pending{id: req.ID, append: &req}
	if err := s.lane(req.ID).submit(ctx, p); err != nil {
		return AppendResult{}, err
	}
	return p.out.append, nil
}
