package frontend

import (
	"encoding/base64"
	"strings"

	"headwater/fdblayer"
)

// form is the representation of a read's bytes.
type form byte

const (
	// asStored is the stored bytes: NDJSON for a JSON stream.
	asStored form = 's'
	// asArray is a JSON stream's messages as one array.
	asArray form = 'a'
)

// etag returns the strong entity tag of a piece: what it holds (incarnation and
// range), whether it was the tail, whether it is the end, and its form. Each
// of these shows in the response, so none may be left out: a 304 would hide a
// closure, or that there is more now.
func etag(p *fdblayer.Piece, f form) string {
	raw := make([]byte, 0, 48)
	raw = append(raw, p.Stream.Incarnation[:]...)
	raw = append(raw, p.Start[:]...)
	raw = append(raw, p.Next[:]...)
	b := make([]byte, 0, 72)
	b = append(b, '"')
	b = base64.RawURLEncoding.AppendEncode(b, raw)
	b = append(b, ':', byte(f))
	if p.UpToDate {
		b = append(b, 'u')
	}
	if p.Closed {
		b = append(b, ":c"...)
	}
	return string(append(b, '"'))
}

// matches reports whether If-None-Match names the tag: a list of tags over one
// or more header lines, compared weakly as RFC 9110 13.1.2 wants, or an
// asterisk. What is no tag matches nothing.
func matches(ifNoneMatch []string, tag string) bool {
	for _, list := range ifNoneMatch {
		for list = strings.TrimLeft(list, " \t,"); list != ""; list = strings.TrimLeft(list, " \t,") {
			if list[0] == '*' {
				return true
			}
			list = strings.TrimPrefix(list, "W/")
			if list == "" || list[0] != '"' {
				break
			}
			end := strings.IndexByte(list[1:], '"')
			if end < 0 {
				break
			}
			if list[:end+2] == tag {
				return true
			}
			list = list[end+2:]
		}
	}
	return false
}
