package fdblayer

import (
	"math"
	"time"

	"headwater/keys"
)

// view is one stream as a transaction sees it, changed by the requests that
// were judged against it since. Its methods are the rules of the protocol:
// they do no I/O and read no clock, so that tests drive them alone.
type view struct {
	id   StreamID
	meta *meta // nil: there is no stream
	// touched is the last access; it matters for a sliding TTL only.
	touched time.Time
	// hasForks is known only where hides needed it.
	hasForks bool
	// fenced says the bucket was purged for ever.
	fenced bool
	// followed says that a stream created here is followed from its birth.
	followed  bool
	producers map[string]producerState
	seq       *string
	seqKnown  bool // seq was looked for

	// What the requests so far ask the transaction to write.
	replaced       *meta // the expired stream a new one takes the place of
	born           bool
	metaChanged    bool
	woken          bool
	renewed        bool
	packer         packer
	last           *position // the end of what they write; nil for nothing
	dirtyProducers map[string]bool
	seqChanged     bool
}

// producerState is what a stream remembers of an idempotent producer.
type producerState struct {
	epoch, seq uint64
	next       position
}

// position is an offset whose versionstamp may still be the one this
// transaction will get, or the tail, which nobody knows before it commits.
type position struct {
	offset keys.Offset
	stamp  bool // the versionstamp is this transaction's
	tail   bool // the tail of the stream once this transaction has committed
	before bool // the tail of the stream as this transaction reads it
}

// outcome is what one request comes to.
type outcome struct {
	err       *Error
	create    CreateResult
	append    AppendResult
	next      position
	forStream *meta
	early     bool // refused only because its predecessor has not come yet
}

// deadline returns when the stream expires; ok is false if it does not.
func deadline(m *meta, touched time.Time) (at time.Time, ok bool) {
	switch {
	case m.expiry.HasTTL:
		const most = uint64(math.MaxInt64/int64(time.Second)) / 2
		return touched.Add(time.Duration(min(m.expiry.TTL, most)) * time.Second), true
	case !m.expiry.At.IsZero():
		return m.expiry.At, true
	}
	return time.Time{}, false
}

// lastTouch is the later of the stream's creation and its last access.
func lastTouch(m *meta, touched time.Time) time.Time {
	if touched.Before(m.created) {
		return m.created
	}
	return touched
}

func (v *view) expired(now time.Time) bool {
	if v.meta == nil {
		return false
	}
	at, ok := deadline(v.meta, lastTouch(v.meta, v.touched))
	return ok && !now.Before(at)
}

// missing returns why no request but a create can address the stream, nil if
// one can. An expired stream that forks depend on is as good as soft-deleted.
func (v *view) missing(now time.Time) *Error {
	switch {
	case v.meta == nil:
		return errorf(CodeNotFound, "no stream at this path")
	case v.meta.softDeleted, v.expired(now) && v.hasForks:
		return errorf(CodeSoftDeleted, "the stream was deleted; forks still hold its data")
	case v.expired(now):
		return errorf(CodeNotFound, "the stream has expired")
	}
	return nil
}

// mismatch returns the error of a precondition the stream does not meet. It is
// asked last: only what would otherwise succeed is refused by it (ext. 2.4).
func (v *view) mismatch(pre Precondition) *Error {
	if !pre.Set || v.meta != nil && v.meta.incarnation == pre.Incarnation {
		return nil
	}
	e := errorf(CodeIncarnation, "the stream at this path is not the incarnation asked for")
	if v.meta != nil {
		e.Incarnation = v.meta.incarnation
	}
	return e
}

