package subscriptions

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"time"

	"headwater/fdblayer"
	"headwater/fdblayer/kv"
	"headwater/keys"
)

// maxListed bounds the links that one answer lists.
const maxListed = 10_000

// rowsPage is how many rows one transaction reads of a list.
const rowsPage = 1000

// Link is a stream of a subscription and the cursor in it.
type Link struct {
	Path  string
	Type  LinkType
	Acked keys.Offset
}

// Delivery is why a subscription is or is not delivered.
type Delivery struct {
	Phase      string
	Generation uint64
	// Holder is the worker of a claim; LeaseUntil ends it.
	Holder      string
	LeaseUntil  time.Time
	NextAttempt time.Time
	// Attempts counts failures in a row, LastError says why the last failed.
	Attempts    int
	LastError   string
	LastErrorAt time.Time
	LastStatus  int
	// Counts since the subscription's creation.
	Delivered, Failed, Expired uint64
}

// Subscription is what a client may know of one.
type Subscription struct {
	ID          ID
	Type        Type
	Pattern     string
	Links       []Link
	MoreLinks   bool // there are more than are listed
	URL         string
	WakeStream  string
	Lease       time.Duration
	Created     time.Time
	Description string
	// Failed tells that a delivery failed and another attempt is scheduled.
	Failed   bool
	Delivery Delivery
}

func (u *sub) public() Subscription {
	d := Delivery{
		Phase: u.Phase.String(), Generation: u.Generation, Holder: u.Holder,
		Attempts: u.Attempts, LastError: u.LastError, LastStatus: u.LastStatus,
		Delivered: u.Delivered, Failed: u.state.Failed, Expired: u.Expired,
		LeaseUntil: timeOf(u.LeaseUntil), LastErrorAt: timeOf(u.LastErrorAt),
	}
	if u.Attempts > 0 {
		d.NextAttempt = timeOf(u.Due)
	}
	return Subscription{
		ID: u.id, Type: u.Type, Pattern: u.Pattern, URL: u.URL, WakeStream: u.WakeStream, Lease: u.lease(),
		Created: time.UnixMilli(u.CreatedMS), Description: u.Description, Failed: u.Attempts > 0, Delivery: d,
	}
}

func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// Put creates a subscription, or finds an equal one (PROTOCOL.md 6.2).
//
// Reads: the subscription's key, the bucket's fence, the streams named. The
// pattern is registered with the versionstamp of the creation, and that is the
// moment its cursors start from: existing streams are linked at the tail they
// had then, however much later they are reached. Witness: the random uid.
func (s *Service) Put(ctx context.Context, id ID, cfg Config, origin string) (sub Subscription, created bool, err error) {
	if err := id.check(); err != nil {
		return Subscription{}, false, err
	}
	if cfg, err = cfg.normalize(id.Bucket); err != nil {
		return Subscription{}, false, err
	}
	var uid keys.SubscriptionID
	rand.Read(uid[:])
	var fill entry
	_, err = s.store.Update(ctx, func(ctx context.Context, tx kv.Tx, at kv.Attempt) error {
		have, err := s.load(ctx, tx, id)
		switch {
		case err != nil:
			return err
		case have != nil && have.uid == uid:
			created = true
			return nil
		case have != nil && have.Hash != cfg.hash():
			return errorf(CodeExists, "the subscription exists with another configuration")
		case have != nil:
			created = false
			return nil
		}
		created = true
		fill, err = s.create(ctx, tx, id, newRecord(cfg, uid, origin, s.now()), cfg)
		return err
	})
	if err != nil {
		return Subscription{}, false, err
	}
	if created && cfg.Pattern != "" {
		s.fillNow(ctx, fill)
	}
	sub, err = s.Get(ctx, id)
	return sub, created, err
}

