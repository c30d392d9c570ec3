package frontend

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"headwater/fdblayer"
)

// everySort returns one response of every status this package gives out, by a
// name for it.
func everySort(s *service) map[string]*response {
	const txt = "text/plain"
	p := s.create("s", txt)
	tail := s.add(p, txt, "abc")
	s.do("PUT", p+"/snapshot/"+tail, "snap").want(204)
	j := s.create("j", "application/json")
	inc := s.create("other", txt)
	token := s.do("HEAD", inc, "").need(hIncarnation)
	src := s.create("src", txt)
	s.do("PUT", "/v1/stream/fork", "", "Stream-Forked-From", src).want(201)
	s.do("DELETE", src, "").want(204)
	prod := []string{"Content-Type", txt, "Producer-Id", "p", "Producer-Epoch", "1", "Producer-Seq", "0"}
	all := map[string]*response{
		"create":           s.do("PUT", "/v1/stream/new", "", "Content-Type", txt).want(201),
		"create again":     s.do("PUT", p, "", "Content-Type", txt).want(200),
		"create other":     s.do("PUT", p, "", "Content-Type", "text/html").wantProblem(409, fdblayer.CodeExists),
		"append":           s.do("POST", p, "d", "Content-Type", txt).want(204),
		"append new":       s.do("POST", p, "e", prod...).want(200),
		"append duplicate": s.do("POST", p, "e", prod...).want(204),
		"append stale":     s.do("POST", p, "e", "Content-Type", txt, "Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "0").wantProblem(403, fdblayer.CodeStaleEpoch),
		"append gap":       s.do("POST", p, "e", "Content-Type", txt, "Producer-Id", "p", "Producer-Epoch", "1", "Producer-Seq", "7").wantProblem(409, fdblayer.CodeProducerGap),
		"append typeless":  s.do("POST", p, "d").wantProblem(400, codeMissingType),
		"append encoded":   s.do("POST", p, "d", "Content-Type", txt, "Content-Encoding", "gzip").wantProblem(415, codeContentEncoding),
		"append bad JSON":  s.do("POST", j, "{", "Content-Type", "application/json").wantProblem(400, codeInvalidJSON),
		"append []":        s.do("POST", j, " [ ] ", "Content-Type", "application/json").wantProblem(400, codeEmptyArray),
		"append too long":  s.do("POST", p, strings.Repeat("x", 2000), "Content-Type", txt).wantProblem(413, fdblayer.CodeTooLarge),
		"read":             s.get(p).want(200),
		"read array":       s.get(j).want(200).wantBody("[]"),
		"not modified":     s.get(p, "If-None-Match", "*").want(304),
		"now":              s.get(p + "?offset=now").want(200),
		"poll":             s.get(p + "?offset=-1&live=long-poll").want(200),
		"poll nothing":     s.get(p + "?offset=now&live=long-poll&timeout_ms=1").want(204),
		"head":             s.do("HEAD", p, "").want(200),
		"head nothing":     s.do("HEAD", "/v1/stream/none", "").want(404),
		"read nothing":     s.get("/v1/stream/none").wantProblem(404, fdblayer.CodeNotFound),
		"read hidden":      s.get(src).wantProblem(410, fdblayer.CodeSoftDeleted),
		"beyond the tail":  s.get(p+"?offset=ffffffffffffffffffff000000000001").wantProblem(416, fdblayer.CodeOffsetBeyondTail),
		"bad offset":       s.get(p+"?offset=x").wantProblem(400, fdblayer.CodeBadOffset),
		"other life":       s.get(p, "Stream-Incarnation", token).wantProblem(412, fdblayer.CodeIncarnation),
		"bad life":         s.get(p, "Stream-Incarnation", "x").wantProblem(400, codeInvalidToken),
		"method":           s.do("PATCH", p, "").wantProblem(405, codeMethod),
		"options":          s.do("OPTIONS", p, "").want(204),
		"no path":          s.get("/").wantProblem(404, codePathNotFound),
		"reserved":         s.get("/v1/stream/__ds/jwks.json").wantProblem(404, codeReservedPath),
		"bucket":           s.do("PUT", "/abcd", "").want(201),
		"bad bucket":       s.do("PUT", "/abc", "").wantProblem(400, codeInvalidBucket),
		"bad id":           s.get("/abcd/$x").wantProblem(400, codeInvalidStreamID),
		"snapshot":         s.get(p + "/snapshot/" + tail).want(200).wantBody("snap"),
		"no snapshot":      s.get(p+"/snapshot/00000000000000000000000000000000").wantProblem(404, fdblayer.CodeSnapshotNotFound),
		"publish":          s.do("PUT", p+"/snapshot/"+tail, "snap").want(204),
		"publish other":    s.do("PUT", p+"/snapshot/"+tail, "other").wantProblem(409, fdblayer.CodeSnapshotConflict),
		"publish too long": s.do("PUT", p+"/snapshot/"+tail, strings.Repeat("x", 5000)).wantProblem(413, fdblayer.CodeTooLarge),
		"bootstrap":        s.get(p + "/bootstrap").want(200),
		"bootstrap live":   s.get(p+"/bootstrap?live=sse").wantProblem(400, codeInvalidParameter),
		"retain":           s.do("PUT", p+"/retention/"+tail, "").want(204),
		"below retained":   s.get(p+"?offset=-1").wantProblem(410, fdblayer.CodeRetained),
		"healthy":          s.get("/healthz").want(200),
		"ready":            s.get("/readyz").want(200),
		"delete":           s.do("DELETE", "/v1/stream/new", "").want(204),
		"delete hidden":    s.do("DELETE", src, "").wantProblem(410, fdblayer.CodeSoftDeleted),
		"create hidden":    s.do("PUT", src, "", "Content-Type", txt).wantProblem(409, fdblayer.CodePathDeleted),
	}
	e := s.sse(p + "?offset=now&live=sse")
	all["sse"] = &response{s, "SSE", 200, e.res.Header, ""}
	return all
}

func small(o *Options) { o.MaxBodyBytes, o.MaxSnapshotBytes = 1000, 4000 }

func TestEveryResponseHasSecurityAndCORSHeaders(t *testing.T) {
	s := serve(t, small)
	for what, r := range everySort(s) {
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "cross-origin", "Access-Control-Allow-Origin": "*",
		} {
			if got := r.header.Values(name); len(got) != 1 || got[0] != want {
				t.Errorf("%s: %s %q", what, name, got)
			}
		}
		exposed := strings.ToLower(r.header.Get("Access-Control-Expose-Headers"))
		for name := range r.header {
			n := strings.ToLower(name)
			if (strings.HasPrefix(n, "stream-") || strings.HasPrefix(n, "producer-") || n == "location" || n == "etag" || n == "vary" || n == "retry-after") &&
				!strings.Contains(", "+exposed+",", ", "+n+",") {
				t.Errorf("%s: %s is not exposed to browsers", what, name)
			}
		}
		if cc := r.header.Get("Cache-Control"); cc == "" || r.status >= 400 && cc != "no-store" {
			t.Errorf("%s: Cache-Control %q", what, cc)
		}
		if strings.HasPrefix(r.what, "HEAD") && r.body != "" {
			t.Errorf("%s: a body %q", what, r.body)
		}
		if r.status == 204 && r.header.Get("Content-Length") != "" {
			t.Errorf("%s: Content-Length on a 204", what)
		}
	}
}

