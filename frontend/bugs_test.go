package frontend

// One test for each bug that servers in the field have had.

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRecreatedStreamIsNotNotModified(t *testing.T) {
	s := serve(t)
	p := s.create("s", "text/plain")
	s.add(p, "text/plain", "same")
	tag := s.get(p).want(200).need("Etag")
	s.get(p, "If-None-Match", tag).want(304)
	s.do("DELETE", p, "").want(204)
	s.create("s", "text/plain")
	s.add(p, "text/plain", "SAME")
	s.get(p, "If-None-Match", tag).want(200).wantBody("SAME")

	// Offsets are never used twice, but that of the start is: of an empty stream
	// only the incarnation tells which one it is.
	p = s.create("empty", "text/plain")
	first := s.get(p).want(200)
	s.do("DELETE", p, "").want(204)
	s.create("empty", "text/plain")
	again := s.get(p, "If-None-Match", first.need("Etag")).want(200)
	if first.need(hIncarnation) == again.need(hIncarnation) {
		t.Error("the incarnation did not change")
	}
}

func TestClosureIsNotHiddenByNotModified(t *testing.T) {
	s := serve(t)
	p := s.create("s", "text/plain")
	tail := s.add(p, "text/plain", "all")
	for _, at := range []string{"-1", tail} {
		url := p + "?offset=" + at
		tag := s.get(url).want(200).wantNo(hClosed).need("Etag")
		s.get(url, "If-None-Match", tag).want(304).wantNo(hClosed)
		if at == tail {
			s.do("POST", p, "", "Stream-Closed", "true").want(204)
			s.get(url, "If-None-Match", tag).want(200).wantHeader(hClosed, "true")
		}
	}
	tag := s.get(p).want(200).wantHeader(hClosed, "true").need("Etag")
	s.get(p, "If-None-Match", `"x", W/`+tag).want(304).wantHeader(hClosed, "true").wantHeader(hUpToDate, "true").wantBody("")
}

func TestStreamClosedInAnyCase(t *testing.T) {
	s := serve(t)
	for i, v := range []string{"true", "TRUE", "True"} {
		p := s.create(fmt.Sprint("born", i), "text/plain", "Stream-Closed", v)
		s.do("HEAD", p, "").want(200).wantHeader(hClosed, "true")
		s.do("PUT", p, "", "Content-Type", "text/plain", "Stream-Closed", "true").want(200)
		s.do("PUT", p, "", "Content-Type", "text/plain").wantProblem(409, "stream_exists")
		p = s.create(fmt.Sprint("open", i), "text/plain")
		s.do("POST", p, "", "Stream-Closed", v).want(204).wantHeader(hClosed, "true")
		s.do("POST", p, "x", "Content-Type", "text/plain").wantProblem(409, "stream_closed").wantHeader(hClosed, "true").next()
	}
	for i, v := range []string{"false", "1", "yes", ""} {
		p := s.create(fmt.Sprint("not", i), "text/plain", "Stream-Closed", v)
		s.do("POST", p, "x", "Content-Type", "text/plain", "Stream-Closed", v).want(204).wantNo(hClosed)
		s.do("POST", p, "", "Stream-Closed", v).wantProblem(400, "empty_body")
	}
}

func TestChunkedBodies(t *testing.T) {
	s := serve(t)
	// A reader whose length the client can't know is sent in chunks.
	chunked := func(body string) io.Reader { return io.MultiReader(strings.NewReader(body)) }
	p := "/v1/stream/s"
	s.send("PUT", p, chunked("first "), "Content-Type", "text/plain").want(201)
	s.send("POST", p, chunked("second"), "Content-Type", "text/plain").want(204)
	s.get(p).want(200).wantBody("first second")
	s.send("POST", p, chunked(""), "Content-Type", "text/plain").wantProblem(400, "empty_body")
	s.send("POST", p, chunked(""), "Stream-Closed", "true").want(204)
	big := strings.Repeat("0123456789abcdef", 20_000)
	s.send("PUT", "/v1/stream/big", chunked(big), "Content-Type", "text/plain").want(201)
	s.get("/v1/stream/big").want(200).wantBody(big)
}

func TestOffsetsInsideRecords(t *testing.T) {
	s := serve(t)
	p := s.create("s", "application/octet-stream")
	want := "abcdefgh"
	s.add(p, "application/octet-stream", want[:3])
	s.add(p, "application/octet-stream", want[3:])
	at, seen := "-1", 0
	for seen < len(want) {
		r := s.get(p + "?max_bytes=1&offset=" + at).want(200).wantBody(want[seen : seen+1])
		at, seen = r.next(), seen+1
		s.get(p + "?offset=" + at).want(200).wantBody(want[seen:])
		if up := r.header.Get(hUpToDate); (up == "true") != (seen == len(want)) {
			t.Errorf("after %d bytes: Stream-Up-To-Date %q", seen, up)
		}
	}
	// Inside a JSON message there is no array, but there are bytes.
	j := s.create("j", "application/json")
	s.add(j, "application/json", `["ab","c"]`)
	inside := s.get(j+"?max_bytes=2&offset=-1", "Accept", "application/x-ndjson").want(200).wantBody(`"a`).next()
	s.get(j+"?offset="+inside).wantProblem(400, "invalid_offset")
	s.get(j+"?offset="+inside, "Accept", "application/x-ndjson").want(200).wantBody("b\"\n\"c\"\n")
}

