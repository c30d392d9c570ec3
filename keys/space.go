package keys

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"time"
)

// Kind is the byte after the deployment prefix that says what a key holds.
type Kind byte

// The kinds of keys. The values are part of the format.
const (
	KindSystem   Kind = 0x01
	KindMeta     Kind = 0x10
	KindFence    Kind = 0x11
	KindExpiry   Kind = 0x12
	KindLog      Kind = 0x20
	KindTail     Kind = 0x21
	KindProducer Kind = 0x22
	KindSeq      Kind = 0x23
	KindTouch    Kind = 0x24
	KindSnapshot Kind = 0x25
	KindBlob     Kind = 0x26
	KindFork     Kind = 0x27
	KindStaged   Kind = 0x28
	KindBatch    Kind = 0x30
	KindGC       Kind = 0x31
	KindLease    Kind = 0x32
)

// FormatVersion is the version of the format this package writes. It changes
// only when old bytes can't be read any more.
const FormatVersion = 1

// Range is the keys from Begin, included, to End, excluded.
type Range struct {
	Begin, End []byte
}

// Space builds and reads the keys of one deployment. Its methods are pure and
// safe for concurrent use; what they return belongs to the caller.
type Space struct {
	prefix []byte
}

// MaxPrefixLen is how long a deployment's prefix may be. It is in every key,
// and FoundationDB stores keys in full.
const MaxPrefixLen = 64

// ErrBadPrefix is returned for a prefix that can't set a deployment apart.
var ErrBadPrefix = errors.New("keys: the prefix must have 1 to 64 bytes and not begin with 0xff")

// NewSpace returns the key space below prefix. An empty prefix is refused, since
// everything would then be the deployment's, and one that begins with 0xff,
// where the database keeps its own keys. Deployments that share a cluster need
// prefixes of which none begins with another.
func NewSpace(prefix []byte) (Space, error) {
	if len(prefix) == 0 || len(prefix) > MaxPrefixLen || prefix[0] == 0xff {
		return Space{}, ErrBadPrefix
	}
	return Space{bytes.Clone(prefix)}, nil
}

// All is every key of the deployment.
func (s Space) All() Range { return prefixRange(s.prefix) }

func (s Space) key(k Kind, size int) []byte {
	b := make([]byte, 0, len(s.prefix)+1+size)
	return append(append(b, s.prefix...), byte(k))
}

func (s Space) incarnationKey(k Kind, inc Incarnation, rest ...byte) []byte {
	b := append(s.key(k, IncarnationLen+len(rest)), inc[:]...)
	return append(b, rest...)
}

func (s Space) kindRange(k Kind) Range { return prefixRange(s.key(k, 0)) }

func prefixRange(prefix []byte) Range {
	return Range{Begin: bytes.Clone(prefix), End: Successor(prefix)}
}

// Successor returns the first key after all that begin with prefix. It panics
// if there is none, because prefix is empty or holds nothing but 0xff; the keys
// of a [Space] can't, since NewSpace refuses such prefixes.
func Successor(prefix []byte) []byte {
	n := len(prefix)
	for n > 0 && prefix[n-1] == 0xff {
		n--
	}
	if n == 0 {
		panic("keys: no key lies after the prefix " + strconv.QuoteToASCII(string(prefix)))
	}
	end := bytes.Clone(prefix[:n])
	end[n-1]++
	return end
}

// System is the key of one of the deployment's own settings.
func (s Space) System(name string) []byte { return append(s.key(KindSystem, len(name)), name...) }

// Meta is the key of a stream's metadata. Neither bucket nor stream holds a
// zero byte; the bucket of the base surface is empty.
func (s Space) Meta(bucket, stream string) []byte {
	b := append(s.key(KindMeta, len(bucket)+1+len(stream)), bucket...)
	return append(append(b, 0), stream...)
}

// MetaRange is the metadata of every stream of a bucket, in order of their names.
func (s Space) MetaRange(bucket string) Range {
	return prefixRange(append(append(s.key(KindMeta, len(bucket)+1), bucket...), 0))
}

// ErrBadKey is returned for a key that is not of the kind asked for.
var ErrBadKey = errors.New("keys: not a key of this kind")

