package sse

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"headwater/jsontext"
)

// The exact bytes: clients and the public conformance suite read them with
// regular expressions, not only with parsers.
func TestFrames(t *testing.T) {
	for _, tc := range []struct{ name, got, want string }{
		{"text", string(AppendData(nil, []byte("hello"))), "event: data\ndata:hello\n\n"},
		{"lines", string(AppendData(nil, []byte("line1\nline2\r\nline3\rline4"))), "event: data\ndata:line1\ndata:line2\ndata:line3\ndata:line4\n\n"},
		{"empty", string(AppendData(nil, nil)), "event: data\ndata:\n\n"},
		{"NDJSON", string(AppendData(nil, []byte("{\"a\":1}\n2\n"))), "event: data\ndata:{\"a\":1}\ndata:2\ndata:\n\n"},
		{"leading space", string(AppendData(nil, []byte(" a\n  b\n\tc"))), "event: data\ndata:  a\ndata:   b\ndata:\tc\n\n"},
		{"only line ends", string(AppendData(nil, []byte("\n\r\r\n\n\r"))), "event: data\ndata:\ndata:\ndata:\ndata:\ndata:\ndata:\n\n"},
		{"injection", string(AppendData(nil, []byte("x\r\n\r\nevent: control\r\ndata: {}\r\n\r\n"))),
			"event: data\ndata:x\ndata:\ndata:event: control\ndata:data: {}\ndata:\ndata:\n\n"},
		{"NUL", string(AppendData(nil, []byte("a\x00b"))), "event: data\ndata:a\x00b\n\n"},
		{"not UTF-8", string(AppendData(nil, []byte("a\xff\xe2\x82\nb"))), "event: data\ndata:a\ufffd\ufffd\ufffd\ndata:b\n\n"},
		{"array", string(AppendJSONArray(nil, []byte("{\"a\":1}\n\"b\"\n"))), "event: data\ndata:[{\"a\":1},\"b\"]\n\n"},
		{"empty array", string(AppendJSONArray(nil, nil)), "event: data\ndata:[]\n\n"},
		{"damaged array", string(AppendJSONArray(nil, []byte("1\r\r2\n"))), "event: data\ndata:[1  2]\n\n"},
		{"base64", string(AppendBase64(nil, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})), "event: data\ndata:AQIDBAUGBwgJCg==\n\n"},
		{"empty base64", string(AppendBase64(nil, nil)), "event: data\ndata:\n\n"},
		{"control", string(AppendControl(nil, Control{NextOffset: "00ff", Cursor: "17"})),
			"event: control\ndata:{\"streamNextOffset\":\"00ff\",\"streamCursor\":\"17\"}\n\n"},
		{"control with all", string(AppendControl(nil, Control{"00ff", "17", true, true})),
			"event: control\ndata:{\"streamNextOffset\":\"00ff\",\"streamCursor\":\"17\",\"upToDate\":true,\"streamClosed\":true}\n\n"},
		{"control at the end", string(AppendControl(nil, Control{NextOffset: "00ff", Closed: true})),
			"event: control\ndata:{\"streamNextOffset\":\"00ff\",\"streamClosed\":true}\n\n"},
		{"error", string(AppendError(nil, "stream_not_found", "the stream was \"deleted\"\r\n")),
			"event: error\ndata:{\"code\":\"stream_not_found\",\"detail\":\"the stream was \\\"deleted\\\"\\u000d\\u000a\"}\n\n"},
		{"comment", string(AppendComment(nil)), ": keep-alive\n\n"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s:\n%q, want\n%q", tc.name, tc.got, tc.want)
		}
	}
}

// hostile draws text made of what the framing is made of.
func hostile() *rapid.Generator[[]byte] {
	pieces := rapid.SampledFrom([]string{
		"\r", "\n", "\r\n", "\n\n", " ", "  ", "\t", ":", "\x00", "event: control\n", "data:", "data: ", "id:1", "retry:1\n",
		"\ufeff", "\u0085", "\u2028", "é", "€", "🌊", "\xff", "\xc3", "\xe2\x82", "\xf0\x9f\x8c", "\x80", "a", "text", "{", "\"",
	})
	return rapid.Custom(func(t *rapid.T) []byte {
		return []byte(strings.Join(rapid.SliceOfN(pieces, 0, 20).Draw(t, "pieces"), ""))
	})
}

// wantEvents fails unless stream parses as exactly those events.
func wantEvents(t interface {
	Helper()
	Fatalf(string, ...any)
}, stream []byte, want ...event) {
	t.Helper()
	got, _ := parse(stream)
	if len(got) != len(want) {
		t.Fatalf("%q: %d events %q, want %d", stream, len(got), got, len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%q: event %d is %q, want %q", stream, i, got[i], want[i])
		}
	}
}

