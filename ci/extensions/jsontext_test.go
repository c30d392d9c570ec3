package extensions

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// jsonTexts are bodies of one message and the text that is stored of them,
// without its LF.
var jsonTexts = [][2]string{
	{`{"b":1,"a":2}`, `{"b":1,"a":2}`},
	{`{"a":1,"a":2,"a":1}`, `{"a":1,"a":2,"a":1}`},
	{"{ \"a\" :\t[ 1 ,\r\n 2 ] }", `{"a":[1,2]}`},
	{"\n\t 1.50e3 \r\n", `1.50e3`},
	{`1e400`, `1e400`},
	{`-0`, `-0`},
	{`-0.0E-0`, `-0.0E-0`},
	{`123456789012345678901234567890.10`, `123456789012345678901234567890.10`},
	{`"\ud800"`, `"\ud800"`},
	{`"\udc00\ud800"`, `"\udc00\ud800"`},
	{`"\u0061\/\u000A"`, `"\u0061\/\u000A"`},
	{`"  spaces	kept: a\tb  "`, ""}, // a raw tab is a control character: invalid, see below
	{`"  spaces kept  "`, `"  spaces kept  "`},
	{`"häuser 🌊 ` + "\u2028\u2029\ufeff\u007f" + `"`, `"häuser 🌊 ` + "\u2028\u2029\ufeff\u007f" + `"`},
	{`""`, `""`},
	{`null`, `null`},
	{` true `, `true`},
	{`{}`, `{}`},
	{`[[]]`, `[]`},
	{`[{}]`, `{}`},
	{`{"":{"":[]}}`, `{"":{"":[]}}`},
	{`{"a": "[1, 2]", "b" : "\" , \\"}`, `{"a":"[1, 2]","b":"\" , \\"}`},
}

// badJSON are bodies that are no JSON text.
var badJSON = map[string]string{
	"truncated object":     `{"a":1`,
	"truncated array":      `[1,2`,
	"truncated string":     `"abc`,
	"truncated escape":     `"\u12`,
	"bare word":            `hello`,
	"NaN":                  `NaN`,
	"Infinity":             `-Infinity`,
	"leading zero":         `01`,
	"leading plus":         `+1`,
	"no fraction":          `1.`,
	"no integer":           `.5`,
	"no exponent":          `1e`,
	"lone minus":           `-`,
	"hexadecimal":          `0x10`,
	"trailing comma":       `[1,]`,
	"trailing comma {}":    `{"a":1,}`,
	"leading comma":        `[,1]`,
	"two values":           `1 2`,
	"two objects":          `{}{}`,
	"value and bracket":    `{}]`,
	"unquoted name":        `{a:1}`,
	"single quotes":        `{'a':1}`,
	"missing colon":        `{"a" 1}`,
	"number as name":       `{1:1}`,
	"comment":              `/* c */ 1`,
	"byte order mark":      "\ufeff1",
	"raw tab in string":    "\"a\tb\"",
	"raw LF in string":     "\"a\nb\"",
	"raw NUL in string":    "\"a\x00b\"",
	"form feed between":    "[1,\f2]",
	"no-break space":       "[1,\u00a02]",
	"bad escape":           `"\x41"`,
	"bad unicode escape":   `"\uZZZZ"`,
	"invalid UTF-8":        "\"\xff\"",
	"truncated UTF-8":      "\"\xe2\x82\"",
	"overlong UTF-8":       "\"\xc0\xaf\"",
	"surrogate in UTF-8":   "\"\xed\xa0\x80\"",
	"beyond U+10FFFF":      "\"\xf4\x90\x80\x80\"",
	"invalid UTF-8 in key": "{\"\xff\":1}",
	"only whitespace":      " \n\t ",
	"good then bad":        `[{"a":1},{"b":]`,
	"good then bad UTF-8":  "[1,2,\"\xff\"]",
}

// nested is an array or object depth levels deep.
func nested(depth int, inner string) string {
	return strings.Repeat("[", depth) + inner + strings.Repeat("]", depth)
}

