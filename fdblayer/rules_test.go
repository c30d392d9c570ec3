package fdblayer

import (
	"maps"
	"testing"
	"time"

	"headwater/keys"
)

var t0 = time.UnixMilli(1_800_000_000_000)

func openView(mod func(*meta)) *view {
	m := &meta{incarnation: keys.NewIncarnation(), contentType: "text/plain", created: t0}
	if mod != nil {
		mod(m)
	}
	return &view{id: StreamID{"", "s"}, meta: m, touched: t0}
}

func text(body string) *AppendRequest {
	return &AppendRequest{ContentType: "text/plain", Body: []byte(body)}
}

func codeOf(o outcome) Code {
	if o.err == nil {
		return ""
	}
	return o.err.Code
}

func ptr[T any](v T) *T { return &v }

// The order in which an append's faults are told is part of the protocol: the
// first of these that applies wins (PROTOCOL.md 5.2, extensions 2.4).
func TestAppendErrorPrecedence(t *testing.T) {
	other := Precondition{Incarnation: keys.NewIncarnation(), Set: true}
	all := func() *AppendRequest {
		return &AppendRequest{
			ContentType: "image/png", Body: []byte("x"), Precondition: other,
			Producer: &Producer{ID: "p", Epoch: 1, Seq: 9}, Seq: ptr("a"),
		}
	}
	setup := func() *view {
		v := openView(nil)
		v.producers = map[string]producerState{"p": {epoch: 2, seq: 1}}
		v.seq = ptr("b")
		return v
	}
	steps := []struct {
		want Code
		fix  func(*view, *AppendRequest)
	}{
		{CodeNotFound, func(*view, *AppendRequest) {}},
		{CodeSoftDeleted, func(v *view, _ *AppendRequest) { *v = *setup(); v.meta.softDeleted = true; v.meta.closed = true }},
		{CodeClosed, func(v *view, _ *AppendRequest) { v.meta.softDeleted = false }},
		{CodeContentType, func(v *view, _ *AppendRequest) { v.meta.closed = false }},
		{CodeStaleEpoch, func(_ *view, r *AppendRequest) { r.ContentType = "TEXT/plain; charset=utf-8" }},
		{CodeProducerGap, func(_ *view, r *AppendRequest) { r.Producer.Epoch = 2 }},
		{CodeSequence, func(_ *view, r *AppendRequest) { r.Producer.Seq = 2 }},
		{CodeIncarnation, func(_ *view, r *AppendRequest) { r.Seq = ptr("c") }},
		{"", func(v *view, r *AppendRequest) { r.Precondition.Incarnation = v.meta.incarnation }},
	}
	v, r := &view{}, all()
	for _, s := range steps {
		s.fix(v, r)
		if got := codeOf(v.append(t0, r, nil)); got != s.want {
			t.Fatalf("got %q, want %q", got, s.want)
		}
		if s.want != "" && v.writes() {
			t.Fatalf("a request refused with %s changed something", s.want)
		}
	}
}

func TestProducerValidation(t *testing.T) {
	known := map[string]producerState{"p": {epoch: 3, seq: 5, next: position{offset: keys.MakeOffset(keys.Versionstamp{1}, 0, 9)}}}
	for _, c := range []struct {
		name       string
		producers  map[string]producerState
		epoch, seq uint64
		want       Code
		duplicate  bool
	}{
		{"first", nil, 0, 0, "", false},
		{"first of a later epoch", nil, 7, 0, "", false},
		{"first not at zero", nil, 0, 1, CodeProducerGap, false},
		{"next", known, 3, 6, "", false},
		{"again", known, 3, 5, "", true},
		{"long ago", known, 3, 0, "", true},
		{"gap", known, 3, 7, CodeProducerGap, false},
		{"zombie", known, 2, 6, CodeStaleEpoch, false},
		{"new epoch", known, 4, 0, "", false},
		{"new epoch not at zero", known, 4, 1, CodeEpochStart, false},
		{"greatest numbers", known, 1<<53 - 1, 0, "", false},
	} {
		v := openView(nil)
		v.producers = maps.Clone(c.producers)
		r := text("x")
		r.Producer = &Producer{ID: "p", Epoch: c.epoch, Seq: c.seq}
		o := v.append(t0, r, nil)
		if codeOf(o) != c.want || o.append.Duplicate != c.duplicate {
			t.Errorf("%s: got %q, duplicate %v", c.name, codeOf(o), o.append.Duplicate)
		}
		if c.duplicate && (o.append.ProducerSeq != 5 || o.next.offset != known["p"].next.offset || v.writes()) {
			t.Errorf("%s: a duplicate must answer with what was applied and write nothing: %+v", c.name, o)
		}
		if c.want == CodeProducerGap && c.producers != nil && (o.err.Expected != 6 || o.err.Received != c.seq) {
			t.Errorf("%s: expected %d, received %d", c.name, o.err.Expected, o.err.Received)
		}
	}
}

