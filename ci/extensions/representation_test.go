package extensions

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
)

func representationCases() []testCase {
	cases := []testCase{
		{"9.4", "head_reports_json", func(e *env) {
			s := e.create(typeJSON)
			s.head().want(200).wantHeader("Content-Type", typeJSON)
			s.head("Accept", typeNDJSON).want(200).wantHeader("Content-Type", typeJSON)
		}},
		{"9.4", "ndjson_on_request", func(e *env) {
			s := e.create(typeJSON)
			s.add(`[{"a":1},2]`)
			for _, q := range []string{"offset=-1", "offset=" + s.start, "offset=-1&live=long-poll", "offset=-1&consistency=leader"} {
				s.get(q, "Accept", typeNDJSON).want(200).wantHeader("Content-Type", typeNDJSON).wantBody("{\"a\":1}\n2\n")
			}
		}},
		{"9.4", "array_on_request", func(e *env) {
			s := e.create(typeJSON)
			s.add(`[{"a":1},2]`)
			for _, q := range []string{"offset=-1", "offset=" + s.start, "offset=-1&live=long-poll"} {
				s.get(q, "Accept", typeJSON).want(200).wantHeader("Content-Type", typeJSON).wantBody(`[{"a":1},2]`)
			}
			s.get("offset=now", "Accept", typeJSON).want(200).wantBody("[]")
		}},
		{"9.4", "ranking_of_accept", func(e *env) {
			s := e.create(typeJSON)
			s.add("1")
			for accept, want := range map[string]string{
				"application/json, application/x-ndjson;q=0.9":     typeJSON,
				"application/x-ndjson, application/json;q=0.5":     typeNDJSON,
				"application/json;q=0.1, application/x-ndjson":     typeNDJSON,
				"application/x-ndjson;q=0, application/json":       typeJSON,
				"text/html, application/x-ndjson;q=0.8, */*;q=0.1": typeNDJSON,
				"text/html, application/json;q=0.8, */*;q=0.1":     typeJSON,
				"Application/X-NDJSON":                             typeNDJSON,
			} {
				s.get("offset=-1", "Accept", accept).want(200).wantHeader("Content-Type", want)
			}
		}},
		{"9.4", "vary_names_accept", func(e *env) {
			s := e.create(typeJSON)
			s.add("1")
			for _, accept := range []string{typeJSON, typeNDJSON, "*/*"} {
				r := s.get("offset=-1", "Accept", accept).want(200)
				if vary := strings.Join(r.header.Values("Vary"), ","); !strings.Contains(strings.ToLower(vary), "accept") {
					e.Errorf("%s, Accept %s: Vary %q", r.what, accept, vary)
				}
			}
		}},
		{"9.4", "representations_have_their_own_etags", func(e *env) {
			s := e.create(typeJSON)
			s.add("1")
			array := s.get("offset=-1", "Accept", typeJSON).want(200).need("Etag")
			lines := s.get("offset=-1", "Accept", typeNDJSON).want(200).need("Etag")
			if array == lines {
				e.Errorf("one ETag %s for two representations", array)
			}
			s.get("offset=-1", "Accept", typeJSON, "If-None-Match", lines).want(200)
			s.get("offset=-1", "Accept", typeJSON, "If-None-Match", array).want(304)
		}},
		{"9.4", "reading_resumes_inside_a_message", func(e *env) {
			s := e.create(typeJSON)
			s.add(`{"key":"value"}`)
			s.add(`2`)
			offset, got := s.start, ""
			for len(got) < 5 {
				r := s.get("max_bytes=1&offset="+offset, "Accept", typeNDJSON).want(200)
				got, offset = got+string(r.body), r.next()
			}
			if rest := s.stored(offset); got+rest != "{\"key\":\"value\"}\n2\n" {
				e.Errorf("%q and then %q", got, rest)
			}
		}},
		{"9.4", "sse_names_its_data_type", func(e *env) {
			s := e.create(typeJSON)
			s.add("1")
			es := s.sse("offset=-1", "Accept", "text/event-stream, "+typeNDJSON)
			if got := es.res.Header.Get(hDataType); got != typeNDJSON {
				e.Errorf("%s %q", hDataType, got)
			}
			es = s.sse("offset=-1", "Accept", "text/event-stream, "+typeJSON)
			if got := es.res.Header.Get(hDataType); got != typeJSON {
				e.Errorf("%s %q", hDataType, got)
			}
		}},
		{"9.4", "sse_lines_are_framing", func(e *env) {
			s := e.create(typeJSON)
			want := "{\"a\":\"x\\ny\"}\n\"two\"\n[3]\n"
			s.add(`[{"a":"x\ny"},"two",[3]]`)
			got := ""
			for _, b := range s.sse("offset=-1", "Accept", typeNDJSON).batches() {
				got += string(b.data)
			}
			if got != want {
				e.Errorf("data %q, want %q", got, want)
			}
		}},
		{"9.4", "sse_may_end_inside_a_message", func(e *env) {
			s := e.create(typeJSON)
			s.add(`["first","second"]`)
			got := ""
			for _, b := range s.sse("offset=-1&max_bytes=5", "Accept", typeNDJSON).batches() {
				if len(b.data) > 5 {
					e.Errorf("an event of %d bytes", len(b.data))
				}
				got += string(b.data)
			}
			if got != "\"first\"\n\"second\"\n" {
				e.Errorf("data %q", got)
			}
		}},
		{"9.4", "sse_array_events_are_json", func(e *env) {
			s := e.create(typeJSON)
			s.add(`["first",{"a":"x\ny"}]`)
			s.add(`3`)
			var values []json.RawMessage
			for _, b := range s.sse("offset=-1&max_bytes=8", "Accept", typeJSON).batches() {
				var some []json.RawMessage
				if err := json.Unmarshal(b.data, &some); err != nil || len(some) == 0 {
					e.Fatalf("data %q: %v", b.data, err)
				}
				values = append(values, some...)
			}
			if len(values) != 3 {
				e.Errorf("%d values: %s", len(values), values)
			}
		}},
	}
	cases = append(cases, only("bucket",
		testCase{"9.4", "ndjson_is_the_default_of_buckets", func(e *env) {
			s := e.create(typeJSON)
			s.add(`[{"a":1},2]`)
			for _, h := range [][]string{nil, {"Accept", "*/*"}, {"Accept", "application/*"}, {"Accept", "text/html"}} {
				s.get("offset=-1", h...).want(200).wantHeader("Content-Type", typeNDJSON).wantBody("{\"a\":1}\n2\n")
			}
			e.do("GET", s.path, nil).want(200).wantHeader("Content-Type", typeNDJSON)
			s.get("offset=now").want(200).wantHeader("Content-Type", typeNDJSON).wantBody("")
			for _, h := range [][]string{nil, {"Accept", "text/event-stream"}} {
				es := s.sse("offset=-1", h...)
				if got := es.res.Header.Get(hDataType); got != typeNDJSON {
					e.Errorf("%s %q", hDataType, got)
				}
				got := ""
				for _, b := range es.batches() {
					got += string(b.data)
				}
				if got != "{\"a\":1}\n2\n" {
					e.Errorf("SSE data %q", got)
				}
			}
		}},
	)...)
	return append(cases, only("base",
		testCase{"9.4", "array_is_the_default_of_the_base_surface", func(e *env) {
			s := e.create(typeJSON)
			s.add(`[{"a":1},2]`)
			for _, h := range [][]string{nil, {"Accept", "*/*"}, {"Accept", "text/html"}} {
				s.get("offset=-1", h...).want(200).wantHeader("Content-Type", typeJSON).wantBody(`[{"a":1},2]`)
			}
		}},
	)...)
}

