package extensions

import (
	"fmt"
	"strings"
)

const mib = 1 << 20

func bootstrapCases() []testCase {
	return []testCase{
		{"3.1", "live_rejected_400", func(e *env) {
			s, _ := e.withSnapshot()
			for _, q := range []string{"live=sse", "live=long-poll", "live=true", "live="} {
				if r := e.do("GET", s.path+"/bootstrap?"+q, nil); r.status != 400 {
					e.Errorf("%v, want 400", r)
				}
			}
		}},
		{"3.2", "no_snapshot_empty_first_part", func(e *env) {
			s := e.create(typeJSON)
			tail := s.add(`[{"a":1},{"b":2}]`)
			b := s.bootstrap()
			b.wantHeader(hSnapshotOffset, "-1").wantHeader(hNext, tail).wantHeader(hUpToDate, "true").wantHeader(hIncarnation, s.incarnation)
			if len(b.snapshot.body) != 0 || b.snapshot.contentType != typeBytes {
				e.Errorf("first part is %q of %q", b.snapshot.body, b.snapshot.contentType)
			}
			if b.content() != "{\"a\":1}\n{\"b\":2}\n" || len(b.updates) != 2 {
				e.Errorf("updates %q", b.updates)
			}
		}},
		{"3.2", "empty_stream", func(e *env) {
			s := e.create(typeJSON)
			b := s.bootstrap()
			b.wantHeader(hSnapshotOffset, "-1").wantHeader(hNext, s.start).wantHeader(hUpToDate, "true")
			if len(b.updates) != 0 {
				e.Errorf("updates %q", b.updates)
			}
		}},
		{"3.2", "snapshot_then_updates", func(e *env) {
			s := e.create(typeJSON)
			s.add("1")
			at := s.add("2")
			digest := s.publish(at, "one and two", "Content-Type", "text/x-state").want(204).need(hSnapshotDigest)
			tail := s.add(`[3,4]`)
			b := s.bootstrap()
			b.wantHeader(hSnapshotOffset, at).wantHeader(hNext, tail).wantHeader(hUpToDate, "true")
			if d := b.header.Get(hSnapshotDigest); d != "" && d != digest {
				e.Errorf("digest %q, want %q", d, digest)
			}
			if string(b.snapshot.body) != "one and two" || b.snapshot.contentType != "text/x-state" {
				e.Errorf("first part is %q of %q", b.snapshot.body, b.snapshot.contentType)
			}
			if b.content() != "3\n4\n" {
				e.Errorf("updates %q", b.updates)
			}
		}},
		{"3.2", "snapshot_at_tail_has_no_updates", func(e *env) {
			s, tail := e.withSnapshot()
			b := s.bootstrap()
			b.wantHeader(hSnapshotOffset, tail).wantHeader(hNext, tail).wantHeader(hUpToDate, "true")
			if len(b.updates) != 0 || string(b.snapshot.body) != "snapshot" {
				e.Errorf("snapshot %q, updates %q", b.snapshot.body, b.updates)
			}
		}},
		{"3.2", "one_json_message_per_part", func(e *env) {
			s := e.create("application/json; charset=utf-8")
			texts := []string{`{"a":[1,2]}`, `"x\ny"`, `[]`, `[[1]]`, `1e400`, `""`}
			for _, text := range texts {
				s.add("[" + text + "]")
			}
			b := s.bootstrap()
			if len(b.updates) != len(texts) {
				e.Fatalf("%d parts for %d messages", len(b.updates), len(texts))
			}
			for i, p := range b.updates {
				if strings.TrimSuffix(string(p.body), "\n") != texts[i] {
					e.Errorf("part %d is %q, want %q", i, p.body, texts[i])
				}
				if p.contentType != "application/json; charset=utf-8" {
					e.Errorf("part %d has type %q", i, p.contentType)
				}
			}
		}},
		{"3.2", "part_types_of_other_streams", func(e *env) {
			for _, ct := range []string{typeText, typeBytes, "image/png"} {
				s := e.create(ct)
				s.add("abc")
				s.add("def")
				b := s.bootstrap()
				if b.content() != "abcdef" {
					e.Errorf("updates %q", b.updates)
				}
				for _, p := range b.updates {
					if p.contentType != ct {
						e.Errorf("part of type %q, want %q", p.contentType, ct)
					}
				}
			}
		}},
		{"3.2", "bytes_are_not_reframed", func(e *env) {
			s := e.create(typeBytes)
			snapshot := "--\r\n\r\n--x--\r\nContent-Type: text/html\r\n\r\n" + pattern(100_000, 13) + "\r\n"
			at := s.add("before")
			s.publish(at, snapshot).want(204)
			want := "\r\n--" + pattern(70_000, 17) + "\r\n--\r\n"
			s.add(want[:1000])
			s.add(want[1000:])
			b := s.bootstrap()
			if string(b.snapshot.body) != snapshot {
				e.Errorf("snapshot came back as %d bytes, of %d, or others", len(b.snapshot.body), len(snapshot))
			}
			if b.content() != want {
				e.Errorf("updates came back as %d bytes, of %d, or others", len(b.content()), len(want))
			}
		}},
		{"3.2", "boundary_is_fresh_and_long", func(e *env) {
			s, _ := e.withSnapshot()
			seen := map[string]bool{}
			for range 10 {
				b := s.bootstrap()
				if seen[b.boundary] || len(b.boundary) < 16 {
					e.Errorf("boundary %q, seen before: %v", b.boundary, seen[b.boundary])
				}
				seen[b.boundary] = true
			}
		}},
		{"3.2", "absent_stream_404", func(e *env) {
			e.do("GET", e.path(e.name())+"/bootstrap", nil).want(404)
			s := e.create(typeJSON)
			s.remove().want(204)
			e.do("GET", s.path+"/bootstrap", nil).want(404)
		}},
		{"3.2", "next_offset_is_readable", func(e *env) {
			s, _ := e.withSnapshot()
			s.add("2")
			b := s.bootstrap()
			after := s.add("3")
			s.get("offset="+b.next(), "Accept", typeNDJSON).want(200).wantBody("3\n").wantHeader(hNext, after)
		}},
		{"3.2", "not_cacheable", func(e *env) {
			s, _ := e.withSnapshot()
			if cc := s.bootstrap().header.Get("Cache-Control"); !strings.Contains(cc, "no-store") {
				e.Errorf("Cache-Control %q", cc)
			}
		}},
		{"3.2", "json_over_the_cap_is_honest", func(e *env) {
			s := e.create(typeJSON)
			s.publish(s.add(`"before"`), "snapshot").want(204)
			message := `"` + strings.Repeat("m", 100_000) + `"`
			var want strings.Builder
			for i := 0; want.Len() < 10*mib; i++ {
				body := fmt.Sprintf("[%d,%s]", i, message)
				s.add(body)
				fmt.Fprintf(&want, "%d\n%s\n", i, message)
			}
			b := s.bootstrap()
			e.checkPartial(s, b, want.String())
			if len(b.content()) > 8*mib {
				e.Errorf("%d bytes of updates, over the cap", len(b.content()))
			}
		}},
		{"3.2", "other_over_the_cap_is_honest", func(e *env) {
			s := e.create(typeBytes)
			var want strings.Builder
			for i := 0; want.Len() < 10*mib; i++ {
				piece := pattern(700_000, i)
				s.add(piece)
				want.WriteString(piece)
			}
			b := s.bootstrap()
			e.checkPartial(s, b, want.String())
			if len(b.content()) > 8*mib {
				e.Errorf("%d bytes of updates, over the cap", len(b.content()))
			}
		}},
		{"3.2", "one_message_over_the_cap_is_whole", func(e *env) {
			s := e.create(typeJSON)
			big := `"` + strings.Repeat("b", 8*mib+1000) + `"`
			if r := s.post(big); r.status == 413 {
				e.Skip("the server takes no body as large as its read cap")
			} else {
				r.want(204)
			}
			s.add(`"after"`)
			b := s.bootstrap()
			if len(b.updates) == 0 || string(b.updates[0].body) != big+"\n" {
				e.Fatalf("%d parts; the first must be the whole message", len(b.updates))
			}
			e.checkPartial(s, b, big+"\n\"after\"\n")
		}},
		{"3.3", "tailing_continues_from_next_offset", func(e *env) {
			s, _ := e.withSnapshot()
			s.add(`"second"`)
			b := s.bootstrap()
			done := s.longPoll(b.next(), "&timeout_ms=20000")
			es := s.sse("offset=" + b.next())
			s.add(`"third"`)
			if r := e.wait(done).want(200); !strings.Contains(string(r.body), "third") || strings.Contains(string(r.body), "second") {
				e.Errorf("%v", r)
			}
			var got strings.Builder
			for !strings.Contains(got.String(), "third") {
				for _, batch := range es.batches() {
					got.Write(batch.data)
				}
			}
			if strings.Contains(got.String(), "second") {
				e.Errorf("SSE repeats %q", got.String())
			}
		}},
		{"3.4", "bootstrap_covers_the_retained_offset", func(e *env) {
			s := e.create(typeJSON)
			var folded int
			for round := range 4 {
				for range 3 {
					s.add("1")
					folded++
				}
				at := s.head().next()
				s.publish(at, fmt.Sprint(folded)).want(204)
				s.retain(at).want(204)
				for range round {
					s.add("1")
					folded++
				}
				s.get("offset=-1").want(410)
				b := s.bootstrap()
				var state int
				if _, err := fmt.Sscan(string(b.snapshot.body), &state); err != nil {
					e.Fatal(err)
				}
				if state+len(b.updates) != folded {
					e.Errorf("snapshot of %d and %d updates, want %d", state, len(b.updates), folded)
				}
				if h := s.head(); b.header.Get(hSnapshotOffset) < h.need(hRetained) {
					e.Errorf("snapshot at %s leaves a gap to retained %s", b.header.Get(hSnapshotOffset), h.need(hRetained))
				}
			}
		}},
		{"3.4", "without_snapshot_updates_begin_at_the_first_byte", func(e *env) {
			path := e.path(e.name())
			e.do("PUT", path, []byte(`["from","put"]`), "Content-Type", typeJSON).want(201)
			s := &stream{e: e, path: path, contentType: typeJSON}
			s.add(`"post"`)
			if b := s.bootstrap(); b.content() != "\"from\"\n\"put\"\n\"post\"\n" {
				e.Errorf("updates %q", b.content())
			}
		}},
	}
}

// checkPartial fails the test unless b holds a prefix of want, which is what
// follows the snapshot point, says so honestly and can be read on from.
func (e *env) checkPartial(s *stream, b bootstrap, want string) {
	e.Helper()
	got := b.content()
	if !strings.HasPrefix(want, got) {
		e.Fatalf("%d bytes of updates that are not the stream's", len(got))
	}
	tail := s.head().next()
	if b.upToDate() != (b.next() == tail) || b.upToDate() != (len(got) == len(want)) {
		e.Errorf("%d of %d bytes, next offset %s of %s, %s %q", len(got), len(want), b.next(), tail, hUpToDate, b.header.Get(hUpToDate))
	}
	if rest := s.stored(b.next()); got+rest != want {
		e.Errorf("%d bytes and then %d do not make the %d of the stream", len(got), len(rest), len(want))
	}
	if s.contentType == typeJSON {
		for i, p := range b.updates {
			if strings.Count(string(p.body), "\n") != 1 || !strings.HasSuffix(string(p.body), "\n") {
				e.Errorf("part %d is not one message: %s", i, clip(p.body))
			}
		}
	}
}
