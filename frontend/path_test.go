package frontend

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"headwater/fdblayer"
)

func TestParsePath(t *testing.T) {
	base := func(id string) target { return target{id: fdblayer.StreamID{Stream: id}} }
	in := func(bucket, id string) target {
		return target{bucketed: true, id: fdblayer.StreamID{Bucket: bucket, Stream: id}}
	}
	as := func(t target, k kind, offset string) target { t.kind, t.offset = k, offset; return t }
	long := strings.Repeat("x", 200)

	for path, want := range map[string]target{
		"/v1/stream/a":             base("a"),
		"/v1/stream/a/b/c.d":       base("a/b/c.d"),
		"/v1/stream/a%20b":         base("a b"),
		"/v1/stream/a+b":           base("a+b"),
		"/v1/stream/a%2541":        base("a%41"), // decoded once
		"/v1/stream/a..b":          base("a..b"),
		"/v1/stream/%C3%A9":        base("é"),
		"/%761/str%65am/a":         base("a"),
		"/v1/stream/$x":            base("$x"),
		"/v1/stream/a/__ds":        base("a/__ds"),
		"/v1/stream/streams":       base("streams"),
		"/v1/stream/" + long:       base(long),
		"/v1/stream/snapshot":      base("snapshot"), // nothing is before it
		"/v1/stream/bootstrap":     base("bootstrap"),
		"/v1/stream/snapshot/x":    base("snapshot/x"),
		"/v1/stream/a/snapshots/x": base("a/snapshots/x"),

		"/v1/stream/a/bootstrap":            as(base("a"), kindBootstrap, ""),
		"/v1/stream/a/b/bootstrap":          as(base("a/b"), kindBootstrap, ""),
		"/v1/stream/a/%62ootstrap":          as(base("a"), kindBootstrap, ""),
		"/v1/stream/a/snapshot":             as(base("a"), kindNone, ""),
		"/v1/stream/a/retention":            as(base("a"), kindNone, ""),
		"/v1/stream/a/snapshot/0f":          as(base("a"), kindSnapshot, "0f"),
		"/v1/stream/a/b/retention/%30f":     as(base("a/b"), kindRetention, "0f"),
		"/v1/stream/a/snapshot/bootstrap":   as(base("a/snapshot"), kindBootstrap, ""),
		"/v1/stream/a/bootstrap/x":          base("a/bootstrap/x"),
		"/v1/stream/a/snapshot/0f/x":        base("a/snapshot/0f/x"),
		"/v1/stream/snapshot/snapshot/0f":   as(base("snapshot"), kindSnapshot, "0f"),
		"/v1/stream/a/retention/snapshot":   as(base("a/retention"), kindNone, ""),
		"/v1/stream/a/retention/snapshot/x": as(base("a/retention"), kindSnapshot, "x"),

		"/abcd":                           {kind: kindBucket, bucketed: true, id: fdblayer.StreamID{Bucket: "abcd"}},
		"/ab%63d":                         {kind: kindBucket, bucketed: true, id: fdblayer.StreamID{Bucket: "abcd"}},
		"/AB":                             {kind: kindBucket, bucketed: true, id: fdblayer.StreamID{Bucket: "AB"}},
		"/v1":                             {kind: kindBucket, bucketed: true, id: fdblayer.StreamID{Bucket: "v1"}},
		"/healthz":                        {kind: kindHealth},
		"/readyz":                         {kind: kindReady},
		"/healthz/x":                      in("healthz", "x"),
		"/abcd/x":                         in("abcd", "x"),
		"/abcd/.":                         in("abcd", "."),
		"/abcd/a%3Fb%23":                  in("abcd", "a?b#"),
		"/abcd/snapshot":                  in("abcd", "snapshot"),
		"/abcd/x/bootstrap":               as(in("abcd", "x"), kindBootstrap, ""),
		"/abcd/x/snapshot":                as(in("abcd", "x"), kindNone, ""),
		"/abcd/x/retention":               as(in("abcd", "x"), kindNone, ""),
		"/abcd/x/snapshot/a%2Fb":          as(in("abcd", "x"), kindSnapshot, "a/b"),
		"/abcd/x/retention/0":             as(in("abcd", "x"), kindRetention, "0"),
		"/abcd/bootstrap/bootstrap":       as(in("abcd", "bootstrap"), kindBootstrap, ""),
		"/abcd/" + long[:122-5]:           in("abcd", long[:122-5]),
		"/" + long[:64] + "/" + long[:57]: in(long[:64], long[:57]),
	} {
		got, err := parsePath(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		} else if got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}

	for path, want := range map[string]fdblayer.Code{
		"":                            codePathNotFound,
		"/":                           codePathNotFound,
		"*":                           codePathNotFound,
		"/v1/":                        codePathNotFound,
		"/v1/stream":                  codePathNotFound,
		"/v1/stream/":                 codePathNotFound,
		"/v1/streams/x":               codePathNotFound,
		"/v1/stream%2Fx":              codePathNotFound,
		"/v1/stream/a%2Fb":            codeInvalidPath,
		"/v1/stream/a/":               codeInvalidPath,
		"/v1/stream//a":               codeInvalidPath,
		"/v1/stream/a//b":             codeInvalidPath,
		"/v1/stream/../a":             codeInvalidPath,
		"/v1/stream/a/..":             codeInvalidPath,
		"/v1/stream/a/%2e%2E/b":       codeInvalidPath,
		"/v1/stream/./a":              codeInvalidPath,
		"/v1/stream/a%00":             codeInvalidPath,
		"/v1/stream/%FF":              codeInvalidPath,
		"/v1/stream/%zz":              codeInvalidPath,
		"/v1/stream/a//bootstrap":     codeInvalidPath,
		"/v1/stream/__ds":             codeReservedPath,
		"/v1/stream/__ds/jwks.json":   codeReservedPath,
		"/v1/stream/%5F_ds/x":         codeReservedPath,
		"/v1/stream/__ds/x/bootstrap": codeReservedPath,
		"/v1/stream/" + strings.Repeat("x", 1025): codeInvalidPath,

		"/abc/x":                codeInvalidBucket,
		"/ABCD/x":               codeInvalidBucket,
		"//x":                   codeInvalidBucket,
		"/ab%2Fcd/x":            codeInvalidBucket,
		"/" + long[:65] + "/x":  codeInvalidBucket,
		"/abc/x/bootstrap":      codeInvalidBucket,
		"/abcd/":                codeInvalidStreamID,
		"/abcd/a%2Fb":           codeInvalidStreamID,
		"/abcd/a%00":            codeInvalidStreamID,
		"/abcd/a..b":            codeInvalidStreamID,
		"/abcd/..":              codeInvalidStreamID,
		"/abcd/%2e%2e":          codeInvalidStreamID,
		"/abcd/%C0%AF":          codeInvalidStreamID,
		"/abcd/streams":         codeInvalidStreamID,
		"/abcd/%73treams":       codeInvalidStreamID,
		"/abcd/$x":              codeInvalidStreamID,
		"/abcd/%24x":            codeInvalidStreamID,
		"/abcd/__ds":            codeReservedPath,
		"/abcd/" + long[:122-4]: codeInvalidStreamID,
		"/abcd/x/y":             codePathNotFound,
		"/abcd/x/bootstrap/y":   codePathNotFound,
		"/abcd/x/snapshot/0/y":  codePathNotFound,
		"/abcd/x/":              codePathNotFound,
		"/abcd/x/Snapshot/0":    codePathNotFound,
	} {
		got, err := parsePath(path)
		if !hasCode(err, want) {
			t.Errorf("%s: %+v %v, want %s", path, got, err, want)
		}
	}
}

