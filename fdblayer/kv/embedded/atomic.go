package embedded

import (
	"bytes"
	"encoding/binary"

	"headwater/fdblayer/kv"
)

// applyAtomic returns the value after op, where nil stands for an absent key
// both ways. The result may share memory with param and never with old. It has
// FoundationDB's semantics (fdbclient/Atomic.h): an absent value counts as
// param for Max and ByteMax, and Add and Max answer in the length of param.
func applyAtomic(op kv.AtomicOp, old, param []byte) []byte {
	switch op {
	case kv.Add:
		return addLittleEndian(old, param)
	case kv.Max:
		if old == nil {
			return param
		}
		return maxLittleEndian(old, param)
	case kv.ByteMax:
		if old == nil || bytes.Compare(param, old) >= 0 {
			return param
		}
		return clone(old)
	case kv.CompareAndClear:
		if old == nil || bytes.Equal(old, param) {
			return nil
		}
		return clone(old)
	}
	panic("embedded: not a read-modify-write operation")
}

func addLittleEndian(old, param []byte) []byte {
	if len(old) == 0 {
		return param
	}
	sum := make([]byte, len(param))
	carry := uint16(0)
	for i := range param {
		carry += uint16(param[i])
		if i < len(old) {
			carry += uint16(old[i])
		}
		sum[i] = byte(carry)
		carry >>= 8
	}
	return sum
}

// maxLittleEndian compares as unsigned integers. The part of old that is longer
// than param does not count.
func maxLittleEndian(old, param []byte) []byte {
	for i := len(param) - 1; i >= 0; i-- {
		var o byte
		if i < len(old) {
			o = old[i]
		}
		if o == param[i] {
			continue
		}
		if param[i] > o {
			return param
		}
		cut := make([]byte, len(param))
		copy(cut, old)
		return cut
	}
	return param
}

// clone copies b; unlike bytes.Clone it keeps an empty value apart from an
// absent one whatever capacity b has.
func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

// stampSuffix is the length of the little-endian offset that ends the operand
// of a versionstamped operation.
const stampSuffix = 4

// stampPlace returns where the versionstamp goes in b, which ends with that
// place; ok is false if it does not fit there.
func stampPlace(b []byte) (at int, ok bool) {
	n := len(b) - stampSuffix
	if n < kv.VersionstampLen {
		return 0, false
	}
	place := binary.LittleEndian.Uint32(b[n:])
	return int(place), uint64(place)+kv.VersionstampLen <= uint64(n)
}

// putStamp writes the versionstamp into b, which stampPlace accepted, and cuts
// the suffix off.
func putStamp(b []byte, stamp [kv.VersionstampLen]byte) []byte {
	at, _ := stampPlace(b)
	copy(b[at:], stamp[:])
	return b[:len(b)-stampSuffix]
}

func makeStamp(version int64, order uint16) (s [kv.VersionstampLen]byte) {
	binary.BigEndian.PutUint64(s[:], uint64(version))
	binary.BigEndian.PutUint16(s[8:], order)
	return s
}
