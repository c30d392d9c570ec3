package jsontext

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// spelling is a JSON value as a client may write it and as it is stored.
type spelling struct{ sent, stored string }

// values draws JSON values with free whitespace and unusual but valid
// spellings of numbers and strings.
func values(depth int) *rapid.Generator[spelling] {
	space := rapid.SampledFrom([]string{"", "", "", " ", "\n", "\t", "\r", "\r\n  ", " \t\r\n"})
	scalar := rapid.OneOf(
		rapid.SampledFrom([]string{"null", "true", "false", `""`, "0", "-0", "-0.0e-00", "1E+400", "1.50e3", "0.1000000000000000000000001"}),
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,5})?`),
		text(),
	)
	return rapid.Custom(func(t *rapid.T) spelling {
		kind := 0
		if depth > 0 {
			kind = rapid.IntRange(0, 2).Draw(t, "kind")
		}
		if kind == 0 {
			s := scalar.Draw(t, "scalar")
			return spelling{s, s}
		}
		object := kind == 2
		var sent, stored []string
		for range rapid.IntRange(0, 4).Draw(t, "elements") {
			var a, b string
			if object {
				name := text().Draw(t, "name")
				a = name + space.Draw(t, "ws") + ":" + space.Draw(t, "ws")
				b = name + ":"
			}
			v := values(depth-1).Draw(t, "value")
			sent = append(sent, space.Draw(t, "ws")+a+v.sent+space.Draw(t, "ws"))
			stored = append(stored, b+v.stored)
		}
		brackets := "[]"
		if object {
			brackets = "{}"
		}
		inner := strings.Join(sent, ",")
		if len(sent) == 0 {
			inner = space.Draw(t, "ws")
		}
		return spelling{brackets[:1] + inner + brackets[1:], brackets[:1] + strings.Join(stored, ",") + brackets[1:]}
	})
}

func text() *rapid.Generator[string] {
	pieces := rapid.SampledFrom([]string{
		"a", "longer than eight bytes", " ", "é", "€", "🌊", "\ufeff", "\u2028", "\u007f", `\"`, `\\`, `\/`, `\n`, `\u0000`, `\uD800`, `\udfff`,
		`\u00e9`, "{", "}", "[", "]", ":", ",", "//", "null",
	})
	return rapid.Custom(func(t *rapid.T) string {
		return `"` + strings.Join(rapid.SliceOfN(pieces, 0, 6).Draw(t, "text"), "") + `"`
	})
}

// What is stored is exactly the client's spelling without the whitespace, and
// decodes to the same value.
func TestStoredIsTheClientsSpelling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vs := rapid.SliceOfN(values(4), 1, 5).Draw(t, "messages")
		var sent []string
		var want strings.Builder
		for _, v := range vs {
			sent = append(sent, v.sent)
			want.WriteString(v.stored + "\n")
		}
		body := " [ " + strings.Join(sent, " , ") + " ]\n"
		if len(vs) == 1 && vs[0].sent[0] != '[' && rapid.Bool().Draw(t, "bare") {
			body = "\t" + vs[0].sent + "\r\n"
		}
		stored, n, err := AppendMessages(nil, []byte(body))
		if err != nil || n != len(vs) || string(stored) != want.String() {
			t.Fatalf("%q: stored %q as %d messages, %v, want %q", body, stored, n, err, want.String())
		}
		checkBody(t, []byte(body))
		var decoded []any
		for m := range bytes.Lines(stored) {
			decoded = append(decoded, decode(t, m))
		}
		value := decode(t, []byte(body))
		if array, ok := value.([]any); ok && body[0] == ' ' {
			value = array
		} else {
			value = []any{value}
		}
		if !reflect.DeepEqual(value, any(decoded)) {
			t.Fatalf("%q: decodes to %v, stored to %v", body, value, decoded)
		}
	})
}

func decode(t *rapid.T, b []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", b, err)
	}
	return v
}

// One byte changed anywhere: either both refuse the text, or both accept it and
// agree on what it says.
func TestDamagedBodies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := []byte(values(3).Draw(t, "body").sent)
		at := rapid.IntRange(0, len(body)-1).Draw(t, "at")
		switch rapid.IntRange(0, 2).Draw(t, "damage") {
		case 0:
			body[at] = rapid.Byte().Draw(t, "byte")
		case 1:
			body = append(body[:at], body[at+1:]...)
		case 2:
			body = append(body, body[at:]...)
		}
		checkBody(t, body)
	})
}
