package fdblayer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"time"

	"headwater/fdblayer/kv"
	"headwater/keys"
)

// batch is the transaction of one lane's batch.
//
// Reads: of each stream its meta, and what its requests are judged by: the
// state of the producers that wrote, Stream-Seq, the last access where a TTL
// slides; of each bucket that a stream is created in, its fence. A warm batch
// (warm.go) reads nothing.
//
// Conflict set: all of these but the last access. Of producers and Stream-Seq,
// which frontends guard by parts (guard), only what other frontends write. No
// log or tail key is read, so batches of different frontends that append to
// one stream never conflict.
//
// Witness: the key batch/frontend/lane gets the attempt's number and, by the
// engine, its versionstamp. An attempt whose outcome is unknown is looked up
// there by the next one, with a read that conflicts with it, should it still
// land. Every attempt conflicts with the lane's fence, which only an attempt
// after an unknown one writes: so one that lands after that is refused. (The
// witness itself can't serve as the fence: a warm batch reads as of before its
// predecessor's commit, and would conflict with it every time.)
type batch struct {
	lane  *lane
	store *Store
	work  []*pending
	// unknown are the attempts that may have committed.
	unknown []*attempt
}

// doubtful reports whether an attempt of this lane, of this batch or of one
// given up before it, may yet land. The fence then has to be written, also
// where a batch has nothing else to write: what is refused now may have been
// judged otherwise before, by the clock.
func (b *batch) doubtful() bool { return b.lane.doubt || len(b.unknown) > 0 }

// attempt is what one run over a batch decided.
type attempt struct {
	number   uint64
	views    []*view
	outcomes []outcome // parallel to batch.work
	// tails are those that outcomes name, where they were read already.
	tails   map[keys.Incarnation]keys.Offset
	version int64 // it committed at, where its views may be remembered; else 0
}

func newBatch(l *lane, work []*pending) *batch {
	return &batch{lane: l, store: l.store, work: work}
}

// run tries until an attempt has committed, or one found nothing to write, and
// fills in the outcome of every request.
func (b *batch) run(ctx context.Context) error {
	tx := b.store.db.Begin()
	defer tx.Cancel()
	for n := 0; ; n++ {
		now := b.store.now()
		warm := n == 0 && b.lane.warm.serves(b.work, now)
		a, stamp, err := b.try(ctx, tx, warm, now)
		if err == nil {
			return b.finish(ctx, a, stamp)
		}
		b.lane.warm.forget(b.work)
		maybe := a != nil && kv.MaybeCommitted(err)
		switch {
		case maybe:
			b.unknown = append(b.unknown, a)
			b.lane.warm.clear() // the fence will be written
			b.store.stats.unknown.Add(1)
		case errors.Is(err, errNotWarm):
		case !kv.Retryable(err):
			return b.unresolved(err)
		case kv.Code(err) == kv.CodeNotCommitted:
			b.store.stats.conflicts.Add(1)
		}
		if !warm || maybe {
			if perr := kv.Pause(ctx, n); perr != nil {
				return b.unresolved(perr)
			}
		}
		tx.Reset()
	}
}

// unresolved is err, told as an unknown outcome where an attempt may yet have
// committed.
func (b *batch) unresolved(err error) error {
	if len(b.unknown) == 0 {
		return err
	}
	b.lane.doubt = true
	return &Error{
		Code: CodeUnknownOutcome, Detail: "the store can't say whether the write was applied",
		RetryAfter: time.Second, Err: err,
	}
}