func (s Space) rest(k Kind, key []byte) ([]byte, error) {
	n := len(s.prefix)
	if len(key) <= n || !bytes.HasPrefix(key, s.prefix) || key[n] != byte(k) {
		return nil, ErrBadKey
	}
	return key[n+1:], nil
}

func splitName(b []byte) (bucket, stream string, err error) {
	i := bytes.IndexByte(b, 0)
	if i < 0 {
		return "", "", ErrBadKey
	}
	return string(b[:i]), string(b[i+1:]), nil
}

// ParseMeta is the inverse of [Space.Meta].
func (s Space) ParseMeta(key []byte) (bucket, stream string, err error) {
	b, err := s.rest(KindMeta, key)
	if err != nil {
		return "", "", err
	}
	return splitName(b)
}

// Fence is the key that bars a purged bucket.
func (s Space) Fence(bucket string) []byte { return append(s.key(KindFence, len(bucket)), bucket...) }

// Expiry is the index entry by which the reaper finds a stream at its due time.
func (s Space) Expiry(due time.Time, bucket, stream string) []byte {
	b := binary.BigEndian.AppendUint64(s.key(KindExpiry, 9+len(bucket)+len(stream)), millis(due))
	b = append(b, bucket...)
	return append(append(b, 0), stream...)
}

// ExpiryUntil is the index entries that are due at now or before.
func (s Space) ExpiryUntil(now time.Time) Range {
	return Range{
		Begin: s.key(KindExpiry, 0),
		End:   binary.BigEndian.AppendUint64(s.key(KindExpiry, 8), millis(now)+1),
	}
}

// ParseExpiry is the inverse of [Space.Expiry].
func (s Space) ParseExpiry(key []byte) (due time.Time, bucket, stream string, err error) {
	b, err := s.rest(KindExpiry, key)
	if err != nil || len(b) < 9 {
		return time.Time{}, "", "", ErrBadKey
	}
	due, err = fromMillis(b)
	if err == nil {
		bucket, stream, err = splitName(b[8:])
	}
	return due, bucket, stream, err
}

func millis(t time.Time) uint64 { return uint64(max(t.UnixMilli(), 0)) }

// fromMillis reads the time that b begins with, which must be one that millis
// can write.
func fromMillis(b []byte) (time.Time, error) {
	ms := binary.BigEndian.Uint64(b)
	if ms > math.MaxInt64 {
		return time.Time{}, ErrBadKey
	}
	return time.UnixMilli(int64(ms)), nil
}

// Log is the key of the record that ends at end.
func (s Space) Log(inc Incarnation, end Offset) []byte {
	return s.incarnationKey(KindLog, inc, end[:]...)
}

// LogStamped is the parameter of a versionstamped-key operation that writes a
// record: the key with room for the versionstamp, and where it goes.
func (s Space) LogStamped(inc Incarnation, order uint16, length uint32) []byte {
	key := s.Log(inc, MakeOffset(Versionstamp{}, order, length))
	return binary.LittleEndian.AppendUint32(key, uint32(len(key)-OffsetLen))
}

// LogRange is every record of an incarnation.
func (s Space) LogRange(inc Incarnation) Range {
	return prefixRange(s.incarnationKey(KindLog, inc))
}

// LogAfter is the records that end after offset: the first of them holds the
// byte that follows it.
func (s Space) LogAfter(inc Incarnation, offset Offset) Range {
	return Range{Begin: append(s.Log(inc, offset), 0), End: s.LogRange(inc).End}
}

// LogUntil is the records that end at offset or before, which retention up to
// offset may drop.
func (s Space) LogUntil(inc Incarnation, offset Offset) Range {
	return Range{Begin: s.LogRange(inc).Begin, End: append(s.Log(inc, offset), 0)}
}

// ParseLog returns the offset of the end of the record that key holds.
func (s Space) ParseLog(key []byte) (Incarnation, Offset, error) {
	b, err := s.rest(KindLog, key)
	if err != nil || len(b) != IncarnationLen+OffsetLen {
		return Incarnation{}, Offset{}, ErrBadKey
	}
	return Incarnation(b), Offset(b[IncarnationLen:]), nil
}