func sseCases() []testCase {
	return []testCase{
		{"9.5", "binary_headers", func(e *env) {
			for _, ct := range []string{typeBytes, "image/png", "application/x-protobuf; v=1", "application/ndjson"} {
				s := e.create(ct)
				es := s.sse("offset=-1")
				if got := es.res.Header.Get(hDataEncoding); got != "base64" {
					e.Errorf("%s: %s %q", ct, hDataEncoding, got)
				}
				if got := es.res.Header.Get(hDataType); got != ct {
					e.Errorf("%s %q, want %q", hDataType, got, ct)
				}
				if got := es.res.Header.Get("Content-Type"); got != "text/event-stream" {
					e.Errorf("Content-Type %q", got)
				}
			}
		}},
		{"9.5", "text_and_json_are_not_encoded", func(e *env) {
			for _, ct := range []string{typeText, "text/html; charset=utf-8", "TEXT/CSV", typeJSON, "application/json; charset=utf-8"} {
				es := e.create(ct).sse("offset=-1")
				if got := es.res.Header.Values(hDataEncoding); len(got) != 0 {
					e.Errorf("%s: %s %q", ct, hDataEncoding, got)
				}
			}
		}},
		{"9.5", "control_is_just_past_the_decoded_bytes", func(e *env) {
			s := e.create(typeBytes)
			want := pattern(5000, 29)
			s.add(want[:1])
			s.add(want[1:3000])
			s.add(want[3000:])
			es := s.sse("offset=-1&max_bytes=999")
			seen := 0
			for _, b := range es.batches() {
				if len(b.data) == 0 {
					e.Error("an empty data event")
				}
				seen += len(b.data)
				if rest := s.stored(b.control.StreamNextOffset); rest != want[seen:] {
					e.Fatalf("after %d bytes, %s is followed by %d bytes, want %d", seen, b.control.StreamNextOffset, len(rest), len(want)-seen)
				}
			}
			if seen != len(want) {
				e.Errorf("%d bytes, of %d", seen, len(want))
			}
		}},
		{"9.5", "live_bytes_are_contiguous", func(e *env) {
			s := e.create(typeBytes)
			want := pattern(20_000, 31)
			es := s.sse("offset=-1")
			var writer sync.WaitGroup
			defer writer.Wait()
			writer.Go(func() {
				for i := 0; i < len(want); i += 500 {
					if r, err := e.try("POST", s.path, []byte(want[i:i+500]), "Content-Type", typeBytes); err != nil || r.status != 204 {
						e.Errorf("append: %v %v", r, err)
						return
					}
				}
				if r, err := e.try("POST", s.path, nil, hClosed, "true"); err != nil || r.status != 204 {
					e.Errorf("close: %v %v", r, err)
				}
			})
			got := ""
			for {
				batches := es.batches()
				for _, b := range batches {
					got += string(b.data)
				}
				if batches[len(batches)-1].control.StreamClosed {
					break
				}
			}
			if got != want {
				e.Errorf("%d bytes, of %d, or others", len(got), len(want))
			}
			if _, err := es.tryNext(); !errors.Is(err, io.EOF) {
				e.Errorf("after the stream closed: %v, want the end", err)
			}
		}},
		{"9.5", "no_opt_in_or_out", func(e *env) {
			s := e.create(typeBytes)
			s.add("x")
			for _, accept := range []string{"text/event-stream", typeJSON, "text/plain", "*/*"} {
				if got := s.sse("offset=-1", "Accept", accept).res.Header.Get(hDataEncoding); got != "base64" {
					e.Errorf("Accept %s: %s %q", accept, hDataEncoding, got)
				}
			}
		}},
		{"7", "event_data_is_a_bare_payload", func(e *env) {
			s := e.create(typeBytes)
			s.publish(s.add("\x00\x01\x02"), "snapshot").want(204)
			es := s.sse("offset=-1")
			if ev := es.next(); ev.name != "data" || strings.TrimSpace(ev.data) != "AAEC" {
				e.Errorf("event %q %q", ev.name, ev.data)
			}
		}},
	}
}