func (s *Service) create(ctx context.Context, tx kv.Tx, id ID, r record, cfg Config) (fill entry, err error) {
	if cfg.Type == Webhook {
		if err := checkURL(cfg.URL, s.opts.AllowLocalhost); err != nil {
			return fill, err
		}
	}
	fenced, err := s.store.Fenced(ctx, tx, id.Bucket)
	if err != nil {
		return fill, err
	}
	if fenced {
		return fill, errorf(CodeNotFound, "the bucket was purged")
	}
	tx.Set(s.space.Subscription(id.Bucket, id.Name), r.encode())
	tx.Set(s.space.SubState(r.uid), state{Bucket: id.Bucket, Name: id.Name}.encode())
	if cfg.Pattern != "" {
		tx.Atomic(kv.SetVersionstampedValue, s.space.SubGlob(id.Bucket, r.uid), stamped(globValue(cfg)))
		s.touchGlobs(tx, id.Bucket)
		fill = s.beginTask(tx, keys.SubTaskFill, id, r.uid, taskLease)
	}
	return fill, s.linkPaths(ctx, tx, id, r.uid, cfg.Streams)
}

// stamped is the parameter of an operation that sets a versionstamp and text.
func stamped(text string) []byte {
	b := append(make([]byte, keys.VersionstampLen, keys.VersionstampLen+len(text)+4), text...)
	return binary.LittleEndian.AppendUint32(b, 0)
}

// touchGlobs makes every creation of a stream in the bucket under way look at
// the patterns again.
func (s *Service) touchGlobs(tx kv.Tx, bucket string) {
	tx.Atomic(kv.SetVersionstampedValue, s.space.SubGlobs(bucket), stamped(""))
}

// linkPaths makes explicit links, at the streams' tails. A path without a
// stream is linked too: one that is created there later is followed from its
// first byte, and so is one that is recreated.
func (s *Service) linkPaths(ctx context.Context, tx kv.Tx, id ID, uid keys.SubscriptionID, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	ids := make([]fdblayer.StreamID, len(paths))
	links := make([]kv.Value, len(paths))
	for i, p := range paths {
		ids[i] = fdblayer.StreamID{Bucket: id.Bucket, Stream: p}
		links[i] = tx.Get(s.space.SubLink(uid, p))
	}
	streams, err := s.store.See(ctx, tx, ids)
	if err != nil {
		return err
	}
	for i, st := range streams {
		raw, err := links[i].Wait(ctx)
		if err != nil {
			return err
		}
		l := link{explicit: true, incarnation: st.Incarnation}
		if st.Exists {
			l.acked = st.Tail
		}
		if raw != nil {
			if l, err = decodeLink(raw); err != nil {
				return err
			}
			l.explicit = true
		}
		s.putLink(tx, uid, st, l)
	}
	return nil
}

// putLink writes a link and its index entry and makes the stream leave marks.
func (s *Service) putLink(tx kv.Tx, uid keys.SubscriptionID, st fdblayer.Seen, l link) {
	tx.Set(s.space.SubLink(uid, st.ID.Stream), l.encode())
	tx.Set(s.space.Follower(st.ID.Bucket, st.ID.Stream, uid), []byte{})
	s.store.Follow(tx, st)
}

// Get returns a subscription (PROTOCOL.md 6.3).
func (s *Service) Get(ctx context.Context, id ID) (Subscription, error) {
	var out Subscription
	var uid keys.SubscriptionID
	err := s.store.View(ctx, func(ctx context.Context, tx kv.Tx) error {
		u, err := s.load(ctx, tx, id)
		if err != nil {
			return err
		}
		if u == nil {
			return errNotFound
		}
		out, uid = u.public(), u.uid
		return nil
	})
	if err != nil {
		return Subscription{}, err
	}
	err = s.eachLink(ctx, uid, func(path string, l link) bool {
		out.MoreLinks = len(out.Links) == maxListed
		if !out.MoreLinks {
			out.Links = append(out.Links, Link{Path: path, Type: l.kind(), Acked: l.acked})
		}
		return !out.MoreLinks
	})
	return out, err
}

