package fdblayer

import (
	"encoding/binary"
	"errors"
	"time"

	"headwater/keys"
)

// meta is the value of a stream's meta key.
type meta struct {
	incarnation keys.Incarnation
	contentType string
	expiry      Expiry
	// inheritedExpiry tells that expiry came from the fork's source, so that a
	// repeated PUT without one is still equal.
	inheritedExpiry bool
	created         time.Time
	closed          bool
	softDeleted     bool
	// followed tells that every change has to leave a mark (follow.go).
	followed bool
	// closer is the producer tuple of the request that closed the stream; nil
	// where it had none.
	closer   *Producer
	retained keys.Offset
	fork     *forkMeta
}

// forkMeta is what a fork remembers of its birth.
type forkMeta struct {
	source            StreamID
	sourceIncarnation keys.Incarnation
	// offset is the anchor and subOffset as requested; hasOffset is false where
	// the request left the choice of the anchor, the tail, to the server.
	hasOffset bool
	offset    keys.Offset
	subOffset uint64
	// depth counts the forks above, so that cascades stay bounded.
	depth uint64
	// segments are the inherited parts, flattened: a read never recurses.
	segments []segment
}

// segment is the records of one incarnation up to a position.
type segment struct {
	incarnation keys.Incarnation
	upto        keys.Offset
}

// forkPoint is the position at which a stream's own records begin.
func (m *meta) forkPoint() keys.Offset {
	if m.fork == nil || len(m.fork.segments) == 0 {
		return keys.StartOffset
	}
	return m.fork.segments[len(m.fork.segments)-1].upto
}

// floor is the least offset the tail can have: where own records would begin.
func (m *meta) floor() keys.Offset {
	if p := m.forkPoint(); m.retained.Less(p) {
		return p
	}
	return m.retained
}

// metaFormat is followed by a byte of flags, metaFormatMore by another one.
const (
	metaFormat     = 1
	metaFormatMore = 2
)

const (
	metaClosed = 1 << iota
	metaSoftDeleted
	metaTTL
	metaExpiresAt
	metaInheritedExpiry
	metaCloser
	metaFork
	metaForkOffset
)

// Flags of the second byte.
const metaFollowed = 1

func (m *meta) encode() []byte {
	flags := byte(0)
	set := func(on bool, bit byte) {
		if on {
			flags |= bit
		}
	}
	set(m.closed, metaClosed)
	set(m.softDeleted, metaSoftDeleted)
	set(m.expiry.HasTTL, metaTTL)
	set(!m.expiry.At.IsZero(), metaExpiresAt)
	set(m.inheritedExpiry, metaInheritedExpiry)
	set(m.closer != nil, metaCloser)
	set(m.fork != nil, metaFork)
	set(m.fork != nil && m.fork.hasOffset, metaForkOffset)

	b := make([]byte, 0, 128)
	if m.followed {
		b = append(b, metaFormatMore, flags, metaFollowed)
	} else {
		b = append(b, metaFormat, flags)
	}
	b = append(b, m.incarnation[:]...)
	b = append(b, m.retained[:]...)
	b = binary.AppendVarint(b, m.created.UnixMilli())
	b = appendString(b, m.contentType)
	if m.expiry.HasTTL {
		b = binary.AppendUvarint(b, m.expiry.TTL)
	}
	if !m.expiry.At.IsZero() {
		b = binary.AppendVarint(b, m.expiry.At.UnixMilli())
		b = appendString(b, m.expiry.AtText)
	}
	if m.closer != nil {
		b = appendString(b, m.closer.ID)
		b = binary.AppendUvarint(b, m.closer.Epoch)
		b = binary.AppendUvarint(b, m.closer.Seq)
	}
	if f := m.fork; f != nil {
		b = appendString(b, f.source.Bucket)
		b = appendString(b, f.source.Stream)
		b = append(b, f.sourceIncarnation[:]...)
		b = append(b, f.offset[:]...)
		b = binary.AppendUvarint(b, f.subOffset)
		b = binary.AppendUvarint(b, f.depth)
		b = binary.AppendUvarint(b, uint64(len(f.segments)))
		for _, s := range f.segments {
			b = append(b, s.incarnation[:]...)
			b = append(b, s.upto[:]...)
		}
	}
	return b
}

func decodeMeta(b []byte) (*meta, error) {
	d := decoder{b: b}
	format, flags, more := d.byte(), d.byte(), byte(0)
	if format == metaFormatMore {
		more = d.byte()
	}
	if format != metaFormat && format != metaFormatMore || more&^metaFollowed != 0 {
		return nil, errCorrupt
	}
	m := &meta{
		followed:        more&metaFollowed != 0,
		closed:          flags&metaClosed != 0,
		softDeleted:     flags&metaSoftDeleted != 0,
		inheritedExpiry: flags&metaInheritedExpiry != 0,
	}
	m.incarnation = keys.Incarnation(d.array16())
	m.retained = keys.Offset(d.array16())
	m.created = time.UnixMilli(d.varint())
	m.contentType = d.string()
	if flags&metaTTL != 0 {
		m.expiry = Expiry{HasTTL: true, TTL: d.uvarint()}
	}
	if flags&metaExpiresAt != 0 {
		m.expiry.At = time.UnixMilli(d.varint())
		m.expiry.AtText = d.string()
	}
	if flags&metaCloser != 0 {
		m.closer = &Producer{ID: d.string(), Epoch: d.uvarint(), Seq: d.uvarint()}
	}
	if flags&metaFork != 0 {
		f := &forkMeta{hasOffset: flags&metaForkOffset != 0}
		f.source = StreamID{Bucket: d.string(), Stream: d.string()}
		f.sourceIncarnation = keys.Incarnation(d.array16())
		f.offset = keys.Offset(d.array16())
		f.subOffset = d.uvarint()
		f.depth = d.uvarint()
		n := d.uvarint()
		for i := uint64(0); i < n && d.err == nil; i++ {
			f.segments = append(f.segments, segment{keys.Incarnation(d.array16()), keys.Offset(d.array16())})
		}
		m.fork = f
	}
	return m, d.end()
}

// errCorrupt is returned for a value this version can't have written.
var errCorrupt = errors.New("fdblayer: corrupt value")

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decoder reads a value front to back; the first fault makes every later read
// return zero and end report it.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		d.err = errCorrupt
		return nil
	}
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) byte() byte {
	if p := d.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (d *decoder) array16() (a [16]byte) {
	copy(a[:], d.take(16))
	return a
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.err = errCorrupt
		return 0
	}
	d.take(n)
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.err = errCorrupt
		return 0
	}
	d.take(n)
	return v
}

func (d *decoder) string() string {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.err = errCorrupt
		return ""
	}
	return string(d.take(int(n)))
}

func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.err = errCorrupt
	}
	return d.err
}