func TestHeadersThatGoWithErrors(t *testing.T) {
	s := serve(t, small)
	all := everySort(s)
	tail := s.do("HEAD", "/v1/stream/s", "").next()
	all["append stale"].wantHeader("Producer-Epoch", "1")
	all["append gap"].wantHeader("Producer-Expected-Seq", "1").wantHeader("Producer-Received-Seq", "7")
	all["append new"].wantHeader("Producer-Epoch", "1").wantHeader("Producer-Seq", "0")
	all["append duplicate"].wantHeader("Producer-Epoch", "1").wantHeader("Producer-Seq", "0")
	all["beyond the tail"].wantHeader(hNextOffset, tail)
	if r := all["below retained"]; r.next() != r.need(hRetainedOffset) {
		t.Errorf("%v", r)
	}
	all["other life"].wantHeader(hIncarnation, s.do("HEAD", "/v1/stream/s", "").need(hIncarnation))
	all["method"].wantHeader("Allow", "GET, HEAD, PUT, POST, DELETE, OPTIONS")
	all["create"].wantHeader("Location", s.url+"/v1/stream/new")
	all["read array"].wantHeader("Vary", "Accept").wantHeader("Content-Type", "application/json")
	all["now"].wantNo("Etag").wantHeader("Cache-Control", "no-store")
	all["not modified"].wantBody("").need("Etag")
}