// StagedStamped is the parameter of a versionstamped-key operation that notes
// which blob holds the record of that order and length.
func (s Space) StagedStamped(inc Incarnation, order uint16, length uint32) []byte {
	end := MakeOffset(Versionstamp{}, order, length)
	key := s.incarnationKey(KindStaged, inc, end[:]...)
	return binary.LittleEndian.AppendUint32(key, uint32(len(key)-OffsetLen))
}

// StagedUntil is the notes of staged records that end at offset or before.
func (s Space) StagedUntil(inc Incarnation, offset Offset) Range {
	return Range{
		Begin: s.incarnationKey(KindStaged, inc),
		End:   append(s.incarnationKey(KindStaged, inc, offset[:]...), 0),
	}
}

// StagedRange is the notes of every staged record of an incarnation.
func (s Space) StagedRange(inc Incarnation) Range {
	return prefixRange(s.incarnationKey(KindStaged, inc))
}

// Tail is the wake key of a stream: every change of it is a reason to look.
func (s Space) Tail(inc Incarnation) []byte { return s.incarnationKey(KindTail, inc) }

// Producer is the key of the state of one idempotent producer.
func (s Space) Producer(inc Incarnation, id string) []byte {
	return append(s.incarnationKey(KindProducer, inc), id...)
}

// ProducerRange is the state of every producer of an incarnation.
func (s Space) ProducerRange(inc Incarnation) Range {
	return prefixRange(s.incarnationKey(KindProducer, inc))
}

// Seq is the key of the last Stream-Seq of an incarnation.
func (s Space) Seq(inc Incarnation) []byte { return s.incarnationKey(KindSeq, inc) }

// Touch is the key of the time of the last access, kept for a sliding TTL.
func (s Space) Touch(inc Incarnation) []byte { return s.incarnationKey(KindTouch, inc) }

// Snapshot is the key of the pointer to the visible snapshot.
func (s Space) Snapshot(inc Incarnation) []byte { return s.incarnationKey(KindSnapshot, inc) }

// BlobID names a body that was staged in chunks. Random.
type BlobID [16]byte

// Blob is the key of the index-th chunk of a staged body.
func (s Space) Blob(inc Incarnation, id BlobID, index uint32) []byte {
	b := append(s.incarnationKey(KindBlob, inc), id[:]...)
	return binary.BigEndian.AppendUint32(b, index)
}

// BlobRange is the chunks of one staged body.
func (s Space) BlobRange(inc Incarnation, id BlobID) Range {
	return prefixRange(append(s.incarnationKey(KindBlob, inc), id[:]...))
}

// BlobsRange is the chunks of every staged body of an incarnation.
func (s Space) BlobsRange(inc Incarnation) Range {
	return prefixRange(s.incarnationKey(KindBlob, inc))
}

// Fork is the reference a fork holds on its source.
func (s Space) Fork(source, child Incarnation) []byte {
	return append(s.incarnationKey(KindFork, source), child[:]...)
}

// ForkRange is the references held on a source.
func (s Space) ForkRange(source Incarnation) Range {
	return prefixRange(s.incarnationKey(KindFork, source))
}

// Batch is the key under which a frontend's commit lane leaves the witness of
// its last batch.
func (s Space) Batch(frontend [16]byte, lane uint16) []byte {
	b := append(s.key(KindBatch, 18), frontend[:]...)
	return binary.BigEndian.AppendUint16(b, lane)
}

// BatchRange is the witnesses of every frontend.
func (s Space) BatchRange() Range { return s.kindRange(KindBatch) }

// FrontendBatches is the witnesses of one frontend.
func (s Space) FrontendBatches(frontend [16]byte) Range {
	return prefixRange(append(s.key(KindBatch, 16), frontend[:]...))
}

// GC is the key of a deferred clear that is due at a time.
func (s Space) GC(due time.Time, id [16]byte) []byte {
	b := binary.BigEndian.AppendUint64(s.key(KindGC, 24), millis(due))
	return append(b, id[:]...)
}

// GCUntil is the deferred clears that are due at now or before.
func (s Space) GCUntil(now time.Time) Range {
	return Range{
		Begin: s.key(KindGC, 0),
		End:   binary.BigEndian.AppendUint64(s.key(KindGC, 8), millis(now)+1),
	}
}

// Lease is the key of a lease on a piece of background work.
func (s Space) Lease(name string) []byte { return append(s.key(KindLease, len(name)), name...) }
