package fdblayer

import (
	"bytes"
	"context"
	"time"

	"headwater/fdblayer/kv"
	"headwater/keys"
)

// maxForkDepth bounds a chain of forks, so that deleting the last of them
// stays one transaction and metadata stay small.
const maxForkDepth = 256

// forkWitness is how long a fork's witness is kept: longer than any create is
// tried.
const forkWitness = time.Minute

// createFork makes a fork (PROTOCOL.md 4.2).
//
// Reads: the target's view and its bucket's fence; the source's view; by
// snapshot the source's tail and, for a sub-offset, its records. Conflict set:
// both meta keys. So the source can't be deleted unseen, and appends to it,
// which only move the tail further, don't matter; and, where the source's
// beginning is gone, its snapshot pointer. Witness: an entry of the gc
// queue that clears nothing but itself. The fork can't be its own witness: it
// may have been deleted since, and must not be made again.
func (s *Store) createFork(ctx context.Context, req CreateRequest) (CreateResult, error) {
	if req.Fork.Source.Bucket != req.ID.Bucket {
		return CreateResult{}, errorf(CodeBadFork, "a fork and its source must be in one bucket")
	}
	if len(req.Body) > MaxInlineBody {
		return CreateResult{}, errorf(CodeTooLarge, "a fork's first body can't be longer than %d bytes", MaxInlineBody)
	}
	inc := keys.NewIncarnation()
	witness := s.space.GC(s.now().Add(forkWitness), [16]byte(inc))
	var o outcome
	var made *view
	committed, err := s.transact(ctx, func(ctx context.Context, tx kv.Tx, at kv.Attempt) error {
		now := s.now()
		if at.Unknown && o.create.Created {
			w, err := tx.Get(witness).Wait(ctx)
			if err != nil {
				return err
			}
			if w != nil {
				// An earlier attempt committed. Where its first bytes ended only
				// its lost versionstamp could tell; the tail covers them.
				if o.next.stamp {
					o.next.offset, err = s.tailNow(ctx, tx, req.ID, o.forStream)
					o.next.stamp = false
				}
				return err
			}
		}
		v, err := s.lookTarget(ctx, tx, req.ID, now)
		if err != nil {
			return err
		}
		var fresh *meta
		if e := v.missing(now); e != nil && e.Code == CodeNotFound && !v.fenced && !req.Precondition.Set {
			if fresh, err = s.forkMeta(ctx, tx, &req, inc, now); err != nil {
				return err
			}
			tx.Set(s.space.Fork(fresh.fork.sourceIncarnation, inc), s.space.Meta(req.ID.Bucket, req.ID.Stream))
			tx.Set(witness, encodeClear(kv.Range{Begin: witness, End: append(bytes.Clone(witness), 0)}))
		}
		made, o = v, v.create(now, &req, fresh, nil)
		if o.err != nil {
			return o.err
		}
		if o.next.before {
			if o.next.offset, err = s.tailNow(ctx, tx, req.ID, o.forStream); err != nil {
				return err
			}
		}
		_, err = s.writeView(ctx, tx, v, now)
		return err
	})
	if err != nil {
		return CreateResult{}, err
	}
	next := o.next.offset
	if o.next.stamp {
		copy(next[:], committed.Versionstamp[:])
	}
	if made.replaced != nil {
		s.hub.kick(made.replaced.incarnation)
	}
	o.create.Stream = streamOf(req.ID, o.forStream, next)
	o.create.followed = o.forStream.followed
	return o.create, nil
}

// tailNow reads the tail of a stream that was there a moment ago. Where it has
// gone since, the answer that was to name its tail is that it may have been.
func (s *Store) tailNow(ctx context.Context, tx kv.Tx, id StreamID, m *meta) (keys.Offset, error) {
	v, err := s.look(ctx, tx, id, s.now())
	if err != nil {
		return keys.Offset{}, err
	}
	if v.meta == nil || v.meta.incarnation != m.incarnation {
		return keys.Offset{}, applied(nil)
	}
	return s.tail(ctx, s.lastRecord(tx, m.incarnation), v.meta)
}

func (s *Store) lookTarget(ctx context.Context, tx kv.Tx, id StreamID, now time.Time) (*view, error) {
	followed := s.verdict(tx, id)
	v, err := s.look(ctx, tx, id, now)
	if err != nil {
		return v, err
	}
	if v.followed, err = followed.Wait(ctx); err != nil || id.Bucket == "" {
		return v, err
	}
	fence, err := tx.Get(s.space.Fence(id.Bucket)).Wait(ctx)
	v.fenced = fence != nil
	return v, err
}