// try makes one attempt. The attempt it returns is nil where nothing was sent
// to be committed.
func (b *batch) try(ctx context.Context, tx kv.Tx, warm bool, now time.Time) (*attempt, keys.Versionstamp, error) {
	witness := b.store.space.Batch(b.store.frontend, b.lane.index)
	if len(b.unknown) > 0 {
		a, stamp, err := b.look(ctx, tx, witness)
		if a != nil || err != nil {
			return a, stamp, err
		}
	}
	views, err := b.see(ctx, tx, warm, now)
	if err != nil {
		return nil, keys.Versionstamp{}, err
	}
	b.lane.attempt++
	a := &attempt{number: b.lane.attempt, views: views.order, outcomes: make([]outcome, len(b.work))}
	b.judgeAll(a, views, now)
	if err := b.ends(ctx, tx, a); err != nil {
		return nil, keys.Versionstamp{}, err
	}
	wrote, err := b.write(ctx, tx, a, now)
	if err != nil {
		return nil, keys.Versionstamp{}, err
	}
	if !wrote && !b.doubtful() {
		if warm {
			// Nothing would be committed, so nothing would prove that what
			// the lane remembers still holds.
			return nil, keys.Versionstamp{}, errNotWarm
		}
		// Nothing is committed, so what was read is the whole truth.
		a.tails, err = b.tails(ctx, tx, a)
		return a, keys.Versionstamp{}, err
	}
	fence := append(bytes.Clone(witness), 0)
	tx.AddReadConflictKey(fence)
	if b.doubtful() {
		tx.AddWriteConflictKey(fence)
	}
	tx.Atomic(kv.SetVersionstampedValue, witness, witnessValue(a.number))
	if err := tx.Commit(ctx); err != nil {
		return a, keys.Versionstamp{}, err
	}
	b.store.stats.commit(warm, len(b.work))
	if !b.doubtful() {
		a.version = tx.CommittedVersion()
	}
	b.lane.doubt = false
	return a, tx.Versionstamp(), nil
}

// see gets the views of a batch: from the lane's memory, or by reading them.
func (b *batch) see(ctx context.Context, tx kv.Tx, warm bool, now time.Time) (*views, error) {
	if warm {
		return b.lane.warm.recall(tx, b.store, b.work), nil
	}
	b.lane.warm.real = now
	return b.load(ctx, tx, now)
}

// write writes what the requests made of the streams.
func (b *batch) write(ctx context.Context, tx kv.Tx, a *attempt, now time.Time) (wrote bool, err error) {
	for _, v := range a.views {
		w, err := b.store.writeView(ctx, tx, v, now)
		if err != nil {
			return false, err
		}
		wrote = wrote || w
	}
	for i, p := range b.work {
		if p.staged != nil && a.outcomes[i].err == nil {
			tx.Clear(p.staged.lease)
		}
	}
	return wrote, nil
}

// look reads the witness and returns the attempt that it names, if it is one
// of this batch's.
func (b *batch) look(ctx context.Context, tx kv.Tx, witness []byte) (*attempt, keys.Versionstamp, error) {
	v, err := tx.Get(witness).Wait(ctx)
	if err != nil || len(v) != witnessLen {
		return nil, keys.Versionstamp{}, err
	}
	number := binary.BigEndian.Uint64(v)
	for _, a := range b.unknown {
		if a.number == number {
			return a, keys.Versionstamp(v[8:]), nil
		}
	}
	return nil, keys.Versionstamp{}, nil
}

const witnessLen = 8 + keys.VersionstampLen

func witnessValue(number uint64) []byte {
	v := binary.BigEndian.AppendUint64(make([]byte, 0, witnessLen+4), number)
	v = append(v, make([]byte, keys.VersionstampLen)...)
	return binary.LittleEndian.AppendUint32(v, 8)
}

// judge applies one request to its stream's view.
func judge(v *view, p *pending, now time.Time) outcome {
	if p.create != nil {
		if p.staged != nil && !p.staged.held {
			return outcome{err: &Error{Code: codeRestage}}
		}
		return v.create(now, p.create, p.fresh, p.staged.blob())
	}
	if p.staged != nil {
		if e := v.missing(now); e != nil {
			return outcome{err: e}
		}
		if !p.staged.held || v.meta.incarnation != p.staged.incarnation {
			return outcome{err: &Error{Code: codeRestage}}
		}
	}
	return v.append(now, p.append, p.staged.blob())
}

// codeRestage says a staged body was collected, or its stream replaced, before
// it could be made visible. It never leaves the package.
const codeRestage Code = "restage"

// views are the streams of one attempt in the order they were first named.
type views struct {
	order []*view
	byID  map[StreamID]*view
}

func (vs *views) get(id StreamID) *view { return vs.byID[id] }