func TestMethods(t *testing.T) {
	s := serve(t)
	p := s.create("s", "text/plain")
	start := s.do("HEAD", p, "").next()
	for path, allow := range map[string]string{
		p:                        "GET, HEAD, PUT, POST, DELETE, OPTIONS",
		"/abcd/x":                "GET, HEAD, PUT, POST, DELETE, OPTIONS",
		p + "/snapshot/" + start: "GET, HEAD, PUT, OPTIONS",
		p + "/snapshot":          "OPTIONS",
		"/abcd/x/retention":      "OPTIONS",
		p + "/retention/0":       "PUT, OPTIONS",
		p + "/bootstrap":         "GET, HEAD, OPTIONS",
		"/abcd":                  "PUT, OPTIONS",
		"/healthz":               "GET, HEAD, PUT, OPTIONS",
	} {
		for _, m := range []string{"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "TRACE", "FOO"} {
			if strings.Contains(allow, m) {
				continue
			}
			r := s.do(m, path, "").want(405).wantHeader("Allow", allow)
			if m != "HEAD" {
				r.wantProblem(405, codeMethod)
			}
		}
		s.do("OPTIONS", path, "").want(204).wantHeader("Allow", allow)
	}
	// Nothing was changed by any of it.
	s.get(p).want(200).wantBody("")
}

