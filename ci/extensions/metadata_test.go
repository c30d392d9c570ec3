package extensions

import (
	"time"
)

func headCases() []testCase {
	return []testCase{
		{"2.4", "head_without_snapshot", func(e *env) {
			s := e.create(typeJSON)
			s.add("1")
			s.head().want(200).wantNo(hSnapshotOffset).wantNo(hSnapshotDigest)
		}},
		{"2.4", "head_names_the_latest_snapshot", func(e *env) {
			s := e.create(typeJSON)
			tail := s.add("1")
			digest := s.publish(tail, "x").want(204).need(hSnapshotDigest)
			s.add("2")
			head := s.head().want(200).wantHeader(hSnapshotDigest, digest).wantHeader(hSnapshotOffset, tail)
			s.snapshot(head.need(hSnapshotOffset)).want(200).wantBody("x")
		}},
		{"2.4", "retained_offset_on_every_head", func(e *env) {
			s := e.create(typeText)
			s.head().want(200).wantHeader(hRetained, s.start)
			s.add("abc")
			s.head().want(200).wantHeader(hRetained, s.start)
			s.post("", hClosed, "true").want(204)
			s.head().want(200).wantHeader(hRetained, s.start)
		}},
		{"2.4", "first_retained_offset_is_the_first_byte", func(e *env) {
			for _, body := range []string{"", `"from the creating put"`} {
				path := e.path(e.name())
				e.do("PUT", path, []byte(body), "Content-Type", typeJSON).want(201)
				e.do("POST", path, []byte("2"), "Content-Type", typeJSON).want(204)
				retained := e.do("HEAD", path, nil).want(200).need(hRetained)
				want := "2\n"
				if body != "" {
					want = body + "\n2\n"
				}
				e.do("GET", path+"?offset="+retained, nil, "Accept", typeNDJSON).want(200).wantBody(want)
			}
		}},
		{"2.4", "offsets_sort_as_text", func(e *env) {
			s := e.create(typeJSON)
			last := s.head().want(200).need(hRetained)
			for range 50 {
				next := s.add(`{"a":1}`)
				if next <= last {
					e.Fatalf("%s is followed by %s", last, next)
				}
				last = next
			}
			s.publish(last, "x").want(204)
			s.retain(last).want(204)
			if h := s.head().want(200); h.need(hRetained) > h.next() {
				e.Errorf("retained %s after tail %s", h.need(hRetained), h.next())
			}
		}},
		{"2.4", "head_reports_the_configured_type", func(e *env) {
			s := e.create("application/json; charset=utf-8")
			s.head().want(200).wantHeader("Content-Type", "application/json; charset=utf-8")
		}},
		{"2.4", "head_has_no_body_and_is_not_stored", func(e *env) {
			s := e.create(typeText)
			if r := s.head().want(200); len(r.body) != 0 || r.header.Get("Cache-Control") == "" {
				e.Errorf("%v, Cache-Control %q", r, r.header.Get("Cache-Control"))
			}
		}},
	}
}