func jsonTextCases() []testCase {
	return []testCase{
		{"JSON.1", "post_invalid_400_nothing_committed", func(e *env) {
			s := e.create(typeJSON)
			s.add(`{"before":1}`)
			tail := s.head().next()
			for what, body := range badJSON {
				if r := s.post(body); r.status != 400 {
					e.Errorf("%s: %v, want 400", what, r)
				}
			}
			s.head().want(200).wantHeader(hNext, tail)
			if got := s.stored(s.start); got != "{\"before\":1}\n" {
				e.Errorf("stored %q", got)
			}
		}},
		{"JSON.1", "create_invalid_400_creates_nothing", func(e *env) {
			for what, body := range badJSON {
				if strings.TrimSpace(body) == "" {
					continue // a creating PUT may have no body
				}
				path := e.path(e.name())
				if r := e.do("PUT", path, []byte(body), "Content-Type", typeJSON); r.status != 400 {
					e.Errorf("%s: %v, want 400", what, r)
				}
				e.do("HEAD", path, nil).want(404)
			}
		}},
		{"JSON.2", "text_kept_whitespace_removed", func(e *env) {
			s := e.create(typeJSON)
			var want strings.Builder
			for _, text := range jsonTexts {
				if text[1] == "" {
					s.post(text[0]).want(400)
					continue
				}
				s.post(text[0]).want(204)
				want.WriteString(text[1] + "\n")
			}
			if got := s.stored(s.start); got != want.String() {
				e.Errorf("stored\n%s\nwant\n%s", got, want.String())
			}
		}},
		{"JSON.2", "creating_put_stores_the_same_text", func(e *env) {
			for _, text := range jsonTexts {
				if text[1] == "" {
					continue
				}
				path := e.path(e.name())
				e.do("PUT", path, []byte(text[0]), "Content-Type", typeJSON).want(201)
				e.do("GET", path+"?offset=-1", nil, "Accept", typeNDJSON).want(200).wantBody(text[1] + "\n")
			}
		}},
		{"JSON.2", "top_level_array_is_flattened_once", func(e *env) {
			s := e.create(typeJSON)
			s.add(`[ 1 , [2, [3]], "[4]", {"a": [5]} , [] ]`)
			if got, want := s.stored(s.start), "1\n[2,[3]]\n\"[4]\"\n{\"a\":[5]}\n[]\n"; got != want {
				e.Errorf("stored %q, want %q", got, want)
			}
		}},
		{"JSON.2", "content_type_parameters_and_case_do_not_matter", func(e *env) {
			for _, ct := range []string{"application/json; charset=utf-8", "Application/JSON", "application/json;profile=\"x\""} {
				s := e.create(ct)
				s.add(`[ {"a" : 1.0}, 2 ]`)
				if got := s.stored(s.start); got != "{\"a\":1.0}\n2\n" {
					e.Errorf("%s: stored %q", ct, got)
				}
				s.post("{").want(400)
			}
		}},
		{"JSON.2", "other_types_are_not_touched", func(e *env) {
			for _, ct := range []string{typeText, typeBytes, "application/jsonl", "application/ld+json"} {
				s := e.create(ct)
				s.add("{ \"a\" : 1 }\n[1,\n")
				s.get("offset=" + s.start).want(200).wantBody("{ \"a\" : 1 }\n[1,\n")
			}
		}},
		{"JSON.3", "depth_127_accepted_128_rejected", func(e *env) {
			s := e.create(typeJSON)
			objects := func(depth int) string {
				return strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
			}
			var want strings.Builder
			accept := func(body string, messages ...string) {
				e.Helper()
				s.post(body).want(204)
				for _, m := range messages {
					want.WriteString(m + "\n")
				}
			}
			accept(objects(127), objects(127))
			accept("["+objects(127)+"]", objects(127))
			accept("["+nested(127, "")+","+nested(127, "1")+"]", nested(127, ""), nested(127, "1"))
			// A bare array is flattened, so its elements may be 127 deep.
			accept(nested(128, ""), nested(127, ""))
			accept(`{"a":`+nested(126, "")+`}`, `{"a":`+nested(126, "")+`}`)
			for what, body := range map[string]string{
				"objects":             objects(128),
				"object in array":     "[" + objects(128) + "]",
				"arrays":              nested(129, ""),
				"scalar inside":       nested(129, "1"),
				"last element":        "[1,2," + nested(128, "") + "]",
				"empty container":     `{"a":` + nested(126, "[]") + `}`,
				"far too deep":        nested(100_000, ""),
				"deep and unfinished": strings.Repeat("[", 100_000),
			} {
				if r := s.post(body); r.status != 400 {
					e.Errorf("%s: %v, want 400", what, r)
				}
			}
			if got := s.stored(s.start); got != want.String() {
				e.Errorf("stored %s\nwant %s", clip([]byte(got)), clip([]byte(want.String())))
			}
		}},
		{"JSON.3", "depth_is_measured_on_create_too", func(e *env) {
			path := e.path(e.name())
			e.do("PUT", path, []byte(nested(129, "")), "Content-Type", typeJSON).want(400)
			e.do("HEAD", path, nil).want(404)
			e.do("PUT", path, []byte(nested(128, "")), "Content-Type", typeJSON).want(201)
		}},
		{"JSON.4", "one_bad_message_commits_none", func(e *env) {
			s := e.create(typeJSON)
			s.post(`[{"ok":1},{"ok":2},{"bad":tru}]`).want(400)
			s.post("[{\"ok\":1},\"\xc3\x28\"]").want(400)
			s.post("[1,"+nested(128, "")+"]", "Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "0").want(400)
			if got := s.stored(s.start); got != "" {
				e.Errorf("stored %q", got)
			}
			// The refused request did not move the producer either.
			s.post("[1]", "Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "0").want(200)
		}},
		{"JSON.5", "every_representation_carries_the_text", func(e *env) {
			s := e.create(typeJSON)
			texts := []string{`{"b":1.50e3,"a":1e400,"b":"\ud800"}`, `"a\u000Ab"`, `[1,{"x":-0}]`}
			for _, text := range texts {
				s.add("[" + text + "]")
			}
			lines := strings.Join(texts, "\n") + "\n"
			array := "[" + strings.Join(texts, ",") + "]"
			s.get("offset=-1", "Accept", typeNDJSON).want(200).wantBody(lines)
			s.get("offset=-1", "Accept", typeJSON).want(200).wantBody(array)
			b := s.bootstrap()
			if b.content() != lines {
				e.Errorf("bootstrap parts hold %q, want %q", b.content(), lines)
			}
			for i, p := range b.updates {
				if want := texts[i] + "\n"; string(p.body) != want {
					e.Errorf("bootstrap part %d is %q, want %q", i, p.body, want)
				}
			}
			var sse strings.Builder
			for _, batch := range s.sse("offset=-1", "Accept", typeNDJSON).batches() {
				sse.Write(batch.data)
			}
			if strings.TrimRight(sse.String(), "\n") != strings.TrimRight(lines, "\n") {
				e.Errorf("SSE carries %q, want %q", sse.String(), lines)
			}
			var arrays strings.Builder
			for _, batch := range s.sse("offset=-1", "Accept", typeJSON).batches() {
				arrays.Write(batch.data)
			}
			if strings.NewReplacer("\n", "").Replace(arrays.String()) != array {
				e.Errorf("SSE carries %q, want %q", arrays.String(), array)
			}
		}},
		{"JSON.6", "offsets_count_the_stored_text", func(e *env) {
			s := e.create(typeJSON)
			tail := s.add(" [ {\"a\" : 1} ,\n\"bc\" ] ")
			want := "{\"a\":1}\n\"bc\"\n"
			offset, got := s.start, ""
			for len(got) < len(want)+1 && offset != tail {
				r := s.get("offset="+offset+"&max_bytes=1", "Accept", typeNDJSON).want(200)
				if len(r.body) != 1 {
					e.Fatalf("%v: %d bytes", r, len(r.body))
				}
				if r.next() <= offset {
					e.Fatalf("offset %s is followed by %s", offset, r.next())
				}
				got, offset = got+string(r.body), r.next()
			}
			if got != want || offset != tail {
				e.Errorf("byte by byte: %q to %s, want %q to %s", got, offset, want, tail)
			}
		}},
		{"JSON.6", "etag_changes_with_the_stored_text_only", func(e *env) {
			s := e.create(typeJSON)
			s.add(`{"a":1}`)
			first := s.get("offset=" + s.start).want(200).need("Etag")
			s.get("offset="+s.start, "If-None-Match", first).want(304)
			s.add(`{"a":1}`)
			s.get("offset="+s.start, "If-None-Match", first).want(200)
		}},
		{"JSON", "boundaries_are_message_ends_and_the_first_offset", func(e *env) {
			s := e.create(typeJSON)
			s.add(`["one","two"]`)
			tail := s.add(`"three"`)
			boundaries := map[string]bool{s.start: true}
			offset := s.start
			var all []string
			for offset != tail {
				r := s.get("offset="+offset+"&max_bytes=1", "Accept", typeNDJSON).want(200)
				offset = r.next()
				all = append(all, offset)
				boundaries[offset] = string(r.body) == "\n"
			}
			if len(all) != len("\"one\"\n\"two\"\n\"three\"\n") {
				e.Fatalf("%d offsets: %q", len(all), all)
			}
			for _, o := range append([]string{s.start}, all...) {
				want := 400
				if boundaries[o] {
					want = 204
				}
				if r := s.publish(o, "snapshot at "+o); r.status != want {
					e.Errorf("%v, want %d", r, want)
				}
			}
		}},
		{"JSON", "event_time_changes_neither_order_nor_text", func(e *env) {
			s := e.create(typeJSON)
			var want strings.Builder
			for _, at := range []string{"2026-03-01T00:00:00Z", "2025-01-01T00:00:00Z", "2027-01-01T00:00:00.000Z"} {
				text := fmt.Sprintf(`{"captured_at":%q}`, at)
				s.add(text)
				want.WriteString(text + "\n")
			}
			if got := s.stored(s.start); got != want.String() {
				e.Errorf("stored %q, want %q", got, want.String())
			}
		}},
		{"JSON", "array_text_is_the_stored_text_of_base64_looking_input", func(e *env) {
			// The text of a string is never decoded, whatever it looks like.
			s := e.create(typeJSON)
			text := `"` + base64.StdEncoding.EncodeToString([]byte("\x00\xff\n")) + `\u0000"`
			s.add(text)
			s.get("offset=-1", "Accept", typeJSON).want(200).wantBody("[" + text + "]")
		}},
	}
}