func TestPreflight(t *testing.T) {
	s := serve(t)
	for _, path := range []string{"/v1/stream/s", "/abcd/x", "/abcd/x/snapshot/0", "/nowhere/at/all", "/", "/v1/stream/a%2Fb", "/healthz"} {
		r := s.do("OPTIONS", path, "", "Origin", "https://app.example", "Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "if-none-match").want(204)
		allowed := ", " + strings.ToLower(r.need("Access-Control-Allow-Headers")) + ","
		for _, h := range []string{"if-none-match", "content-type", "authorization", "stream-seq", "stream-ttl", "stream-expires-at", "stream-closed",
			"stream-forked-from", "stream-fork-offset", "stream-fork-sub-offset", "stream-incarnation", "producer-id", "producer-epoch", "producer-seq"} {
			if !strings.Contains(allowed, ", "+h+",") {
				t.Errorf("%s: %s is not allowed", path, h)
			}
		}
		if !strings.Contains(r.need("Access-Control-Allow-Methods"), "OPTIONS") || r.need("Access-Control-Max-Age") == "" {
			t.Errorf("%s: %v", path, r.header)
		}
	}
}

func TestLocationFollowsTrustedProxiesOnly(t *testing.T) {
	fw := []string{"X-Forwarded-Proto", "https", "X-Forwarded-Host", "streams.example, inner"}
	s := serve(t)
	s.do("PUT", "/v1/stream/a%20b", "", fw...).want(201).wantHeader("Location", s.url+"/v1/stream/a%20b")
	s = serve(t, func(o *Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	s.do("PUT", "/abcd/x", "", fw...).want(201).wantHeader("Location", "https://streams.example/abcd/x")
	s.do("PUT", "/abcd/y", "").want(201).wantHeader("Location", s.url+"/abcd/y")
	s.do("PUT", "/abcd/z", "", "X-Forwarded-Proto", "javascript", "X-Forwarded-Host", "evil/\"").want(201).wantHeader("Location", s.url+"/abcd/z")
	s = serve(t, func(o *Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	s.do("PUT", "/abcd/x", "", fw...).want(201).wantHeader("Location", s.url+"/abcd/x")
}

func TestRepresentations(t *testing.T) {
	s := serve(t)
	for _, c := range []struct{ path, accept, want, ctype string }{
		{"/v1/stream/j", "", `[{"a":1.0},2]`, "application/json; charset=utf-8"},
		{"/v1/stream/j", "*/*", `[{"a":1.0},2]`, "application/json; charset=utf-8"},
		{"/v1/stream/j", "application/x-ndjson", "{\"a\":1.0}\n2\n", "application/x-ndjson"},
		{"/abcd/j", "", "{\"a\":1.0}\n2\n", "application/x-ndjson"},
		{"/abcd/j", "application/json", `[{"a":1.0},2]`, "application/json; charset=utf-8"},
	} {
		s.do("PUT", c.path, ` [ {"a" : 1.0}, 2 ] `, "Content-Type", "application/json; charset=utf-8")
		var h []string
		if c.accept != "" {
			h = []string{"Accept", c.accept}
		}
		for _, q := range []string{"", "?offset=-1&live=long-poll"} {
			s.get(c.path+q, h...).want(200).wantBody(c.want).wantHeader("Content-Type", c.ctype).wantHeader("Vary", "Accept")
		}
		// HEAD reports the configured type whatever a GET would send.
		s.do("HEAD", c.path, "", h...).want(200).wantHeader("Content-Type", "application/json; charset=utf-8")
	}
	array := s.get("/v1/stream/j").need("Etag")
	lines := s.get("/v1/stream/j", "Accept", "application/x-ndjson").need("Etag")
	if array == lines {
		t.Error("both representations have one tag")
	}
	s.get("/v1/stream/j", "If-None-Match", lines).want(200)
	s.get("/v1/stream/j", "If-None-Match", array+","+lines).want(304)
	// An array is cut between messages, and holds one at least.
	r := s.get("/v1/stream/j?max_bytes=1").want(200).wantBody(`[{"a":1.0}]`).wantNo(hUpToDate)
	s.get("/v1/stream/j?max_bytes=1&offset="+r.next()).want(200).wantBody(`[2]`).wantHeader(hUpToDate, "true")
	s.get("/v1/stream/j?offset=now").want(200).wantBody(`[]`)
	s.get("/abcd/j?offset=now").want(200).wantBody("")
}

func TestBytesAreCached(t *testing.T) {
	s := serve(t)
	p := s.create("s", "text/plain")
	a := s.add(p, "text/plain", "aaaa")
	s.add(p, "text/plain", "bbbb")
	const cached = "public, max-age=60, stale-while-revalidate=300"
	s.get(p+"?max_bytes=2&offset="+a).want(200).wantHeader("Cache-Control", cached)
	s.get(p+"?max_bytes=2&offset=-1").want(200).wantHeader("Cache-Control", "public, no-cache")
	s.get(p+"?offset="+a).want(200).wantHeader("Cache-Control", "public, no-cache")
	s.get(p+"?live=long-poll&offset="+a).want(200).wantHeader("Cache-Control", cached)
	s.get(p+"?live=long-poll&offset=now&timeout_ms=1").want(204).wantHeader("Cache-Control", "no-store")
}

func TestLongPollCursors(t *testing.T) {
	s := serve(t)
	p := s.create("s", "text/plain")
	s.add(p, "text/plain", "x")
	url := p + "?live=long-poll&offset=-1"
	first := s.get(url).want(200).need(hCursor)
	second := s.get(url + "&cursor=" + first).want(200).need(hCursor)
	if len(second) < len(first) || len(second) == len(first) && second <= first {
		t.Errorf("cursor %s is followed by %s", first, second)
	}
	s.get(p+"?live=long-poll&timeout_ms=1&offset=now").want(204).wantHeader(hUpToDate, "true").need(hCursor)
	s.do("POST", p, "", "Stream-Closed", "true").want(204)
	begun := time.Now()
	s.get(p+"?live=long-poll&timeout_ms=60000&offset=now").want(204).wantHeader(hClosed, "true").wantHeader(hUpToDate, "true").wantNo(hCursor)
	if time.Since(begun) > 10*time.Second {
		t.Error("a closed stream was waited for")
	}
}

func TestForksTakeTheTypeOfTheirSource(t *testing.T) {
	s := serve(t)
	src := s.create("src", "application/json")
	s.add(src, "application/json", `{"n":1}`)
	fork := []string{"Stream-Forked-From", src}
	s.do("PUT", "/v1/stream/f", ` [ {"n" : 2} ] `, fork...).want(201).wantHeader("Content-Type", "application/json")
	s.get("/v1/stream/f").want(200).wantBody(`[{"n":1},{"n":2}]`)
	s.do("PUT", "/v1/stream/g", `{"n":`, fork...).wantProblem(400, codeInvalidJSON)
	s.do("PUT", "/v1/stream/g", `2`, "Stream-Forked-From", "/v1/stream/none").wantProblem(404, fdblayer.CodeSourceNotFound)
	s.do("PUT", "/v1/stream/g", `2`, append(fork, "Content-Type", "text/plain")...).wantProblem(409, fdblayer.CodeForkConflict)
	s.do("HEAD", "/v1/stream/g", "").want(404)
	// Once the source is gone, the repeat of what was done still succeeds.
	s.do("DELETE", src, "").want(204)
	s.do("PUT", "/v1/stream/f", ` [ {"n" : 2} ] `, fork...).want(200)
	s.do("PUT", "/v1/stream/g", `2`, fork...).wantProblem(409, fdblayer.CodeSourceDeleted)
	// A fork stays on its surface and in its bucket.
	s.do("PUT", "/abcd/src", "", "Content-Type", "text/plain").want(201)
	s.do("PUT", "/abcd/f", "", "Stream-Forked-From", "/abcd/src").want(201)
	s.do("PUT", "/dcba/f", "", "Stream-Forked-From", "/abcd/src").wantProblem(400, fdblayer.CodeBadFork)
	s.do("PUT", "/v1/stream/h", "", "Stream-Forked-From", "/abcd/src").wantProblem(400, fdblayer.CodeBadFork)
	s.do("PUT", "/abcd/h", "", "Stream-Forked-From", "/abcd/src", "Stream-Fork-Offset", "9999999999999999_9999999999999999").wantProblem(400, fdblayer.CodeBadFork)
}

func TestSnapshotMethodsAndOffsets(t *testing.T) {
	s := serve(t)
	p := s.create("a/b", "text/plain")
	tail := s.add(p, "text/plain", "x")
	encoded := "%" + fmt.Sprintf("%x", tail[0]) + tail[1:]
	s.do("PUT", p+"/snapshot/"+encoded, "snap", "Content-Type", "text/x").want(204).wantHeader(hSnapshotOffset, tail)
	h := s.do("HEAD", p+"/snapshot/"+tail, "").want(200).wantBody("").wantHeader("Content-Length", "4").wantHeader("Content-Type", "text/x")
	s.get(p+"/snapshot/"+encoded).want(200).wantBody("snap").wantHeader(hSnapshotDigest, h.need(hSnapshotDigest)).wantHeader(hUpToDate, "true")
	b := s.do("HEAD", p+"/bootstrap", "").want(200).wantBody("").wantHeader(hSnapshotOffset, tail)
	if g := s.get(p + "/bootstrap").want(200); fmt.Sprint(len(g.body)) != b.need("Content-Length") {
		t.Errorf("bootstrap of %d bytes, announced as %s", len(g.body), b.need("Content-Length"))
	}
	for _, o := range []string{"-1", "now", "x", "%00", "a%20b"} {
		s.do("PUT", p+"/snapshot/"+o, "snap").wantProblem(400, fdblayer.CodeBadOffset)
		s.do("PUT", p+"/retention/"+o, "").wantProblem(400, fdblayer.CodeBadOffset)
	}
	s.do("PUT", p+"/snapshot/"+tail, "snap", "Content-Encoding", "gzip").wantProblem(415, codeContentEncoding)
}

func TestBodiesThatMeanNothingAreDropped(t *testing.T) {
	s := serve(t)
	p := s.create("s", "text/plain")
	s.add(p, "text/plain", "x")
	s.do("GET", p, "what is this").want(200).wantBody("x")
	s.do("HEAD", p, "").want(200)
	s.do("DELETE", p, strings.Repeat("x", 100<<10)).wantProblem(413, fdblayer.CodeTooLarge)
	s.do("DELETE", p, "because").want(204)
}

// HTTP/2 without TLS serves the same.
func TestH2C(t *testing.T) {
	s := &service{T: t}
	s.open()
	s.listen(ServerOptions{H2C: true})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	s.client = &http.Client{Transport: transport}
	p := s.create("s", "text/plain")
	e := s.sse(p + "?offset=-1&live=sse")
	if e.res.ProtoMajor != 2 {
		t.Fatalf("protocol %s", e.res.Proto)
	}
	e.control()
	s.add(p, "text/plain", "x")
	if d := e.want("data"); d != "x" {
		t.Errorf("data %q", d)
	}
	e.control()
	s.do("POST", p, "", "Stream-Closed", "true").want(204)
	if c := e.control(); !c.StreamClosed {
		t.Errorf("%+v", c)
	}
	e.wantEnd()
}