func TestRepeatedForkWithInheritedTTL(t *testing.T) {
	s := serve(t)
	src := s.create("src", "text/plain", "Stream-TTL", "600")
	s.add(src, "text/plain", "x")
	for _, want := range []int{201, 200, 200} {
		s.do("PUT", "/v1/stream/fork", "", "Stream-Forked-From", src).want(want)
	}
	s.do("HEAD", "/v1/stream/fork", "").want(200).wantHeader("Stream-TTL", "600")
	s.do("PUT", "/v1/stream/fork", "", "Stream-Forked-From", src, "Stream-TTL", "600").want(200)
	s.do("PUT", "/v1/stream/fork", "", "Stream-Forked-From", src, "Stream-TTL", "601").wantProblem(409, "stream_exists")
}

func TestWhatRenewsATTL(t *testing.T) {
	renewing := map[string]func(s *service, p string){
		"catch-up":  func(s *service, p string) { s.get(p).want(200) },
		"now":       func(s *service, p string) { s.get(p + "?offset=now").want(200) },
		"long-poll": func(s *service, p string) { s.get(p + "?offset=now&live=long-poll&timeout_ms=1").want(204) },
		"sse":       func(s *service, p string) { s.sse(p + "?offset=now&live=sse").close() },
		"append":    func(s *service, p string) { s.add(p, "text/plain", "x") },
		"close":     func(s *service, p string) { s.do("POST", p, "", "Stream-Closed", "true").want(204) },
		"producer close": func(s *service, p string) {
			s.do("POST", p, "", "Stream-Closed", "true", "Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "0").want(204)
		},
		"repeated create": func(s *service, p string) {
			s.do("PUT", p, "", "Content-Type", "text/plain", "Stream-TTL", "100").want(200)
		},
		"not modified": func(s *service, p string) { s.get(p, "If-None-Match", "*").want(304) },
	}
	for name, touch := range renewing {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			p := s.create("s", "text/plain", "Stream-TTL", "100")
			s.ahead.Add(int64(80 * time.Second))
			touch(s, p)
			s.ahead.Add(int64(80 * time.Second))
			s.do("HEAD", p, "").want(200)
			s.ahead.Add(int64(40 * time.Second)) // HEAD renewed nothing
			s.do("HEAD", p, "").want(404)
		})
	}
}

// The last append of a stream comes with its closure in one step; no reader may
// take the closure and miss the bytes.
func TestLiveReadersSeeTheAppendThatCloses(t *testing.T) {
	s := serve(t)
	for round := range 60 {
		p := s.create(fmt.Sprint("s", round), "text/plain")
		tail := s.do("HEAD", p, "").next()
		var group sync.WaitGroup
		group.Go(func() {
			time.Sleep(time.Duration(round%6) * 200 * time.Microsecond)
			if r, err := s.try("POST", p, strings.NewReader("the end"), "Content-Type", "text/plain", "Stream-Closed", "true"); err != nil || r.status != 204 {
				t.Errorf("close: %v %v", r, err)
			}
		})
		if round%2 == 0 {
			r := s.get(p + "?live=long-poll&timeout_ms=20000&offset=" + tail).want(200).wantBody("the end")
			if r.header.Get(hClosed) == "" {
				s.get(p+"?live=long-poll&offset="+r.next()).want(204).wantHeader(hClosed, "true").wantHeader(hUpToDate, "true")
			}
		} else {
			e := s.sse(p + "?live=sse&offset=" + tail)
			got := ""
			for closed := false; !closed; {
				ev, err := e.next()
				switch {
				case err != nil:
					t.Fatal(err)
				case ev.name == "data":
					got += ev.data
				case ev.name == "control":
					closed = strings.Contains(ev.data, `"streamClosed":true`)
				}
			}
			if got != "the end" {
				t.Fatalf("got %q before the end", got)
			}
			e.wantEnd()
		}
		group.Wait()
	}
}

// An append between a reader's look and its wait must wake it.
func TestNoWakeUpIsLost(t *testing.T) {
	s := serve(t)
	p := s.create("s", "text/plain")
	tail := s.do("HEAD", p, "").next()
	for round := range 200 {
		var group sync.WaitGroup
		group.Go(func() {
			time.Sleep(time.Duration(round%10) * 50 * time.Microsecond)
			if r, err := s.try("POST", p, strings.NewReader("x"), "Content-Type", "text/plain"); err != nil || r.status != 204 {
				t.Errorf("append: %v %v", r, err)
			}
		})
		tail = s.get(p + "?live=long-poll&timeout_ms=15000&offset=" + tail).want(200).wantBody("x").next()
		group.Wait()
	}
}
