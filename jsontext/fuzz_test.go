package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// reference is the rule made of encoding/json, which differs from RFC 8259 and
// from the spec in three ways: it lets invalid UTF-8 pass in strings, it has a
// depth limit of 10,000 for the whole text, and it knows nothing of messages.
func reference(body []byte) (stored []byte, n int, ok bool) {
	if !json.Valid(body) || !utf8.Valid(body) {
		return nil, 0, false
	}
	var messages []json.RawMessage
	if text := bytes.TrimLeft(body, " \t\r\n"); text[0] != '[' {
		messages = append(messages, body)
	} else if json.Unmarshal(body, &messages) != nil {
		return nil, 0, false
	}
	var b bytes.Buffer
	for _, m := range messages {
		if levels(m) > MaxDepth || json.Compact(&b, m) != nil {
			return nil, 0, false
		}
		b.WriteByte('\n')
	}
	return b.Bytes(), len(messages), true
}

// levels is the depth of a valid JSON text.
func levels(text []byte) (deepest int) {
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return deepest
}

type failer interface {
	Helper()
	Fatalf(string, ...any)
}

// checkBody compares AppendMessages with the reference, and what it stores with
// what must hold of stored text.
func checkBody(t failer, body []byte) {
	t.Helper()
	want, wantN, valid := reference(body)
	before := []byte("before")
	got, n, err := AppendMessages(before, body)
	if !valid {
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Pos < 0 || syntax.Pos > len(body) || syntax.Reason == 0 {
			t.Fatalf("%q: error %v, want a SyntaxError", body, err)
		}
		if string(got) != "before" || n != 0 {
			t.Fatalf("%q: refused, but returned %q and %d", body, got, n)
		}
		checkFault(t, body, syntax)
		return
	}
	if err != nil {
		t.Fatalf("%q: %v, but encoding/json accepts it", body, err)
	}
	stored := got[len(before):]
	if string(got[:len(before)]) != "before" || !bytes.Equal(stored, want) || n != wantN {
		t.Fatalf("%q: stored %q as %d messages, want %q and %d", body, got, n, want, wantN)
	}
	checkStored(t, stored, n)
}

// checkFault checks the position of an error: the same fault is found there
// whatever follows, and what lies before it is not to blame.
func checkFault(t failer, body []byte, e *SyntaxError) {
	t.Helper()
	if (e.Pos == len(body)) != (e.Reason == Truncated || e.Reason == Empty) {
		t.Fatalf("%q: %v in a body of %d bytes", body, e, len(body))
	}
	var cut *SyntaxError
	_, _, err := AppendMessages(nil, body[:e.Pos])
	if !errors.As(err, &cut) {
		if err == nil && (e.Reason == TrailingData || e.Reason == InvalidNumber) {
			return // 1x and 01 are valid up to the fault
		}
		t.Fatalf("%q: %v, but without the rest: %v", body, e, err)
	}
	if cut.Pos != e.Pos || cut.Reason != Truncated && cut.Reason != Empty {
		t.Fatalf("%q: %v, but without the rest: %v", body, e, cut)
	}
}

// checkStored checks the invariants of stored text.
func checkStored(t failer, stored []byte, n int) {
	t.Helper()
	if CountMessages(stored) != n || LastBoundary(stored) != len(stored) || !utf8.Valid(stored) {
		t.Fatalf("%q is not the stored text of %d messages", stored, n)
	}
	for _, c := range stored {
		if c < ' ' && c != '\n' {
			t.Fatalf("%q holds the control character %#x", stored, c)
		}
	}
	var again []byte
	for m := range bytes.Lines(stored) {
		// A message that is an array is one message only inside a body.
		out, k, err := AppendMessages(again, append(append([]byte("["), m...), ']'))
		if err != nil || k != 1 {
			t.Fatalf("message %q again: %d messages, %v", m, k, err)
		}
		again = out
	}
	if !bytes.Equal(again, stored) {
		t.Fatalf("compacted again: %q, want %q", again, stored)
	}
	array := AppendArray([]byte("x"), stored)[1:]
	if again, k, err := AppendMessages(nil, array); err != nil || k != n || !bytes.Equal(again, stored) {
		t.Fatalf("the array %q makes %q, %d messages, %v, want %q", array, again, k, err, stored)
	}
}

func FuzzAppendMessages(f *testing.F) {
	for _, tc := range accepted {
		f.Add([]byte(tc.body))
	}
	for _, tc := range refused {
		if len(tc.body) < 4096 {
			f.Add([]byte(tc.body))
		}
	}
	for _, body := range benchBodies() {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) { checkBody(t, body) })
}

// FuzzPieces reads stored text that begins and ends anywhere.
func FuzzPieces(f *testing.F) {
	f.Add([]byte("1\n{\"a\":2}\n"), 1)
	f.Add([]byte(""), 0)
	f.Add([]byte("\n\n"), 3)
	f.Add([]byte("half"), 1)
	f.Add([]byte("a\nb"), -1)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		lines := bytes.SplitAfter(b, []byte{'\n'})
		ends := len(lines) - 1 // the last piece has no LF, or is empty
		if got := CountMessages(b); got != ends {
			t.Errorf("CountMessages(%q) = %d, want %d", b, got, ends)
		}
		if got, want := LastBoundary(b), len(b)-len(lines[ends]); got != want {
			t.Errorf("LastBoundary(%q) = %d, want %d", b, got, want)
		}
		want := 0
		for _, line := range lines[:min(max(n, 0), ends)] {
			want += len(line)
		}
		length, skipped := SkipMessages(b, n)
		if length != want || skipped != min(max(n, 0), ends) {
			t.Errorf("SkipMessages(%q, %d) = %d, %d, want %d", b, n, length, skipped, want)
		}
	})
}

// Every byte, at every place of the eight that are tested at once, in a string
// and in a number.
func TestEveryByteEverywhere(t *testing.T) {
	for b := range 256 {
		for n := range 18 {
			for _, fill := range []struct{ open, with, end string }{{`["`, "x", `"]`}, {"[1", "9", "]"}} {
				body := fill.open + strings.Repeat(fill.with, n) + string([]byte{byte(b)}) + strings.Repeat(fill.with, 17-n) + fill.end
				checkBody(t, []byte(body))
			}
		}
	}
}
