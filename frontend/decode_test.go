package frontend

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"headwater/fdblayer"
)

func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestExpiry(t *testing.T) {
	for ttl, want := range map[string]uint64{"0": 0, "1": 1, "3600": 3600, "1099511627776": 1 << 40} {
		e, err := expiry(headers("Stream-TTL", ttl))
		if err != nil || !e.HasTTL || e.TTL != want {
			t.Errorf("%q: %+v, %v", ttl, e, err)
		}
	}
	for _, ttl := range []string{"", " ", "+60", "-1", "00060", "01", "60.5", "1e3", "0x10", "abc", "6 0", "60s", "1099511627777", "99999999999999999999", "٣"} {
		if e, err := expiry(headers("Stream-TTL", ttl)); !hasCode(err, codeInvalidExpiry) {
			t.Errorf("%q: %+v, %v", ttl, e, err)
		}
	}
	noon := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	for _, at := range []string{"2030-01-02T12:00:00Z", "2030-01-02T12:00:00.000Z", "2030-01-02T12:00:00+00:00", "2030-01-02T14:30:00+02:30"} {
		e, err := expiry(headers("Stream-Expires-At", at))
		if err != nil || !e.At.Equal(noon) || e.AtText != at || e.HasTTL {
			t.Errorf("%q: %+v, %v", at, e, err)
		}
	}
	for _, at := range []string{"", "not-a-timestamp", "2030-01-02", "2030-01-02 12:00:00Z", "2030-01-02T12:00:00", "2030-13-02T12:00:00Z", "2030-02-30T12:00:00Z", "2030-01-02T25:00:00Z", "2030-01-02T1:00:00Z", "2030-01-02T12:00:00,5Z", "1893456000"} {
		if e, err := expiry(headers("Stream-Expires-At", at)); !hasCode(err, codeInvalidExpiry) {
			t.Errorf("%q: %+v, %v", at, e, err)
		}
	}
	if _, err := expiry(headers("Stream-TTL", "1", "Stream-Expires-At", "2030-01-02T12:00:00Z")); !hasCode(err, codeInvalidExpiry) {
		t.Errorf("both: %v", err)
	}
	if _, err := expiry(headers("Stream-TTL", "1", "Stream-TTL", "1")); !hasCode(err, codeInvalidHeader) {
		t.Errorf("repeated: %v", err)
	}
	if e, err := expiry(nil); err != nil || e != (fdblayer.Expiry{}) {
		t.Errorf("none: %+v, %v", e, err)
	}
}

func TestClosesOnlyOnTrue(t *testing.T) {
	for _, v := range []string{"true", "TRUE", "True", "tRuE"} {
		if !closes(headers("Stream-Closed", v)) {
			t.Errorf("%q is not understood", v)
		}
	}
	for _, v := range []string{"", "false", "yes", "1", "true ", "truee", "true, true", "\"true\""} {
		if closes(headers("Stream-Closed", v)) {
			t.Errorf("%q closes", v)
		}
	}
	if closes(nil) || closes(headers("Stream-Closed", "true", "Stream-Closed", "true")) {
		t.Error("none or two close")
	}
}

