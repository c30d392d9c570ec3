package subscriptions

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"headwater/fdblayer/kv"
)

// Purposes of secrets. The values are part of the format.
const (
	purposeSign  = 's' // Ed25519 keys that sign webhooks
	purposeToken = 't' // HMAC keys of callback and claim tokens
)

const (
	// secretAge is how long secrets are used from memory.
	secretAge = time.Minute
	// activateAfter is how long a new secret is known before it is used: every
	// frontend has read it by then, and receivers, which may keep the key set
	// for five minutes, have been able to.
	activateAfter = 15 * time.Minute
	// retireAfter is how long a secret is kept once another has taken its
	// place: longer than the replay window of a signature and than a token lives.
	retireAfter = tokenLife + time.Hour
)

// secret is one key in the store. It is found under its deployment's prefix
// like everything else: who can read the database can sign.
type secret struct {
	ID     string `json:"id"`
	Active int64  `json:"active"` // since when it may be used, ms
	Seed   []byte `json:"seed"`   // 32 random bytes

	row     []byte // its key in the store
	created time.Time
	key     ed25519.PrivateKey // of purposeSign
}

// keyring is the secrets of one frontend, read again when they are old.
type keyring struct {
	mu    sync.Mutex
	rings map[byte]*ring
}

type ring struct {
	secrets []secret // in the order they come into use
	read    time.Time
}

// secrets returns the secrets of a purpose in the order they come into use. The first caller ever
// makes one.
func (s *Service) secrets(ctx context.Context, purpose byte) ([]secret, error) {
	now := s.now()
	s.ring.mu.Lock()
	r := s.ring.rings[purpose]
	s.ring.mu.Unlock()
	if r != nil && now.Sub(r.read) < secretAge && !now.Before(r.read) {
		return r.secrets, nil
	}
	list, err := s.readSecrets(ctx, purpose, false)
	if err != nil {
		return nil, err
	}
	s.ring.mu.Lock()
	defer s.ring.mu.Unlock()
	if s.ring.rings == nil {
		s.ring.rings = make(map[byte]*ring)
	}
	s.ring.rings[purpose] = &ring{list, now}
	return list, nil
}

// readSecrets reads the secrets of a purpose, makes one where there is none,
// another where the newest has come of age or rotate says so, and drops those
// that nothing can have been made with that is still of use.
//
// Reads: all of them. So of two frontends that make one, one is refused.
func (s *Service) readSecrets(ctx context.Context, purpose byte, rotate bool) ([]secret, error) {
	var list []secret
	_, err := s.store.Update(ctx, func(ctx context.Context, tx kv.Tx, at kv.Attempt) error {
		list = nil
		rows, err := readRows(ctx, tx, s.space.SubSecretRange(purpose), 0)
		if err != nil {
			return err
		}
		for _, row := range rows {
			k, err := s.decodeSecret(row)
			if err != nil {
				return err
			}
			list = append(list, k)
		}
		// Not by when they were made: clocks may disagree on that.
		slices.SortStableFunc(list, func(a, b secret) int { return cmp.Compare(a.Active, b.Active) })
		now := s.now()
		for len(list) > 1 && !now.Before(time.UnixMilli(list[1].Active).Add(retireAfter)) {
			tx.Clear(list[0].row)
			list = list[1:]
		}
		newest := len(list) - 1
		old := newest >= 0 && now.Sub(list[newest].created) >= s.opts.RotateKeys
		if newest >= 0 && !old && (!rotate || at.Unknown && now.Sub(list[newest].created) < secretAge) {
			return nil
		}
		k := newSecret(now, len(list) == 0)
		raw, err := json.Marshal(k)
		if err != nil {
			return err
		}
		var id [8]byte
		rand.Read(id[:])
		tx.Set(s.space.SubSecret(purpose, now, id), raw)
		list = append(list, k)
		return nil
	})
	return list, err
}

func newSecret(now time.Time, first bool) secret {
	k := secret{Seed: make([]byte, ed25519.SeedSize), Active: ms(now), created: now}
	if !first {
		k.Active = ms(now.Add(activateAfter))
	}
	rand.Read(k.Seed)
	k.key = ed25519.NewKeyFromSeed(k.Seed)
	k.ID = thumbprint(k.key.Public().(ed25519.PublicKey))
	return k
}

func (s *Service) decodeSecret(row kv.KeyValue) (secret, error) {
	var k secret
	if err := json.Unmarshal(row.Value, &k); err != nil || len(k.Seed) != ed25519.SeedSize {
		return k, errCorrupt
	}
	created, err := s.space.ParseSubSecret(row.Key)
	if err != nil {
		return k, err
	}
	k.row, k.created = row.Key, created
	k.key = ed25519.NewKeyFromSeed(k.Seed)
	return k, nil
}

// thumbprint names a public key by what it is made of (RFC 7638), so that a kid
// can't mean two keys.
func thumbprint(pub ed25519.PublicKey) string {
	sum := sha256.Sum256(fmt.Appendf(nil, `{"crv":"Ed25519","kty":"OKP","x":"%s"}`, b64(pub)))
	return "ds_" + b64(sum[:])
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// active returns the secret to use now: the newest that may be.
func active(list []secret, now time.Time) secret {
	best := list[0]
	for _, k := range list[1:] {
		if k.Active <= ms(now) {
			best = k
		}
	}
	return best
}

// sign returns the Webhook-Signature of a body (PROTOCOL.md 7.1).
func (s *Service) sign(ctx context.Context, body []byte) (string, error) {
	list, err := s.secrets(ctx, purposeSign)
	if err != nil {
		return "", err
	}
	now := s.now()
	k := active(list, now)
	t := strconv.FormatInt(now.Unix(), 10)
	sig := ed25519.Sign(k.key, append([]byte(t+"."), body...))
	return "t=" + t + ",kid=" + k.ID + ",ed25519=" + b64(sig), nil
}

// SigningKey is the public part of a key that webhooks are, were or will be
// signed with.
type SigningKey struct {
	KID    string
	Public ed25519.PublicKey
}

// SigningKeys returns the keys to publish (PROTOCOL.md 6.5). It reads them
// anew: a receiver that asks may have met a key it doesn't know.
func (s *Service) SigningKeys(ctx context.Context) ([]SigningKey, error) {
	list, err := s.readSecrets(ctx, purposeSign, false)
	if err != nil {
		return nil, err
	}
	out := make([]SigningKey, len(list))
	for i, k := range list {
		out[i] = SigningKey{k.ID, k.key.Public().(ed25519.PublicKey)}
	}
	return out, nil
}

// ActiveKID returns the kid of the key in use.
func (s *Service) ActiveKID(ctx context.Context) (string, error) {
	list, err := s.secrets(ctx, purposeSign)
	if err != nil {
		return "", err
	}
	return active(list, s.now()).ID, nil
}

// RotateKeys makes a new signing key and a new token key. They are published at
// once and used a while later; the old ones stay valid as long as anything made
// with them does.
func (s *Service) RotateKeys(ctx context.Context) error {
	for _, p := range []byte{purposeSign, purposeToken} {
		if _, err := s.readSecrets(ctx, p, true); err != nil {
			return err
		}
	}
	s.ring.mu.Lock()
	defer s.ring.mu.Unlock()
	s.ring.rings = nil
	return nil
}
