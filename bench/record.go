package bench

import (
	"bytes"
	"fmt"
)

// record is the form of every record of a run: a JSON object of fixed length,
// so that it is told from its neighbours in a byte stream, in a text stream, in
// NDJSON and in a JSON array alike. The fields are the writer, its sequence
// number in the stream, the intended send time in nanoseconds of the process's
// clock, and filler.
//
//	{"w":"00000007","s":"00000000000001f4","t":"000000003b9aca00","p":"xxxx..."}
type record struct {
	template []byte
}

const (
	writerAt  = len(`{"w":"`)
	seqAt     = writerAt + 8 + len(`","s":"`)
	sentAt    = seqAt + 16 + len(`","t":"`)
	fillerAt  = sentAt + 16 + len(`","p":"`)
	minRecord = fillerAt + len(`"}`)
)

func newRecord(size int) record {
	head := fmt.Sprintf(`{"w":"%08x","s":"%016x","t":"%016x","p":"`, 0, 0, 0)
	t := append(make([]byte, 0, size), head...)
	// A period prime to the usual block sizes shows a piece that was moved.
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ012345678"
	for len(t) < size-len(`"}`) {
		t = append(t, letters[len(t)%len(letters)])
	}
	return record{append(t, `"}`...)}
}

func (r record) size() int { return len(r.template) }

// put writes a record's fields into p, which holds a copy of the template.
func (r record) put(p []byte, writer uint32, seq uint64, sent int64) {
	putHex(p[writerAt:writerAt+8], uint64(writer))
	putHex(p[seqAt:seqAt+16], seq)
	putHex(p[sentAt:sentAt+16], uint64(sent))
}

// parse reads the fields of p, a record's length of bytes. ok is false where
// any byte is not what put wrote.
func (r record) parse(p []byte) (writer uint32, seq uint64, sent int64, ok bool) {
	w, ok1 := parseHex(p[writerAt : writerAt+8])
	s, ok2 := parseHex(p[seqAt : seqAt+16])
	t, ok3 := parseHex(p[sentAt : sentAt+16])
	same := func(from, to int) bool { return bytes.Equal(p[from:to], r.template[from:to]) }
	ok = ok1 && ok2 && ok3 && same(0, writerAt) && same(writerAt+8, seqAt) && same(seqAt+16, sentAt) && same(sentAt+16, len(p))
	return uint32(w), s, int64(t), ok
}

const hexDigits = "0123456789abcdef"

func putHex(p []byte, v uint64) {
	for i := len(p) - 1; i >= 0; i-- {
		p[i] = hexDigits[v&15]
		v >>= 4
	}
}

// parseHex is strict about case, and free of the allocation that
// strconv.ParseUint needs for a byte slice.
func parseHex(p []byte) (v uint64, ok bool) {
	for _, c := range p {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | uint64(c-'a'+10)
		default:
			return 0, false
		}
	}
	return v, true
}