// successes are the kinds of success responses a stream has, each sent to a
// stream with one message and a snapshot at its tail.
var successes = []struct {
	name string
	send func(s *stream, tail string, headers ...string) *response
	want int
}{
	{"create_existing", func(s *stream, _ string, h ...string) *response {
		return s.e.do("PUT", s.path, nil, append(h, "Content-Type", s.contentType)...)
	}, 200},
	{"append", func(s *stream, _ string, h ...string) *response { return s.post(`"a"`, h...) }, 204},
	{"append_as_producer", func(s *stream, _ string, h ...string) *response {
		return s.post(`"a"`, append(h, "Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "0")...)
	}, 200},
	{"append_with_seq", func(s *stream, _ string, h ...string) *response {
		return s.post(`"a"`, append(h, "Stream-Seq", "1")...)
	}, 204},
	{"append_and_close", func(s *stream, _ string, h ...string) *response { return s.post(`"a"`, append(h, hClosed, "true")...) }, 204},
	{"close", func(s *stream, _ string, h ...string) *response {
		return s.e.do("POST", s.path, nil, append(h, hClosed, "true")...)
	}, 204},
	{"catch_up", func(s *stream, _ string, h ...string) *response { return s.get("offset=-1", h...) }, 200},
	{"catch_up_without_offset", func(s *stream, _ string, h ...string) *response { return s.e.do("GET", s.path, nil, h...) }, 200},
	{"catch_up_leader", func(s *stream, _ string, h ...string) *response { return s.get("offset=-1&consistency=leader", h...) }, 200},
	{"catch_up_cut", func(s *stream, _ string, h ...string) *response {
		return s.get("offset=-1&max_bytes=1", append(h, "Accept", typeNDJSON)...)
	}, 200},
	{"at_tail", func(s *stream, tail string, h ...string) *response { return s.get("offset="+tail, h...) }, 200},
	{"now", func(s *stream, _ string, h ...string) *response { return s.get("offset=now", h...) }, 200},
	{"long_poll_data", func(s *stream, _ string, h ...string) *response { return s.get("offset=-1&live=long-poll", h...) }, 200},
	{"long_poll_timeout", func(s *stream, tail string, h ...string) *response {
		return s.get("live=long-poll&timeout_ms=50&offset="+tail, h...)
	}, 204},
	{"sse", func(s *stream, _ string, h ...string) *response {
		s.e.Helper()
		es, r, err := s.e.trySSE(s.path+"?offset=-1&live=sse", h...)
		if err != nil {
			s.e.Fatal(err)
		}
		if r != nil {
			return r
		}
		defer es.close()
		return &response{s.e, es.what, es.res.StatusCode, es.res.Header, nil}
	}, 200},
	{"head", func(s *stream, _ string, h ...string) *response { return s.head(h...) }, 200},
	{"bootstrap", func(s *stream, _ string, h ...string) *response { return s.e.do("GET", s.path+"/bootstrap", nil, h...) }, 200},
	{"publish", func(s *stream, tail string, h ...string) *response { return s.publish(tail, "snapshot", h...) }, 204},
	{"publish_newer", func(s *stream, _ string, h ...string) *response { return s.publish(s.add(`"second"`), "newer", h...) }, 204},
	{"read_snapshot", func(s *stream, tail string, h ...string) *response { return s.snapshot(tail, h...) }, 200},
	{"retention", func(s *stream, tail string, h ...string) *response { return s.retain(tail, h...) }, 204},
}

// withSnapshot makes a JSON stream with one message and a snapshot at its tail.
func (e *env) withSnapshot() (s *stream, tail string) {
	e.Helper()
	s = e.create(typeJSON)
	tail = s.add(`"first"`)
	s.publish(tail, "snapshot").want(204)
	return s, tail
}

func incarnationCases() []testCase {
	cases := []testCase{
		{"2.4", "incarnation_on_create", func(e *env) {
			path := e.path(e.name())
			token := e.do("PUT", path, []byte("1"), "Content-Type", typeJSON).want(201).incarnation()
			e.do("HEAD", path, nil).want(200).wantHeader(hIncarnation, token)
			closed := e.path(e.name())
			e.do("PUT", closed, nil, "Content-Type", typeText, hClosed, "true").want(201).need(hIncarnation)
		}},
		{"2.4", "incarnation_on_fork", func(e *env) {
			s := e.create(typeJSON)
			path := e.path(e.name())
			token := e.do("PUT", path, nil, "Stream-Forked-From", s.path).want(201).incarnation()
			if token == s.incarnation {
				e.Errorf("fork and source share incarnation %s", token)
			}
			e.do("PUT", path, nil, "Stream-Forked-From", s.path).want(200).wantHeader(hIncarnation, token)
		}},
		{"2.4", "incarnation_on_duplicate_append", func(e *env) {
			s := e.create(typeJSON)
			producer := []string{"Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "0"}
			s.post("1", producer...).want(200).wantHeader(hIncarnation, s.incarnation)
			s.post("1", producer...).want(204).wantHeader(hIncarnation, s.incarnation)
		}},
		{"2.4", "incarnation_on_closed_long_poll", func(e *env) {
			s := e.create(typeText)
			s.e.do("POST", s.path, nil, hClosed, "true").want(204).wantHeader(hIncarnation, s.incarnation)
			s.e.do("POST", s.path, nil, hClosed, "true").want(204).wantHeader(hIncarnation, s.incarnation)
			s.get("offset="+s.start+"&live=long-poll").want(204).wantHeader(hIncarnation, s.incarnation).wantHeader(hClosed, "true")
		}},
		{"2.4", "incarnation_changes_when_recreated", func(e *env) {
			s := e.create(typeJSON)
			seen := map[string]bool{}
			for range 5 {
				if seen[s.incarnation] {
					e.Fatalf("incarnation %s again", s.incarnation)
				}
				seen[s.incarnation] = true
				s.add("1")
				s.recreate()
			}
		}},
		{"2.4", "incarnation_changes_when_recreated_after_expiry", func(e *env) {
			s := e.create(typeJSON, "Stream-TTL", "1")
			old, tail := s.incarnation, s.add(`"old"`)
			eventually(e.T, "the stream expires", func() bool {
				time.Sleep(200 * time.Millisecond)
				return s.head().status == 404
			})
			s.put()
			if s.incarnation == old {
				e.Errorf("incarnation %s again", old)
			}
			s.post("1", hIncarnation, old).want(412).wantHeader(hIncarnation, s.incarnation)
			s.get("offset=-1", "Accept", typeNDJSON).want(200).wantBody("")
			s.snapshot(tail).want(404)
		}},
		{"2.4", "incarnation_does_not_change_otherwise", func(e *env) {
			s := e.create(typeJSON)
			tail := s.add("1")
			s.post("2", "Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "0").want(200)
			s.publish(tail, "x").want(204)
			s.retain(tail).want(204)
			s.e.do("PUT", s.path, nil, "Content-Type", typeJSON).want(200)
			fork := e.path(e.name())
			e.do("PUT", fork, nil, "Stream-Forked-From", s.path).want(201)
			e.do("DELETE", fork, nil).want(204)
			s.e.do("POST", s.path, nil, hClosed, "true").want(204)
			s.head().want(200).wantHeader(hIncarnation, s.incarnation)
		}},
	}
	for _, req := range successes {
		cases = append(cases, testCase{"2.4", "incarnation_on_" + req.name, func(e *env) {
			s, tail := e.withSnapshot()
			req.send(s, tail).want(req.want).wantHeader(hIncarnation, s.incarnation)
		}})
	}
	return cases
}