// Any sequence of frames comes back as the same sequence of events.
func TestFramesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream []byte
		var want []event
		comments := 0
		for range rapid.IntRange(1, 8).Draw(t, "frames") {
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				p := hostile().Draw(t, "payload")
				stream = AppendData(stream, p)
				want = append(want, event{"data", carried(p)})
			case 1:
				p := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
				stream = AppendBase64(stream, p)
				want = append(want, event{"data", base64.StdEncoding.EncodeToString(p)})
			case 2:
				stored, array := storedJSON(t)
				stream = AppendJSONArray(stream, stored)
				want = append(want, event{"data", array})
			case 3:
				c := Control{
					NextOffset: string(hostile().Draw(t, "offset")), Cursor: string(hostile().Draw(t, "cursor")),
					UpToDate: rapid.Bool().Draw(t, "upToDate"), Closed: rapid.Bool().Draw(t, "closed"),
				}
				stream = AppendControl(stream, c)
				want = append(want, event{"control", controlJSON(t, c)})
			case 4:
				code, detail := string(hostile().Draw(t, "code")), string(hostile().Draw(t, "detail"))
				stream = AppendError(stream, code, detail)
				want = append(want, event{"error", ""})
				checkError(t, stream, code, detail)
				got, _ := parse(stream)
				want[len(want)-1].data = got[len(got)-1].data
			case 5:
				stream = AppendComment(stream)
				comments++
			}
		}
		wantEvents(t, stream, want...)
		if _, n := parse(stream); n != comments {
			t.Fatalf("%d comments, want %d", n, comments)
		}
		if !utf8.Valid(stream) {
			t.Fatalf("%q is not UTF-8", stream)
		}
	})
}

func storedJSON(t *rapid.T) (stored []byte, array string) {
	texts := rapid.SliceOf(rapid.Custom(func(t *rapid.T) string {
		b, err := json.Marshal(map[string]any{string(hostile().Draw(t, "name")): string(hostile().Draw(t, "value"))})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	})).Draw(t, "messages")
	array = "[" + strings.Join(texts, ",") + "]"
	stored, _, err := jsontext.AppendMessages(nil, []byte(array))
	if err != nil {
		t.Fatal(err)
	}
	return stored, array
}

// controlJSON is the data of a control event as the only line of the frame,
// after checking that it means c.
func controlJSON(t *rapid.T, c Control) string {
	frame := string(AppendControl(nil, c))
	line := strings.TrimSuffix(strings.TrimPrefix(frame, "event: control\ndata:"), "\n\n")
	if strings.ContainsAny(line, "\r\n") {
		t.Fatalf("%q is more than one line", line)
	}
	var got struct {
		StreamNextOffset, StreamCursor string
		UpToDate, StreamClosed         bool
	}
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	want := Control{valid(c.NextOffset), valid(c.Cursor), c.UpToDate, c.Closed}
	if (Control{got.StreamNextOffset, got.StreamCursor, got.UpToDate, got.StreamClosed}) != want {
		t.Fatalf("%q, want %+v", line, want)
	}
	return line
}

func checkError(t *rapid.T, stream []byte, code, detail string) {
	events, _ := parse(stream)
	var got struct{ Code, Detail string }
	if err := json.Unmarshal([]byte(events[len(events)-1].data), &got); err != nil {
		t.Fatal(err)
	}
	if got.Code != valid(code) || got.Detail != valid(detail) {
		t.Fatalf("error event %+v, want %q and %q", got, code, detail)
	}
}

func valid(s string) string { return string([]rune(s)) }

// A stream cut into pieces anywhere, each piece shortened by WholeRunes as a
// reader does it, arrives complete.
func TestPiecesOfRunes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"a", "é", "€", "🌊", "\n", " "})).Draw(t, "text"), "")
		limit := rapid.IntRange(4, 9).Draw(t, "limit")
		var got strings.Builder
		for rest := []byte(text); len(rest) > 0; {
			n := WholeRunes(rest[:min(limit, len(rest))])
			if n == 0 {
				t.Fatalf("nothing of %q", rest)
			}
			events, _ := parse(AppendData(nil, rest[:n]))
			got.WriteString(events[0].data)
			rest = rest[n:]
		}
		if got.String() != text {
			t.Fatalf("%q, want %q", got.String(), text)
		}
	})
}

