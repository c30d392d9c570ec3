package subscriptions

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// tokenLife bounds how long a token is of use. What ends it in time is its
// wake: the lease and the generation are checked with it on every request. The
// bound only has to outlast a lease that is renewed again and again.
const tokenLife = 24 * time.Hour

// maxToken bounds what is looked at of a token.
const maxToken = 4096

// tokenBody is what a token says (PROTOCOL.md 12.9).
type tokenBody struct {
	Key        string `json:"kid"`
	Bucket     string `json:"bucket,omitempty"`
	Name       string `json:"sub"`
	UID        string `json:"uid"`
	Generation uint64 `json:"gen"`
	Expires    int64  `json:"exp"` // seconds
}

// claims are what a valid token grants.
type claims struct {
	uid        string
	generation uint64
}

// newToken returns the token of a subscription's current generation.
func (s *Service) newToken(ctx context.Context, u *sub) (string, error) {
	list, err := s.secrets(ctx, purposeToken)
	if err != nil {
		return "", err
	}
	now := s.now()
	k := active(list, now)
	body, err := json.Marshal(tokenBody{
		Key: k.ID, Bucket: u.id.Bucket, Name: u.id.Name, UID: u.UID, Generation: u.Generation,
		Expires: now.Add(tokenLife).Unix(),
	})
	if err != nil {
		return "", err
	}
	return b64(body) + "." + b64(mac(k, body)), nil
}

func mac(k secret, body []byte) []byte {
	h := hmac.New(sha256.New, k.Seed)
	h.Write(body)
	return h.Sum(nil)
}

var errTokenInvalid = errorf(CodeTokenInvalid, "the token is not valid for this subscription")

// verifyToken checks a token's signature, its expiry and that it is for this
// subscription. A *Error is about the token; any other is the store's.
func (s *Service) verifyToken(ctx context.Context, id ID, token string) (claims, error) {
	head, tail, ok := strings.Cut(token, ".")
	if !ok || len(token) > maxToken {
		return claims{}, errTokenInvalid
	}
	body, err := base64.RawURLEncoding.Strict().DecodeString(head)
	sum, err2 := base64.RawURLEncoding.Strict().DecodeString(tail)
	var t tokenBody
	if err != nil || err2 != nil || json.Unmarshal(body, &t) != nil {
		return claims{}, errTokenInvalid
	}
	list, err := s.secrets(ctx, purposeToken)
	if err != nil {
		return claims{}, err
	}
	for _, k := range list {
		if k.ID != t.Key || !hmac.Equal(mac(k, body), sum) {
			continue
		}
		switch {
		case t.Bucket != id.Bucket || t.Name != id.Name:
			return claims{}, errTokenInvalid
		case s.now().Unix() >= t.Expires:
			return claims{}, errorf(CodeTokenExpired, "the token has expired")
		}
		return claims{t.UID, t.Generation}, nil
	}
	return claims{}, errTokenInvalid
}
