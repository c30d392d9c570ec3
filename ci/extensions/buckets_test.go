package extensions

import (
	"net/url"
	"strings"
)

// refused are the statuses an identifier that breaks the rules may be answered
// with: the spec names none.
var refused = []int{400, 404}

func bucketCases() []testCase {
	return only("bucket",
		testCase{"1.1", "bucket_id_valid", func(e *env) {
			for _, id := range []string{"abcd", "a-_9", "____", "-abc", "0123456789", strings.Repeat("z", 64)} {
				e.do("PUT", "/"+id, nil).want(201)
			}
		}},
		testCase{"1.1", "bucket_id_invalid_400", func(e *env) {
			for _, id := range []string{"abc", strings.Repeat("z", 65), "Abcd", "ab.cd", "ab%20cd", "ab%2Fcd", "ab+cd", "%C3%A9%C3%A9%C3%A9%C3%A9", "abcd%00", "ab~cd"} {
				if r := e.do("PUT", "/"+id, nil); r.status != 400 {
					e.Errorf("%v, want 400", r)
				}
			}
		}},
		testCase{"1.1", "stream_in_invalid_bucket_refused", func(e *env) {
			for _, id := range []string{"abc", "ABCD", "ab.cd", strings.Repeat("z", 65)} {
				path := "/" + id + "/" + e.name()
				e.do("PUT", path, nil, "Content-Type", typeText).want(refused...)
				e.do("GET", path+"?offset=-1", nil).want(refused...)
			}
		}},
		testCase{"1.1", "combined_key_up_to_122_bytes", func(e *env) {
			longest := e.name() + strings.Repeat("x", 122)
			longest = longest[:122-len(e.bucket())-1]
			e.do("PUT", e.path(longest), nil, "Content-Type", typeText).want(201)
			e.do("HEAD", e.path(longest), nil).want(200)
			e.do("PUT", e.path(longest+"x"), nil, "Content-Type", typeText).want(400)
			// The shortest bucket leaves the most room for the stream.
			room := 122 - len("abcd") - 1
			id := (e.name() + strings.Repeat("y", 122))[:room]
			e.do("PUT", "/abcd/"+id, nil, "Content-Type", typeText).want(201)
			e.do("PUT", "/abcd/"+id+"y", nil, "Content-Type", typeText).want(400)
		}},
		testCase{"1.1", "stream_id_is_measured_in_decoded_bytes", func(e *env) {
			room := 122 - len(e.bucket()) - 1
			name := e.name()
			id := name + strings.Repeat("é", (room-len(name))/2)
			id += strings.Repeat("x", room-len(id))
			e.do("PUT", e.path(url.PathEscape(id)), nil, "Content-Type", typeText).want(201)
			e.do("PUT", e.path(url.PathEscape(id+"x")), nil, "Content-Type", typeText).want(400)
		}},
		testCase{"1.1", "stream_id_any_utf8", func(e *env) {
			for _, raw := range []string{"häuser 🌊", "a b", "a?b#c", "100%", "a+b", "a;b=c,d", "[x]", "\"quoted\"", "back\\slash", "a:b@c", "~", "日本語", ".", "a.b", "\u0001"} {
				id := e.name() + raw
				path := e.path(url.PathEscape(id))
				e.do("PUT", path, nil, "Content-Type", typeText).want(201)
				e.do("POST", path, []byte(raw), "Content-Type", typeText).want(204)
				e.do("GET", path+"?offset=-1", nil).want(200).wantBody(raw)
			}
		}},
		testCase{"1.1", "stream_id_invalid_refused", func(e *env) {
			n := e.name()
			for what, id := range map[string]string{
				"slash":         n + "%2Fx",
				"NUL":           n + "%00x",
				"two dots":      n + "..x",
				"dots encoded":  n + "%2E%2Ex",
				"invalid UTF-8": n + "%FFx",
				"overlong":      n + "%C0%AFx",
				"surrogate":     n + "%ED%A0%80",
			} {
				if r := e.do("PUT", e.path(id), nil, "Content-Type", typeText); r.status != 400 && r.status != 404 {
					e.Errorf("%s: %v, want 400 or 404", what, r)
				}
			}
		}},
		testCase{"1.1", "streams_and_dollar_are_reserved", func(e *env) {
			for _, id := range []string{"streams", "$transaction", "$" + e.name(), "%24" + e.name(), "%73treams"} {
				e.do("PUT", e.path(id), nil, "Content-Type", typeText).want(refused...)
				e.do("HEAD", e.path(id), nil).want(refused...)
			}
			e.do("PUT", e.path(e.name()+"$"), nil, "Content-Type", typeText).want(201)
			e.do("PUT", e.path("Streams"+e.name()), nil, "Content-Type", typeText).want(201)
		}},
		testCase{"1.1", "percent_encoding_names_the_same_stream", func(e *env) {
			id := e.name() + "é~"
			e.do("PUT", e.path(url.PathEscape(id)), nil, "Content-Type", typeText).want(201)
			e.do("POST", e.path("%73"+url.PathEscape(id[1:])), []byte("x"), "Content-Type", typeText).want(204)
			e.do("GET", e.path(strings.ReplaceAll(url.PathEscape(id), "%C3%A9", "%c3%a9"))+"?offset=-1", nil).want(200).wantBody("x")
			e.do("GET", e.path(strings.ReplaceAll(url.PathEscape(id), "~", "%7E"))+"?offset=-1", nil).want(200).wantBody("x")
		}},
		testCase{"1.1", "percent_sign_is_decoded_once", func(e *env) {
			once := e.path(e.name() + "%41")
			twice := strings.Replace(once, "%41", "%2541", 1)
			e.do("PUT", once, nil, "Content-Type", typeText).want(201)
			e.do("HEAD", twice, nil).want(404)
		}},
		testCase{"1.2", "bucket_create_changes_nothing", func(e *env) {
			for range 2 {
				e.do("PUT", "/"+e.bucket(), nil).want(201)
			}
			s := e.create(typeText)
			s.add("x")
			e.do("PUT", "/"+e.bucket(), nil).want(201)
			s.get("offset=-1").want(200).wantBody("x")
		}},
		testCase{"1.2", "buckets_are_implicit", func(e *env) {
			bucket := "imp-" + e.name()
			e.do("PUT", "/"+bucket+"/stream", nil, "Content-Type", typeText).want(201)
			e.do("HEAD", "/"+bucket+"/stream", nil).want(200)
		}},
		testCase{"1.2", "streams_of_two_buckets_are_apart", func(e *env) {
			id := e.name()
			for _, b := range []string{"one-", "two-"} {
				e.do("PUT", "/"+b+id+"/stream", []byte(b), "Content-Type", typeText).want(201)
			}
			e.do("GET", "/one-"+id+"/stream?offset=-1", nil).want(200).wantBody("one-")
			e.do("DELETE", "/one-"+id+"/stream", nil).want(204)
			e.do("GET", "/two-"+id+"/stream?offset=-1", nil).want(200).wantBody("two-")
		}},
		testCase{"1.2", "purge_bars_the_bucket_for_ever", purgeBars},
		testCase{"1.6", "base_operations_apply", func(e *env) {
			s := e.create(typeText, "Stream-TTL", "600")
			s.add("a")
			s.post("b", "Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "0").want(200)
			s.head().want(200).wantHeader("Stream-Ttl", "600").wantHeader("Content-Type", typeText)
			fork := e.path(e.name())
			e.do("PUT", fork, nil, "Stream-Forked-From", s.path).want(201)
			e.do("GET", fork+"?offset=-1", nil).want(200).wantBody("ab")
			e.do("DELETE", fork, nil).want(204)
			e.do("POST", s.path, nil, hClosed, "true").want(204).wantHeader(hClosed, "true")
			s.get("offset=-1").want(200).wantBody("ab").wantHeader(hClosed, "true")
			s.remove().want(204)
			s.head().want(404)
		}},
		testCase{"1.6", "other_three_segment_paths_404", func(e *env) {
			s := e.create(typeJSON)
			tail := s.add(`{"a":1}`)
			for _, sub := range []string{"/x", "/attrs", "/append-batch", "/$transaction", "/streams", "/bootstrap/x", "/snapshot/" + tail + "/x", "/retention/" + tail + "/x", "/x/y/z", "/bootstraps", "/Snapshot/" + tail} {
				for _, method := range []string{"GET", "PUT", "POST", "HEAD", "DELETE"} {
					var body []byte
					if method == "PUT" || method == "POST" {
						body = []byte(`{"a":1}`)
					}
					if r := e.do(method, s.path+sub, body, "Content-Type", typeJSON); r.status != 404 {
						e.Errorf("%v, want 404", r)
					}
				}
			}
		}},
		testCase{"1.6", "reserved_names_remain_valid_stream_ids", func(e *env) {
			bucket := "rsv-" + e.name()
			for _, id := range []string{"append-batch", "attrs", "bootstrap", "retention", "snapshot"} {
				path := "/" + bucket + "/" + id
				e.do("PUT", path, []byte("x"), "Content-Type", typeText).want(201)
				e.do("GET", path+"?offset=-1", nil).want(200).wantBody("x")
				e.do("GET", path+"/bootstrap", nil).want(200)
			}
		}},
	)
}
