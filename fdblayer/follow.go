package fdblayer

import (
	"context"
	"time"

	"headwater/fdblayer/kv"
	"headwater/keys"
)

// Followers is who wants to know of changes of streams: package subscriptions,
// which is built on this one and so is known here by this interface only.
//
// A stream that is followed says so in its metadata. Every commit that changes
// it also leaves a mark and moves its shard's wake key, both blind, so it costs
// two small writes whatever the number of followers. A stream that is not
// followed costs nothing. The flag is part of the metadata so that lanes which
// remember a stream are refused once it changes, and learn of it.
type Followers interface {
	// Followed starts to look whether a stream that tx creates at id is
	// followed from its birth. What it reads must conflict with whatever makes
	// the answer untrue.
	Followed(tx kv.Tx, space keys.Space, id StreamID) Verdict
	// Born is called once a followed stream has been created by this frontend,
	// before its creator is answered. An error is not told to anybody: the mark
	// of the creation is there for whoever looks next.
	Born(ctx context.Context, id StreamID)
	// Changed is called once a commit of this frontend has marked a followed
	// stream. It must not block.
	Changed(id StreamID)
	// Purged is called after a bucket was fenced, before its streams go.
	Purged(ctx context.Context, bucket string) error
}

// Verdict is an answer under way.
type Verdict interface {
	Wait(ctx context.Context) (bool, error)
}

// markChanged notes in tx that a followed stream changes. The mark's value is
// the versionstamp of its last change, so that who deals with it clears only
// what it has seen.
func (s *Store) markChanged(tx kv.Tx, id StreamID) {
	tx.Atomic(kv.SetVersionstampedValue, s.space.SubMark(id.Bucket, id.Stream), wakeValue[:])
	tx.Atomic(kv.SetVersionstampedValue, s.space.SubWake(keys.Shard(id.Bucket, id.Stream)), wakeValue[:])
}

// verdict starts to look whether a stream is followed from its birth.
func (s *Store) verdict(tx kv.Tx, id StreamID) Verdict {
	if s.opts.Followers == nil {
		return unfollowed{}
	}
	return s.opts.Followers.Followed(tx, s.space, id)
}

type unfollowed struct{}

func (unfollowed) Wait(context.Context) (bool, error) { return false, nil }

// changed tells the followers of a commit of this frontend.
func (s *Store) changed(id StreamID, m *meta) {
	if m != nil && m.followed && s.opts.Followers != nil {
		s.opts.Followers.Changed(id)
	}
}

// Space is the deployment's key space, for packages that keep state of their
// own beside the streams.
func (s *Store) Space() keys.Space { return s.space }

// Update runs fn in a transaction within the commit timeout. Its errors are as
// those of every operation of this package.
func (s *Store) Update(ctx context.Context, fn func(ctx context.Context, tx kv.Tx, at kv.Attempt) error) (kv.Committed, error) {
	return s.transact(ctx, fn)
}

// View runs fn in a transaction that only reads, within the read timeout.
func (s *Store) View(ctx context.Context, fn func(ctx context.Context, tx kv.Tx) error) error {
	return s.read(ctx, fn)
}

// Fenced reports whether a bucket was purged; it conflicts with a purge.
func (s *Store) Fenced(ctx context.Context, tx kv.Tx, bucket string) (bool, error) {
	if bucket == "" {
		return false, nil
	}
	f, err := tx.Get(s.space.Fence(bucket)).Wait(ctx)
	return f != nil, err
}

// Seen is a stream, or the lack of one, as a transaction saw it.
type Seen struct {
	// Stream is valid but for its ID only where Exists is set.
	Stream
	Exists, Followed bool
	// Birth is the least offset the tail can have: where the stream's own
	// bytes begin, after what a fork inherited or retention dropped.
	Birth keys.Offset
	meta  *meta
}

