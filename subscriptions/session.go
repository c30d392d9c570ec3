package subscriptions

import (
	"context"
	"errors"

	"headwater/fdblayer"
	"headwater/fdblayer/kv"
	"headwater/keys"
)

// Ack says up to which offset, inclusive, a stream was processed.
type Ack struct {
	Stream, Offset string
}

// AckRequest is what a receiver or worker says of the wake it holds
// (PROTOCOL.md 7.1, 7.2).
type AckRequest struct {
	WakeID     string
	Generation uint64
	Acks       []Ack
	// Done ends the wake; without it the lease is extended.
	Done bool
}

// Claimed is a wake a worker has claimed.
type Claimed struct {
	WakeID     string
	Generation uint64
	Token      string
	Streams    []StreamInfo
	LeaseMS    int64
}

var errFenced = errorf(CodeFenced, "the wake or its generation is stale")

// Callback applies what a webhook's receiver says. nextWake tells that work is
// left after Done, for which another wake follows.
func (s *Service) Callback(ctx context.Context, id ID, token string, req AckRequest) (nextWake bool, err error) {
	return s.respond(ctx, id, token, req, false)
}

// Ack applies what a worker that claimed a pull-wake says.
func (s *Service) Ack(ctx context.Context, id ID, token string, req AckRequest) (nextWake bool, err error) {
	return s.respond(ctx, id, token, req, true)
}

func (s *Service) respond(ctx context.Context, id ID, token string, req AckRequest, pull bool) (nextWake bool, err error) {
	acks, bad := parseAcks(id.Bucket, req.Acks)
	err = s.asHolder(ctx, id, token, req, pull, func(ctx context.Context, tx kv.Tx, u *sub) error {
		if bad != nil {
			return bad
		}
		left, err := s.applyAcks(ctx, tx, u, acks, true, req.Done)
		if err != nil {
			return err
		}
		now := s.now()
		u.renew(now, u.lease())
		nextWake = req.Done && left
		if req.Done {
			u.end(now, left)
		}
		return nil
	})
	return nextWake, err
}

// Release ends a claim without acking.
func (s *Service) Release(ctx context.Context, id ID, token string, req AckRequest) error {
	return s.asHolder(ctx, id, token, req, true, func(ctx context.Context, tx kv.Tx, u *sub) error {
		rows, err := readRows(ctx, tx, s.space.SubPendingRange(u.uid), 1)
		if err != nil {
			return err
		}
		u.end(s.now(), len(rows) > 0)
		return nil
	})
}

// asHolder runs fn for the holder of the current wake (PROTOCOL.md 7.3): the
// token is valid for the subscription, and token, generation and wake id are
// the current ones, within the lease.
func (s *Service) asHolder(ctx context.Context, id ID, token string, req AckRequest, pull bool, fn func(ctx context.Context, tx kv.Tx, u *sub) error) error {
	claims, err := s.verifyToken(ctx, id, token)
	var refused *Error
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	err = s.change(ctx, id, func(ctx context.Context, tx kv.Tx, u *sub) error {
		switch {
		case pull && u.Type != PullWake:
			return errorf(CodeInvalidRequest, "the subscription is not pull-wake")
		case refused != nil:
			return refused
		case claims.uid != u.UID || claims.generation != u.Generation || !u.current(s.now(), req.Generation, req.WakeID):
			return errFenced
		}
		return fn(ctx, tx, u)
	})
	if errors.Is(err, errFenced) {
		s.counts.fenced.Add(1)
	}
	return err
}

// ackTo moves the cursor of one stream. incarnation is zero where the
// request can't name it.
type ackTo struct {
	path        string
	offset      keys.Offset
	incarnation keys.Incarnation
}

func parseAcks(bucket string, acks []Ack) ([]ackTo, error) {
	if len(acks) > MaxStreams {
		return nil, errorf(CodeInvalidRequest, "a request can ack at most %d streams", MaxStreams)
	}
	out := make([]ackTo, 0, len(acks))
	at := make(map[string]int, len(acks))
	for _, a := range acks {
		path, err := normalizePath(bucket, a.Stream)
		if err != nil {
			return nil, errorf(CodeInvalidOffset, "an ack names no stream of the subscription")
		}
		offset, err := keys.ParseOffset(a.Offset)
		if err != nil {
			return nil, errorf(CodeInvalidOffset, "an ack needs an offset that a read or a wake returned")
		}
		if i, ok := at[path]; !ok {
			at[path] = len(out)
			out = append(out, ackTo{path: path, offset: offset})
		} else if out[i].offset.Less(offset) {
			out[i].offset = offset
		}
	}
	return out, nil
}