// eachLink calls fn for the links of a subscription in order, until it returns
// false. It reads in pages, each at a version of its own.
func (s *Service) eachLink(ctx context.Context, uid keys.SubscriptionID, fn func(path string, l link) bool) error {
	return s.eachRow(ctx, s.space.SubLinkRange(uid), func(row kv.KeyValue) (bool, error) {
		_, path, err := s.space.ParseSubLink(row.Key)
		if err != nil {
			return false, err
		}
		l, err := decodeLink(row.Value)
		return err == nil && fn(path, l), err
	})
}

// eachRow calls fn for the rows of a range in order, until it returns false.
func (s *Service) eachRow(ctx context.Context, r keys.Range, fn func(kv.KeyValue) (bool, error)) error {
	for {
		rows, err := s.page(ctx, r, rowsPage)
		if err != nil {
			return err
		}
		for _, row := range rows {
			again, err := fn(row)
			if err != nil || !again {
				return err
			}
		}
		if len(rows) < rowsPage {
			return nil
		}
		r.Begin = after(rows[len(rows)-1].Key)
	}
}

// after is the first key after another.
func after(key []byte) []byte { return append(bytes.Clone(key), 0) }

// page reads up to limit rows in a transaction of its own.
func (s *Service) page(ctx context.Context, r keys.Range, limit int) ([]kv.KeyValue, error) {
	var out []kv.KeyValue
	err := s.store.View(ctx, func(ctx context.Context, tx kv.Tx) error {
		var err error
		out, err = readRows(ctx, tx.Snapshot(), r, limit)
		return err
	})
	return out, err
}

