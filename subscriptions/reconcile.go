package subscriptions

import (
	"context"

	"headwater/fdblayer"
	"headwater/fdblayer/kv"
	"headwater/keys"
)

// followersPage is how many subscriptions of a stream one transaction deals with.
const followersPage = 100

// reconcile brings the subscriptions of a marked stream up to date: it links
// those that match and have no link yet, moves links of an incarnation that is
// gone, notes pending work, and makes idle subscriptions that have some due.
// Then it clears the mark, if the stream has not changed since. It may be run
// at any time by anybody, and at once by several.
//
// No change is lost. The mark is cleared by COMPARE_AND_CLEAR with the value
// read before anything else, so an append that commits later keeps it. A link
// made meanwhile marks the stream itself (Store.Follow). And pending work and
// the end of a wake meet in [Service.visit].
func (s *Service) reconcile(ctx context.Context, id fdblayer.StreamID) error {
	w, err := s.survey(ctx, id)
	if err != nil {
		return err
	}
	for from := 0; ; from += followersPage {
		to := min(from+followersPage, len(w.subs))
		if err := s.visit(ctx, w, w.subs[from:to], to == len(w.subs)); err != nil {
			return err
		}
		if to == len(w.subs) {
			return nil
		}
	}
}

// work is a marked stream and who follows it or should.
type work struct {
	id    fdblayer.StreamID
	mark  []byte // as it was before anything else was read
	subs  []keys.SubscriptionID
	globs *globs
	// matched are those of subs whose pattern matches.
	matched map[keys.SubscriptionID]bool
}

// survey lists the subscriptions of a stream: those linked, and those whose
// pattern matches.
func (s *Service) survey(ctx context.Context, id fdblayer.StreamID) (*work, error) {
	var w *work
	err := s.store.View(ctx, func(ctx context.Context, tx kv.Tx) error {
		w = &work{id: id, matched: make(map[keys.SubscriptionID]bool)}
		var err error
		if w.mark, err = tx.Get(s.space.SubMark(id.Bucket, id.Stream)).Wait(ctx); err != nil {
			return err
		}
		version, err := tx.Get(s.space.SubGlobs(id.Bucket)).Wait(ctx)
		if err != nil {
			return err
		}
		if w.globs, err = s.index.globs(ctx, tx, s.space, id.Bucket, version); err != nil {
			return err
		}
		for _, uid := range w.globs.match(id.Stream) {
			w.matched[uid] = true
			w.subs = append(w.subs, uid)
		}
		rows, err := readRows(ctx, tx, s.space.FollowerRange(id.Bucket, id.Stream), 0)
		if err != nil {
			return err
		}
		for _, row := range rows {
			_, _, uid, err := s.space.ParseFollower(row.Key)
			if err != nil {
				return err
			}
			if !w.matched[uid] {
				w.subs = append(w.subs, uid)
			}
		}
		return nil
	})
	return w, err
}

// visit deals with some subscriptions of a stream, and clears its mark after
// the last of them.
//
// Reads: the stream's metadata and, by snapshot, its tail; of each subscription
// its state and its link. Writes pending entries blind, with the tail seen. A
// wake that ends reads the pending entries and writes the state; this reads the
// state and writes an entry: so of the two that meet, one sees the other, and
// work that appears at the end of a wake is never left with nobody to wake.
func (s *Service) visit(ctx context.Context, w *work, subs []keys.SubscriptionID, last bool) error {
	due := false
	_, err := s.store.Update(ctx, func(ctx context.Context, tx kv.Tx, _ kv.Attempt) error {
		due = false
		states := make([]kv.Value, len(subs))
		links := make([]kv.Value, len(subs))
		for i, uid := range subs {
			states[i] = tx.Get(s.space.SubState(uid))
			links[i] = tx.Get(s.space.SubLink(uid, w.id.Stream))
		}
		seen, err := s.store.See(ctx, tx, []fdblayer.StreamID{w.id})
		if err != nil {
			return err
		}
		for i, uid := range subs {
			state, err := states[i].Wait(ctx)
			if err != nil {
				return err
			}
			raw, err := links[i].Wait(ctx)
			if err != nil {
				return err
			}
			if state == nil { // the subscription is gone
				s.dropLink(tx, w.id.Bucket, uid, w.id.Stream)
				continue
			}
			woken, err := s.visitOne(ctx, tx, w, uid, seen[0], state, raw)
			if err != nil {
				return err
			}
			due = due || woken
		}
		if last {
			return s.finish(ctx, tx, w, seen[0])
		}
		return nil
	})
	if err == nil && due {
		s.sched.nudge(ms(s.now()))
	}
	return err
}