func TestWholeRunes(t *testing.T) {
	for _, tc := range []struct {
		b    string
		want int
	}{
		{"", 0}, {"a", 1}, {"é", 2}, {"\xc3", 0}, {"a\xc3", 1}, {"€", 3}, {"\xe2\x82", 0}, {"a\xe2", 1},
		{"🌊", 4}, {"\xf0\x9f\x8c", 0}, {"🌊\xf0", 4},
		// These can't become characters, so holding them back would be for ever.
		{"\xff", 1}, {"\x80", 1}, {"\x80\x80\x80\x80\x80", 5}, {"\xc0", 1}, {"\xe2\x28", 2}, {"\xed\xa0", 2}, {"\xf4\x90", 2}, {"a\xf8", 2},
	} {
		if got := WholeRunes([]byte(tc.b)); got != tc.want {
			t.Errorf("WholeRunes(%q) = %d, want %d", tc.b, got, tc.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 4, 12).Draw(t, "b")
		if n := WholeRunes(b); n < len(b)-3 || n > len(b) {
			t.Fatalf("WholeRunes(%q) = %d", b, n)
		}
	})
}

func TestNoAllocation(t *testing.T) {
	payload := []byte("line one\r\n line two\xff\nline three")
	stored := []byte("{\"a\":1}\n[2]\n")
	dst := make([]byte, 0, 1024)
	for name, f := range map[string]func(){
		"data":    func() { AppendData(dst, payload) },
		"array":   func() { AppendJSONArray(dst, stored) },
		"base64":  func() { AppendBase64(dst, payload) },
		"control": func() { AppendControl(dst, Control{"00ff", "17", true, true}) },
		"error":   func() { AppendError(dst, "code", "detail") },
		"comment": func() { AppendComment(dst) },
	} {
		if n := testing.AllocsPerRun(10, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func FuzzAppendData(f *testing.F) {
	for _, s := range []string{"", "a", "a\nb", "\r\n\r\n", " a", "event: control\ndata: {}\n\n", "\x00", "\xff\n", "\ufeffa", "é\xe2\x82", "\r \n :x"} {
		f.Add([]byte(s), []byte("next"))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		stream := AppendData(AppendData(nil, a), b)
		wantEvents(t, stream, event{"data", carried(a)}, event{"data", carried(b)})
	})
}

func FuzzAppendControl(f *testing.F) {
	f.Add("00ff", "17", true, false)
	f.Add("\n\nevent: data\ndata:x\n\n", "\"\\\x7f\u2028\xff", false, true)
	f.Fuzz(func(t *testing.T, offset, cursor string, upToDate, closed bool) {
		stream := AppendControl(nil, Control{offset, cursor, upToDate, closed})
		events, _ := parse(AppendData(stream, nil))
		if len(events) != 2 || events[0].name != "control" {
			t.Fatalf("%q: %q", stream, events)
		}
		var got struct{ StreamNextOffset, StreamCursor string }
		if err := json.Unmarshal([]byte(events[0].data), &got); err != nil {
			t.Fatal(err)
		}
		if got.StreamNextOffset != valid(offset) || got.StreamCursor != valid(cursor) {
			t.Fatalf("%q: %+v", stream, got)
		}
	})
}

// FuzzAppendJSONArray feeds it what is not stored text: whatever it is, it
// stays one event.
func FuzzAppendJSONArray(f *testing.F) {
	for _, s := range []string{"", "1\n", "{\"a\":1}\n[2]\n", "\r\n\r\nevent: control\n", "\n", "\r", "\n\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stored []byte) {
		stream := AppendData(AppendJSONArray(nil, stored), []byte("next"))
		events, _ := parse(stream)
		if len(events) != 2 || events[0].name != "data" || events[1] != (event{"data", "next"}) {
			t.Fatalf("%q: %q", stream, events)
		}
	})
}

func BenchmarkFrames(b *testing.B) {
	text := []byte(strings.Repeat("The quick brown fox jumps over the lazy dog.\n", 23))
	stored := []byte(strings.Repeat(`{"type":"insert","key":"session:4f1c9a","value":{"id":18273}}`+"\n", 17))
	dst := make([]byte, 0, 4096)
	for _, bc := range []struct {
		name    string
		payload []byte
		f       func([]byte)
	}{
		{"text", text, func(p []byte) { AppendData(dst, p) }},
		{"ndjson", stored, func(p []byte) { AppendData(dst, p) }},
		{"array", stored, func(p []byte) { AppendJSONArray(dst, p) }},
		{"base64", text, func(p []byte) { AppendBase64(dst, p) }},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.SetBytes(int64(len(bc.payload)))
			b.ReportAllocs()
			for b.Loop() {
				bc.f(bc.payload)
			}
		})
	}
}
