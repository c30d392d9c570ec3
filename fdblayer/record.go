package fdblayer

import (
	"bytes"
	"encoding/binary"

	"headwater/keys"
)

// maxRecord is the most bytes of a stream one record holds. Well below the
// 100 kB limit of a value, large enough that reads are dominated by bytes.
const maxRecord = 64 << 10

// The first byte of a record's value.
const (
	recordInline = 0
	recordBlob   = 1 // the bytes are in blob chunks; the value names them
	recordKind   = 1
	// recordMidMessage marks a record of a JSON stream that begins inside a
	// message, so that a reader at its start need not look at the one before.
	recordMidMessage = 2
)

// blobRef names a staged body.
type blobRef struct {
	id   keys.BlobID
	size uint32
}

// record is one decoded row of the log.
type record struct {
	end        keys.Offset // its count is the record's length
	inline     []byte      // nil for a blob
	blob       *blobRef
	midMessage bool
}

func encodeBlobRecord(ref blobRef) []byte {
	b := append(make([]byte, 0, 21), recordBlob)
	b = append(b, ref.id[:]...)
	return binary.BigEndian.AppendUint32(b, ref.size)
}

func decodeRecord(end keys.Offset, value []byte) (record, error) {
	r := record{end: end}
	if len(value) == 0 {
		return r, errCorrupt
	}
	r.midMessage = value[0]&recordMidMessage != 0
	rest := value[1:]
	if value[0]&recordKind == recordInline {
		if uint32(len(rest)) != end.Count() {
			return r, errCorrupt
		}
		r.inline = rest
		return r, nil
	}
	if len(rest) != 20 || binary.BigEndian.Uint32(rest[16:]) != end.Count() {
		return r, errCorrupt
	}
	r.blob = &blobRef{id: keys.BlobID(rest), size: end.Count()}
	return r, nil
}

// packer lays the bodies of one batch out as the records of one stream. Whole
// bodies share a record while they fit; a body that is larger than a record is
// split, after a message where one ends in reach.
type packer struct {
	json    bool
	records []packed
	open    []byte // the value being filled: its kind byte, then bodies
	openMid bool   // it begins inside a message
}

type packed struct {
	value  []byte
	length uint32
	staged *keys.BlobID
}

// firstRecord is the room a record begins with: most batches are small.
const firstRecord = 2 << 10

// length is how many bytes of the stream the open record holds.
func (p *packer) length() int { return max(len(p.open)-1, 0) }

func (p *packer) put(body []byte) {
	if p.open == nil {
		kind := byte(recordInline)
		if p.openMid {
			kind |= recordMidMessage
		}
		p.open = append(make([]byte, 0, max(1+len(body), firstRecord)), kind)
	}
	p.open = append(p.open, body...)
}

// add lays out body and returns the order and count of its end. The
// versionstamp is the transaction's.
func (p *packer) add(body []byte) (order uint16, count uint32) {
	if p.length()+len(body) > maxRecord {
		p.flush(false)
		for len(body) > maxRecord {
			n := maxRecord
			if p.json {
				if i := bytes.LastIndexByte(body[:n], '\n'); i >= 0 {
					n = i + 1
				}
			}
			p.put(body[:n])
			p.flush(p.json && body[n-1] != '\n')
			body = body[n:]
		}
	}
	p.put(body)
	return uint16(len(p.records)), uint32(p.length())
}

// addBlob lays out a staged body as a record of its own.
func (p *packer) addBlob(ref blobRef) (order uint16, count uint32) {
	p.flush(false)
	p.records = append(p.records, packed{encodeBlobRecord(ref), ref.size, &ref.id})
	return uint16(len(p.records) - 1), ref.size
}

func (p *packer) flush(nextMid bool) {
	if n := p.length(); n > 0 {
		p.records = append(p.records, packed{p.open, uint32(n), nil})
	}
	p.open, p.openMid = nil, nextMid
}

// done returns the finished records.
func (p *packer) done() []packed {
	p.flush(false)
	return p.records
}
