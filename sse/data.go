package sse

import (
	"bytes"
	"encoding/base64"
	"unicode/utf8"

	"headwater/jsontext"
)

const dataEvent = "event: data\n"

// AppendData appends a data event that carries text: the bytes of a text
// stream, or stored JSON messages as NDJSON, whose last LF makes a last, empty
// data line. A client that joins the lines with LF has the payload again.
//
// The payload should not end inside a UTF-8 character ([WholeRunes] cuts it),
// since the halves would arrive as U+FFFD, nor between CR and LF, which would
// arrive as two line ends.
func AppendData(dst, payload []byte) []byte {
	return append(appendLines(append(dst, dataEvent...), payload), '\n')
}

// AppendJSONArray appends a data event that carries stored JSON messages as
// one JSON array on one line. stored must end on a message boundary.
func AppendJSONArray(dst, stored []byte) []byte {
	dst = append(dst, dataEvent+"data:"...)
	begin := len(dst)
	dst = jsontext.AppendArray(dst, stored)
	// Stored text holds no CR. One search makes sure that a damaged record
	// can't end the line; outside strings, where JSON allows it, a space is
	// the same.
	for line := dst[begin:]; ; {
		i := bytes.IndexByte(line, '\r')
		if i < 0 {
			return append(dst, "\n\n"...)
		}
		line[i] = ' '
		line = line[i+1:]
	}
}

// AppendBase64 appends a data event that carries bytes in standard base64, on
// one line: splitting it is allowed, but some clients forget to join.
func AppendBase64(dst, payload []byte) []byte {
	dst = append(dst, dataEvent+"data:"...)
	return append(base64.StdEncoding.AppendEncode(dst, payload), "\n\n"...)
}

// appendLines appends payload as data lines.
func appendLines(dst, payload []byte) []byte {
	valid := utf8.Valid(payload)
	// Each of the two is looked for once past where it was found, so that a
	// payload without any CR is searched once for it and not once a line.
	cr, lf := -1, -1
	for start := 0; ; {
		cr, lf = next(payload, start, cr, '\r'), next(payload, start, lf, '\n')
		end := min(cr, lf)
		dst = appendLine(dst, payload[start:end], valid)
		if end == len(payload) {
			return dst
		}
		start = end + 1
		if end == cr && start == lf && lf < len(payload) {
			start++
		}
	}
}

// next returns the position of the first c in b from start on, len(b) if there
// is none. last is what it returned before, for an earlier start.
func next(b []byte, start, last int, c byte) int {
	if last >= start {
		return last
	}
	if i := bytes.IndexByte(b[start:], c); i >= 0 {
		return start + i
	}
	return len(b)
}

func appendLine(dst, line []byte, valid bool) []byte {
	dst = append(dst, "data:"...)
	if len(line) > 0 && line[0] == ' ' {
		dst = append(dst, ' ')
	}
	if valid {
		dst = append(dst, line...)
	} else {
		dst = appendValid(dst, line)
	}
	return append(dst, '\n')
}

// appendValid appends b with each byte that is no part of a UTF-8 character
// replaced by U+FFFD. Left to the client, a sequence cut short could make a
// lax decoder swallow the line end after it.
func appendValid(dst, b []byte) []byte {
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		dst = utf8.AppendRune(dst, r)
		b = b[size:]
	}
	return dst
}

// WholeRunes returns the length of the longest prefix of b that does not end
// inside a UTF-8 character. Bytes that can't become a character, whatever
// follows, are not held back, so that any four bytes have such a prefix of at
// least one.
func WholeRunes(b []byte) int {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}