// create judges a create. fresh becomes the stream if there is none yet.
func (v *view) create(now time.Time, req *CreateRequest, fresh *meta, staged *blobRef) outcome {
	gone := v.missing(now)
	switch {
	case gone == nil:
		if why := differs(v.meta, req); why != "" {
			e := errorf(CodeExists, "the stream exists with another %s", why)
			e.Incarnation = v.meta.incarnation
			return outcome{err: e}
		}
		if e := v.mismatch(req.Precondition); e != nil {
			return outcome{err: e}
		}
		v.renewed = true
		return outcome{forStream: v.meta, next: v.end()}
	case gone.Code == CodeSoftDeleted:
		return outcome{err: errorf(CodePathDeleted, "the path is held by a deleted stream that forks still need")}
	case v.fenced:
		return outcome{err: errorf(CodeNotFound, "the bucket was purged")}
	case req.Precondition.Set:
		return outcome{err: errorf(CodeIncarnation, "there is no stream at this path")}
	}
	if v.replaced == nil {
		v.replaced = v.meta
	}
	fresh.followed = v.followed
	v.meta, v.touched, v.hasForks = fresh, now, false
	v.producers, v.seq = nil, nil
	v.dirtyProducers, v.seqChanged = nil, false
	v.packer = packer{json: MediaType(fresh.contentType) == "application/json"}
	v.last = &position{offset: fresh.floor()}
	v.born, v.metaChanged, v.woken, v.renewed = true, true, true, true
	next := position{offset: fresh.floor()}
	if len(req.Body) > 0 || staged != nil {
		next = v.write(req.Body, staged)
	}
	return outcome{forStream: fresh, next: next, create: CreateResult{Created: true}}
}

// differs names the first part of a stream's configuration that a repeated
// create does not match, "" if all match (PROTOCOL.md 5.1, 4.2).
func differs(m *meta, req *CreateRequest) string {
	ctype := req.ContentType
	switch {
	case ctype == "" && req.Fork != nil:
		ctype = m.contentType
	case ctype == "":
		ctype = defaultContentType
	}
	none := !req.Expiry.HasTTL && req.Expiry.At.IsZero()
	switch {
	case MediaType(ctype) != MediaType(m.contentType):
		return "content type"
	case req.Closed != m.closed:
		return "closure status"
	case (!none || !m.inheritedExpiry) && !sameExpiry(req.Expiry, m.expiry):
		return "TTL or expiry"
	case (req.Fork == nil) != (m.fork == nil):
		return "fork source"
	case req.Fork == nil:
		return ""
	case req.Fork.Source != m.fork.source:
		return "fork source"
	case req.Fork.SubOffset != m.fork.subOffset:
		return "fork sub-offset"
	case req.Fork.Offset != nil && *req.Fork.Offset != m.fork.offset,
		req.Fork.Offset == nil && m.fork.hasOffset:
		return "fork offset"
	}
	return ""
}

const defaultContentType = "application/octet-stream"

func sameExpiry(a, b Expiry) bool {
	return a.HasTTL == b.HasTTL && a.TTL == b.TTL && a.At.UnixMilli() == b.At.UnixMilli()
}

// tail is the tail of the stream as far as it can be named now.
func (v *view) tail() position { return position{tail: true} }

// end is the tail for a request that changes nothing: what requests of other
// frontends, or later ones of this batch, make of the stream is not to show.
func (v *view) end() position {
	if v.last != nil {
		return *v.last
	}
	return position{before: true}
}

// write lays body, or the staged one, out as records and returns its end.
func (v *view) write(body []byte, staged *blobRef) position {
	v.woken, v.renewed = true, true
	var order uint16
	var count uint32
	if staged != nil {
		order, count = v.packer.addBlob(*staged)
	} else {
		order, count = v.packer.add(body)
	}
	v.last = &position{offset: keys.MakeOffset(keys.Versionstamp{}, order, count), stamp: true}
	return *v.last
}

// append judges an append, a close, or both, in the order PROTOCOL.md 5.2
// recommends: existence, closure, content type, producer, Stream-Seq; the
// incarnation last.
func (v *view) append(now time.Time, req *AppendRequest, staged *blobRef) outcome {
	if e := v.missing(now); e != nil {
		return outcome{err: e}
	}
	hasBody := len(req.Body) > 0 || staged != nil
	if v.meta.closed {
		return v.appendClosed(req, hasBody)
	}
	if hasBody && MediaType(req.ContentType) != MediaType(v.meta.contentType) {
		return v.refuse(errorf(CodeContentType, "the stream holds %s", v.meta.contentType))
	}
	duplicate, e := v.judgeProducer(req.Producer)
	if e != nil {
		return v.refuse(e)
	}
	if duplicate {
		return v.duplicate(req)
	}
	if req.Seq != nil && v.seq != nil && *req.Seq <= *v.seq {
		return v.refuse(errorf(CodeSequence, "Stream-Seq must be greater than the last one"))
	}
	if e := v.mismatch(req.Precondition); e != nil {
		return outcome{err: e}
	}

	v.renewed = true
	next := v.tail()
	if hasBody {
		next = v.write(req.Body, staged)
	}
	if p := req.Producer; p != nil {
		v.setProducer(p.ID, producerState{epoch: p.Epoch, seq: p.Seq, next: next})
	}
	if req.Seq != nil {
		v.seq, v.seqChanged = req.Seq, true
	}
	if req.Close {
		m := *v.meta
		m.closed, m.closer = true, req.Producer
		v.meta, v.metaChanged, v.woken = &m, true, true
	}
	o := outcome{forStream: v.meta, next: next}
	o.append = AppendResult{Closed: req.Close}
	if req.Producer != nil {
		o.append.ProducerSeq = req.Producer.Seq
	}
	return o
}

