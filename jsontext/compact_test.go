package jsontext

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// accepted are bodies and what is stored of them. Each is also compacted a
// second time, with whitespace put wherever it may stand, and wrapped in an
// array.
var accepted = []struct{ name, body, stored string }{
	{"number text", `1.50e3`, "1.50e3\n"},
	{"number beyond float64", `1e400`, "1e400\n"},
	{"minus zero", `-0`, "-0\n"},
	{"every part of a number", `-0.010E+05`, "-0.010E+05\n"},
	{"negative exponent", `1e-1`, "1e-1\n"},
	{"zero exponent", `0e00`, "0e00\n"},
	{"long integer", `123456789012345678901234567890`, "123456789012345678901234567890\n"},
	{"lone high surrogate", `"\ud800"`, "\"\\ud800\"\n"},
	{"lone low surrogate", `"\uDFFF"`, "\"\\uDFFF\"\n"},
	{"surrogates the wrong way round", `"\udc00\ud800"`, "\"\\udc00\\ud800\"\n"},
	{"surrogate pair", `"\ud83c\udf0a"`, "\"\\ud83c\\udf0a\"\n"},
	{"escaped NUL", `"\u0000"`, "\"\\u0000\"\n"},
	{"escapes keep their spelling", `"\u0061\/\b\f\n\r\t\"\\\u00E9"`, `"\u0061\/\b\f\n\r\t\"\\\u00E9"` + "\n"},
	{"duplicate names", `{"a":1,"a":2,"a":1}`, `{"a":1,"a":2,"a":1}` + "\n"},
	{"member order", `{"b":1,"a":2}`, `{"b":1,"a":2}` + "\n"},
	{"empty name", `{"":0}`, `{"":0}` + "\n"},
	{"all four kinds of whitespace", " \t\r\n{ \t\r\n\"a\" \t\r\n: \t\r\n[ \t\r\n1 \t\r\n, \t\r\n2 \t\r\n] \t\r\n} \t\r\n", `{"a":[1,2]}` + "\n"},
	{"whitespace in strings", `{ " a b " : "  c  " }`, `{" a b ":"  c  "}` + "\n"},
	{"whitespace in empty containers", "{ \"a\" : { } , \"b\" : [ \n ] }", `{"a":{},"b":[]}` + "\n"},
	{"structure inside strings", `{"a": "[1, 2]", "b" : "\" , \\"}`, `{"a":"[1, 2]","b":"\" , \\"}` + "\n"},
	{"string of 7, 8 and 9 bytes", `["1234567","12345678","123456789"]`, "\"1234567\"\n\"12345678\"\n\"123456789\"\n"},
	{"UTF-8 of every length", `"é€🌊"`, "\"é€🌊\"\n"},
	{"UTF-8 limits", "\"\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff\"", "\"\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff\"\n"},
	{"characters that are special elsewhere", "\"\u007f\u0085\u2028\u2029\ufeff<>&\"", "\"\u007f\u0085\u2028\u2029\ufeff<>&\"\n"},
	{"null", `null`, "null\n"},
	{"true", ` true `, "true\n"},
	{"false", "false\n", "false\n"},
	{"empty string", `""`, "\"\"\n"},
	{"empty object", `{}`, "{}\n"},
	{"array of scalars", `[1, "2", null, true, false]`, "1\n\"2\"\nnull\ntrue\nfalse\n"},
	{"flattened once", `[[1,2],[3]]`, "[1,2]\n[3]\n"},
	{"empty array as message", `[[]]`, "[]\n"},
	{"empty object as message", `[{}]`, "{}\n"},
	{"deeper empty arrays", ` [ [ [ ] ] , [ ] ] `, "[[]]\n[]\n"},
	{"array is stored whole inside an object", `{"a":[[1],[2]]}`, `{"a":[[1],[2]]}` + "\n"},
	{"127 arrays in an array body", "[" + nested("[", 127, "", "]") + "]", nested("[", 127, "", "]") + "\n"},
	{"127 arrays around a scalar in an array body", "[" + nested("[", 127, "1", "]") + "]", nested("[", 127, "1", "]") + "\n"},
	{"127 objects", nested(`{"a":`, 126, "{}", "}"), nested(`{"a":`, 126, "{}", "}") + "\n"},
	{"127 objects around a scalar", nested(`{"a":`, 127, "1", "}"), nested(`{"a":`, 127, "1", "}") + "\n"},
	{"127 levels twice", "[" + nested("[", 127, "", "]") + "," + nested("[", 127, "", "]") + "]", nested("[", 127, "", "]") + "\n" + nested("[", 127, "", "]") + "\n"},
}

