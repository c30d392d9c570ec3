package extensions

// fork makes a fork of s at its tail.
func (s *stream) fork(headers ...string) *stream {
	s.e.Helper()
	f := &stream{e: s.e, path: s.e.path(s.e.name()), contentType: s.contentType}
	r := s.e.do("PUT", f.path, nil, append([]string{"Stream-Forked-From", s.path}, headers...)...).want(201)
	f.incarnation = r.incarnation()
	f.start = f.head().want(200).need(hRetained)
	return f
}

// forkCases hold the extensions against streams whose first bytes are another
// stream's (PROTOCOL.md 4.2): a fork is a stream like any other.
func forkCases() []testCase {
	return []testCase{
		{"3.2", "bootstrap_of_a_fork_has_inherited_updates", func(e *env) {
			s := e.create(typeJSON)
			s.add(`["a","b"]`)
			f := s.fork()
			s.add(`"source only"`)
			tail := f.add(`"c"`)
			b := f.bootstrap()
			b.wantHeader(hSnapshotOffset, "-1").wantHeader(hNext, tail).wantHeader(hUpToDate, "true").wantHeader(hIncarnation, f.incarnation)
			if b.content() != "\"a\"\n\"b\"\n\"c\"\n" || len(b.updates) != 3 {
				e.Errorf("updates %q", b.updates)
			}
		}},
		{"3.2", "bootstrap_of_a_fork_of_bytes", func(e *env) {
			s := e.create(typeBytes)
			s.add("abc")
			f := s.fork()
			f.add("def")
			if b := f.bootstrap(); b.content() != "abcdef" {
				e.Errorf("updates %q", b.updates)
			}
		}},
		{"2.2", "snapshot_in_the_inherited_part", func(e *env) {
			s := e.create(typeJSON)
			one := s.add(`"a"`)
			s.add(`"b"`)
			f := s.fork()
			f.add(`"c"`)
			f.publish(f.insideMessage(f.start), "x").want(400)
			f.publish(one, "state after a").want(204)
			s.head().want(200).wantNo(hSnapshotOffset)
			b := f.bootstrap()
			b.wantHeader(hSnapshotOffset, one)
			if b.content() != "\"b\"\n\"c\"\n" {
				e.Errorf("updates %q", b.updates)
			}
		}},
		{"2.2", "retention_of_a_fork_leaves_the_source", func(e *env) {
			s := e.create(typeJSON)
			s.add(`"a"`)
			at := s.add(`"b"`)
			f := s.fork()
			f.add(`"c"`)
			f.publish(at, "x").want(204)
			f.retain(at).want(204)
			f.get("offset=-1").want(410)
			f.get("offset="+at, "Accept", typeNDJSON).want(200).wantBody("\"c\"\n")
			s.get("offset=-1", "Accept", typeNDJSON).want(200).wantBody("\"a\"\n\"b\"\n")
		}},
		{"2.2", "retention_of_the_source_leaves_the_fork", func(e *env) {
			s := e.create(typeJSON)
			s.add(`"a"`)
			s.add(`"b"`)
			f := s.fork()
			f.add(`"c"`)
			tail := s.add(`"source only"`)
			s.publish(tail, "x").want(204)
			s.retain(tail).want(204)
			s.get("offset=-1").want(410)
			f.get("offset=-1", "Accept", typeNDJSON).want(200).wantBody("\"a\"\n\"b\"\n\"c\"\n")
			if b := f.bootstrap(); b.content() != "\"a\"\n\"b\"\n\"c\"\n" {
				e.Errorf("updates %q", b.updates)
			}
			// A fork of the fork, and the source gone: the bytes stay.
			g := f.fork()
			s.remove().want(204)
			f.remove().want(204)
			g.get("offset=-1", "Accept", typeNDJSON).want(200).wantBody("\"a\"\n\"b\"\n\"c\"\n")
		}},
		{"3.4", "fork_of_a_retained_source_can_be_rebuilt", func(e *env) {
			// Where the source's first bytes are gone, the fork has none to inherit.
			// Refusing it is right, and so is giving it a snapshot that covers them.
			s := e.create(typeJSON)
			s.add(`"a"`)
			at := s.add(`"b"`)
			s.publish(at, "a and b").want(204)
			s.retain(at).want(204)
			s.add(`"c"`)
			path := e.path(e.name())
			if r := e.do("PUT", path, nil, "Stream-Forked-From", s.path); r.status/100 == 4 {
				return
			}
			f := &stream{e: e, path: path, contentType: typeJSON}
			if r := f.get("offset=-1"); r.status == 410 {
				if b := f.bootstrap(); b.header.Get(hSnapshotOffset) == "-1" {
					e.Errorf("the fork answers 410 for its beginning and has no snapshot to start from: bootstrap has %q", b.content())
				}
			}
		}},
		{"2.4", "retained_offset_of_a_fork", func(e *env) {
			s := e.create(typeJSON)
			s.add(`"a"`)
			f := s.fork()
			f.get("offset="+f.head().need(hRetained), "Accept", typeNDJSON).want(200).wantBody("\"a\"\n")
		}},
	}
}
