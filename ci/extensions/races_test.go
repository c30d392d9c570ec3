package extensions

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// raceCases pit two operations against each other, e.rounds times. What must
// hold, holds whichever of them comes first.
func raceCases() []testCase {
	return []testCase{
		{"race", "append_against_recreate", appendAgainstRecreate},
		{"race", "producer_against_recreate", producerAgainstRecreate},
		{"race", "publish_against_recreate", publishAgainstRecreate},
		{"race", "publish_against_retention", publishAgainstRetention},
		{"race", "publish_against_publish", publishAgainstPublish},
		{"race", "bootstrap_against_retention_and_replacement", bootstrapAgainstRetention},
		{"race", "read_against_retention", readAgainstRetention},
		{"race", "long_poll_against_recreate", longPollAgainstRecreate},
		{"race", "sse_against_recreate", sseAgainstRecreate},
		{"race", "create_against_create", createAgainstCreate},
	}
}

// both runs the functions at once, each up to two milliseconds late so that
// either may be first, and waits for them.
func both(fs ...func()) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for _, f := range fs {
		wg.Go(func() {
			<-start
			time.Sleep(rand.N(2 * time.Millisecond))
			f()
		})
	}
	close(start)
	wg.Wait()
}

// mustTry is try for goroutines: it fails the test, without ending it, where
// there is no answer or none of the statuses.
func (e *env) mustTry(method, target string, body []byte, status []int, headers ...string) *response {
	r, err := e.try(method, target, body, headers...)
	if err != nil {
		e.Error(err)
		return &response{e: e, what: method + " " + target}
	}
	if !slices.Contains(status, r.status) {
		e.Errorf("%v, want %v", r, status)
	}
	return r
}

// recreateInBackground is recreate for goroutines; it returns the new token.
func (s *stream) recreateInBackground() string {
	s.e.mustTry("DELETE", s.path, nil, []int{204})
	return s.e.mustTry("PUT", s.path, nil, []int{201}, "Content-Type", s.contentType).header.Get(hIncarnation)
}

func appendAgainstRecreate(e *env) {
	s := e.create(typeJSON)
	outcomes := map[int]int{}
	for round := range e.rounds {
		var appends [3]*response
		var token string
		fs := []func(){func() { token = s.recreateInBackground() }}
		for i := range appends {
			fs = append(fs, func() {
				appends[i] = e.mustTry("POST", s.path, fmt.Appendf(nil, `"%d old"`, round), []int{204, 404, 412},
					"Content-Type", typeJSON, hIncarnation, s.incarnation)
			})
		}
		both(fs...)
		for _, r := range appends {
			outcomes[r.status]++
			if r.status == 412 && r.header.Get(hIncarnation) != token {
				e.Errorf("%v names %q, the stream is %q", r, r.header.Get(hIncarnation), token)
			}
			if r.status == 204 && r.header.Get(hIncarnation) != s.incarnation {
				e.Errorf("%v acknowledged by %q, meant for %q", r, r.header.Get(hIncarnation), s.incarnation)
			}
		}
		if got := s.stored("-1"); got != "" {
			e.Fatalf("round %d: the new stream holds %q", round, got)
		}
		s.incarnation = token
	}
	e.Logf("outcomes %v", outcomes)
}