func nested(open string, n int, inner, end string) string {
	return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
}

// spaced puts whitespace around every structural character of compact JSON.
func spaced(text string) string {
	var b strings.Builder
	inString := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case inString && c == '\\':
			b.WriteByte(c)
			i++
			b.WriteByte(text[i])
			continue
		case c == '"':
			inString = !inString
		case !inString && strings.IndexByte("[]{},:", c) >= 0:
			b.WriteString(" \n" + string(c) + "\r\t")
			continue
		}
		b.WriteByte(c)
	}
	return " " + b.String() + "\n"
}

func TestAccepted(t *testing.T) {
	for _, tc := range accepted {
		t.Run(tc.name, func(t *testing.T) {
			check := func(what, body string) {
				t.Helper()
				before := "untouched"
				out, n, err := AppendMessages([]byte(before), []byte(body))
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if got := string(out); got != before+tc.stored {
					t.Errorf("%s: stored %q, want %q", what, got, before+tc.stored)
				}
				if want := strings.Count(tc.stored, "\n"); n != want {
					t.Errorf("%s: %d messages, want %d", what, n, want)
				}
			}
			check("as sent", tc.body)
			array := string(AppendArray(nil, []byte(tc.stored)))
			check("as an array", array)
			check("as a spaced array", spaced(array))
		})
	}
}

func TestEmptyArrayIsNoMessage(t *testing.T) {
	for _, body := range []string{`[]`, " [ \n ] \t"} {
		out, n, err := AppendMessages([]byte("x"), []byte(body))
		if err != nil || n != 0 || string(out) != "x" {
			t.Errorf("%q: %q, %d, %v", body, out, n, err)
		}
	}
}