func TestProducer(t *testing.T) {
	three := func(id, epoch, seq string) http.Header {
		return headers("Producer-Id", id, "Producer-Epoch", epoch, "Producer-Seq", seq)
	}
	p, err := producer(three("p", "0", "9007199254740991"))
	if err != nil || *p != (fdblayer.Producer{ID: "p", Epoch: 0, Seq: 1<<53 - 1}) {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := producer(nil); p != nil || err != nil {
		t.Errorf("none: %+v, %v", p, err)
	}
	bad := map[string]http.Header{
		"id alone":   headers("Producer-Id", "p"),
		"no id":      headers("Producer-Epoch", "0", "Producer-Seq", "0"),
		"no epoch":   headers("Producer-Id", "p", "Producer-Seq", "0"),
		"no seq":     headers("Producer-Id", "p", "Producer-Epoch", "0"),
		"empty id":   three("", "0", "0"),
		"long id":    three(strings.Repeat("x", 257), "0", "0"),
		"two epochs": headers("Producer-Id", "p", "Producer-Epoch", "0", "Producer-Epoch", "0", "Producer-Seq", "0"),
	}
	for _, n := range []string{"", "-1", "+1", "01", "1.0", "1e3", "1abc", "0xyz", " 1", "9007199254740992", "18446744073709551616"} {
		bad["epoch "+n] = three("p", n, "0")
		bad["seq "+n] = three("p", "0", n)
	}
	for what, h := range bad {
		if p, err := producer(h); err == nil {
			t.Errorf("%s: %+v", what, p)
		}
	}
}

func TestContentType(t *testing.T) {
	for _, v := range []string{"text/plain", "application/json; charset=utf-8", "Application/JSON", "application/vnd.x+json;v=\"a b\"", "text/plain;", "x/y ; p"} {
		if got, err := contentType(headers("Content-Type", v)); err != nil || got != v {
			t.Errorf("%q: %q, %v", v, got, err)
		}
	}
	for _, v := range []string{"", "text", "/plain", "text/", "text/pl ain", "text/plain\x00", "text/plain; a=é", "text/plain, text/html", strings.Repeat("x", 257) + "/x", "text//plain", "te\txt/plain"} {
		if got, err := contentType(http.Header{"Content-Type": {v}}); !hasCode(err, codeInvalidType) {
			t.Errorf("%q: %q, %v", v, got, err)
		}
	}
	if got, err := contentType(nil); got != "" || err != nil {
		t.Errorf("none: %q, %v", got, err)
	}
	if _, err := contentType(headers("Content-Type", "a/b", "Content-Type", "a/b")); !hasCode(err, codeInvalidHeader) {
		t.Errorf("repeated: %v", err)
	}
}

func TestStreamSeq(t *testing.T) {
	for _, v := range []string{"0", "a", "2024-01-01", " ", strings.Repeat("z", 256)} {
		if got, err := streamSeq(headers("Stream-Seq", v)); err != nil || *got != v {
			t.Errorf("%q: %v", v, err)
		}
	}
	for _, h := range []http.Header{headers("Stream-Seq", ""), headers("Stream-Seq", strings.Repeat("z", 257)), headers("Stream-Seq", "1", "Stream-Seq", "2")} {
		if got, err := streamSeq(h); err == nil {
			t.Errorf("%v: %q", h, *got)
		}
	}
	if got, err := streamSeq(nil); got != nil || err != nil {
		t.Errorf("none: %v, %v", got, err)
	}
}

func TestFork(t *testing.T) {
	at := target{id: fdblayer.StreamID{Stream: "fork"}}
	inBucket := target{bucketed: true, id: fdblayer.StreamID{Bucket: "abcd", Stream: "fork"}}
	parse := func(to target, pairs ...string) (*fdblayer.Fork, error) {
		x := &exchange{r: &http.Request{Header: headers(pairs...)}, target: to}
		return x.fork()
	}
	const from, off, sub = "Stream-Forked-From", "Stream-Fork-Offset", "Stream-Fork-Sub-Offset"
	if f, err := parse(at); f != nil || err != nil {
		t.Errorf("none: %+v, %v", f, err)
	}
	f, err := parse(at, from, "/v1/stream/a/b%20c")
	if err != nil || f.Source.Stream != "a/b c" || f.Offset != nil || f.SubOffset != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	f, err = parse(inBucket, from, "/abcd/src", off, "0000000000000000_0000000000000000", sub, "7")
	if err != nil || f.Source != (fdblayer.StreamID{Bucket: "abcd", Stream: "src"}) || !f.Offset.IsStart() || f.SubOffset != 7 {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err = parse(at, from, "/v1/stream/a", off, "-1"); err != nil || f.Offset == nil || !f.Offset.IsStart() {
		t.Errorf("%+v, %v", f, err)
	}
	for what, pairs := range map[string][]string{
		"offset alone":      {off, "-1"},
		"sub-offset alone":  {sub, "0"},
		"empty":             {from, ""},
		"no path":           {from, "src"},
		"absolute URL":      {from, "http://127.0.0.1/v1/stream/a"},
		"other surface":     {from, "/abcd/src"},
		"a subresource":     {from, "/v1/stream/a/bootstrap"},
		"a bucket":          {from, "/abcd"},
		"reserved":          {from, "/v1/stream/__ds/x"},
		"twice":             {from, "/v1/stream/a", from, "/v1/stream/a"},
		"bad offset":        {from, "/v1/stream/a", off, "x"},
		"empty offset":      {from, "/v1/stream/a", off, ""},
		"leading zero":      {from, "/v1/stream/a", sub, "05"},
		"plus":              {from, "/v1/stream/a", sub, "+1"},
		"minus":             {from, "/v1/stream/a", sub, "-1"},
		"fraction":          {from, "/v1/stream/a", sub, "1.5"},
		"empty sub-offset":  {from, "/v1/stream/a", sub, ""},
		"beyond JavaScript": {from, "/v1/stream/a", sub, "9007199254740992"},
		"encoding":          {from, "/v1/stream/%zz"},
	} {
		if f, err := parse(at, pairs...); err == nil {
			t.Errorf("%s: %+v", what, f)
		}
	}
	if f, err := parse(inBucket, from, "/dcba/src"); err == nil {
		t.Errorf("other bucket: %+v", f)
	}
	if f, err := parse(inBucket, from, "/v1/stream/src"); err == nil {
		t.Errorf("other surface: %+v", f)
	}
}

func TestForwardedHeadersNeedTrust(t *testing.T) {
	if validHost("evil.example/x") || validHost("a b") || validHost("") || validHost("a\"b") || !validHost("[::1]:80") || !validHost("streams.example:8443") {
		t.Error("validHost")
	}
	if got := forwarded([]string{" https , http"}); got != "https" {
		t.Errorf("forwarded: %q", got)
	}
}