func producerAgainstRecreate(e *env) {
	s := e.create(typeJSON)
	for round := range e.rounds {
		var token string
		both(
			func() { token = s.recreateInBackground() },
			func() {
				e.mustTry("POST", s.path, []byte(`"old"`), []int{200, 404, 412}, "Content-Type", typeJSON,
					hIncarnation, s.incarnation, "Producer-Id", "p", "Producer-Epoch", "9", "Producer-Seq", "0")
			},
		)
		// The new stream knows no epoch 9.
		s.post(`"new"`, "Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "0").want(200)
		if got := s.stored("-1"); got != "\"new\"\n" {
			e.Fatalf("round %d: the new stream holds %q", round, got)
		}
		s.incarnation = token
	}
}

func publishAgainstRecreate(e *env) {
	s := e.create(typeJSON)
	for round := range e.rounds {
		tail := s.add(`"old"`)
		var token string
		both(
			func() { token = s.recreateInBackground() },
			func() {
				e.mustTry("PUT", s.path+"/snapshot/"+tail, []byte("old"), []int{204, 404, 412, 409, 400}, // 409 and 400 come before 412
					hIncarnation, s.incarnation)
			},
			func() {
				// Without the header it may be meant for either, and the new one has no such offset.
				e.mustTry("PUT", s.path+"/snapshot/"+tail, []byte("old"), []int{204, 404, 409, 400})
			},
		)
		s.head().want(200).wantHeader(hIncarnation, token).wantNo(hSnapshotOffset)
		s.snapshot(tail).want(404)
		if e.Failed() {
			e.Fatalf("round %d", round)
		}
		s.incarnation = token
	}
}

func publishAgainstRetention(e *env) {
	s := e.create(typeJSON)
	s.publish(s.add("0"), "0").want(204)
	for round := range e.rounds {
		old := s.head().need(hSnapshotOffset)
		middle := s.add("1")
		tail := s.add("2")
		both(
			func() { e.mustTry("PUT", s.path+"/snapshot/"+tail, []byte("tail"), []int{204}) },
			func() { e.mustTry("PUT", s.path+"/snapshot/"+middle, []byte("middle"), []int{204, 409, 410}) },
			// Only the newer snapshots allow these.
			func() { e.mustTry("PUT", s.path+"/retention/"+middle, nil, []int{204, 409}) },
			func() { e.mustTry("PUT", s.path+"/retention/"+tail, nil, []int{204, 409}) },
			func() { e.mustTry("PUT", s.path+"/retention/"+old, nil, []int{204, 409}) },
			func() {
				h := e.mustTry("HEAD", s.path, nil, []int{200})
				if h.header.Get(hRetained) > h.header.Get(hSnapshotOffset) {
					e.Errorf("retained %s beyond the snapshot at %s", h.header.Get(hRetained), h.header.Get(hSnapshotOffset))
				}
			},
		)
		h := s.head().want(200).wantHeader(hSnapshotOffset, tail)
		if h.need(hRetained) > tail {
			e.Errorf("retained %s beyond the snapshot at %s", h.need(hRetained), tail)
		}
		s.snapshot(tail).want(200).wantBody("tail")
		s.get("offset=" + h.need(hRetained)).want(200)
		if b := s.bootstrap(); len(b.updates) != 0 || string(b.snapshot.body) != "tail" {
			e.Errorf("bootstrap: %q and %d updates", b.snapshot.body, len(b.updates))
		}
		if e.Failed() {
			e.Fatalf("round %d", round)
		}
	}
}

func publishAgainstPublish(e *env) {
	s := e.create(typeJSON)
	for round := range e.rounds {
		tail := s.add("1")
		var published atomic.Int32
		var winner atomic.Value
		var fs []func()
		for i := range 4 {
			fs = append(fs, func() {
				body := fmt.Sprint("body ", i%2)
				if r := e.mustTry("PUT", s.path+"/snapshot/"+tail, []byte(body), []int{204, 409}); r.status == 204 {
					published.Add(1)
					if old := winner.Swap(body); old != nil && old != body {
						e.Errorf("both %q and %q were published at %s", old, body, tail)
					}
				}
			})
		}
		both(fs...)
		if published.Load() == 0 {
			e.Errorf("nothing was published")
		} else if got := s.snapshot(tail).want(200); string(got.body) != winner.Load() {
			e.Errorf("acknowledged %q, stored %q", winner.Load(), got.body)
		}
		if e.Failed() {
			e.Fatalf("round %d", round)
		}
	}
}

// bootstrapAgainstRetention has one writer that appends numbers, publishes how
// many it folded and retains; readers bootstrap meanwhile. What they get is
// always a snapshot of n and updates n, n+1, n+2 ...
func bootstrapAgainstRetention(e *env) {
	s := e.create(typeJSON)
	stop := make(chan struct{})
	writer := func() {
		defer close(stop)
		n := 0
		for range e.rounds {
			var at string
			for i := range 3 {
				r := e.mustTry("POST", s.path, fmt.Append(nil, n), []int{204}, "Content-Type", typeJSON)
				n++
				if i == 1 {
					at = r.header.Get(hNext)
					e.mustTry("PUT", s.path+"/snapshot/"+at, fmt.Append(nil, n), []int{204})
				}
			}
			e.mustTry("PUT", s.path+"/retention/"+at, nil, []int{204})
			if e.Failed() {
				return
			}
		}
	}
	reads := atomic.Int64{}
	reader := func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			r := e.mustTry("GET", s.path+"/bootstrap", nil, []int{200})
			if e.Failed() {
				return
			}
			b, err := parseBootstrap(r)
			if err != nil {
				e.Error(err)
				return
			}
			n := 0
			if r.header.Get(hSnapshotOffset) != "-1" {
				if _, err := fmt.Sscan(string(b.snapshot.body), &n); err != nil {
					e.Errorf("snapshot %q: %v", b.snapshot.body, err)
					return
				}
			}
			for i, p := range b.updates {
				if got := strings.TrimSpace(string(p.body)); got != fmt.Sprint(n+i) {
					e.Errorf("snapshot of %d, update %d is %s", n, i, got)
					return
				}
			}
			rest := e.mustTry("GET", s.path+"?offset="+r.header.Get(hNext), nil, []int{200, 410}, "Accept", typeNDJSON)
			if line, _, ok := strings.Cut(string(rest.body), "\n"); ok && rest.status == 200 && line != fmt.Sprint(n+len(b.updates)) {
				e.Errorf("snapshot of %d, %d updates, then %s", n, len(b.updates), line)
				return
			}
			reads.Add(1)
		}
	}
	both(writer, reader, reader, reader)
	e.Logf("%d bootstraps", reads.Load())
}

