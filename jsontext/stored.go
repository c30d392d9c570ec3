package jsontext

import "bytes"

// AppendArray appends the messages of stored as one JSON array: their text
// unchanged, each LF but the last turned into a comma. stored must end on a
// message boundary; without any message the array is empty.
func AppendArray(dst, stored []byte) []byte {
	dst = append(dst, '[')
	begin := len(dst)
	dst = append(dst, stored...)
	if len(stored) == 0 {
		return append(dst, ']')
	}
	text := dst[begin : len(dst)-1]
	for {
		i := bytes.IndexByte(text, '\n')
		if i < 0 {
			break
		}
		text[i] = ','
		text = text[i+1:]
	}
	dst[len(dst)-1] = ']'
	return dst
}

// LastBoundary returns the length of the longest prefix of stored text that
// ends on a message boundary; zero if no message ends in it.
func LastBoundary(b []byte) int { return bytes.LastIndexByte(b, '\n') + 1 }

// CountMessages returns how many messages end in a piece of stored text.
func CountMessages(b []byte) int { return bytes.Count(b, []byte{'\n'}) }

// SkipMessages returns the length of the first n messages of stored text. Where
// fewer than n end in b, it is that of those, and skipped says how many.
func SkipMessages(b []byte, n int) (length, skipped int) {
	for skipped < n {
		i := bytes.IndexByte(b[length:], '\n')
		if i < 0 {
			break
		}
		length += i + 1
		skipped++
	}
	return length, skipped
}
