package extensions

func retentionCases() []testCase {
	return []testCase{
		{"2.2", "retention_reports_the_effective_boundary_and_incarnation", func(e *env) {
			s := e.create(typeJSON)
			one := s.add("1")
			s.add("2")
			s.publish(one, "x").want(204)
			r := s.retain(one).want(204).wantHeader(hIncarnation, s.incarnation)
			if effective := r.need(hRetained); effective > one {
				e.Errorf("retained %s, beyond %s as asked", effective, one)
			}
			s.head().want(200).wantHeader(hRetained, r.need(hRetained))
		}},
		{"2.2", "retention_is_exact", func(e *env) {
			// The spec lets a server retain less than asked; this one promises not to.
			s := e.create(typeJSON)
			one := s.add("1")
			s.publish(one, "x").want(204)
			s.retain(one).want(204).wantHeader(hRetained, one)
		}},
		{"2.2", "offsets_below_retained_410", func(e *env) {
			s := e.create(typeJSON)
			one := s.add("1")
			two := s.add("2")
			tail := s.add("3")
			s.publish(two, "x").want(204)
			s.retain(two).want(204)
			for _, o := range []string{"-1", s.start, one} {
				s.get("offset=" + o).want(410)
				s.get("offset=" + o + "&live=long-poll").want(410)
				s.get("offset=" + o + "&live=sse").want(410)
				s.get("offset=" + o + "&consistency=leader").want(410)
			}
			e.do("GET", s.path, nil).want(410)
			s.get("offset="+two, "Accept", typeNDJSON).want(200).wantBody("3\n").wantHeader(hNext, tail)
			s.get("offset="+tail, "Accept", typeNDJSON).want(200).wantBody("").wantHeader(hUpToDate, "true")
			s.get("offset=now").want(200)
		}},
		{"2.2", "inside_message_below_retained_410", func(e *env) {
			s := e.create(typeJSON)
			inside := s.insideMessage(func() string { s.add(`"abc"`); return s.start }())
			tail := s.head().next()
			s.publish(tail, "x").want(204)
			s.retain(tail).want(204)
			s.get("offset="+inside, "Accept", typeNDJSON).want(410)
		}},
		{"2.2", "bytes_below_retained_are_gone_from_bootstrap", func(e *env) {
			s := e.create(typeJSON)
			one := s.add("1")
			s.add("2")
			s.publish(one, "x").want(204)
			s.retain(one).want(204)
			b := s.bootstrap()
			if b.content() != "2\n" || string(b.snapshot.body) != "x" {
				e.Errorf("bootstrap: snapshot %q, updates %q", b.snapshot.body, b.content())
			}
		}},
		{"2.2", "retention_inside_a_message_400", func(e *env) {
			s := e.create(typeJSON)
			s.add(`"abc"`)
			tail := s.add(`"def"`)
			s.publish(tail, "x").want(204)
			s.retain(s.insideMessage(s.start)).want(400)
			s.head().want(200).wantHeader(hRetained, s.start)
			s.get("offset=-1", "Accept", typeNDJSON).want(200).wantBody("\"abc\"\n\"def\"\n")
		}},
		{"2.2", "retention_at_invalid_offset_400", func(e *env) {
			s := e.create(typeText)
			s.publish(s.add("abc"), "x").want(204)
			for _, o := range []string{"x", "now", "1.5", "-2", "%00"} {
				s.retain(o).want(400)
			}
		}},
		{"2.2", "retention_inside_bytes_of_other_types", func(e *env) {
			s := e.create(typeBytes)
			s.add("abcdef")
			tail := s.add("ghi")
			inside := s.get("offset=" + s.start + "&max_bytes=4").want(200).next()
			s.publish(tail, "x").want(204)
			s.retain(inside).want(204).wantHeader(hRetained, inside)
			s.get("offset=" + s.start).want(410)
			s.get("offset=" + inside).want(200).wantBody("efghi")
		}},
		{"2.2", "retention_backward_refused", func(e *env) {
			s := e.create(typeJSON)
			one := s.add("1")
			two := s.add("2")
			s.publish(two, "x").want(204)
			s.retain(two).want(204)
			for _, o := range []string{one, s.start} {
				if r := s.retain(o); r.status != 409 && r.status != 410 {
					e.Errorf("%v, want 409 or 410", r)
				}
			}
			s.head().want(200).wantHeader(hRetained, two)
		}},
		{"2.2", "retention_beyond_snapshot_refused", func(e *env) {
			s := e.create(typeJSON)
			one := s.add("1")
			two := s.add("2")
			s.publish(one, "x").want(204)
			s.retain(two).want(409)
			s.head().want(200).wantHeader(hRetained, s.start)
			s.get("offset=-1", "Accept", typeNDJSON).want(200).wantBody("1\n2\n")
		}},
		{"2.2", "retention_beyond_tail_refused", func(e *env) {
			s := e.create(typeJSON)
			s.publish(s.add("1"), "x").want(204)
			s.retain(s.beyondTail()).want(409)
			s.head().want(200).wantHeader(hRetained, s.start)
		}},
		{"2.2", "retention_without_snapshot_refused", func(e *env) {
			s := e.create(typeJSON)
			tail := s.add("1")
			s.retain(tail).want(409)
			s.head().want(200).wantHeader(hRetained, s.start)
		}},
		{"2.2", "retention_repeated_succeeds", func(e *env) {
			s := e.create(typeJSON)
			one := s.add("1")
			s.publish(one, "x").want(204)
			for range 3 {
				s.retain(one).want(204).wantHeader(hRetained, one)
			}
		}},
		{"2.2", "retention_advances_with_newer_snapshots", func(e *env) {
			s := e.create(typeJSON)
			for range 5 {
				tail := s.add("1")
				s.publish(tail, "at "+tail).want(204)
				s.retain(tail).want(204).wantHeader(hRetained, tail)
				s.head().want(200).wantHeader(hRetained, tail).wantHeader(hNext, tail)
				s.get("offset=-1").want(410)
			}
			after := s.add("9")
			s.get("offset="+s.head().need(hRetained), "Accept", typeNDJSON).want(200).wantBody("9\n").wantHeader(hNext, after)
		}},
		{"2.2", "retention_of_absent_stream_404", func(e *env) {
			s := e.create(typeJSON)
			tail := s.add("1")
			s.remove().want(204)
			s.retain(tail).want(404)
		}},
		{"2.2", "retention_methods", func(e *env) {
			s := e.create(typeJSON)
			for _, method := range []string{"GET", "POST", "DELETE"} {
				r := e.do(method, s.path+"/retention/"+s.start, nil).want(405)
				if allow := r.need("Allow"); allow == "" {
					e.Errorf("%v: no Allow", r)
				}
			}
		}},
		{"2.2", "recreated_stream_starts_unretained", func(e *env) {
			s := e.create(typeJSON)
			tail := s.add("1")
			s.publish(tail, "x").want(204)
			s.retain(tail).want(204)
			s.recreate()
			s.head().want(200).wantNo(hSnapshotOffset).wantHeader(hRetained, s.start)
			s.get("offset=-1").want(200)
			s.snapshot(tail).want(404)
		}},
	}
}
