package frontend

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"headwater/fdblayer"
	"headwater/keys"
)

func TestNegotiate(t *testing.T) {
	for _, c := range []struct {
		accept       string
		base, bucket form
	}{
		{"", asArray, asStored},
		{"*/*", asArray, asStored},
		{"application/json", asArray, asArray},
		{"application/x-ndjson", asStored, asStored},
		{"APPLICATION/X-NDJSON", asStored, asStored},
		{"application/*", asArray, asStored},
		{"text/html,application/xhtml+xml,*/*;q=0.8", asArray, asStored},
		{"application/json, application/x-ndjson", asArray, asStored},
		{"application/json;q=0.5, application/x-ndjson", asStored, asStored},
		{"application/json, application/x-ndjson;q=0.9", asArray, asArray},
		{"application/json;q=0.9, application/x-ndjson;q=0.9", asArray, asStored},
		{"application/x-ndjson, */*", asStored, asStored},
		{"application/json, */*", asArray, asArray},
		{"application/json, */*;q=0.1", asArray, asArray},
		{"application/json;q=0", asArray, asStored},
		{"application/json;q=0, */*", asStored, asStored},
		{"application/x-ndjson;q=0, */*", asArray, asArray},
		{"application/x-ndjson;q=0", asArray, asStored},
		{"application/json;q=0.001", asArray, asArray},
		{"application/json;q=nonsense", asArray, asArray},
		{"application/json;q=7", asArray, asArray},
		{"application/json; charset=utf-8; q=0.2, application/x-ndjson; q=0.1", asArray, asArray},
		{"text/event-stream", asArray, asStored},
		{"text/event-stream, application/json", asArray, asArray},
		{"text/event-stream, application/x-ndjson", asStored, asStored},
		{"text/html", asArray, asStored},
		{",,;;q", asArray, asStored},
	} {
		if got := negotiate([]string{c.accept}, asArray); got != c.base {
			t.Errorf("%q on the base surface: %c, want %c", c.accept, got, c.base)
		}
		if got := negotiate([]string{c.accept}, asStored); got != c.bucket {
			t.Errorf("%q on the bucketed surface: %c, want %c", c.accept, got, c.bucket)
		}
	}
	if got := negotiate([]string{"text/html", "application/json;q=0.1"}, asStored); got != asArray {
		t.Error("several header lines are one list")
	}
}

func FuzzNegotiate(f *testing.F) {
	f.Add("application/json;q=0.5, */*", true)
	f.Fuzz(func(t *testing.T, accept string, base bool) {
		usual := asStored
		if base {
			usual = asArray
		}
		if got := negotiate([]string{accept}, usual); got != asArray && got != asStored {
			t.Fatalf("%q: %c", accept, got)
		}
	})
}

func TestMatches(t *testing.T) {
	const tag = `"abc:su"`
	for _, v := range []string{tag, "W/" + tag, "*", ` ` + tag, `"x", ` + tag, `"x",W/"y" , ` + tag + `, "z"`, `"a,b", ` + tag, `,,` + tag, " *"} {
		if !matches([]string{v}, tag) {
			t.Errorf("%s does not match", v)
		}
	}
	for _, v := range []string{"", `""`, "abc:su", `"abc:su`, `"abc:s"`, `w/` + tag, `"ABC:SU"`, `"x" abc`, `W/`, `W/abc`, `"abc:su-gzip"`} {
		if matches([]string{v}, tag) {
			t.Errorf("%s matches", v)
		}
	}
	if matches(nil, tag) || !matches([]string{`"x"`, tag}, tag) {
		t.Error("header lines")
	}
}

func FuzzMatches(f *testing.F) {
	f.Add(`"a", W/"b"`)
	f.Fuzz(func(t *testing.T, v string) {
		if matches([]string{v}, `"needle"`) && !strings.Contains(v, `"needle"`) && !strings.Contains(v, "*") {
			t.Fatalf("%q matches", v)
		}
	})
}

// A tag differs whenever anything differs that the response shows.
func TestETagTellsEverythingApart(t *testing.T) {
	p := fdblayer.Piece{Stream: fdblayer.Stream{ContentType: typeJSON, Incarnation: keys.NewIncarnation()}, Next: offsetAt(9)}
	tags := map[string]string{}
	add := func(what string, p fdblayer.Piece, f form) {
		tag := etag(&p, f)
		if other, ok := tags[tag]; ok {
			t.Errorf("%s has the tag of %s", what, other)
		}
		if len(tag) < 3 || tag[0] != '"' || tag[len(tag)-1] != '"' || strings.ContainsAny(tag[1:len(tag)-1], "\" ,") {
			t.Errorf("%s: %s is no strong tag", what, tag)
		}
		tags[tag] = what
	}
	add("plain", p, asStored)
	add("array", p, asArray)
	q := p
	q.UpToDate = true
	add("up to date", q, asStored)
	q.Closed = true
	add("closed", q, asStored)
	q = p
	q.Stream.Incarnation = keys.NewIncarnation()
	add("recreated", q, asStored)
	q = p
	q.Next = offsetAt(10)
	add("longer", q, asStored)
	q = p
	q.Start = offsetAt(1)
	add("later", q, asStored)
}

func offsetAt(n uint32) keys.Offset { return keys.MakeOffset(keys.Versionstamp{1}, 0, n) }

