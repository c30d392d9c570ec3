package keys

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
)

// VersionstampLen is the length in bytes of a FoundationDB versionstamp: an
// eight-byte commit version and the transaction's two-byte order within it.
const VersionstampLen = 10

// Versionstamp is the ten bytes FoundationDB assigns to a committed
// transaction. Unique in a cluster and increasing in commit order.
type Versionstamp [VersionstampLen]byte

// OffsetLen is the length in bytes of a binary offset.
const OffsetLen = VersionstampLen + 2 + 4

// Offset is a position in a stream (PROTOCOL.md section 8): a record, named by
// the versionstamp of its transaction and its order within it, and how many of
// its bytes lie before the position. Byte order is stream order.
//
// A boundary between two records is written as the end of the earlier one, so
// each position has one offset; only the start of a stream, the zero Offset,
// has a count of zero.
type Offset [OffsetLen]byte

// StartOffset is the position before a stream's first byte.
var StartOffset Offset

// MakeOffset returns the position count bytes into the record that the
// transaction with versionstamp vs wrote as its order-th.
func MakeOffset(vs Versionstamp, order uint16, count uint32) Offset {
	var o Offset
	copy(o[:], vs[:])
	binary.BigEndian.PutUint16(o[VersionstampLen:], order)
	binary.BigEndian.PutUint32(o[VersionstampLen+2:], count)
	return o
}

// Versionstamp returns the versionstamp of the record the offset lies in.
func (o Offset) Versionstamp() Versionstamp { return Versionstamp(o[:VersionstampLen]) }

// Order returns the record's order among those of its transaction and stream.
func (o Offset) Order() uint16 { return binary.BigEndian.Uint16(o[VersionstampLen:]) }

// Count returns how many bytes of the record lie before the offset.
func (o Offset) Count() uint32 { return binary.BigEndian.Uint32(o[VersionstampLen+2:]) }

// WithCount returns the position count bytes into the same record.
func (o Offset) WithCount(count uint32) Offset {
	binary.BigEndian.PutUint32(o[VersionstampLen+2:], count)
	return o
}

// SameRecord reports whether both offsets lie in one record.
func (o Offset) SameRecord(p Offset) bool {
	return [VersionstampLen + 2]byte(o[:]) == [VersionstampLen + 2]byte(p[:])
}

// IsStart reports whether o is the position before the first byte.
func (o Offset) IsStart() bool { return o == Offset{} }

// Compare orders offsets by position.
func (o Offset) Compare(p Offset) int { return bytes.Compare(o[:], p[:]) }

// Less reports whether o lies before p.
func (o Offset) Less(p Offset) bool { return o.Compare(p) < 0 }

// String returns the token clients see: 32 lower-case hex digits.
func (o Offset) String() string { return hex.EncodeToString(o[:]) }

// ErrBadOffset is returned for a token that no server could have issued.
var ErrBadOffset = errors.New("keys: malformed offset")

// ParseOffset reads a token written by [Offset.String]. The form other servers
// use, sixteen digits, an underscore and sixteen digits, is understood as the
// 32 digits without the underscore, so that their start of stream is ours. The
// sentinels "-1" and "now" are not offsets and are refused.
func ParseOffset(s string) (Offset, error) {
	var o Offset
	if len(s) == 2*OffsetLen+1 && s[OffsetLen] == '_' {
		s = s[:OffsetLen] + s[OffsetLen+1:]
	}
	if len(s) != 2*OffsetLen {
		return o, ErrBadOffset
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return Offset{}, ErrBadOffset
		}
	}
	if _, err := hex.Decode(o[:], []byte(s)); err != nil {
		return Offset{}, ErrBadOffset
	}
	return o, nil
}
