package sse

import "unicode/utf8"

// Control is the payload of a control event, which follows every data event.
type Control struct {
	// NextOffset is the offset after everything sent so far.
	NextOffset string
	// Cursor is left out if empty; it may be so only where Closed is set.
	Cursor string
	// UpToDate says that NextOffset was the tail.
	UpToDate bool
	// Closed says that the tail will stay there. The response ends after it.
	Closed bool
}

// AppendControl appends a control event: one flat JSON object on one line, its
// members in the order of the fields, without those that are empty or false.
func AppendControl(dst []byte, c Control) []byte {
	dst = append(dst, "event: control\ndata:{\"streamNextOffset\":"...)
	dst = appendString(dst, c.NextOffset)
	if c.Cursor != "" {
		dst = appendString(append(dst, `,"streamCursor":`...), c.Cursor)
	}
	if c.UpToDate {
		dst = append(dst, `,"upToDate":true`...)
	}
	if c.Closed {
		dst = append(dst, `,"streamClosed":true`...)
	}
	return append(dst, "}\n\n"...)
}

// AppendError appends an error event, after which the response ends: the
// status has been sent, so this is the only way left to say why (extensions
// 2.4). The members are named as in the problem bodies of other responses: code
// is for programs, detail for people.
func AppendError(dst []byte, code, detail string) []byte {
	dst = appendString(append(dst, "event: error\ndata:{\"code\":"...), code)
	dst = appendString(append(dst, `,"detail":`...), detail)
	return append(dst, "}\n\n"...)
}

// AppendComment appends a comment, which parsers skip: it keeps proxies from
// cutting an idle connection, and finds out whether the client is still there.
func AppendComment(dst []byte) []byte { return append(dst, ": keep-alive\n\n"...) }

// appendString appends s as a JSON string. Control characters are escaped, so
// it is always one line.
func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < ' ' || r == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}