// refused are bodies and where and why they are refused.
var refused = []struct {
	name, body string
	pos        int
	reason     Reason
}{
	{"empty", ``, 0, Empty},
	{"only whitespace", " \t\r\n", 4, Empty},
	{"byte order mark", "\ufeff{}", 0, UnexpectedByte},
	{"byte order mark before array", "\ufeff[]", 0, UnexpectedByte},
	{"UTF-16", "\"\x00a\x00\"\x00", 1, ControlCharacter},
	{"UTF-16 with a mark", "\xff\xfe\"\x00", 0, UnexpectedByte},
	{"NUL", "\x00", 0, UnexpectedByte},
	{"NUL after a value", "1\x00", 1, TrailingData},
	{"NUL in array", "[1\x00]", 2, UnexpectedByte},
	{"NUL for a bracket", "[1,2\x00", 4, UnexpectedByte},
	{"NUL after a bracket", "[\x00", 1, UnexpectedByte},
	{"NUL for a colon", "{\"a\"\x00", 4, UnexpectedByte},

	{"bare word", `hello`, 0, UnexpectedByte},
	{"NaN", `NaN`, 0, UnexpectedByte},
	{"NaN inside", `{"a":NaN}`, 5, UnexpectedByte},
	{"nan", `nan`, 1, UnexpectedByte},
	{"Infinity", `Infinity`, 0, UnexpectedByte},
	{"minus Infinity", `-Infinity`, 1, InvalidNumber},
	{"undefined", `undefined`, 0, UnexpectedByte},
	{"capital literal", `True`, 0, UnexpectedByte},
	{"literal with another case", `nulL`, 3, UnexpectedByte},
	{"literal run on", `nullx`, 4, TrailingData},
	{"literal run on inside", `[truefalse]`, 5, UnexpectedByte},
	{"truncated true", `tru`, 3, Truncated},
	{"truncated false", `fals`, 4, Truncated},
	{"truncated null", `n`, 1, Truncated},

	{"leading zero", `01`, 1, InvalidNumber},
	{"leading zeros", `[-00]`, 3, InvalidNumber},
	{"leading plus", `+1`, 0, UnexpectedByte},
	{"lone minus", `-`, 1, Truncated},
	{"two minuses", `--1`, 1, InvalidNumber},
	{"no integer", `.5`, 0, UnexpectedByte},
	{"minus without integer", `-.5`, 1, InvalidNumber},
	{"no fraction", `1.`, 2, Truncated},
	{"no fraction before exponent", `1.e1`, 2, InvalidNumber},
	{"no fraction inside", `[1.]`, 3, InvalidNumber},
	{"no exponent", `1e`, 2, Truncated},
	{"no exponent after sign", `1e+`, 3, Truncated},
	{"no exponent inside", `[1E-]`, 4, InvalidNumber},
	{"fractional exponent", `1e1.5`, 3, TrailingData},
	{"two points", `1.2.3`, 3, TrailingData},
	{"hexadecimal", `0x10`, 1, TrailingData},
	{"digit separator", `1_000`, 1, TrailingData},
	{"fullwidth digit", "\uff11", 0, UnexpectedByte},
	{"suffix", `[1n]`, 2, UnexpectedByte},

	{"truncated string", `"abc`, 4, Truncated},
	{"truncated string of 8", `"1234567`, 8, Truncated},
	{"lone quote", `"`, 1, Truncated},
	{"truncated escape", `"\`, 2, Truncated},
	{"escaped closing quote", `"\"`, 3, Truncated},
	{"truncated unicode escape", `"\u12`, 5, Truncated},
	{"unicode escape of three digits", `"\u123"`, 6, InvalidEscape},
	{"unicode escape of letters", `"\uZZZZ"`, 3, InvalidEscape},
	{"unicode escape with a space", `"\u 123"`, 3, InvalidEscape},
	{"unicode escape with @", `"\u@000"`, 3, InvalidEscape},
	{"capital unicode escape", `"\U0041"`, 2, InvalidEscape},
	{"hexadecimal escape", `"\x41"`, 2, InvalidEscape},
	{"escaped apostrophe", `"\'"`, 2, InvalidEscape},
	{"escaped line end", "\"\\\n\"", 2, InvalidEscape},
	{"escaped UTF-8", `"\é"`, 2, InvalidEscape},
	{"single quotes", `'a'`, 0, UnexpectedByte},
	{"tab in string", "\"a\tb\"", 2, ControlCharacter},
	{"LF in string", "\"a\nb\"", 2, ControlCharacter},
	{"CR in string", "\"\r\"", 1, ControlCharacter},
	{"NUL in string", "\"12345678\x00\"", 9, ControlCharacter},
	{"0x1f in name", "{\"\x1f\":1}", 2, ControlCharacter},

	{"invalid UTF-8", "\"\xff\"", 1, InvalidUTF8},
	{"lone continuation", "\"a\x80\"", 2, InvalidUTF8},
	{"overlong slash", "\"\xc0\xaf\"", 1, InvalidUTF8},
	{"overlong NUL", "\"\xc0\x80\"", 1, InvalidUTF8},
	{"overlong in three bytes", "\"\xe0\x80\xaf\"", 1, InvalidUTF8},
	{"overlong in four bytes", "\"\xf0\x80\x80\xaf\"", 1, InvalidUTF8},
	{"surrogate in UTF-8", "\"\xed\xa0\x80\"", 1, InvalidUTF8},
	{"beyond U+10FFFF", "\"\xf4\x90\x80\x80\"", 1, InvalidUTF8},
	{"five bytes", "\"\xf8\x88\x80\x80\x80\"", 1, InvalidUTF8},
	{"UTF-8 cut by the quote", "\"\xe2\x82\"", 1, InvalidUTF8},
	{"UTF-8 cut by the end", "\"é\xe2\x82", 3, InvalidUTF8},
	{"latin-1", "\"caf\xe9\"", 4, InvalidUTF8},
	{"invalid UTF-8 in name", "{\"\xff\":1}", 2, InvalidUTF8},
	{"invalid UTF-8 after good messages", "[1,2,\"\xff\"]", 6, InvalidUTF8},
	{"UTF-8 outside strings", "[é]", 1, UnexpectedByte},
	{"no-break space", "[1,\u00a02]", 3, UnexpectedByte},
	{"ideographic space", "\u3000{}", 0, UnexpectedByte},
	{"form feed", "[1,\f2]", 3, UnexpectedByte},
	{"vertical tab", "\v1", 0, UnexpectedByte},

	{"trailing comma", `[1,]`, 3, UnexpectedByte},
	{"trailing comma in object", `{"a":1,}`, 7, UnexpectedByte},
	{"trailing comma inside", `{"a":[1,]}`, 8, UnexpectedByte},
	{"leading comma", `[,1]`, 1, UnexpectedByte},
	{"leading comma in object", `{,"a":1}`, 1, UnexpectedByte},
	{"two commas", `[1,,2]`, 3, UnexpectedByte},
	{"only comma", `[,]`, 1, UnexpectedByte},
	{"comma at top", `,`, 0, UnexpectedByte},
	{"missing comma", `[1 2]`, 3, UnexpectedByte},
	{"missing comma in object", `{"a":1 "b":2}`, 7, UnexpectedByte},
	{"missing colon", `{"a" 1}`, 5, UnexpectedByte},
	{"missing value", `{"a":}`, 5, UnexpectedByte},
	{"missing name", `{:1}`, 1, UnexpectedByte},
	{"two colons", `{"a"::1}`, 5, UnexpectedByte},
	{"colon in array", `["a":1]`, 4, UnexpectedByte},
	{"comma for colon", `{"a",1}`, 4, UnexpectedByte},
	{"number as name", `{1:1}`, 1, UnexpectedByte},
	{"null as name", `{null:1}`, 1, UnexpectedByte},
	{"unquoted name", `{a:1}`, 1, UnexpectedByte},
	{"single-quoted name", `{'a':1}`, 1, UnexpectedByte},
	{"line comment", "1 // c", 2, TrailingData},
	{"comment", `/* c */ 1`, 0, UnexpectedByte},
	{"comment inside", `[1/**/]`, 2, UnexpectedByte},

	{"truncated object", `{`, 1, Truncated},
	{"truncated before colon", `{"a"`, 4, Truncated},
	{"truncated before value", `{"a":`, 5, Truncated},
	{"truncated after value", `{"a":1`, 6, Truncated},
	{"truncated after comma", `{"a":1,`, 7, Truncated},
	{"truncated array", `[`, 1, Truncated},
	{"truncated array with space", `[ `, 2, Truncated},
	{"truncated array after message", `[1,2`, 4, Truncated},
	{"truncated array after comma", `[1,2, `, 6, Truncated},
	{"truncated inner array", `{"a":[`, 6, Truncated},
	{"good then truncated", `[{"a":1},{"b":`, 14, Truncated},
	{"closing bracket", `]`, 0, UnexpectedByte},
	{"closing brace", `}`, 0, UnexpectedByte},
	{"wrong bracket", `[1}`, 2, UnexpectedByte},
	{"wrong brace", `{"a":1]`, 6, UnexpectedByte},
	{"brackets crossed", `{"a":[}]`, 6, UnexpectedByte},
	{"empty containers crossed", `[{]}`, 2, UnexpectedByte},

	{"two values", `1 2`, 2, TrailingData},
	{"two objects", `{}{}`, 2, TrailingData},
	{"two lines", "{}\n{}\n", 3, TrailingData},
	{"two arrays", `[1][2]`, 3, TrailingData},
	{"two commas after array", `[1],`, 3, TrailingData},
	{"bracket too many", `[1]]`, 3, TrailingData},
	{"brace too many", `{}}`, 2, TrailingData},
	{"value then quote", `1"`, 1, TrailingData},

	{"129 arrays", nested("[", 129, "", "]"), 128, TooDeep},
	{"128 objects", nested(`{"a":`, 127, "{}", "}"), 5 * 127, TooDeep},
	{"128 objects around a scalar", nested(`{"a":`, 128, "1", "}"), 5 * 127, TooDeep},
	{"128 levels in an array body", "[" + nested(`{"a":`, 127, "[]", "}") + "]", 1 + 5*127, TooDeep},
	{"127 levels, then 128", "[" + nested("[", 127, "", "]") + "," + nested("[", 128, "", "]") + "]", 2 + 254 + 127, TooDeep},
	{"a million open arrays", strings.Repeat("[", 1e6), 128, TooDeep},
	{"a million open objects", strings.Repeat(`{"":`, 1e6), 4 * 127, TooDeep},
	{"a million arrays", nested("[", 1e6, "", "]"), 128, TooDeep},
}

func TestRefused(t *testing.T) {
	for _, tc := range refused {
		t.Run(tc.name, func(t *testing.T) {
			dst := append(make([]byte, 0, 64), "kept"...)
			out, n, err := AppendMessages(dst, []byte(tc.body))
			var syntax *SyntaxError
			if !errors.As(err, &syntax) {
				t.Fatalf("error %v, want a SyntaxError", err)
			}
			if *syntax != (SyntaxError{tc.pos, tc.reason}) {
				t.Errorf("%v, want byte %d: %v", err, tc.pos, tc.reason)
			}
			if string(out) != "kept" || &out[0] != &dst[0] || cap(out) != cap(dst) || n != 0 {
				t.Errorf("returned %q and %d, want dst as it was", out, n)
			}
		})
	}
}

// Every proper prefix of a container, a string or a word is refused, and none
// is read beyond its end.
func TestEveryPrefixIsRefused(t *testing.T) {
	for _, body := range []string{
		"[ {\"a\" : [ 1.5e-3 , -0 , \"\\ud83c\\n é€🌊\" ] , \"b\":{ } }, true,\tnull, false, [ ] ]",
		`{"key":"value","nested":{"array":[1,2,{"x":null}],"empty":{}}}`,
		"\"a long string with \\\"quotes\\\" and 吾輩は猫である\"",
	} {
		if _, _, err := AppendMessages(nil, []byte(body)); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		for n := range len(body) {
			prefix := slices.Clip([]byte(body[:n]))
			_, _, err := AppendMessages(nil, prefix)
			var syntax *SyntaxError
			if !errors.As(err, &syntax) {
				t.Errorf("%q: error %v, want a SyntaxError", prefix, err)
				continue
			}
			// Only a cut inside a UTF-8 character is a fault before the end.
			if syntax.Reason == InvalidUTF8 && syntax.Pos >= n-3 {
				continue
			}
			if want := (SyntaxError{n, Truncated}); n > 0 && *syntax != want {
				t.Errorf("%q: %v, want %v", prefix, err, &want)
			}
		}
	}
}

func TestReasonsHaveTexts(t *testing.T) {
	for r := Empty; r <= TooDeep; r++ {
		if strings.HasPrefix(r.String(), "jsontext.") {
			t.Errorf("reason %d has no text", r)
		}
	}
	if got := Reason(200).String(); got != "jsontext.Reason(200)" {
		t.Errorf("unknown reason: %s", got)
	}
	if got := (&SyntaxError{7, TooDeep}).Error(); got != "invalid JSON at byte 7: message nested more than 127 levels deep" {
		t.Error(got)
	}
}

func TestNoAllocation(t *testing.T) {
	bodies := benchBodies()
	for _, name := range benchOrder {
		body := bodies[name]
		dst := make([]byte, 0, len(body)+1)
		if n := testing.AllocsPerRun(10, func() {
			if _, _, err := AppendMessages(dst, body); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations into a buffer of len(body)+1", name, n)
		}
	}
}