func (s *Service) visitOne(ctx context.Context, tx kv.Tx, w *work, uid keys.SubscriptionID, st fdblayer.Seen, rawState, rawLink []byte) (woken bool, err error) {
	l, keep, err := s.relink(ctx, tx, w, uid, st, rawLink)
	if err != nil || !keep {
		if err == nil {
			s.dropLink(tx, w.id.Bucket, uid, w.id.Stream)
		}
		return false, err
	}
	if !st.Exists || !l.acked.Less(st.Tail) {
		return false, nil
	}
	// The value tells whoever acks how far the work reached, so that an ack
	// that has not seen all of it leaves the entry (Service.applyAcks).
	tx.Set(s.space.SubPending(uid, w.id.Stream), st.Tail[:])
	before, err := decodeState(rawState)
	if err != nil {
		return false, err
	}
	after := before
	after.hasWork(s.now())
	if after == before {
		return false, nil
	}
	tx.Set(s.space.SubState(uid), after.encode())
	s.moveDue(tx, ID{after.Bucket, after.Name}, uid, before.Due, after.Due)
	return true, nil
}

// relink returns the link a subscription has to have, writing it where it has
// another; keep is false if it has to have none.
func (s *Service) relink(ctx context.Context, tx kv.Tx, w *work, uid keys.SubscriptionID, st fdblayer.Seen, raw []byte) (l link, keep bool, err error) {
	if raw != nil {
		if l, err = decodeLink(raw); err != nil {
			return l, false, err
		}
	}
	old := l
	l.glob = w.matched[uid] && st.Exists
	if !l.explicit && !l.glob {
		return l, false, nil
	}
	switch {
	case raw != nil && l.incarnation == st.Incarnation:
	case !st.Exists:
		l.incarnation, l.acked = keys.Incarnation{}, keys.StartOffset
		tx.Clear(s.space.SubPending(uid, w.id.Stream))
	case l.explicit:
		// The path was linked before this stream was born at it.
		l.incarnation, l.acked = st.Incarnation, st.Birth
		tx.Clear(s.space.SubPending(uid, w.id.Stream))
	default:
		l.incarnation = st.Incarnation
		if l.acked, err = s.store.TailAsOf(ctx, tx, st, w.globs.stamps[uid]); err != nil {
			return l, false, err
		}
		tx.Clear(s.space.SubPending(uid, w.id.Stream))
	}
	if raw == nil || l != old {
		tx.Set(s.space.SubLink(uid, w.id.Stream), l.encode())
		tx.Set(s.space.Follower(w.id.Bucket, w.id.Stream, uid), []byte{})
	}
	return l, true, nil
}

// finish clears the mark that was dealt with, and lets a stream that nobody
// follows any more cost nothing again.
func (s *Service) finish(ctx context.Context, tx kv.Tx, w *work, st fdblayer.Seen) error {
	if w.mark != nil {
		tx.Atomic(kv.CompareAndClear, s.space.SubMark(w.id.Bucket, w.id.Stream), w.mark)
	}
	if len(w.subs) > 0 || !st.Exists || !st.Followed {
		return nil
	}
	rows, err := readRows(ctx, tx, s.space.FollowerRange(w.id.Bucket, w.id.Stream), 1)
	if err != nil || len(rows) > 0 {
		return err
	}
	version, err := tx.Get(s.space.SubGlobs(w.id.Bucket)).Wait(ctx)
	if err != nil {
		return err
	}
	g, err := s.index.globs(ctx, tx, s.space, w.id.Bucket, version)
	if err != nil || g.matches(w.id.Stream) {
		return err
	}
	s.store.Unfollow(tx, st)
	return nil
}
