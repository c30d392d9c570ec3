package subscriptions

import (
	"context"
	"net/url"
	"time"

	"headwater/fdblayer"
	"headwater/fdblayer/kv"
	"headwater/keys"
)

const (
	// taskPage is how many streams one transaction of a task deals with.
	taskPage = 200
	// taskLease is how long a task that is worked on is left alone by others.
	taskLease = 15 * time.Second
	// fillWait bounds how long the creation of a subscription waits for the
	// streams that exist to be linked; the rest is done after its answer. It is
	// less than the lease that the creator has on the task.
	fillWait = 10 * time.Second
)

// beginTask makes a task due after a while, and returns its entry.
func (s *Service) beginTask(tx kv.Tx, task keys.SubTask, id ID, uid keys.SubscriptionID, after time.Duration) entry {
	e := entry{s.now().Add(after), task, uid, id}
	tx.Set(s.space.SubDue(e.due, task, uid), dueValue(id))
	return e
}

// step is one transaction of a task. It moves the task's entry in the schedule
// to where it is left alone for a while, which is the task's lease, and clears
// it where fn says that the task is over. Where the entry is not where it was,
// another frontend has the task, or an attempt that was thought lost moved it:
// either way it is no longer this one's.
func (s *Service) step(ctx context.Context, e *entry, fn func(ctx context.Context, tx kv.Tx) (over bool, err error)) (over bool, err error) {
	var moved time.Time
	_, err = s.store.Update(ctx, func(ctx context.Context, tx kv.Tx, _ kv.Attempt) error {
		tx.SetPriorityBatch()
		key := s.space.SubDue(e.due, e.task, e.uid)
		raw, err := tx.Get(key).Wait(ctx)
		if err != nil || raw == nil {
			over = true
			return err
		}
		if over, err = fn(ctx, tx); err != nil {
			return err
		}
		tx.Clear(key)
		if !over {
			moved = s.now().Add(taskLease)
			tx.Set(s.space.SubDue(moved, e.task, e.uid), dueValue(e.id))
		}
		return nil
	})
	e.due = moved
	return over, err
}

// fillNow links existing streams within the creation of a subscription. What
// it does not get to, the schedule does.
func (s *Service) fillNow(ctx context.Context, e entry) {
	ctx, cancel := context.WithTimeout(ctx, fillWait)
	defer cancel()
	if err := s.fill(ctx, e); err != nil {
		s.log.Info("linking existing streams goes on in the background", "subscription", e.id.Name, "bucket", e.id.Bucket, "error", err)
	}
}

// fill links the streams of the bucket that match and existed when the
// subscription was created (PROTOCOL.md 6.2), page by page in order of their
// names, at the tail they had then. A stream that was created since is linked
// by its mark, at its birth; the rule for the cursor gives the same for both,
// so it does not matter who is first.
func (s *Service) fill(ctx context.Context, e entry) error {
	for {
		over, err := s.step(ctx, &e, func(ctx context.Context, tx kv.Tx) (bool, error) { return s.fillPage(ctx, tx, e) })
		if err != nil || over {
			return err
		}
	}
}

func (s *Service) fillPage(ctx context.Context, tx kv.Tx, e entry) (over bool, err error) {
	cursor, err := tx.Get(s.space.SubFill(e.uid)).Wait(ctx)
	if err != nil {
		return false, err
	}
	glob, err := tx.Get(s.space.SubGlob(e.id.Bucket, e.uid)).Wait(ctx)
	if err != nil || glob == nil {
		return true, err // the subscription was deleted
	}
	names, more, err := s.store.Names(ctx, tx, e.id.Bucket, string(cursor), taskPage)
	if err != nil {
		return false, err
	}
	g, err := newGlobs("").read(e.uid, glob)
	if err != nil {
		return false, err
	}
	u := &sub{id: e.id}
	u.uid = e.uid
	var paths []string
	for _, name := range names {
		if g.matches(name) {
			paths = append(paths, name)
		}
	}
	links, streams, err := s.linksOf(ctx, tx, u, paths)
	if err != nil {
		return false, err
	}
	for i, st := range streams {
		if err := s.fillOne(ctx, tx, e.uid, st, links[i], g.stamps[e.uid]); err != nil {
			return false, err
		}
	}
	if !more {
		tx.Clear(s.space.SubFill(e.uid))
		return true, nil
	}
	tx.Set(s.space.SubFill(e.uid), []byte(names[len(names)-1]))
	return false, nil
}

func (s *Service) fillOne(ctx context.Context, tx kv.Tx, uid keys.SubscriptionID, st fdblayer.Seen, have *link, stamp keys.Versionstamp) error {
	if !st.Exists || have != nil && have.glob && have.incarnation == st.Incarnation {
		return nil
	}
	l := link{glob: true, incarnation: st.Incarnation}
	if have != nil && have.incarnation == st.Incarnation {
		l = *have
		l.glob = true
	} else {
		if have != nil {
			l.explicit = have.explicit
		}
		var err error
		if l.acked, err = s.store.TailAsOf(ctx, tx, st, stamp); err != nil {
			return err
		}
	}
	s.putLink(tx, uid, st, l)
	return nil
}

// drop clears the links of a deleted subscription, page by page.
func (s *Service) drop(ctx context.Context, e entry) error {
	for {
		over, err := s.step(ctx, &e, func(ctx context.Context, tx kv.Tx) (bool, error) { return s.dropPage(ctx, tx, e) })
		if err != nil || over {
			return err
		}
	}
}

func (s *Service) dropPage(ctx context.Context, tx kv.Tx, e entry) (over bool, err error) {
	rows, err := readRows(ctx, tx, s.space.SubLinkRange(e.uid), taskPage)
	if err != nil {
		return false, err
	}
	paths, err := s.pathsOf(rows, s.space.ParseSubLink)
	if err != nil {
		return false, err
	}
	ids := make([]fdblayer.StreamID, len(paths))
	for i, p := range paths {
		s.dropLink(tx, e.id.Bucket, e.uid, p)
		ids[i] = fdblayer.StreamID{Bucket: e.id.Bucket, Stream: p}
	}
	streams, err := s.store.See(ctx, tx, ids)
	if err != nil {
		return false, err
	}
	for _, st := range streams {
		s.store.Follow(tx, st) // somebody looks whether anybody is left
	}
	return len(rows) < taskPage, nil
}

func hostOfURL(raw string) string {
	if raw == "" {
		return ""
	}
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return hostOf(u)
}
