package subscriptions

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"

	"headwater/fdblayer"
	"headwater/fdblayer/kv"
)

// wakeEvent is what a pull-wake subscription writes (PROTOCOL.md 7.2).
type wakeEvent struct {
	Type           string `json:"type"`
	SubscriptionID string `json:"subscription_id"`
	Stream         string `json:"stream"`
	Generation     uint64 `json:"generation"`
	TS             int64  `json:"ts"`
}

// announce writes the event of the current wake and notes that it did. Several
// frontends may come to write one event, after a time-out or a death, so each
// is written as the first of an epoch of the subscription's own idempotent
// producer: it is in the stream once.
func (s *Service) announce(ctx context.Context, w *issued) {
	err := s.writeEvent(ctx, w)
	why := ""
	if err != nil {
		why = announceReason(err)
		s.counts.failed.Add(1)
		s.log.Warn("wake event was not written", "subscription", w.id.Name, "bucket", w.id.Bucket,
			"wake_stream", w.WakeStream, "generation", w.Generation, "error", err)
	} else {
		s.counts.announced.Add(1)
	}
	jitter := s.jitter()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	err = s.change(ctx, w.id, func(_ context.Context, _ kv.Tx, u *sub) error {
		if u.uid != w.uid || u.Generation != w.Generation || u.WakeID != w.WakeID || u.Announced != w.Announced {
			return nil
		}
		if why != "" {
			u.fail(s.now(), why, 0, jitter)
		} else {
			u.announced(s.now())
		}
		return nil
	})
	if err != nil && !errors.Is(err, errNotFound) {
		s.log.Warn("a wake event could not be noted; it will be looked at again", "subscription", w.id.Name, "error", err)
	}
}

// maxAnnounced bounds the part of the producer's epoch that counts the events
// of one wake.
const maxAnnounced = 1<<16 - 1

func (s *Service) writeEvent(ctx context.Context, w *issued) error {
	ev := wakeEvent{
		Type: "wake", SubscriptionID: w.id.Name, Generation: w.Generation, TS: ms(s.now()),
	}
	for _, in := range w.infos {
		if in.Pending {
			ev.Stream = in.Path
			break
		}
	}
	body, err := json.Marshal(ev)
	if err != nil {
		return err
	}
	req := fdblayer.AppendRequest{
		ID:          w.streamID(w.WakeStream),
		ContentType: "application/json",
		Body:        append(body, '\n'),
		Producer: &fdblayer.Producer{
			ID:    "headwater-wake-" + hex.EncodeToString(w.uid[:]),
			Epoch: w.Generation<<16 | uint64(min(w.Announced, maxAnnounced)),
		},
	}
	_, err = s.store.Append(ctx, req)
	if isStreamError(err, fdblayer.CodeContentType) {
		// Any stream can be the channel; in another type than JSON an event is
		// a line of text.
		var st fdblayer.Stream
		if st, _, err = s.store.Head(ctx, req.ID, fdblayer.Precondition{}); err != nil {
			return err
		}
		req.ContentType = st.ContentType
		_, err = s.store.Append(ctx, req)
	}
	if isStreamError(err, fdblayer.CodeStaleEpoch) {
		return nil // a later wake has been announced
	}
	return err
}

func isStreamError(err error, code fdblayer.Code) bool {
	var e *fdblayer.Error
	return errors.As(err, &e) && e.Code == code
}

func announceReason(err error) string {
	var e *fdblayer.Error
	if !errors.As(err, &e) {
		return "store"
	}
	switch e.Code {
	case fdblayer.CodeNotFound, fdblayer.CodeSoftDeleted:
		return "wake_stream_missing"
	case fdblayer.CodeClosed:
		return "wake_stream_closed"
	}
	return string(e.Code)
}