func readRows(ctx context.Context, tx kv.Reader, r keys.Range, limit int) ([]kv.KeyValue, error) {
	var out []kv.KeyValue
	err := kv.Each(ctx, tx, kv.Range(r), kv.RangeOptions{Limit: limit}, func(row kv.KeyValue) error {
		out = append(out, row)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Delete removes a subscription; one that does not exist is as good as removed
// (PROTOCOL.md 6.3). What hangs under its uid is out of reach at once and is
// cleared by a task.
func (s *Service) Delete(ctx context.Context, id ID) error {
	var uid keys.SubscriptionID
	_, err := s.store.Update(ctx, func(ctx context.Context, tx kv.Tx, _ kv.Attempt) error {
		uid = keys.SubscriptionID{}
		u, err := s.load(ctx, tx, id)
		if err != nil || u == nil {
			return err
		}
		uid = u.uid
		tx.Clear(s.space.Subscription(id.Bucket, id.Name))
		tx.Clear(s.space.SubState(u.uid))
		s.moveDue(tx, id, u.uid, u.Due, 0)
		if u.Pattern != "" {
			tx.Clear(s.space.SubGlob(id.Bucket, u.uid))
			s.touchGlobs(tx, id.Bucket)
			tx.Clear(s.space.SubFill(u.uid))
		}
		s.beginTask(tx, keys.SubTaskDrop, id, u.uid, 0)
		return nil
	})
	if err == nil && uid != (keys.SubscriptionID{}) {
		s.sched.nudge(ms(s.now()))
	}
	return err
}

// AddStreams adds explicit links (PROTOCOL.md 6.4).
func (s *Service) AddStreams(ctx context.Context, id ID, paths []string) error {
	paths, err := normalizePaths(id.Bucket, paths)
	if err != nil {
		return err
	}
	return s.change(ctx, id, func(ctx context.Context, tx kv.Tx, u *sub) error {
		if slices.Contains(paths, u.WakeStream) {
			return errOwnWakeStream
		}
		return s.linkPaths(ctx, tx, id, u.uid, paths)
	})
}

// RemoveStream removes an explicit link. A link by the pattern stays.
func (s *Service) RemoveStream(ctx context.Context, id ID, path string) error {
	path, err := normalizePath(id.Bucket, path)
	if err != nil {
		return err
	}
	return s.change(ctx, id, func(ctx context.Context, tx kv.Tx, u *sub) error {
		raw, err := tx.Get(s.space.SubLink(u.uid, path)).Wait(ctx)
		if err != nil || raw == nil {
			return err
		}
		l, err := decodeLink(raw)
		if err != nil || !l.explicit {
			return err
		}
		l.explicit = false
		seen, err := s.store.See(ctx, tx, []fdblayer.StreamID{u.streamID(path)})
		if err != nil {
			return err
		}
		// An explicit link made before the pattern's has not noted the match.
		l.glob = l.glob || seen[0].Exists && u.matches(path)
		if l.glob {
			tx.Set(s.space.SubLink(u.uid, path), l.encode())
			return nil
		}
		s.dropLink(tx, u.id.Bucket, u.uid, path)
		s.store.Follow(tx, seen[0]) // so that somebody looks whether anybody is left
		return nil
	})
}

// dropLink clears a link, its index entry and its pending work.
func (s *Service) dropLink(tx kv.Tx, bucket string, uid keys.SubscriptionID, path string) {
	tx.Clear(s.space.SubLink(uid, path))
	tx.Clear(s.space.Follower(bucket, path, uid))
	tx.Clear(s.space.SubPending(uid, path))
}

// List returns up to limit subscriptions of a bucket, without their links, that
// come after a name. It is an operator's tool.
func (s *Service) List(ctx context.Context, bucket, after string, limit int) ([]Subscription, error) {
	r := s.space.SubscriptionRange(bucket)
	if after != "" {
		r.Begin = append(s.space.Subscription(bucket, after), 0)
	}
	return s.list(ctx, r, limit)
}

// ListAll is the same for every bucket, after a subscription.
func (s *Service) ListAll(ctx context.Context, after ID, limit int) ([]Subscription, error) {
	r := s.space.SubscriptionsRange()
	if after != (ID{}) {
		r.Begin = append(s.space.Subscription(after.Bucket, after.Name), 0)
	}
	return s.list(ctx, r, limit)
}

func (s *Service) list(ctx context.Context, r keys.Range, limit int) ([]Subscription, error) {
	var out []Subscription
	err := s.store.View(ctx, func(ctx context.Context, tx kv.Tx) error {
		out = out[:0]
		rows, err := readRows(ctx, tx.Snapshot(), r, limit)
		if err != nil {
			return err
		}
		for _, row := range rows {
			bucket, name, err := s.space.ParseSubscription(row.Key)
			if err != nil {
				return err
			}
			u, err := s.load(ctx, tx.Snapshot(), ID{bucket, name})
			if err != nil {
				return err
			}
			if u != nil {
				out = append(out, u.public())
			}
		}
		return nil
	})
	return out, err
}

// Retry makes a failed delivery's next attempt due now.
func (s *Service) Retry(ctx context.Context, id ID) error {
	return s.change(ctx, id, func(_ context.Context, _ kv.Tx, u *sub) error {
		if u.Attempts > 0 && (u.Phase == backoff || u.Phase == announcing) {
			u.Due = ms(s.now())
		}
		return nil
	})
}

// purge deletes the subscriptions of a bucket.
func (s *Service) purge(ctx context.Context, bucket string) error {
	for {
		subs, err := s.List(ctx, bucket, "", rowsPage)
		if err != nil || len(subs) == 0 {
			return err
		}
		for _, u := range subs {
			if err := s.Delete(ctx, u.ID); err != nil {
				return err
			}
		}
	}
}

func parseDueValue(b []byte) (ID, error) {
	bucket, name, ok := bytes.Cut(b, []byte{0})
	if !ok {
		return ID{}, errCorrupt
	}
	return ID{string(bucket), string(name)}, nil
}
