package extensions

import "strings"

func readSnapshotCases() []testCase {
	return []testCase{
		{"2.5", "headers_at_the_tail", func(e *env) {
			s := e.create(typeJSON)
			tail := s.add("1")
			digest := s.publish(tail, "body", "Content-Type", "text/x").want(204).need(hSnapshotDigest)
			s.snapshot(tail).want(200).wantBody("body").
				wantHeader("Content-Type", "text/x").
				wantHeader(hSnapshotOffset, tail).
				wantHeader(hSnapshotDigest, digest).
				wantHeader(hNext, tail).
				wantHeader(hUpToDate, "true").
				wantHeader(hIncarnation, s.incarnation)
		}},
		{"2.5", "not_up_to_date_when_updates_follow", func(e *env) {
			s := e.create(typeJSON)
			tail := s.add("1")
			s.publish(tail, "body").want(204)
			s.add("2")
			r := s.snapshot(tail).want(200).wantNo(hUpToDate)
			s.get("offset="+r.next(), "Accept", typeNDJSON).want(200).wantBody("2\n")
		}},
		{"2.5", "reading_on_yields_every_update_after", func(e *env) {
			s := e.create(typeText)
			s.add("a")
			tail := s.add("b")
			s.publish(tail, "ab").want(204)
			s.add("c")
			s.add("d")
			r := s.snapshot(tail).want(200)
			if got := s.stored(r.next()); got != "cd" {
				e.Errorf("after the snapshot: %q", got)
			}
		}},
		{"2.5", "no_snapshot_404", func(e *env) {
			s := e.create(typeJSON)
			tail := s.add("1")
			s.snapshot(tail).want(404)
			s.snapshot(s.start).want(404)
		}},
		{"2.5", "other_offset_404", func(e *env) {
			s := e.create(typeJSON)
			one := s.add("1")
			two := s.add("2")
			s.publish(one, "x").want(204)
			s.snapshot(two).want(404)
			s.snapshot(s.start).want(404)
		}},
		{"2.5", "absent_stream_404", func(e *env) {
			s, tail := e.withSnapshot()
			s.remove().want(204)
			s.snapshot(tail).want(404)
		}},
		{"2.5", "superseded_is_gone_or_unchanged", func(e *env) {
			s := e.create(typeJSON)
			one := s.add("1")
			s.publish(one, "first").want(204)
			s.publish(s.add("2"), "second").want(204)
			if r := s.snapshot(one).want(200, 404); r.status == 200 {
				r.wantBody("first").wantHeader(hSnapshotOffset, one)
			}
		}},
		{"2.5", "reads_do_not_return_snapshot_bytes", func(e *env) {
			s := e.create(typeText)
			tail := s.add("update")
			s.publish(tail, "SNAPSHOT").want(204)
			for _, q := range []string{"offset=-1", "offset=" + s.start, "offset=" + tail, "offset=now", "offset=-1&live=long-poll"} {
				if r := s.get(q).want(200); strings.Contains(string(r.body), "SNAPSHOT") {
					e.Errorf("%v", r)
				}
			}
		}},
		{"2.5", "nosniff", func(e *env) {
			s, tail := e.withSnapshot()
			s.snapshot(tail).want(200).wantHeader("X-Content-Type-Options", "nosniff")
		}},
	}
}