// readAgainstRetention reads what is being retained away: all of it or 410,
// never a part from which bytes are missing.
func readAgainstRetention(e *env) {
	for round := range e.rounds {
		s := e.create(typeJSON)
		s.add(`["a","b"]`)
		tail := s.add(`["c","d"]`)
		s.publish(tail, "x").want(204)
		both(
			func() { e.mustTry("PUT", s.path+"/retention/"+tail, nil, []int{204}) },
			func() {
				r := e.mustTry("GET", s.path+"?offset=-1", nil, []int{200, 410}, "Accept", typeNDJSON)
				if r.status == 200 && string(r.body) != "\"a\"\n\"b\"\n\"c\"\n\"d\"\n" {
					e.Errorf("%v", r)
				}
			},
			func() {
				b, err := parseBootstrap(e.mustTry("GET", s.path+"/bootstrap", nil, []int{200}))
				if err != nil || string(b.snapshot.body) != "x" || len(b.updates) != 0 {
					e.Errorf("bootstrap %v %q %d", err, b.snapshot.body, len(b.updates))
				}
			},
		)
		if e.Failed() {
			e.Fatalf("round %d", round)
		}
	}
}

func longPollAgainstRecreate(e *env) {
	outcomes := map[int]int{}
	s := e.create(typeJSON)
	tail := s.add(`"old"`)
	for round := range e.rounds {
		var token string
		var polls [2]*response
		both(
			func() {
				token = s.recreateInBackground()
				e.mustTry("POST", s.path, []byte(`"new"`), []int{204}, "Content-Type", typeJSON)
			},
			func() {
				// The new stream may be too short for the offset, and that comes before 412.
				polls[0] = e.mustTry("GET", s.path+"?live=long-poll&timeout_ms=20000&offset="+tail, nil, []int{404, 412, 400, 416}, hIncarnation, s.incarnation)
			},
			func() {
				// Pinned to whichever it was opened against, which has either no such
				// offset, or ends, or is the new one.
				polls[1] = e.mustTry("GET", s.path+"?live=long-poll&timeout_ms=300&offset="+tail, nil, []int{200, 204, 400, 404, 410, 412, 416})
			},
		)
		outcomes[polls[0].status]++
		if polls[0].status == 412 && polls[0].header.Get(hIncarnation) != token {
			e.Errorf("%v names %q, the stream is %q", polls[0], polls[0].header.Get(hIncarnation), token)
		}
		if p := polls[1]; p.status == 200 && p.header.Get(hIncarnation) != token && strings.Contains(string(p.body), "new") {
			e.Errorf("%v: new data under incarnation %q, the stream is %q", p, p.header.Get(hIncarnation), token)
		}
		s.incarnation = token
		tail = s.head().want(200).next()
		if e.Failed() {
			e.Fatalf("round %d", round)
		}
	}
	e.Logf("outcomes %v", outcomes)
}

func sseAgainstRecreate(e *env) {
	s := e.create(typeJSON)
	s.add(`"0"`)
	for round := range e.rounds {
		var token string
		mine := s.incarnation
		both(
			func() {
				token = s.recreateInBackground()
				e.mustTry("POST", s.path, fmt.Appendf(nil, `"%d"`, round+1), []int{204}, "Content-Type", typeJSON)
			},
			func() {
				es, r, err := e.trySSE(s.path+"?live=sse&offset=-1", hIncarnation, mine)
				if err != nil {
					e.Error(err)
					return
				}
				if r != nil {
					if r.status != 404 && r.status != 412 {
						e.Errorf("%v, want 404 or 412", r)
					}
					return
				}
				defer es.close()
				var last event
				for {
					ev, err := es.tryNext()
					if err != nil {
						break
					}
					if ev.name == "data" && strings.Contains(ev.data, fmt.Sprintf(`"%d"`, round+1)) {
						e.Errorf("round %d: data of the new incarnation: %q", round, ev.data)
					}
					last = ev
				}
				if last.name != "error" {
					e.Errorf("round %d: the last event is %q %q, want an error event", round, last.name, last.data)
				}
			},
		)
		s.incarnation = token
		if e.Failed() {
			e.Fatalf("round %d", round)
		}
	}
}

func createAgainstCreate(e *env) {
	for range e.rounds {
		path := e.path(e.name())
		var tokens sync.Map
		var created atomic.Int32
		var fs []func()
		for range 4 {
			fs = append(fs, func() {
				r := e.mustTry("PUT", path, []byte("1"), []int{200, 201}, "Content-Type", typeJSON)
				if r.status == 201 {
					created.Add(1)
				}
				tokens.Store(r.header.Get(hIncarnation), true)
			})
		}
		both(fs...)
		n := 0
		tokens.Range(func(any, any) bool { n++; return true })
		if created.Load() != 1 || n != 1 {
			e.Errorf("%d creations, %d incarnations", created.Load(), n)
		}
		e.do("GET", path+"?offset=-1", nil, "Accept", typeNDJSON).want(200).wantBody("1\n")
	}
}