// See looks at several streams at once. It conflicts with their creation,
// closing and deletion, and not with appends: a tail is a fact of the read
// version.
func (s *Store) See(ctx context.Context, tx kv.Tx, ids []StreamID) ([]Seen, error) {
	metas := make([]kv.Value, len(ids))
	for i, id := range ids {
		metas[i] = tx.Get(s.space.Meta(id.Bucket, id.Stream))
	}
	views := make([]*view, len(ids))
	reads := make([]viewReads, len(ids))
	tails := make([]kv.Value, len(ids))
	for i, id := range ids {
		raw, err := metas[i].Wait(ctx)
		if err != nil {
			return nil, err
		}
		views[i] = &view{id: id}
		if err := views[i].setMeta(raw); err != nil {
			return nil, err
		}
		m := views[i].meta
		if m == nil {
			continue
		}
		tails[i] = s.lastRecord(tx, m.incarnation)
		if m.expiry.HasTTL {
			reads[i].touch = tx.Snapshot().Get(s.space.Touch(m.incarnation))
		}
	}
	now := s.now()
	seen := make([]Seen, len(ids))
	for i, v := range views {
		var err error
		if seen[i], err = s.seen(ctx, tx, v, reads[i].touch, tails[i], now); err != nil {
			return nil, err
		}
	}
	return seen, nil
}

func (s *Store) seen(ctx context.Context, tx kv.Tx, v *view, touch, tail kv.Value, now time.Time) (Seen, error) {
	if v.meta == nil {
		return Seen{Stream: Stream{ID: v.id}}, nil
	}
	if touch != nil {
		raw, err := touch.Wait(ctx)
		if err != nil {
			return Seen{}, err
		}
		v.touched = decodeTouch(raw)
	}
	if err := s.settleExpiry(ctx, tx, v, now); err != nil {
		return Seen{}, err
	}
	if !v.exists(now) {
		return Seen{Stream: Stream{ID: v.id}}, nil
	}
	end, err := s.tail(ctx, tail, v.meta)
	return Seen{
		Stream: streamOf(v.id, v.meta, end), Exists: true, Followed: v.meta.followed,
		Birth: v.meta.floor(), meta: v.meta,
	}, err
}

// TailAsOf returns the tail a stream had when the transaction with a
// versionstamp committed: offsets are versionstamps, so the past is a key read.
// For a stream born since, it is its birth.
func (s *Store) TailAsOf(ctx context.Context, tx kv.Tx, st Seen, at keys.Versionstamp) (keys.Offset, error) {
	end := s.space.Log(st.Incarnation, keys.MakeOffset(at, 0, 0))
	key, err := tx.Snapshot().GetKey(kv.LastLessThan(end)).Wait(ctx)
	if err != nil {
		return keys.Offset{}, err
	}
	tail := st.Birth
	inc, offset, err := s.space.ParseLog(key)
	if err == nil && inc == st.Incarnation && tail.Less(offset) {
		tail = offset
	}
	return tail, nil
}

// Follow makes a stream that tx saw followed, and marks it whether or not it was
// before: a link is made at a tail that may have moved on when tx commits, and
// whoever deals with the mark finds the link and looks.
func (s *Store) Follow(tx kv.Tx, st Seen) {
	if !st.Exists {
		return
	}
	if !st.Followed {
		s.setFollowed(tx, st, true)
	}
	s.markChanged(tx, st.ID)
}

// Unfollow makes a stream that tx saw cost nothing again.
func (s *Store) Unfollow(tx kv.Tx, st Seen) {
	if st.Exists && st.Followed {
		s.setFollowed(tx, st, false)
	}
}

func (s *Store) setFollowed(tx kv.Tx, st Seen, on bool) {
	m := *st.meta
	m.followed = on
	tx.Set(s.space.Meta(st.ID.Bucket, st.ID.Stream), m.encode())
}

// Names returns up to limit names of a bucket's streams that come after a name,
// in order, and whether there may be more. It conflicts with nothing; who acts
// on a name looks at the stream again.
func (s *Store) Names(ctx context.Context, tx kv.Tx, bucket, after string, limit int) (names []string, more bool, err error) {
	r := s.space.MetaRange(bucket)
	if after != "" {
		r.Begin = append(s.space.Meta(bucket, after), 0)
	}
	err = kv.Each(ctx, tx.Snapshot(), kv.Range(r), kv.RangeOptions{Limit: limit}, func(row kv.KeyValue) error {
		_, name, err := s.space.ParseMeta(row.Key)
		if err == nil {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return names, len(names) == limit, nil
}
