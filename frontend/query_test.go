package frontend

import (
	"errors"
	"testing"
	"time"

	"headwater/fdblayer"
	"headwater/keys"
)

const most = 8 << 20

func TestParseQuery(t *testing.T) {
	offset, err := keys.ParseOffset("00000000030a65f20000000000000005")
	if err != nil {
		t.Fatal(err)
	}
	start := fdblayer.From{AtStart: true}
	plain := readQuery{from: start, timeout: time.Second, maxBytes: most}
	with := func(change func(*readQuery)) readQuery { q := plain; change(&q); return q }

	for raw, want := range map[string]readQuery{
		"":                   plain,
		"foo=bar&baz=qux&&a": plain,
		"offset=-1":          plain,
		"offset=%2D1":        plain,
		"offset=now":         with(func(q *readQuery) { q.from = fdblayer.From{Now: true} }),
		"offset=00000000030a65f20000000000000005":  with(func(q *readQuery) { q.from = fdblayer.From{Offset: offset} }),
		"offset=0000000000000000_0000000000000000": with(func(q *readQuery) { q.from = fdblayer.From{} }),
		"live=long-poll&offset=-1":                 with(func(q *readQuery) { q.live = longPoll }),
		"offset=-1&live=sse&cursor=17":             with(func(q *readQuery) { q.live = events; q.cursor = 17 }),
		"cursor=x":                                 plain,
		"cursor=-5":                                plain,
		"cursor=99999999999999999999":              plain,
		"timeout_ms=500":                           with(func(q *readQuery) { q.timeout = 500 * time.Millisecond }),
		"timeout_ms=0":                             with(func(q *readQuery) { q.timeout = time.Millisecond }),
		"timeout_ms=-3":                            with(func(q *readQuery) { q.timeout = time.Millisecond }),
		"timeout_ms=999999":                        with(func(q *readQuery) { q.timeout = time.Minute }),
		"timeout_ms=1.5":                           plain,
		"timeout_ms=":                              plain,
		"max_bytes=5":                              with(func(q *readQuery) { q.maxBytes = 5 }),
		"max_bytes=0":                              with(func(q *readQuery) { q.maxBytes = 1 }),
		"max_bytes=-9":                             with(func(q *readQuery) { q.maxBytes = 1 }),
		"max_bytes=99999999999":                    plain,
		"max_bytes=1e3":                            plain,
		"max_bytes=99999999999999999999":           plain,
		"consistency=local":                        plain,
		"consistency=leader":                       with(func(q *readQuery) { q.leader = true }),
		"consistency=local&offset=-1&live=sse":     with(func(q *readQuery) { q.live = events }),
	} {
		got, err := parseQuery(raw, most)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", raw, got, err, want)
		}
	}
	for raw, want := range map[string]fdblayer.Code{
		"offset=":                               fdblayer.CodeBadOffset,
		"offset":                                fdblayer.CodeBadOffset,
		"offset=a&offset=b":                     fdblayer.CodeBadOffset,
		"offset=-1&offset=-1":                   fdblayer.CodeBadOffset,
		"offset=0,1":                            fdblayer.CodeBadOffset,
		"offset=0%2F1":                          fdblayer.CodeBadOffset,
		"offset=%00":                            fdblayer.CodeBadOffset,
		"offset=0%0A":                           fdblayer.CodeBadOffset,
		"offset=..":                             fdblayer.CodeBadOffset,
		"offset=+1":                             fdblayer.CodeBadOffset,
		"offset=NOW":                            fdblayer.CodeBadOffset,
		"offset=%zz":                            codeInvalidParameter,
		"%zz=1":                                 codeInvalidParameter,
		"live=sse":                              codeInvalidParameter,
		"live=long-poll":                        codeInvalidParameter,
		"offset=-1&live=":                       codeInvalidParameter,
		"offset=-1&live=true":                   codeInvalidParameter,
		"offset=-1&live=SSE":                    codeInvalidParameter,
		"offset=-1&live=sse&live=sse":           codeInvalidParameter,
		"consistency=":                          codeInvalidParameter,
		"consistency=strong":                    codeInvalidParameter,
		"consistency=local&consistency=leader":  codeInvalidParameter,
		"offset=-1&live=sse&consistency=leader": codeInvalidParameter,
	} {
		if got, err := parseQuery(raw, most); !hasCode(err, want) {
			t.Errorf("%q: %+v, %v, want %s", raw, got, err, want)
		}
	}
	if !hasParameter("a=1&liv%65=x", "live") || hasParameter("alive=1&x=live", "live") {
		t.Error("hasParameter")
	}
}

func FuzzParseQuery(f *testing.F) {
	for _, s := range []string{"offset=-1", "offset=now&live=sse&cursor=1", "a=%zz", "max_bytes=0&timeout_ms=x", "consistency=leader&&=&"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := parseQuery(raw, most)
		if err != nil {
			var e *fdblayer.Error
			if !errors.As(err, &e) || statuses[e.Code] != 400 {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		if q.maxBytes < 1 || q.maxBytes > most || q.timeout < minPoll || q.timeout > maxPoll || q.cursor > maxCursor || q.live != catchUp && q.leader {
			t.Fatalf("%q: %+v", raw, q)
		}
	})
}