// appendClosed judges a request to a stream that is closed already: a repeated
// close succeeds, and so does a repeat of the request that closed it.
func (v *view) appendClosed(req *AppendRequest, hasBody bool) outcome {
	p, c := req.Producer, v.meta.closer
	again := p != nil && c != nil && *p == *c
	if !again && (hasBody || !req.Close) {
		e := errorf(CodeClosed, "the stream is closed")
		o := v.refuse(e)
		o.next = v.tail()
		return o
	}
	if e := v.mismatch(req.Precondition); e != nil {
		return outcome{err: e}
	}
	v.renewed = true
	o := outcome{forStream: v.meta, next: v.tail()}
	o.append = AppendResult{Closed: true, Duplicate: true}
	if p != nil {
		o.append.ProducerSeq = p.Seq
	}
	return o
}

// refuse is an error about a stream that exists.
func (v *view) refuse(e *Error) outcome {
	e.Incarnation = v.meta.incarnation
	return outcome{err: e, forStream: v.meta}
}

// judgeProducer applies the validation logic of PROTOCOL.md 5.2.1.
func (v *view) judgeProducer(p *Producer) (duplicate bool, err *Error) {
	if p == nil {
		return false, nil
	}
	st, known := v.producers[p.ID]
	switch {
	case known && p.Epoch < st.epoch:
		e := errorf(CodeStaleEpoch, "the producer's epoch is %d", st.epoch)
		e.Epoch = st.epoch
		return false, e
	case known && p.Epoch == st.epoch && p.Seq <= st.seq:
		return true, nil
	case known && p.Epoch == st.epoch && p.Seq == st.seq+1:
		return false, nil
	case known && p.Epoch > st.epoch && p.Seq != 0:
		return false, errorf(CodeEpochStart, "a new epoch starts at sequence number 0")
	case p.Seq == 0:
		return false, nil
	}
	e := errorf(CodeProducerGap, "sequence numbers are missing")
	if known {
		e.Expected = st.seq + 1
	}
	e.Received = p.Seq
	return false, e
}

func (v *view) duplicate(req *AppendRequest) outcome {
	if e := v.mismatch(req.Precondition); e != nil {
		return outcome{err: e}
	}
	v.renewed = true
	st := v.producers[req.Producer.ID]
	o := outcome{forStream: v.meta, next: st.next}
	o.append = AppendResult{Duplicate: true, ProducerSeq: st.seq}
	return o
}

func (v *view) setProducer(id string, st producerState) {
	if v.producers == nil {
		v.producers = make(map[string]producerState)
	}
	if v.dirtyProducers == nil {
		v.dirtyProducers = make(map[string]bool)
	}
	v.producers[id] = st
	v.dirtyProducers[id] = true
}

// writes reports whether the requests so far changed anything that must be
// committed for the answers to be true.
func (v *view) writes() bool {
	return v.metaChanged || v.woken || v.seqChanged || len(v.dirtyProducers) > 0
}

// touchDue reports whether the last access is worth writing: a sliding TTL is
// renewed at the cost of at most ten writes per window.
func (v *view) touchDue(now time.Time) bool {
	return v.meta != nil && v.renewed && touchDue(v.meta, v.touched, now)
}

func touchDue(m *meta, touched, now time.Time) bool {
	if !m.expiry.HasTTL {
		return false
	}
	at, _ := deadline(m, now)
	return now.Sub(lastTouch(m, touched)) > at.Sub(now)/touchesPerTTL
}

const touchesPerTTL = 10

// exists reports whether requests can address the stream.
func (v *view) exists(now time.Time) bool { return v.missing(now) == nil }
