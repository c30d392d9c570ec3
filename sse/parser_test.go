package sse

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// event is what a parser dispatches.
type event struct{ name, data string }

// parse interprets an event stream exactly as the HTML standard says (section
// 9.2.6, "Interpreting an event stream"): decode as UTF-8 with U+FFFD for what
// is none, split at CRLF, LF or CR, dispatch at blank lines, drop what is left.
func parse(stream []byte) (events []event, comments int) {
	text := string(bytes.ToValidUTF8(stream, []byte("\ufffd")))
	text = strings.TrimPrefix(text, "\ufeff")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")

	var name string
	var data strings.Builder
	for {
		line, rest, whole := strings.Cut(text, "\n")
		if !whole {
			return events, comments
		}
		text = rest
		switch {
		case line == "":
			if data.Len() > 0 {
				e := event{name, strings.TrimSuffix(data.String(), "\n")}
				if e.name == "" {
					e.name = "message"
				}
				events = append(events, e)
			}
			name = ""
			data.Reset()
			continue
		case line[0] == ':':
			comments++
			continue
		}
		field, value, colon := strings.Cut(line, ":")
		if colon {
			value = strings.TrimPrefix(value, " ")
		}
		switch field {
		case "event":
			name = value
		case "data":
			data.WriteString(value)
			data.WriteByte('\n')
		}
	}
}

// carried is what of a text payload arrives: all of it, with LF for every kind
// of line end and U+FFFD for every byte that is not UTF-8.
func carried(payload []byte) string {
	s := strings.ReplaceAll(string(payload), "\r\n", "\n")
	s = strings.ReplaceAll(s, "\r", "\n")
	var b strings.Builder
	for _, r := range s {
		b.WriteRune(r)
	}
	if !utf8.ValidString(b.String()) {
		panic("not UTF-8")
	}
	return b.String()
}
