package subscriptions

import (
	"context"
	"errors"

	"headwater/fdblayer"
	"headwater/fdblayer/kv"
	"headwater/keys"
)

const (
	// wakeStreams is the most streams with pending work that one wake names;
	// the others are named by the next.
	wakeStreams = 1000
	// smallSubscription is how many links a subscription may have for a wake to
	// name those without pending work too. A subscription to a bucket of
	// millions must not read them all whenever one of them changes.
	smallSubscription = 100
)

// StreamInfo is a stream of a wake: what is acked and what there is.
type StreamInfo struct {
	Path        string
	Type        LinkType
	Acked, Tail keys.Offset
	Pending     bool

	incarnation keys.Incarnation
}

// snapshot returns the streams of a subscription with pending work, and, if it
// has few links, the others too; pending tells whether any has work.
//
// Reads: the pending entries, so that work that appears meanwhile conflicts,
// and the links of the streams with work.
func (s *Service) snapshot(ctx context.Context, tx kv.Tx, u *sub) (infos []StreamInfo, pending bool, err error) {
	entries, err := readRows(ctx, tx, s.space.SubPendingRange(u.uid), wakeStreams)
	if err != nil || len(entries) == 0 {
		return nil, false, err
	}
	links, err := readRows(ctx, tx.Snapshot(), s.space.SubLinkRange(u.uid), smallSubscription+1)
	if err != nil {
		return nil, false, err
	}
	var paths []string
	if len(links) <= smallSubscription {
		paths, err = s.pathsOf(links, s.space.ParseSubLink)
	} else {
		paths, err = s.pathsOf(entries, s.space.ParseSubPending)
	}
	if err != nil {
		return nil, false, err
	}
	return s.infos(ctx, tx, u, paths)
}

func (s *Service) pathsOf(rows []kv.KeyValue, parse func([]byte) (keys.SubscriptionID, string, error)) ([]string, error) {
	paths := make([]string, len(rows))
	for i, row := range rows {
		var err error
		if _, paths[i], err = parse(row.Key); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

func (s *Service) infos(ctx context.Context, tx kv.Tx, u *sub, paths []string) (infos []StreamInfo, pending bool, err error) {
	links, streams, err := s.linksOf(ctx, tx, u, paths)
	if err != nil {
		return nil, false, err
	}
	for i, st := range streams {
		l := links[i]
		if l == nil || l.incarnation != st.Incarnation {
			continue // the stream's mark says so too, and will be dealt with
		}
		in := StreamInfo{Path: paths[i], Type: l.kind(), Acked: l.acked, Tail: st.Tail, incarnation: l.incarnation}
		in.Pending = st.Exists && l.acked.Less(st.Tail)
		pending = pending || in.Pending
		infos = append(infos, in)
	}
	return infos, pending, nil
}

// linksOf reads a subscription's links to streams, nil for none, and the
// streams.
func (s *Service) linksOf(ctx context.Context, tx kv.Tx, u *sub, paths []string) ([]*link, []fdblayer.Seen, error) {
	reads := make([]kv.Value, len(paths))
	ids := make([]fdblayer.StreamID, len(paths))
	for i, p := range paths {
		reads[i] = tx.Get(s.space.SubLink(u.uid, p))
		ids[i] = u.streamID(p)
	}
	streams, err := s.store.See(ctx, tx, ids)
	if err != nil {
		return nil, nil, err
	}
	links := make([]*link, len(paths))
	for i, r := range reads {
		raw, err := r.Wait(ctx)
		if err != nil {
			return nil, nil, err
		}
		if raw == nil {
			continue
		}
		l, err := decodeLink(raw)
		if err != nil {
			return nil, nil, err
		}
		links[i] = &l
	}
	return links, streams, nil
}

// issued is a wake that this frontend has begun or has to announce.
type issued struct {
	*sub
	action action
	infos  []StreamInfo
}

// tick looks at a subscription whose time has come and begins a wake if it
// needs one. row is the schedule's entry, which is cleared if it is not, or no
// longer, the subscription's.
func (s *Service) tick(ctx context.Context, e entry) (*issued, error) {
	var out *issued
	wakeID := "w_" + randomHex(12)
	err := s.change(ctx, e.id, func(ctx context.Context, tx kv.Tx, u *sub) error {
		out = nil
		if u.uid != e.uid || u.Due != ms(e.due) {
			tx.Clear(s.space.SubDue(e.due, keys.SubTaskDeliver, e.uid))
			return nil
		}
		infos, pending, err := s.snapshot(ctx, tx, u)
		if err != nil {
			return err
		}
		now := s.now()
		was := u.Phase
		act := u.tick(now, pending)
		if act == wake {
			u.issue(now, u.lease(), wakeID, u.Type == Webhook)
		}
		out = &issued{sub: u, action: act, infos: infos}
		if was == held || was == delivering {
			s.counts.expired.Add(1)
		}
		return nil
	})
	if errors.Is(err, errNotFound) {
		_, err = s.store.Update(ctx, func(_ context.Context, tx kv.Tx, _ kv.Attempt) error {
			tx.Clear(s.space.SubDue(e.due, keys.SubTaskDeliver, e.uid))
			return nil
		})
	}
	return out, err
}