// Whatever the path, what is accepted obeys the rules for ids, and there is one
// spelling of each id once encoding is undone.
func FuzzParsePath(f *testing.F) {
	for _, s := range []string{"/v1/stream/a/b", "/abcd/x/snapshot/0", "/v1/stream/a%2Fb", "/abcd/%E2%98%83", "/v1/stream/a/bootstrap", "//", "/%76%31/stream/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		got, err := parsePath(path)
		if err != nil {
			var e *fdblayer.Error
			if !errors.As(err, &e) || statuses[e.Code] == 0 {
				t.Fatalf("%q: error %v has no status", path, err)
			}
			return
		}
		id := got.id.Stream
		switch got.kind {
		case kindBucket, kindHealth, kindReady:
			if strings.Count(path, "/") != 1 {
				t.Fatalf("%q is taken for a bucket", path)
			}
			return
		}
		if id == "" || !utf8.ValidString(id) || strings.ContainsRune(id, 0) {
			t.Fatalf("%q: id %q", path, id)
		}
		if got.bucketed {
			if strings.Contains(id, "/") || strings.Contains(id, "..") || len(got.id.Bucket)+len(id) > 121 || len(got.id.Bucket) < 4 {
				t.Fatalf("%q: bucket %q, id %q", path, got.id.Bucket, id)
			}
			return
		}
		if len(id) > maxBaseID || strings.Contains("/"+id+"/", "//") || strings.Contains("/"+id+"/", "/../") {
			t.Fatalf("%q: id %q", path, id)
		}
		// Segments of the id are segments of the path: no slash was decoded.
		extra := map[kind]int{kindStream: 0, kindBootstrap: 1, kindNone: 1, kindSnapshot: 2, kindRetention: 2}[got.kind]
		if strings.Count(path, "/") != 3+strings.Count(id, "/")+extra {
			t.Fatalf("%q: id %q", path, id)
		}
	})
}