func TestCloseIsIdempotentButAppendAndCloseIsNot(t *testing.T) {
	v := openView(nil)
	closing := &AppendRequest{Close: true, ContentType: "text/plain", Body: []byte("end"), Producer: &Producer{"p", 0, 0}}
	if o := v.append(t0, closing, nil); o.err != nil || !o.append.Closed || o.append.Duplicate {
		t.Fatalf("closing: %+v", o)
	}
	if o := v.append(t0, closing, nil); o.err != nil || !o.append.Duplicate || !o.append.Closed {
		t.Fatalf("the closing request again: %+v", o)
	}
	if o := v.append(t0, &AppendRequest{Close: true}, nil); o.err != nil || !o.append.Closed {
		t.Fatalf("close alone: %+v", o)
	}
	for name, r := range map[string]*AppendRequest{
		"append":                    text("x"),
		"append and close":          {Close: true, ContentType: "text/plain", Body: []byte("end")},
		"another producer's close":  {Close: true, Body: []byte("end"), Producer: &Producer{"q", 0, 0}},
		"an append of the producer": {Body: []byte("x"), Producer: &Producer{"p", 0, 1}},
	} {
		if o := v.append(t0, r, nil); codeOf(o) != CodeClosed || !o.next.tail {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

func TestExpiry(t *testing.T) {
	ttl := func(m *meta) { m.expiry = Expiry{HasTTL: true, TTL: 10} }
	for _, c := range []struct {
		name    string
		mod     func(*meta)
		touched time.Duration
		now     time.Duration
		forks   bool
		want    Code
	}{
		{"alive", ttl, 0, 9999 * time.Millisecond, false, ""},
		{"over", ttl, 0, 10 * time.Second, false, CodeNotFound},
		{"renewed", ttl, 5 * time.Second, 14 * time.Second, false, ""},
		{"zero", func(m *meta) { m.expiry = Expiry{HasTTL: true} }, 0, 0, false, CodeNotFound},
		{"held by forks", ttl, 0, 10 * time.Second, true, CodeSoftDeleted},
		{"endless", func(m *meta) { m.expiry = Expiry{HasTTL: true, TTL: 1<<64 - 1} }, 0, 1000 * time.Hour, false, ""},
		{"before a deadline", func(m *meta) { m.expiry.At = t0.Add(time.Hour) }, 0, time.Hour - 1, false, ""},
		{"at a deadline", func(m *meta) { m.expiry.At = t0.Add(time.Hour) }, time.Hour, time.Hour, false, CodeNotFound},
	} {
		v := openView(c.mod)
		v.touched, v.hasForks = t0.Add(c.touched), c.forks
		got := Code("")
		if e := v.missing(t0.Add(c.now)); e != nil {
			got = e.Code
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCreate(t *testing.T) {
	fresh := func() *meta { return &meta{incarnation: keys.NewIncarnation(), contentType: "text/plain", created: t0} }
	forked := func(m *meta) {
		m.fork = &forkMeta{source: StreamID{"", "src"}}
		m.expiry, m.inheritedExpiry = Expiry{HasTTL: true, TTL: 60}, true
	}
	start, tail := keys.StartOffset, keys.MakeOffset(keys.Versionstamp{9: 1}, 0, 3)
	for _, c := range []struct {
		name string
		view *view
		req  CreateRequest
		want Code
		made bool
	}{
		{"new", &view{}, CreateRequest{}, "", true},
		{"new, with a precondition", &view{}, CreateRequest{Precondition: Precondition{Set: true}}, CodeIncarnation, false},
		{"new, in a purged bucket", &view{fenced: true}, CreateRequest{Precondition: Precondition{Set: true}}, CodeNotFound, false},
		{"equal", openView(nil), CreateRequest{ContentType: "Text/Plain;charset=x"}, "", false},
		{"another type", openView(nil), CreateRequest{}, CodeExists, false},
		{"another closure", openView(nil), CreateRequest{ContentType: "text/plain", Closed: true}, CodeExists, false},
		{"another TTL", openView(nil), CreateRequest{ContentType: "text/plain", Expiry: Expiry{HasTTL: true}}, CodeExists, false},
		{"soft-deleted", openView(func(m *meta) { m.softDeleted = true }), CreateRequest{ContentType: "text/plain"}, CodePathDeleted, false},
		{"expired", openView(func(m *meta) { m.expiry = Expiry{HasTTL: true} }), CreateRequest{ContentType: "text/plain"}, "", true},
		{"a fork again, TTL inherited", openView(forked), CreateRequest{Fork: &Fork{Source: StreamID{"", "src"}}}, "", false},
		{"a fork again, the same TTL spelled out", openView(forked),
			CreateRequest{Fork: &Fork{Source: StreamID{"", "src"}}, Expiry: Expiry{HasTTL: true, TTL: 60}}, "", false},
		{"a fork again, another TTL", openView(forked),
			CreateRequest{Fork: &Fork{Source: StreamID{"", "src"}}, Expiry: Expiry{HasTTL: true, TTL: 61}}, CodeExists, false},
		{"a fork of another source", openView(forked), CreateRequest{Fork: &Fork{Source: StreamID{"", "x"}}}, CodeExists, false},
		{"a fork at another sub-offset", openView(forked), CreateRequest{Fork: &Fork{Source: StreamID{"", "src"}, SubOffset: 1}}, CodeExists, false},
		{"a fork again, its anchor spelled out", openView(func(m *meta) { forked(m); m.fork.offset = tail }),
			CreateRequest{Fork: &Fork{Source: StreamID{"", "src"}, Offset: &tail}}, "", false},
		{"a fork again, another anchor spelled out", openView(func(m *meta) { forked(m); m.fork.offset = tail }),
			CreateRequest{Fork: &Fork{Source: StreamID{"", "src"}, Offset: &start}}, CodeExists, false},
		{"a plain stream as a fork", openView(nil), CreateRequest{Fork: &Fork{Source: StreamID{"", "src"}, Offset: &start}}, CodeExists, false},
		{"a fork as a plain stream", openView(forked), CreateRequest{ContentType: "text/plain"}, CodeExists, false},
	} {
		o := c.view.create(t0, &c.req, fresh(), nil)
		if codeOf(o) != c.want || o.create.Created != c.made {
			t.Errorf("%s: got %q, created %v", c.name, codeOf(o), o.create.Created)
		}
		if !c.made && c.view.writes() {
			t.Errorf("%s: something was written", c.name)
		}
	}
}