// applyAcks moves cursors forward, all or none, and with done tells whether
// pending work is left. With strict, an ack that can't be applied is refused;
// else it is passed over: the snapshot of a wake may be of streams that are gone.
//
// Reads: the links, the streams' metadata and, by snapshot, their tails; with
// done also the pending entries. An entry is cleared only with the value read,
// so one that was renewed meanwhile stays.
func (s *Service) applyAcks(ctx context.Context, tx kv.Tx, u *sub, acks []ackTo, strict, done bool) (left bool, err error) {
	var entries []kv.KeyValue
	if done {
		// Before the writes below: a range that a transaction has written in
		// conflicts with less.
		if entries, err = readRows(ctx, tx, s.space.SubPendingRange(u.uid), len(acks)+1); err != nil {
			return false, err
		}
	}
	paths := make([]string, len(acks))
	work := make([]kv.Value, len(acks))
	for i, a := range acks {
		paths[i] = a.path
		work[i] = tx.Snapshot().Get(s.space.SubPending(u.uid, a.path))
	}
	links, streams, err := s.linksOf(ctx, tx, u, paths)
	if err != nil {
		return false, err
	}
	cleared := make(map[string]bool, len(acks))
	for i, a := range acks {
		seen, err := work[i].Wait(ctx)
		if err != nil {
			return false, err
		}
		l, st := links[i], streams[i]
		if refused := judgeAck(a, l, st); refused != nil {
			if strict {
				return false, refused
			}
			continue
		}
		if l.acked != a.offset {
			l.acked = a.offset
			tx.Set(s.space.SubLink(u.uid, a.path), l.encode())
		}
		if !a.offset.Less(st.Tail) && seen != nil {
			tx.Atomic(kv.CompareAndClear, s.space.SubPending(u.uid, a.path), seen)
			cleared[a.path] = true
		}
	}
	for _, e := range entries {
		_, path, err := s.space.ParseSubPending(e.Key)
		if err != nil {
			return false, err
		}
		left = left || !cleared[path]
	}
	return left, nil
}

func judgeAck(a ackTo, l *link, st fdblayer.Seen) *Error {
	switch {
	case l == nil || !st.Exists || l.incarnation != st.Incarnation || !a.incarnation.IsZero() && a.incarnation != l.incarnation:
		return errorf(CodeInvalidOffset, "an ack names no stream of the subscription")
	case a.offset.Less(l.acked):
		return errorf(CodeInvalidOffset, "an ack can't move the cursor back")
	case st.Tail.Less(a.offset):
		return errorf(CodeInvalidOffset, "an ack is beyond the stream's tail")
	}
	return nil
}

// Claim gives a pull-wake worker the lease (PROTOCOL.md 7.2). Where no wake is
// current but work is pending, it begins one.
func (s *Service) Claim(ctx context.Context, id ID, worker string) (Claimed, error) {
	if worker == "" || len(worker) > maxName {
		return Claimed{}, errorf(CodeInvalidRequest, "worker must be a name of 1 to %d bytes", maxName)
	}
	got, err := s.claim(ctx, id, worker)
	if err != nil || got != nil {
		return s.claimed(ctx, got, err)
	}
	// A change that was acknowledged must be seen by who asks for it, though
	// its mark may not have been dealt with.
	settled, err := s.settle(ctx, id)
	if err != nil {
		return Claimed{}, err
	}
	if settled {
		if got, err = s.claim(ctx, id, worker); err != nil || got != nil {
			return s.claimed(ctx, got, err)
		}
	}
	return Claimed{}, errorf(CodeNoPendingWork, "the subscription has no pending work")
}

func (s *Service) claimed(ctx context.Context, got *issued, err error) (Claimed, error) {
	if err != nil {
		return Claimed{}, err
	}
	token, err := s.newToken(ctx, got.sub)
	if err != nil {
		return Claimed{}, err
	}
	return Claimed{got.WakeID, got.Generation, token, got.infos, got.LeaseMS}, nil
}

// claim is one try; nil where there is no work.
func (s *Service) claim(ctx context.Context, id ID, worker string) (*issued, error) {
	var got *issued
	wakeID := "w_" + randomHex(12)
	err := s.change(ctx, id, func(ctx context.Context, tx kv.Tx, u *sub) error {
		got = nil
		now := s.now()
		switch {
		case u.Type != PullWake:
			return errorf(CodeInvalidRequest, "the subscription is not pull-wake")
		case u.leased(now):
			e := errorf(CodeAlreadyClaimed, "another worker holds the lease")
			e.CurrentHolder, e.Generation = u.Holder, u.Generation
			return e
		}
		infos, pending, err := s.snapshot(ctx, tx, u)
		if err != nil {
			return err
		}
		if u.Phase == held {
			u.Expired++
			u.end(now, pending)
		}
		if !pending {
			u.end(now, false)
			return nil
		}
		if u.WakeID == "" {
			u.issue(now, u.lease(), wakeID, false)
		}
		u.claim(now, u.lease(), worker)
		got = &issued{sub: u, infos: infos}
		return nil
	})
	return got, err
}

// settle deals with the marks of the streams that a subscription follows; it
// reports whether there were any. It looks at a bounded number of marks: with
// more outstanding than that, work is found a little later.
func (s *Service) settle(ctx context.Context, id ID) (any bool, err error) {
	var marked []fdblayer.StreamID
	err = s.store.View(ctx, func(ctx context.Context, tx kv.Tx) error {
		marked = marked[:0]
		u, err := s.load(ctx, tx, id)
		if err != nil || u == nil {
			return err
		}
		for i := range byte(keys.Shards) {
			rows, err := readRows(ctx, tx.Snapshot(), s.space.SubMarkRange(i), marksPage)
			if err != nil {
				return err
			}
			for _, row := range rows {
				bucket, stream, err := s.space.ParseSubMark(row.Key)
				if err != nil {
					return err
				}
				if bucket != id.Bucket {
					continue
				}
				l, err := tx.Snapshot().Get(s.space.SubLink(u.uid, stream)).Wait(ctx)
				if err != nil {
					return err
				}
				if l != nil || u.matches(stream) {
					marked = append(marked, fdblayer.StreamID{Bucket: bucket, Stream: stream})
				}
			}
		}
		return nil
	})
	for _, m := range marked {
		if err := s.reconcile(ctx, m); err != nil {
			return false, err
		}
	}
	return len(marked) > 0, err
}