func TestCursor(t *testing.T) {
	now := cursorEpoch.Add(1000*cursorInterval + 7*time.Second)
	most := func(n uint64) uint64 { return n - 1 }
	least := func(uint64) uint64 { return 0 }
	for _, c := range []struct{ client, low, high uint64 }{
		{0, 1000, 1000}, {999, 1000, 1000}, // behind: the current one
		{1000, 1001, 1180}, {5000, 5001, 5180}, // at it or ahead: beyond the client's
		{maxCursor, maxCursor + 1, maxCursor + 180},
	} {
		if got := nextCursor(now, c.client, least); got != c.low {
			t.Errorf("cursor %d is followed by %d, want %d", c.client, got, c.low)
		}
		if got := nextCursor(now, c.client, most); got != c.high {
			t.Errorf("cursor %d is followed by at most %d, want %d", c.client, got, c.high)
		}
	}
	if got := nextCursor(cursorEpoch.Add(-time.Hour), 0, least); got != 1 {
		t.Errorf("before the epoch: %d", got)
	}
}

func TestCacheControl(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	f := &Frontend{opts: Options{Now: func() time.Time { return now }}}
	mid := fdblayer.Piece{Start: offsetAt(1), Next: offsetAt(2)}
	with := func(change func(*fdblayer.Piece)) fdblayer.Piece { p := mid; change(&p); return p }
	const cached = "public, max-age=60, stale-while-revalidate=300"
	for _, c := range []struct {
		what string
		q    readQuery
		p    fdblayer.Piece
		want string
	}{
		{"a range in the middle", readQuery{}, mid, cached},
		{"the tail", readQuery{}, with(func(p *fdblayer.Piece) { p.UpToDate = true }), "public, no-cache"},
		{"the start", readQuery{}, with(func(p *fdblayer.Piece) { p.Start = keys.StartOffset }), "public, no-cache"},
		{"consistency=leader", readQuery{leader: true}, mid, "public, no-cache"},
		{"a poll that reached the tail", readQuery{live: longPoll}, with(func(p *fdblayer.Piece) { p.UpToDate = true }), cached},
		{"a poll from the start", readQuery{live: longPoll}, with(func(p *fdblayer.Piece) { p.Start = keys.StartOffset; p.UpToDate = true }), "public, no-cache"},
		{"a TTL of 90 s", readQuery{}, with(func(p *fdblayer.Piece) { p.Stream.Expiry = fdblayer.Expiry{HasTTL: true, TTL: 90} }), "public, max-age=60, stale-while-revalidate=30"},
		{"a TTL of 5 s", readQuery{}, with(func(p *fdblayer.Piece) { p.Stream.Expiry = fdblayer.Expiry{HasTTL: true, TTL: 5} }), "public, max-age=5"},
		{"an end in 20 s", readQuery{}, with(func(p *fdblayer.Piece) { p.Stream.Expiry.At = now.Add(20 * time.Second) }), "public, max-age=20"},
		{"an end long past", readQuery{}, with(func(p *fdblayer.Piece) { p.Stream.Expiry.At = now.Add(-time.Hour) }), "public, max-age=0"},
	} {
		if got := f.cacheControl(&c.q, &c.p); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
	f.opts.PrivateCaching = true
	if got := f.cacheControl(&readQuery{}, &mid); !strings.HasPrefix(got, "private, ") {
		t.Errorf("private: %q", got)
	}
}

// Every code of the store and of this package has a row in the error table, and
// every row is of a code that exists.
func TestErrorTableIsComplete(t *testing.T) {
	known := map[fdblayer.Code]bool{}
	for _, file := range []string{"../fdblayer/errors.go", "problem.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || !strings.HasPrefix(strings.ToLower(spec.Names[0].Name), "code") {
				return true
			}
			lit, ok := spec.Values[0].(*ast.BasicLit)
			if !ok {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			if known[fdblayer.Code(text)] {
				t.Errorf("two codes are %q", text)
			}
			known[fdblayer.Code(text)] = true
			return true
		})
	}
	if len(known) < 40 {
		t.Fatalf("found only %d codes", len(known))
	}
	for code := range known {
		if status := statuses[code]; status < 400 || status > 599 || title(status) == "" {
			t.Errorf("%s has status %d", code, status)
		}
	}
	for code := range statuses {
		if !known[code] {
			t.Errorf("%s is in the table but nowhere else", code)
		}
	}
}

func TestAllowNamesTheMethodsThereAre(t *testing.T) {
	for k, want := range map[kind]string{
		kindStream:    "GET, HEAD, PUT, POST, DELETE, OPTIONS",
		kindSnapshot:  "GET, HEAD, PUT, OPTIONS",
		kindRetention: "PUT, OPTIONS",
		kindBootstrap: "GET, HEAD, OPTIONS",
		kindNone:      "OPTIONS",
		kindBucket:    "PUT, OPTIONS",
	} {
		if got := resources[k].allow[0]; got != want {
			t.Errorf("kind %d: %q, want %q", k, got, want)
		}
	}
	for _, h := range [][]string{exposedHeaders, allowedHeaders} {
		if len(h) != 1 || strings.Contains(h[0], ", ,") {
			t.Errorf("%q", h)
		}
	}
	if http.CanonicalHeaderKey(hTTL) != hTTL || http.CanonicalHeaderKey(hSSEEncoding) != hSSEEncoding {
		t.Error("names are not canonical")
	}
}
