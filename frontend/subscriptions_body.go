package frontend

import (
	"encoding/base64"
	"net/http"
	"time"

	"headwater/subscriptions"
)

// subscriptionBody is a subscription as clients see it (PROTOCOL.md 6.3).
// delivery is ours: why a hook is not delivered.
type subscriptionBody struct {
	ID             string             `json:"id"`
	SubscriptionID string             `json:"subscription_id"`
	Type           subscriptions.Type `json:"type"`
	Pattern        *string            `json:"pattern"`
	Streams        []linkBody         `json:"streams"`
	MoreStreams    bool               `json:"streams_truncated,omitempty"`
	Webhook        *webhookBody       `json:"webhook,omitempty"`
	WakeStream     *string            `json:"wake_stream"`
	LeaseMS        int64              `json:"lease_ttl_ms"`
	CreatedAt      string             `json:"created_at"`
	Status         string             `json:"status"`
	Description    *string            `json:"description,omitempty"`
	Delivery       deliveryBody       `json:"delivery"`
}

type webhookBody struct {
	URL     string      `json:"url"`
	Signing signingBody `json:"signing"`
}

type signingBody struct {
	Alg     string `json:"alg"`
	KID     string `json:"kid"`
	JWKSURL string `json:"jwks_url"`
}

type deliveryBody struct {
	Phase         string  `json:"phase"`
	Generation    uint64  `json:"generation"`
	Holder        *string `json:"holder,omitempty"`
	LeaseUntil    *string `json:"lease_until,omitempty"`
	Attempts      int     `json:"attempts"`
	NextAttemptAt *string `json:"next_attempt_at,omitempty"`
	LastError     *string `json:"last_error,omitempty"`
	LastErrorAt   *string `json:"last_error_at,omitempty"`
	LastStatus    int     `json:"last_status,omitempty"`
	Delivered     uint64  `json:"delivered"`
	Failed        uint64  `json:"failed"`
	Expired       uint64  `json:"expired"`
}

func (x *exchange) answerSubscription(status int, sub subscriptions.Subscription) error {
	b := subscriptionBody{
		ID: sub.ID.Name, SubscriptionID: sub.ID.Name, Type: sub.Type, Pattern: optional(sub.Pattern),
		Streams: []linkBody{}, MoreStreams: sub.MoreLinks, WakeStream: optional(sub.WakeStream),
		LeaseMS: sub.Lease.Milliseconds(), CreatedAt: isoTime(sub.Created), Status: "active",
		Description: optional(sub.Description), Delivery: deliveryOf(sub.Delivery),
	}
	if sub.Failed {
		b.Status = "failed"
	}
	for _, l := range sub.Links {
		b.Streams = append(b.Streams, linkBody{l.Path, l.Type, l.Acked.String()})
	}
	if sub.Type == subscriptions.Webhook {
		kid, err := x.f.opts.Subscriptions.ActiveKID(x.r.Context())
		if err != nil {
			return err
		}
		b.Webhook = &webhookBody{sub.URL, signingBody{"ed25519", kid, controlURL(x.callbackOrigin(), sub.ID.Bucket, "jwks.json")}}
	}
	x.json(status, b)
	return nil
}

func deliveryOf(d subscriptions.Delivery) deliveryBody {
	return deliveryBody{
		Phase: d.Phase, Generation: d.Generation, Holder: optional(d.Holder), LeaseUntil: optionalTime(d.LeaseUntil),
		Attempts: d.Attempts, NextAttemptAt: optionalTime(d.NextAttempt), LastError: optional(d.LastError),
		LastErrorAt: optionalTime(d.LastErrorAt), LastStatus: d.LastStatus,
		Delivered: d.Delivered, Failed: d.Failed, Expired: d.Expired,
	}
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func optionalTime(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := isoTime(t)
	return &s
}

func isoTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// jwk is one public key (RFC 8037).
type jwk struct {
	KTY string `json:"kty"`
	CRV string `json:"crv"`
	KID string `json:"kid"`
	Use string `json:"use"`
	Alg string `json:"alg"`
	X   string `json:"x"`
}

// jwks publishes the keys webhooks are signed with (PROTOCOL.md 6.5).
func (f *Frontend) jwks(x *exchange) error {
	if err := x.dropBody(); err != nil {
		return err
	}
	keys, err := f.opts.Subscriptions.SigningKeys(x.r.Context())
	if err != nil {
		return err
	}
	out := struct {
		Keys []jwk `json:"keys"`
	}{[]jwk{}}
	for _, k := range keys {
		out.Keys = append(out.Keys, jwk{KTY: "OKP", CRV: "Ed25519", KID: k.KID, Use: "sig", Alg: "EdDSA", X: base64.RawURLEncoding.EncodeToString(k.Public)})
	}
	h := x.header()
	h["Content-Type"] = []string{"application/jwk-set+json"}
	h["Cache-Control"] = []string{"public, max-age=300"}
	x.json(http.StatusOK, out)
	return nil
}
