package extensions

import (
	"fmt"
	"strings"
	"time"
)

// foreign is a token the server issued, for another stream.
func (e *env) foreign() string {
	e.Helper()
	return e.create(typeText).incarnation
}

// malformed are values no server of this token's kind could have issued, from
// one it did issue.
func malformed(token string) map[string][]string {
	return map[string][]string{
		"empty":        {""},
		"a word":       {"x"},
		"asterisk":     {"*"},
		"shortened":    {token[:len(token)-1]},
		"lengthened":   {token + "0"},
		"quoted":       {`"` + token + `"`},
		"two in one":   {token + ", " + token},
		"two in one b": {token + " " + token},
		"sent twice":   {token, token},
		"sent twice b": {token, "x"},
		"long":         {strings.Repeat("a", 2000)},
	}
}

func repeatHeader(name string, values []string) []string {
	var h []string
	for _, v := range values {
		h = append(h, name, v)
	}
	return h
}

// untouched fails the test unless the stream of withSnapshot is as it was made.
func (s *stream) untouched(tail, stored string) {
	s.e.Helper()
	s.head().want(200).wantHeader(hIncarnation, s.incarnation).wantNo(hClosed).
		wantHeader(hRetained, s.start).wantHeader(hSnapshotOffset, tail)
	if got := s.stored(s.start); got != stored {
		s.e.Errorf("stored %q, want %q", got, stored)
	}
}

