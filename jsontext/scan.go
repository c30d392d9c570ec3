package jsontext

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// scanString returns the position after the string whose first byte after the
// opening quote is at i, or the position of its first fault.
func scanString(src []byte, i int) (int, Reason) {
	for {
		i = plainEnd(src, i)
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
		default:
			for i < len(src) && src[i] >= utf8.RuneSelf {
				_, size := utf8.DecodeRune(src[i:])
				if size == 1 {
					return i, InvalidUTF8
				}
				i += size
			}
		}
	}
}

// plainEnd returns the position of the first byte from i on that needs a
// closer look inside a string: a quote, a backslash, a control character or
// part of a longer UTF-8 sequence. Eight bytes are tested at a time: in each
// the top bit is set if the byte is special, or if a lower one is and the
// subtraction borrowed from it, so the lowest set bit is always right.
func plainEnd(src []byte, i int) int {
	const (
		ones = 0x0101010101010101
		tops = 0x80 * ones
	)
	for ; i+8 <= len(src); i += 8 {
		x := binary.LittleEndian.Uint64(src[i:])
		special := x | (x - ' '*ones) | (x ^ '"'*ones - ones) | (x ^ '\\'*ones - ones)
		if special &= tops; special != 0 {
			return i + bits.TrailingZeros64(special)/8
		}
	}
	for i < len(src) && src[i] >= ' ' && src[i] < utf8.RuneSelf && src[i] != '"' && src[i] != '\\' {
		i++
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

func digitsEnd(src []byte, i int) int {
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
