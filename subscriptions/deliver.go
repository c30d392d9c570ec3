package subscriptions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"headwater/fdblayer/kv"
)

// wakeBody is the body of a webhook request (PROTOCOL.md 7.1).
type wakeBody struct {
	SubscriptionID string       `json:"subscription_id"`
	WakeID         string       `json:"wake_id"`
	Generation     uint64       `json:"generation"`
	Streams        []streamBody `json:"streams"`
	CallbackURL    string       `json:"callback_url"`
	CallbackToken  string       `json:"callback_token"`
}

type streamBody struct {
	Path    string   `json:"path"`
	Type    LinkType `json:"link_type"`
	Acked   string   `json:"acked_offset"`
	Tail    string   `json:"tail_offset"`
	Pending bool     `json:"has_pending"`
}

// result is what came of one delivery.
type result struct {
	done   bool
	status int
	why    string // empty where the receiver took the wake
}

// deliver sends one wake and notes what came of it. Where this frontend dies
// in between, the wake's lease ends by itself and another one follows.
func (s *Service) deliver(ctx context.Context, w *issued) {
	r := s.post(ctx, w)
	log := s.log.With("subscription", w.id.Name, "bucket", w.id.Bucket, "generation", w.Generation)
	if r.why != "" {
		s.counts.failed.Add(1)
		log.Warn("webhook was not delivered", "why", r.why, "status", r.status, "attempt", w.Attempts+1)
	} else {
		s.counts.delivered.Add(1)
		log.Debug("webhook was delivered", "done", r.done)
	}
	// The outcome counts though the service stops meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	if err := s.note(ctx, w, r); err != nil && !errors.Is(err, errNotFound) {
		log.Warn("the outcome of a webhook could not be noted; its lease will end", "error", err)
	}
}

// noteTimeout bounds how long the outcome of a delivery is tried to be noted.
const noteTimeout = 15 * time.Second

// note applies the outcome of a delivery, if its wake is still current.
func (s *Service) note(ctx context.Context, w *issued, r result) error {
	acks := make([]ackTo, 0, len(w.infos))
	for _, in := range w.infos {
		if in.Pending {
			acks = append(acks, ackTo{in.Path, in.Tail, in.incarnation})
		}
	}
	jitter := s.jitter()
	return s.change(ctx, w.id, func(ctx context.Context, tx kv.Tx, u *sub) error {
		now := s.now()
		if u.uid != w.uid || !u.current(now, w.Generation, w.WakeID) {
			return nil
		}
		switch {
		case r.why != "":
			u.fail(now, r.why, r.status, jitter)
		case r.done:
			left, err := s.applyAcks(ctx, tx, u, acks, false, true)
			if err != nil {
				return err
			}
			u.accepted()
			u.end(now, left)
		default:
			u.accepted()
		}
		return nil
	})
}

// post sends the request and judges the answer. It is bounded by the delivery
// timeout and by the lease: an answer that comes later says nothing.
func (s *Service) post(ctx context.Context, w *issued) result {
	ctx, cancel := context.WithTimeout(ctx, min(s.opts.DeliveryTimeout, w.lease()))
	defer cancel()
	req, err := s.request(ctx, w)
	if err != nil {
		s.log.Error("a webhook request could not be made", "subscription", w.id.Name, "error", err)
		return result{why: "internal"}
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return result{why: reason(err)}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	r := result{status: resp.StatusCode}
	switch {
	case resp.StatusCode/100 == 3:
		r.why = "redirect"
	case resp.StatusCode/100 != 2:
		r.why = "status"
	case err != nil:
		r.why = reason(err)
	case len(body) > maxResponse:
		r.why = "response_too_large"
	default:
		var answer struct {
			Done bool `json:"done"`
		}
		// Anything that is not {"done":true} means the receiver will call back.
		r.done = json.Unmarshal(body, &answer) == nil && answer.Done
	}
	return r
}

func (s *Service) request(ctx context.Context, w *issued) (*http.Request, error) {
	token, err := s.newToken(ctx, w.sub)
	if err != nil {
		return nil, err
	}
	b := wakeBody{
		SubscriptionID: w.id.Name, WakeID: w.WakeID, Generation: w.Generation, Streams: []streamBody{},
		CallbackURL: s.opts.CallbackURL(w.Origin, w.id), CallbackToken: token,
	}
	for _, in := range w.infos {
		b.Streams = append(b.Streams, streamBody{in.Path, in.Type, in.Acked.String(), in.Tail.String(), in.Pending})
	}
	body, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	signature, err := s.sign(ctx, body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "headwater-webhook")
	req.Header.Set("Webhook-Signature", signature)
	return req, nil
}

// reason names a failure in a word. It says no more than a subscriber may know:
// not which addresses a name has on the inside.
func reason(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.Is(err, errForbidden):
		return "address_forbidden"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.As(err, &dns):
		return "dns"
	case errors.As(err, &op) && op.Timeout():
		return "timeout"
	case errors.As(err, &op):
		return "connection"
	}
	return "transport"
}
