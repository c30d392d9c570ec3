package keys

import (
	"errors"

	"github.com/google/uuid"
)

// IncarnationLen is the length in bytes of an incarnation.
const IncarnationLen = 16

// Incarnation identifies one life of a stream between its creation and its
// deletion (extensions 2.4). It is a random UUID, so it spreads streams over
// the cluster and can't be guessed or repeated.
type Incarnation [IncarnationLen]byte

// NewIncarnation returns a fresh random incarnation (UUIDv4).
func NewIncarnation() Incarnation { return Incarnation(uuid.New()) }

// IsZero reports whether i is no incarnation at all.
func (i Incarnation) IsZero() bool { return i == Incarnation{} }

// String returns the token clients see: the UUID in its canonical lower-case form.
func (i Incarnation) String() string { return uuid.UUID(i).String() }

// ErrBadIncarnation is returned for a token that no server could have issued.
var ErrBadIncarnation = errors.New("keys: malformed incarnation")

// ParseIncarnation reads a token written by [Incarnation.String], and nothing
// else: other spellings of a UUID are refused.
func ParseIncarnation(s string) (Incarnation, error) {
	u, err := uuid.Parse(s)
	if err != nil || u.Version() != 4 || u.Variant() != uuid.RFC4122 || u.String() != s {
		return Incarnation{}, ErrBadIncarnation
	}
	return Incarnation(u), nil
}