// forkMeta reads the source and returns the metadata of a fork of it.
func (s *Store) forkMeta(ctx context.Context, tx kv.Tx, req *CreateRequest, inc keys.Incarnation, now time.Time) (*meta, error) {
	src, err := s.see(ctx, tx, req.Fork.Source, now)
	if err != nil {
		return nil, sourceError(err)
	}
	if req.ContentType != "" && MediaType(req.ContentType) != MediaType(src.meta.contentType) {
		return nil, errorf(CodeForkConflict, "the source holds %s", src.meta.contentType)
	}
	anchor, point, err := s.forkPoint(ctx, tx, src, req.Fork)
	if err != nil {
		return nil, err
	}
	m := s.freshMeta(req)
	m.incarnation = inc
	m.created = now
	if req.ContentType == "" {
		m.contentType = src.meta.contentType
	}
	if !req.Expiry.HasTTL && req.Expiry.At.IsZero() {
		m.expiry, m.inheritedExpiry = src.meta.expiry, true
	}
	m.retained = src.meta.retained
	if err := s.inheritSnapshot(ctx, tx, src, point, inc); err != nil {
		return nil, err
	}
	f := &forkMeta{
		source: req.Fork.Source, sourceIncarnation: src.meta.incarnation,
		hasOffset: req.Fork.Offset != nil, offset: anchor,
		subOffset: req.Fork.SubOffset, segments: segmentsUntil(src.meta, point),
	}
	if src.meta.fork != nil {
		f.depth = src.meta.fork.depth + 1
	}
	if f.depth >= maxForkDepth {
		return nil, errorf(CodeForkConflict, "a chain of forks can't be longer than %d", maxForkDepth)
	}
	m.fork = f
	return m, nil
}

// inheritSnapshot gives the fork of a stream whose beginning is gone the
// snapshot that stands for it (extensions 3.4): the same blob, which stays with
// its owner for as long as a fork needs it. A fork that begins before that
// snapshot could not be rebuilt by anybody, and is refused.
func (s *Store) inheritSnapshot(ctx context.Context, tx kv.Tx, src *seen, point keys.Offset, inc keys.Incarnation) error {
	if src.meta.retained.IsStart() {
		return nil
	}
	p, err := s.snapshotPointer(ctx, tx, src.meta.incarnation)
	if err != nil {
		return err
	}
	if p == nil || point.Less(p.snapshot.Offset) {
		return errorf(CodeForkConflict, "the source's beginning is gone, and its snapshot is newer than the fork offset")
	}
	if !p.pinned {
		p.pinned = true
		tx.Set(s.space.Snapshot(src.meta.incarnation), p.encode())
	}
	tx.Set(s.space.Snapshot(inc), p.encode())
	return nil
}

// sourceError tells the errors of a fork's source from those of its target.
func sourceError(err error) error {
	switch {
	case isCode(err, CodeNotFound):
		return errorf(CodeSourceNotFound, "the fork's source does not exist")
	case isCode(err, CodeSoftDeleted):
		return errorf(CodeSourceDeleted, "the fork's source was deleted")
	}
	return err
}

// segmentsUntil is what a fork at point inherits, flattened. Segments that
// hold nothing are left out, so that forks of forks at one point stay small.
func segmentsUntil(m *meta, point keys.Offset) []segment {
	var out []segment
	begin := keys.StartOffset
	for _, seg := range m.segments() {
		if !begin.Less(point) {
			break
		}
		if point.Less(seg.upto) {
			seg.upto = point
		}
		out = append(out, seg)
		begin = seg.upto
	}
	return out
}

// forkPoint resolves the anchor and, by the sub-offset, the point of a fork.
func (s *Store) forkPoint(ctx context.Context, tx kv.Reader, src *seen, f *Fork) (anchor, point keys.Offset, err error) {
	anchor = src.tail
	if f.Offset != nil {
		anchor = *f.Offset
	}
	if anchor.IsStart() && !src.meta.retained.IsStart() || anchor.Less(src.meta.retained) {
		e := errorf(CodeRetained, "the fork offset is before the source's earliest retained one")
		e.Offset, e.HasOffset = src.meta.retained, true
		return anchor, anchor, e
	}
	if src.tail.Less(anchor) {
		return anchor, anchor, errorf(CodeBadFork, "the fork offset is beyond the source's tail")
	}
	exists, boundary, err := s.locate(ctx, tx, src.meta, anchor, src.tail)
	if err != nil {
		return anchor, anchor, err
	}
	json := src.stream().JSON()
	if !exists || json && !boundary {
		return anchor, anchor, errorf(CodeBadFork, "the fork offset is no position of the source")
	}
	if f.SubOffset == 0 {
		return anchor, anchor, nil
	}
	point, err = s.advance(ctx, tx, src, anchor, f.SubOffset, json)
	return anchor, point, err
}

// advance returns the position n messages, or bytes, past anchor.
func (s *Store) advance(ctx context.Context, tx kv.Reader, src *seen, anchor keys.Offset, n uint64, json bool) (keys.Offset, error) {
	at := anchor
	err := s.walk(ctx, tx, src.meta, anchor, 0, func(r visit) (bool, error) {
		if !json {
			step := min(n, uint64(r.take-r.skip))
			n -= step
			at = r.end.WithCount(r.skip + uint32(step))
			return n > 0, nil
		}
		b, err := s.bytes(ctx, tx, r, int(r.take-r.skip))
		if err != nil {
			return false, err
		}
		for i := 0; i < len(b) && n > 0; {
			j := bytes.IndexByte(b[i:], '\n')
			if j < 0 {
				break
			}
			i += j + 1
			n--
			at = r.end.WithCount(r.skip + uint32(i))
		}
		return n > 0, nil
	})
	if err != nil {
		return at, err
	}
	if n > 0 {
		return at, errorf(CodeBadFork, "the fork sub-offset is beyond the source's tail")
	}
	return at, nil
}