// failures are requests that fail without any precondition, each on a stream
// that setup prepares; the same request with a mismatch fails the same way.
var failures = []struct {
	name  string
	setup func(e *env) (s *stream, send func(headers ...string) *response)
}{
	{"read_below_retained", func(e *env) (*stream, func(...string) *response) {
		s, tail := e.withSnapshot()
		s.retain(tail).want(204)
		return s, func(h ...string) *response { return s.get("offset="+s.start, h...) }
	}},
	{"long_poll_below_retained", func(e *env) (*stream, func(...string) *response) {
		s, tail := e.withSnapshot()
		s.retain(tail).want(204)
		return s, func(h ...string) *response { return s.get("live=long-poll&offset="+s.start, h...) }
	}},
	{"sse_below_retained", func(e *env) (*stream, func(...string) *response) {
		s, tail := e.withSnapshot()
		s.retain(tail).want(204)
		return s, func(h ...string) *response { return s.get("live=sse&offset="+s.start, h...) }
	}},
	{"read_invalid_offset", func(e *env) (*stream, func(...string) *response) {
		s := e.create(typeJSON)
		return s, func(h ...string) *response { return s.get("offset=x", h...) }
	}},
	{"read_bad_consistency", func(e *env) (*stream, func(...string) *response) {
		s := e.create(typeJSON)
		return s, func(h ...string) *response { return s.get("offset=-1&consistency=x", h...) }
	}},
	{"append_to_closed", func(e *env) (*stream, func(...string) *response) {
		s := e.create(typeJSON)
		s.post("1", hClosed, "true").want(204)
		return s, func(h ...string) *response { return s.post("2", h...) }
	}},
	{"append_other_type", func(e *env) (*stream, func(...string) *response) {
		s := e.create(typeJSON)
		return s, func(h ...string) *response {
			return e.do("POST", s.path, []byte("2"), append(h, "Content-Type", typeText)...)
		}
	}},
	{"append_invalid_json", func(e *env) (*stream, func(...string) *response) {
		s := e.create(typeJSON)
		return s, func(h ...string) *response { return s.post("{", h...) }
	}},
	{"append_nothing", func(e *env) (*stream, func(...string) *response) {
		s := e.create(typeJSON)
		return s, func(h ...string) *response { return s.post("", h...) }
	}},
	{"append_old_seq", func(e *env) (*stream, func(...string) *response) {
		s := e.create(typeJSON)
		s.post("1", "Stream-Seq", "5").want(204)
		return s, func(h ...string) *response { return s.post("2", append(h, "Stream-Seq", "4")...) }
	}},
	{"append_stale_epoch", func(e *env) (*stream, func(...string) *response) {
		s := e.create(typeJSON)
		s.post("1", "Producer-Id", "p", "Producer-Epoch", "3", "Producer-Seq", "0").want(200)
		return s, func(h ...string) *response {
			return s.post("2", append(h, "Producer-Id", "p", "Producer-Epoch", "2", "Producer-Seq", "0")...)
		}
	}},
	{"append_producer_gap", func(e *env) (*stream, func(...string) *response) {
		s := e.create(typeJSON)
		s.post("1", "Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "0").want(200)
		return s, func(h ...string) *response {
			return s.post("2", append(h, "Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "9")...)
		}
	}},
	{"create_other_type", func(e *env) (*stream, func(...string) *response) {
		s := e.create(typeJSON)
		return s, func(h ...string) *response {
			return e.do("PUT", s.path, nil, append(h, "Content-Type", typeText)...)
		}
	}},
	{"publish_beyond_tail", func(e *env) (*stream, func(...string) *response) {
		s := e.create(typeJSON)
		beyond := s.beyondTail()
		return s, func(h ...string) *response { return s.publish(beyond, "x", h...) }
	}},
	{"publish_inside_message", func(e *env) (*stream, func(...string) *response) {
		s := e.create(typeJSON)
		s.add(`"abc"`)
		inside := s.insideMessage(s.start)
		return s, func(h ...string) *response { return s.publish(inside, "x", h...) }
	}},
	{"publish_other_content", func(e *env) (*stream, func(...string) *response) {
		s, tail := e.withSnapshot()
		return s, func(h ...string) *response { return s.publish(tail, "other", h...) }
	}},
	{"publish_below_retained", func(e *env) (*stream, func(...string) *response) {
		s, tail := e.withSnapshot()
		s.retain(tail).want(204)
		return s, func(h ...string) *response { return s.publish(s.start, "x", h...) }
	}},
	{"read_absent_snapshot", func(e *env) (*stream, func(...string) *response) {
		s := e.create(typeJSON)
		tail := s.add("1")
		return s, func(h ...string) *response { return s.snapshot(tail, h...) }
	}},
	{"retention_without_snapshot", func(e *env) (*stream, func(...string) *response) {
		s := e.create(typeJSON)
		tail := s.add("1")
		return s, func(h ...string) *response { return s.retain(tail, h...) }
	}},
	{"retention_beyond_snapshot", func(e *env) (*stream, func(...string) *response) {
		s, _ := e.withSnapshot()
		tail := s.add("2")
		return s, func(h ...string) *response { return s.retain(tail, h...) }
	}},
	{"retention_inside_message", func(e *env) (*stream, func(...string) *response) {
		s, _ := e.withSnapshot()
		inside := s.insideMessage(s.start)
		return s, func(h ...string) *response { return s.retain(inside, h...) }
	}},
	{"bootstrap_live", func(e *env) (*stream, func(...string) *response) {
		s := e.create(typeJSON)
		return s, func(h ...string) *response { return e.do("GET", s.path+"/bootstrap?live=sse", nil, h...) }
	}},
}

func preconditionCases() []testCase {
	var cases []testCase
	for _, req := range successes {
		cases = append(cases,
			testCase{"2.4", "match_" + req.name, func(e *env) {
				s, tail := e.withSnapshot()
				req.send(s, tail, hIncarnation, s.incarnation).want(req.want).wantHeader(hIncarnation, s.incarnation)
			}},
			testCase{"2.4", "mismatch_412_" + req.name, func(e *env) {
				s, tail := e.withSnapshot()
				r := req.send(s, tail, hIncarnation, e.foreign()).want(412).wantHeader(hIncarnation, s.incarnation)
				if strings.Contains(string(r.body), "first") || strings.Contains(string(r.body), `"snapshot"`) {
					e.Errorf("%v: a refused read returns no data", r)
				}
				stored := "\"first\"\n"
				if req.name == "publish_newer" {
					stored += "\"second\"\n"
				}
				s.untouched(tail, stored)
				// Nor did the refused append move the producer or the sequence.
				s.post("1", "Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "0", "Stream-Seq", "1").want(200)
			}},
			testCase{"2.4", "malformed_400_" + req.name, func(e *env) {
				s, tail := e.withSnapshot()
				for what, values := range malformed(s.incarnation) {
					if req.name == "publish_newer" && what != "a word" {
						continue // each of them would append
					}
					if r := req.send(s, tail, repeatHeader(hIncarnation, values)...); r.status != 400 {
						e.Errorf("%s: %v, want 400", what, r)
					}
				}
			}},
			testCase{"2.4", "stale_token_412_" + req.name, func(e *env) {
				s, _ := e.withSnapshot()
				old := s.incarnation
				s.recreate()
				tail := s.add(`"first"`)
				s.publish(tail, "snapshot").want(204)
				req.send(s, tail, hIncarnation, old).want(412).wantHeader(hIncarnation, s.incarnation)
			}},
		)
	}
	for _, req := range successes {
		switch req.name {
		case "create_existing", "publish_newer":
			continue
		}
		cases = append(cases, testCase{"2.4", "absent_404_" + req.name, func(e *env) {
			s, tail := e.withSnapshot()
			s.remove().want(204)
			req.send(s, tail, hIncarnation, s.incarnation).want(404)
			req.send(s, tail).want(404)
			s.head().want(404)
		}})
	}
	for _, f := range failures {
		cases = append(cases, testCase{"2.4", "other_failure_wins_" + f.name, func(e *env) {
			s, send := f.setup(e)
			without := send()
			if without.status < 400 {
				e.Fatalf("%v: expected to fail", without)
			}
			if with := send(hIncarnation, s.incarnation); with.status != without.status {
				e.Errorf("%v with the current token, want %d", with, without.status)
			}
			if with := send(hIncarnation, e.foreign()); with.status != without.status {
				e.Errorf("%v with another token, want %d", with, without.status)
			}
		}})
	}
	return append(cases,
		testCase{"2.4", "absent_header_changes_nothing", func(e *env) {
			s := e.create(typeJSON)
			s.recreate()
			s.add("1")
			s.get("offset=-1", "Accept", typeNDJSON).want(200).wantBody("1\n")
			s.remove().want(204)
		}},
		testCase{"2.4", "put_absent_412_creates_nothing", func(e *env) {
			path := e.path(e.name())
			r := e.do("PUT", path, []byte("1"), "Content-Type", typeJSON, hIncarnation, e.foreign()).want(412)
			r.wantNo(hIncarnation) // there is no current one
			e.do("HEAD", path, nil).want(404)
			e.do("PUT", path, nil, "Content-Type", typeText).want(201)
		}},
		testCase{"2.4", "put_absent_after_delete_412", func(e *env) {
			s := e.create(typeJSON)
			s.remove().want(204)
			e.do("PUT", s.path, nil, "Content-Type", typeJSON, hIncarnation, s.incarnation).want(412).wantNo(hIncarnation)
			s.head().want(404)
		}},
		testCase{"2.4", "fork_absent_412_takes_no_reference", func(e *env) {
			s := e.create(typeJSON)
			path := e.path(e.name())
			e.do("PUT", path, nil, "Stream-Forked-From", s.path, hIncarnation, s.incarnation).want(412)
			e.do("HEAD", path, nil).want(404)
			s.remove().want(204)
			s.head().want(404) // and not 410: no fork holds it
		}},
		testCase{"2.4", "put_malformed_creates_nothing", func(e *env) {
			path := e.path(e.name())
			for what, values := range malformed(e.foreign()) {
				h := append(repeatHeader(hIncarnation, values), "Content-Type", typeJSON)
				if r := e.do("PUT", path, nil, h...); r.status != 400 {
					e.Errorf("%s: %v, want 400", what, r)
				}
			}
			e.do("HEAD", path, nil).want(404)
		}},
		testCase{"2.4", "delete_match_mismatch_malformed_absent", func(e *env) {
			s := e.create(typeJSON)
			s.remove(hIncarnation, e.foreign()).want(412).wantHeader(hIncarnation, s.incarnation)
			for what, values := range malformed(s.incarnation) {
				if r := s.remove(repeatHeader(hIncarnation, values)...); r.status != 400 {
					e.Errorf("%s: %v, want 400", what, r)
				}
			}
			s.head().want(200).wantHeader(hIncarnation, s.incarnation)
			s.remove(hIncarnation, s.incarnation).want(204)
			s.remove(hIncarnation, s.incarnation).want(404)
		}},
		testCase{"2.4", "duplicate_append_with_stale_token_412", func(e *env) {
			// It would otherwise succeed, as a duplicate.
			s := e.create(typeJSON)
			producer := []string{"Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "0"}
			s.post("1", producer...).want(200)
			s.post("1", append(producer, hIncarnation, e.foreign())...).want(412)
			s.post("1", append(producer, hIncarnation, s.incarnation)...).want(204)
		}},
		testCase{"2.4", "mismatch_comes_before_not_modified", func(e *env) {
			s, _ := e.withSnapshot()
			tag := s.get("offset=-1").want(200).need("Etag")
			s.get("offset=-1", "If-None-Match", tag, hIncarnation, s.incarnation).want(304)
			s.get("offset=-1", "If-None-Match", tag, hIncarnation, e.foreign()).want(412).wantHeader(hIncarnation, s.incarnation)
		}},
		testCase{"2.4", "etag_of_an_old_incarnation_does_not_match", func(e *env) {
			s := e.create(typeText)
			s.add("same")
			tag := s.get("offset=-1").want(200).need("Etag")
			s.recreate()
			s.add("same")
			s.get("offset=-1", "If-None-Match", tag).want(200).wantBody("same")
			// Two empty streams share their offsets, and are not the same.
			empty := e.create(typeText)
			tag = empty.get("offset=-1").want(200).need("Etag")
			empty.recreate()
			empty.get("offset=-1", "If-None-Match", tag).want(200).wantHeader(hIncarnation, empty.incarnation)
		}},
		testCase{"2.4", "old_producer_state_is_not_inherited", func(e *env) {
			s := e.create(typeJSON)
			for i := range 3 {
				s.post("1", "Producer-Id", "p", "Producer-Epoch", "7", "Producer-Seq", fmt.Sprint(i)).want(200)
			}
			s.recreate()
			s.post("1", "Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "0").want(200)
			s.post("1", "Stream-Seq", "0").want(204)
		}},
	)
}

// liveEndCases are the ends of live reads whose stream goes away (section 2.4,
// "Present").
func liveEndCases() []testCase {
	ends := map[string]func(s *stream){
		"delete":   func(s *stream) { s.remove().want(204) },
		"recreate": func(s *stream) { s.recreate(); s.add(`"new"`) },
	}
	var cases []testCase
	for name, end := range ends {
		for _, with := range []string{"with_token", "without_token"} {
			headers := func(s *stream) []string {
				if with == "with_token" {
					return []string{hIncarnation, s.incarnation}
				}
				return nil
			}
			cases = append(cases,
				testCase{"2.4", "long_poll_ends_on_" + name + "_" + with, func(e *env) {
					s := e.create(typeJSON)
					tail := s.add(`"old"`)
					done := s.longPoll(tail, "&timeout_ms=60000", headers(s)...)
					end(s)
					r := e.wait(done).want(404, 412)
					if strings.Contains(string(r.body), "new") {
						e.Errorf("%v: data of another incarnation", r)
					}
				}},
				testCase{"2.4", "sse_ends_on_" + name + "_" + with, func(e *env) {
					for _, ct := range []string{typeJSON, typeText, typeBytes} {
						s := e.create(ct)
						s.add(`"old"`)
						es := s.sse("offset=-1", headers(s)...)
						es.batches()
						end(s)
						es.endsWithError()
					}
				}},
			)
		}
	}
	return append(cases,
		testCase{"2.4", "long_poll_ends_on_expiry", func(e *env) {
			// The read renews the TTL when it begins; it then outlives it.
			s := e.create(typeJSON, "Stream-TTL", "1")
			e.wait(s.longPoll(s.start, "&timeout_ms=10000")).want(404, 412, 204)
			eventually(e.T, "the stream expires", func() bool {
				time.Sleep(200 * time.Millisecond)
				return s.head().status == 404
			})
		}},
		testCase{"2.4", "many_live_readers_end_together", func(e *env) {
			s := e.create(typeJSON)
			var polls []<-chan answer
			var streams []*eventStream
			for range 20 {
				target := s.path + "?live=long-poll&timeout_ms=60000&offset=" + s.start
				done := make(chan answer, 1)
				go func() {
					r, err := e.try("GET", target, nil)
					done <- answer{r, err}
				}()
				polls = append(polls, done)
				es := s.sse("offset=-1")
				es.batches()
				streams = append(streams, es)
			}
			s.remove().want(204)
			for _, done := range polls {
				e.wait(done).want(404, 412)
			}
			for _, es := range streams {
				es.endsWithError()
			}
		}},
	)
}
