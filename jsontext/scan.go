package jsontext

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// scanString returns the position after the string whose first byte after the
// opening quote is at i, or the position of its first fault.
//
// Eight bytes are tested at a time for what needs a closer look: a quote, a
// backslash, a control character or part of a longer UTF-8 sequence. The top
// bit of each byte of special is set if that byte is one of them, or if a lower
// one is and its subtraction borrowed; so the lowest set bit is always right.
func scanString(src []byte, i int) (int, Reason) {
	const (
		ones = 0x0101010101010101
		tops = 0x80 * ones
	)
	for {
		for i+8 <= len(src) {
			x := binary.LittleEndian.Uint64(src[i:])
			special := (x | (x - ' '*ones) | (x ^ '"'*ones - ones) | (x ^ '\\'*ones - ones)) & tops
			if special != 0 {
				i += bits.TrailingZeros64(special) / 8
				break
			}
			i += 8
		}
		if i >= len(src) {
			return len(src), Truncated
		}
		switch b := src[i]; {
		case b == '"':
			return i + 1, 0
		case b == '\\':
			end, reason := scanEscape(src, i)
			if reason != 0 {
				return end, reason
			}
			i = end
		case b < ' ':
			return i, ControlCharacter
		case b < utf8.RuneSelf: // in the last seven bytes of the body
			i++
		default:
			end := scanRunes(src, i)
			if end < len(src) && src[end] >= utf8.RuneSelf {
				return end, InvalidUTF8
			}
			i = end
		}
	}
}

// scanRunes returns the position after the characters from i on that are not
// ASCII. A byte that begins none stops it. The two- and three-byte characters
// that have no forbidden second bytes are decided here, which makes text of
// most scripts two times faster; the rest is left to the library.
func scanRunes(src []byte, i int) int {
	for i+2 < len(src) {
		a, b, c := src[i], src[i+1], src[i+2]
		switch {
		case a < utf8.RuneSelf:
			return i
		case a&0xf0 == 0xe0 && a != 0xe0 && a != 0xed && b&0xc0 == 0x80 && c&0xc0 == 0x80:
			i += 3
		case a >= 0xc2 && a < 0xe0 && b&0xc0 == 0x80:
			i += 2
		default:
			_, size := utf8.DecodeRune(src[i:])
			if size == 1 {
				return i
			}
			i += size
		}
	}
	for i < len(src) && src[i] >= utf8.RuneSelf {
		_, size := utf8.DecodeRune(src[i:])
		if size == 1 {
			break
		}
		i += size
	}
	return i
}

// scanEscape returns the position after the escape whose backslash is at i. A
// surrogate need not have a partner: the spec allows lone ones.
func scanEscape(src []byte, i int) (int, Reason) {
	i++
	switch at(src, i) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1, 0
	case 'u':
		for j := i + 1; j < i+5; j++ {
			if j >= len(src) {
				return j, Truncated
			}
			if b := src[j] | 0x20; !isDigit(src[j]) && (b < 'a' || b > 'f') {
				return j, InvalidEscape
			}
		}
		return i + 5, 0
	}
	if i >= len(src) {
		return i, Truncated
	}
	return i, InvalidEscape
}

func isDigit(b byte) bool { return b-'0' <= 9 }

// scanNumber returns the position after the number that begins at i. What may
// follow a number is the caller's to check, except that a digit after a
// leading zero is refused here, for the better message.
func scanNumber(src []byte, i int) (int, Reason) {
	if src[i] == '-' {
		i++
	}
	switch {
	case at(src, i) == '0':
		i++
		if isDigit(at(src, i)) {
			return i, InvalidNumber
		}
	case isDigit(at(src, i)):
		i = digitsEnd(src, i)
	default:
		return i, numberFault(src, i)
	}
	if at(src, i) == '.' {
		i++
		if !isDigit(at(src, i)) {
			return i, numberFault(src, i)
		}
		i = digitsEnd(src, i)
	}
	if at(src, i)|0x20 == 'e' {
		i++
		if b := at(src, i); b == '+' || b == '-' {
			i++
		}
		if !isDigit(at(src, i)) {
			return i, numberFault(src, i)
		}
		i = digitsEnd(src, i)
	}
	return i, 0
}

// digitsEnd returns the position after the digits from i on. The trick is that
// of scanString; here it saves the branch that is mispredicted at the end of
// every number.
func digitsEnd(src []byte, i int) int {
	const ones = 0x0101010101010101
	for ; i+8 <= len(src); i += 8 {
		x := binary.LittleEndian.Uint64(src[i:]) ^ '0'*ones
		if other := (x | (x + (0x80-10)*ones)) & (0x80 * ones); other != 0 {
			return i + bits.TrailingZeros64(other)/8
		}
	}
	for i < len(src) && isDigit(src[i]) {
		i++
	}
	return i
}

func numberFault(src []byte, i int) Reason {
	if i >= len(src) {
		return Truncated
	}
	return InvalidNumber
}