// viewReads are the reads of one view under way.
type viewReads struct {
	meta, fence, seq, touch kv.Value
	followed                Verdict
	producers               map[string]kv.Value
}

// load reads the views of every stream the batch names: their metadata at
// once, then, at once, what depends on it.
func (b *batch) load(ctx context.Context, tx kv.Tx, now time.Time) (*views, error) {
	vs := &views{byID: make(map[StreamID]*view, len(b.work))}
	reads := make(map[*view]*viewReads, len(b.work))
	space := b.store.space
	for _, p := range b.work {
		v := vs.byID[p.id]
		if v == nil {
			v = &view{id: p.id}
			vs.byID[p.id] = v
			vs.order = append(vs.order, v)
			reads[v] = &viewReads{meta: tx.Get(space.Meta(p.id.Bucket, p.id.Stream))}
		}
		if r := reads[v]; p.create != nil && p.id.Bucket != "" && r.fence == nil {
			r.fence = tx.Get(space.Fence(p.id.Bucket))
		}
		if r := reads[v]; p.create != nil && r.followed == nil {
			r.followed = b.store.verdict(tx, p.id)
		}
	}
	leases := make([]kv.Value, len(b.work))
	for i, p := range b.work {
		if p.staged != nil {
			leases[i] = tx.Get(p.staged.lease)
		}
	}
	for _, v := range vs.order {
		r := reads[v]
		raw, err := r.meta.Wait(ctx)
		if err != nil {
			return nil, err
		}
		if err := v.setMeta(raw); err != nil {
			return nil, err
		}
		if r.fence != nil {
			f, err := r.fence.Wait(ctx)
			if err != nil {
				return nil, err
			}
			v.fenced = f != nil
		}
		if r.followed != nil {
			if v.followed, err = r.followed.Wait(ctx); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range b.work {
		v := vs.byID[p.id]
		b.issue(tx, v, reads[v], p)
	}
	for _, v := range vs.order {
		if err := b.settle(ctx, tx, v, reads[v], now); err != nil {
			return nil, err
		}
	}
	for i, l := range leases {
		if l == nil {
			continue
		}
		held, err := l.Wait(ctx)
		if err != nil {
			return nil, err
		}
		b.work[i].staged.held = held != nil
	}
	return vs, nil
}

func (v *view) setMeta(raw []byte) error {
	if raw == nil {
		return nil
	}
	m, err := decodeMeta(raw)
	if err != nil {
		return err
	}
	v.meta = m
	v.packer.json = MediaType(m.contentType) == "application/json"
	return nil
}

// issue starts the reads that p is judged by.
func (b *batch) issue(tx kv.Tx, v *view, r *viewReads, p *pending) {
	if v.meta == nil {
		return
	}
	space, inc := b.store.space, v.meta.incarnation
	if v.meta.expiry.HasTTL && r.touch == nil {
		// By snapshot: two frontends that append renew the same key, and
		// must not conflict over it.
		r.touch = tx.Snapshot().Get(space.Touch(inc))
	}
	if p.append == nil {
		return
	}
	if p.append.Seq != nil && r.seq == nil {
		r.seq = b.store.guarded(tx, space.Seq(inc))
	}
	if pr := p.append.Producer; pr != nil && r.producers[pr.ID] == nil {
		if r.producers == nil {
			r.producers = make(map[string]kv.Value)
		}
		r.producers[pr.ID] = b.store.guarded(tx, space.Producer(inc, pr.ID))
	}
}

// settle waits for the reads of one view.
func (b *batch) settle(ctx context.Context, tx kv.Tx, v *view, r *viewReads, now time.Time) error {
	if r.touch != nil {
		raw, err := r.touch.Wait(ctx)
		if err != nil {
			return err
		}
		v.touched = decodeTouch(raw)
	}
	if r.seq != nil {
		raw, err := r.seq.Wait(ctx)
		if err != nil {
			return err
		}
		v.seqKnown = true
		if raw != nil {
			s := string(raw)
			v.seq = &s
		}
	}
	for id, f := range r.producers {
		raw, err := f.Wait(ctx)
		if err != nil {
			return err
		}
		if raw == nil {
			continue
		}
		st, err := decodeProducer(raw)
		if err != nil {
			return err
		}
		if v.producers == nil {
			v.producers = make(map[string]producerState, len(r.producers))
		}
		v.producers[id] = st
	}
	return b.store.settleExpiry(ctx, tx, v, now)
}

// settleExpiry looks, where the stream has expired, whether forks keep it, and
// makes the verdict conflict with an access that renews it meanwhile.
func (s *Store) settleExpiry(ctx context.Context, tx kv.Tx, v *view, now time.Time) error {
	if !v.expired(now) {
		return nil
	}
	tx.AddReadConflictKey(s.space.Touch(v.meta.incarnation))
	var err error
	v.hasForks, err = s.hasForks(ctx, tx, v.meta.incarnation)
	return err
}

func (s *Store) hasForks(ctx context.Context, tx kv.Reader, inc keys.Incarnation) (bool, error) {
	r := s.space.ForkRange(inc)
	rows, _, err := tx.GetRange(kv.FirstGreaterOrEqual(r.Begin), kv.FirstGreaterOrEqual(r.End),
		kv.RangeOptions{Limit: 1}).Next(ctx)
	return len(rows) > 0, err
}

// writeView writes what the requests made of one stream.
func (s *Store) writeView(ctx context.Context, tx kv.Tx, v *view, now time.Time) (wrote bool, err error) {
	touch := v.touchDue(now)
	if v.meta == nil || !v.writes() && !touch {
		return false, nil
	}
	inc := v.meta.incarnation
	if v.replaced != nil {
		if err := s.remove(ctx, tx, v.id, v.replaced); err != nil {
			return false, err
		}
	}
	if v.metaChanged {
		tx.Set(s.space.Meta(v.id.Bucket, v.id.Stream), v.meta.encode())
	}
	if v.born {
		s.indexExpiry(tx, v.id, v.meta, now)
	}
	for i, r := range v.packer.done() {
		tx.Atomic(kv.SetVersionstampedKey, s.space.LogStamped(inc, uint16(i), r.length), r.value)
		if r.staged != nil {
			tx.Atomic(kv.SetVersionstampedKey, s.space.StagedStamped(inc, uint16(i), r.length), r.staged[:])
		}
	}
	if v.woken {
		tx.Atomic(kv.SetVersionstampedValue, s.space.Tail(inc), wakeValue[:])
		if v.meta.followed {
			s.markChanged(tx, v.id)
		}
	}
	for id := range v.dirtyProducers {
		s.writeProducer(tx, inc, id, v.producers[id])
	}
	if v.seqChanged {
		s.claim(tx, s.space.Seq(inc))
		tx.Set(s.space.Seq(inc), []byte(*v.seq))
	}
	if touch {
		tx.Atomic(kv.Max, s.space.Touch(inc), encodeTouch(now))
		v.touched = now
	}
	return true, nil
}

// wakeValue becomes the versionstamp of the transaction that writes it.
var wakeValue [keys.VersionstampLen + 4]byte

// A producer's state: the offset after what it last wrote, epoch, sequence
// number, and whether the offset stands for the tail of a closed stream.
const producerLen = keys.OffsetLen + 8 + 8 + 1

func (s *Store) writeProducer(tx kv.Tx, inc keys.Incarnation, id string, st producerState) {
	key := s.space.Producer(inc, id)
	b := append(make([]byte, 0, producerLen+4), st.next.offset[:]...)
	b = binary.BigEndian.AppendUint64(b, st.epoch)
	b = binary.BigEndian.AppendUint64(b, st.seq)
	if st.next.tail {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	s.claim(tx, key)
	if !st.next.stamp {
		tx.Set(key, b)
		return
	}
	tx.Atomic(kv.SetVersionstampedValue, key, binary.LittleEndian.AppendUint32(b, 0))
}

func decodeProducer(b []byte) (producerState, error) {
	if len(b) != producerLen {
		return producerState{}, errCorrupt
	}
	return producerState{
		epoch: binary.BigEndian.Uint64(b[keys.OffsetLen:]),
		seq:   binary.BigEndian.Uint64(b[keys.OffsetLen+8:]),
		next:  position{offset: keys.Offset(b), tail: b[producerLen-1] == 1},
	}, nil
}

// finish turns the outcomes of the attempt that counts into answers.
func (b *batch) finish(ctx context.Context, a *attempt, stamp keys.Versionstamp) error {
	b.lane.warm.remember(a, stamp, b.store.now())
	for _, v := range a.views {
		if v.woken && v.meta != nil {
			b.store.hub.kick(v.meta.incarnation)
			if !v.born { // of those, Create tells
				b.store.changed(v.id, v.meta)
			}
		}
		if v.replaced != nil {
			b.store.hub.kick(v.replaced.incarnation)
		}
	}
	tails, err := a.tails, error(nil)
	if tails == nil {
		err = storeError(nil, kv.Read(ctx, b.store.db, func(ctx context.Context, tx kv.Tx) (err error) {
			tails, err = b.tails(ctx, tx, a)
			return err
		}), false)
	}
	for i, p := range b.work {
		o := &a.outcomes[i]
		next, known := o.next.offset, true
		switch {
		case o.next.stamp:
			copy(next[:], stamp[:])
		case o.next.tail && err == nil:
			next, known = tails[o.forStream.incarnation]
		case o.next.tail:
			known = false
		}
		if !known && o.err == nil {
			p.out = outcome{err: applied(err)}
			continue
		}
		o.answer(p, next, known)
		p.out = *o
	}
	return nil
}

// applied is the error of a write that committed, and whose answer could not be
// completed: the client has to ask again.
func applied(err error) *Error {
	return &Error{
		Code: CodeUnknownOutcome, Detail: "the write's outcome could not be read",
		RetryAfter: time.Second, Err: err,
	}
}

// answer completes an outcome with the offset it names; a refusal can do
// without.
func (o *outcome) answer(p *pending, next keys.Offset, known bool) {
	switch {
	case o.err != nil:
		if o.forStream != nil && o.next.tail && known {
			o.err.Offset, o.err.HasOffset = next, true
		}
	case p.create != nil:
		o.create.Stream = streamOf(p.id, o.forStream, next)
		o.create.followed = o.forStream.followed
	default:
		o.append.Incarnation = o.forStream.incarnation
		o.append.Next = next
		o.append.Closed = o.append.Closed || o.forStream.closed
	}
}

// ends fills in the tails as the transaction reads them.
func (b *batch) ends(ctx context.Context, tx kv.Tx, a *attempt) error {
	for i := range a.outcomes {
		o := &a.outcomes[i]
		if !o.next.before {
			continue
		}
		end, err := b.store.tail(ctx, b.store.lastRecord(tx, o.forStream.incarnation), o.forStream)
		if err != nil {
			return err
		}
		o.next = position{offset: end}
	}
	return nil
}

// tails reads the tails that outcomes name: after the commit, so that they
// cover everything that committed before it. A stream that has gone since has
// none; one whose beginning has is still asked for its metadata, which say
// where it begins now.
func (b *batch) tails(ctx context.Context, tx kv.Tx, a *attempt) (map[keys.Incarnation]keys.Offset, error) {
	type reads struct{ meta, last kv.Value }
	named := make(map[keys.Incarnation]reads)
	for i, o := range a.outcomes {
		if o.next.tail && o.forStream != nil {
			inc, id := o.forStream.incarnation, b.work[i].id
			named[inc] = reads{tx.Snapshot().Get(b.store.space.Meta(id.Bucket, id.Stream)), b.store.lastRecord(tx, inc)}
		}
	}
	tails := make(map[keys.Incarnation]keys.Offset, len(named))
	for inc, r := range named {
		raw, err := r.meta.Wait(ctx)
		if err != nil {
			return nil, err
		}
		v := &view{}
		if err := v.setMeta(raw); err != nil {
			return nil, err
		}
		if v.meta == nil || v.meta.incarnation != inc {
			continue
		}
		if tails[inc], err = b.store.tail(ctx, r.last, v.meta); err != nil {
			return nil, err
		}
	}
	return tails, nil
}

// internalError makes an [*Error] of what no request caused.
func internalError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeInternal, Detail: "internal error", Err: err}
}
