package subscriptions

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"headwater/fdblayer"
	"headwater/keys"
)

func pull(pattern string, streams ...string) Config {
	return Config{Type: PullWake, Pattern: pattern, Streams: streams, WakeStream: "wake", Lease: 10 * time.Second}
}

// events returns the wake events of a stream.
func (e *env) events(path string) []wakeEvent {
	e.t.Helper()
	p, err := e.store.Read(e.t.Context(), fdblayer.ReadRequest{
		ID: fdblayer.StreamID{Stream: path}, From: fdblayer.From{AtStart: true}, MaxBytes: 1 << 20,
	})
	if err != nil {
		e.t.Fatal(err)
	}
	var out []wakeEvent
	for _, line := range bytes.Split(bytes.TrimSpace(p.Data), []byte("\n")) {
		var ev wakeEvent
		if len(line) == 0 {
			continue
		}
		if err := json.Unmarshal(line, &ev); err != nil {
			e.t.Fatalf("%q: %v", line, err)
		}
		out = append(out, ev)
	}
	return out
}

func (e *env) claim(name, worker string) Claimed {
	e.t.Helper()
	c, err := e.Claim(e.t.Context(), ID{Name: name}, worker)
	if err != nil {
		e.t.Fatal(err)
	}
	return c
}

func request(c Claimed, done bool, acks ...Ack) AckRequest {
	return AckRequest{WakeID: c.WakeID, Generation: c.Generation, Acks: acks, Done: done}
}

func TestCreateConfirmAndDelete(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		cfg := pull("events/*", "b", "a", "/a/")
		sub := e.put("s", cfg)
		if sub.Type != PullWake || sub.Lease != 10*time.Second || sub.Failed || len(sub.Links) != 2 || sub.Links[0].Path != "a" || sub.Links[0].Type != Explicit {
			t.Fatalf("%+v", sub)
		}
		cfg.Streams = []string{"a", "b"}
		if _, created, err := e.Put(t.Context(), ID{Name: "s"}, cfg, ""); err != nil || created {
			t.Fatal(created, err)
		}
		cfg.Description = "other"
		_, _, err := e.Put(t.Context(), ID{Name: "s"}, cfg, "")
		mustFail(t, err, CodeExists)
		for range 2 {
			if err := e.Delete(t.Context(), ID{Name: "s"}); err != nil {
				t.Fatal(err)
			}
		}
		_, err = e.Get(t.Context(), ID{Name: "s"})
		mustFail(t, err, CodeNotFound)
		e.put("s", cfg)
		e.work(t)
		if n := len(e.get("s").Links); n != 2 {
			t.Fatalf("the drop of the first life took %d of 2 links of the second", 2-n)
		}
	})
}

func TestRefusesBadConfigurations(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		for name, c := range map[string]Config{
			"no type":         {Pattern: "a"},
			"nothing to link": {Type: PullWake, WakeStream: "w"},
			"no wake stream":  {Type: PullWake, Pattern: "a"},
			"no url":          {Type: Webhook, Pattern: "a"},
			"short lease":     {Type: PullWake, Pattern: "a", WakeStream: "w", Lease: 999 * time.Millisecond},
			"long lease":      {Type: PullWake, Pattern: "a", WakeStream: "w", Lease: MaxLease + time.Millisecond},
			"reserved":        {Type: PullWake, Streams: []string{"__ds/x"}, WakeStream: "w"},
			"empty path":      {Type: PullWake, Streams: []string{"/"}, WakeStream: "w"},
			"NUL":             {Type: PullWake, Pattern: "a\x00", WakeStream: "w"},
		} {
			_, _, err := e.Put(t.Context(), ID{Name: "s"}, c, "")
			if mustFail(t, err, CodeInvalidRequest); err == nil {
				t.Error(name)
			}
		}
		_, _, err := e.Put(t.Context(), ID{Name: "a/b"}, pull("x"), "")
		mustFail(t, err, CodeInvalidRequest)
		_, _, err = e.Put(t.Context(), ID{"bucket", "s"}, pull("", "a/b"), "")
		mustFail(t, err, CodeInvalidRequest)
		_, _, err = e.Put(t.Context(), ID{Name: "s"}, Config{Type: Webhook, Pattern: "x", URL: "https://10.0.0.1/"}, "")
		mustFail(t, err, CodeURLRejected)
	})
}

// Streams that exist are linked at the tail they had when the subscription was
// created; a stream that comes later is linked before its first byte.
func TestLinksAtTheTailOrBeforeTheFirstByte(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create("wake", "")
		e.create("events/old", `"x"`)
		tail := e.post("events/old", `"y"`)
		e.create("other/old", `"x"`)
		e.put("s", pull("events/*"))
		if l, ok := e.cursor("s", "events/old"); !ok || l.Acked != tail || l.Type != Glob {
			t.Fatalf("%+v", l)
		}
		e.create("events/new", `"first"`)
		if l, ok := e.cursor("s", "events/new"); !ok || !l.Acked.IsStart() {
			t.Fatalf("%v %+v", ok, l)
		}
		if _, ok := e.cursor("s", "other/old"); ok {
			t.Fatal("linked without a match")
		}
		e.work(t)
		ev := e.events("wake")
		if len(ev) != 1 || ev[0].Stream != "events/new" || ev[0].Generation != 1 || ev[0].Type != "wake" || ev[0].SubscriptionID != "s" {
			t.Fatalf("%+v", ev)
		}
		e.post("events/old", `"z"`)
		e.work(t)
		c := e.claim("s", "w")
		if len(c.Streams) != 2 || !c.Streams[0].Pending || !c.Streams[1].Pending || c.Generation != 1 {
			t.Fatalf("%+v", c)
		}
	})
}

// However late a page of existing streams is reached, the cursor is where the
// tail was at the subscription's creation, and work since is not lost.
func TestLateBackfillLosesNothing(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create("wake", "")
		e.create("events/a", `1`)
		at := e.post("events/a", `2`)
		var fill entry
		cfg, err := pull("events/*").normalize("")
		if err != nil {
			t.Fatal(err)
		}
		// As Put does, but for the frontend dying before it links anything.
		_, err = e.store.Update(t.Context(), func(ctx ctxType, tx txType, _ attemptType) error {
			var err error
			fill, err = e.Service.create(ctx, tx, ID{Name: "s"}, newRecord(cfg, keys.SubscriptionID{1}, "", e.now()), cfg)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		e.post("events/a", `3`)
		e.create("events/b", `1`)
		e.clock.advance(taskLease)
		if fill.task != keys.SubTaskFill {
			t.Fatal(fill)
		}
		e.work(t)
		if l, ok := e.cursor("s", "events/a"); !ok || l.Acked != at {
			t.Fatalf("%v %v, want %v", ok, l, at)
		}
		if l, ok := e.cursor("s", "events/b"); !ok || !l.Acked.IsStart() {
			t.Fatalf("%v %v", ok, l)
		}
		if c := e.claim("s", "w"); len(c.Streams) != 2 || !c.Streams[0].Pending || !c.Streams[1].Pending {
			t.Fatalf("%+v", c)
		}
	})
}

func TestClaimAckRelease(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		ctx, id := t.Context(), ID{Name: "s"}
		e.create("wake", "")
		e.put("s", pull("events/*"))
		_, err := e.Claim(ctx, id, "w1")
		mustFail(t, err, CodeNoPendingWork)
		st := e.create("events/a", `1`)

		c := e.claim("s", "w1") // before anybody dealt with the mark
		if c.Generation != 1 || c.LeaseMS != 10_000 || len(c.Streams) != 1 || c.Streams[0].Tail != st.Tail {
			t.Fatalf("%+v", c)
		}
		_, err = e.Claim(ctx, id, "w2")
		if held := mustFail(t, err, CodeAlreadyClaimed); held.CurrentHolder != "w1" || held.Generation != 1 {
			t.Fatalf("%+v", held)
		}
		ack := Ack{"events/a", st.Tail.String()}
		for name, bad := range map[string]AckRequest{
			"other wake":       {WakeID: "w_x", Generation: 1, Acks: []Ack{ack}},
			"other generation": {WakeID: c.WakeID, Generation: 2, Acks: []Ack{ack}},
		} {
			if _, err := e.Ack(ctx, id, c.Token, bad); err == nil {
				t.Fatal(name)
			} else {
				mustFail(t, err, CodeFenced)
			}
		}
		for name, bad := range map[string]Ack{
			"beyond the tail": {"events/a", keys.MakeOffset(st.Tail.Versionstamp(), 9, 9).String()},
			"start":           {"events/a", "-1"},
			"nonsense":        {"events/a", "zz"},
			"not linked":      {"other", st.Tail.String()},
		} {
			if _, err := e.Ack(ctx, id, c.Token, request(c, true, bad)); err == nil {
				t.Fatal(name)
			} else {
				mustFail(t, err, CodeInvalidOffset)
			}
		}
		_, err = e.Ack(ctx, id, "x.y", request(c, true))
		mustFail(t, err, CodeTokenInvalid)

		next, err := e.Ack(ctx, id, c.Token, request(c, true, ack))
		if err != nil || next {
			t.Fatal(next, err)
		}
		if l, _ := e.cursor("s", "events/a"); l.Acked != st.Tail {
			t.Fatalf("%+v", l)
		}
		_, err = e.Ack(ctx, id, c.Token, request(c, true, ack))
		mustFail(t, err, CodeFenced)

		e.post("events/a", `2`)
		c = e.claim("s", "w1")
		if c.Generation != 2 || c.Streams[0].Acked != st.Tail {
			t.Fatalf("%+v", c)
		}
		if err := e.Release(ctx, id, c.Token, request(c, false)); err != nil {
			t.Fatal(err)
		}
		mustFail(t, e.Release(ctx, id, c.Token, request(c, false)), CodeFenced)
		e.work(t)
		if ev := e.events("wake"); len(ev) != 1 || ev[0].Generation != 3 {
			t.Fatalf("a release with work left wrote %+v", ev)
		}
		c = e.claim("s", "w2")
		back := request(c, false, Ack{"events/a", keys.MakeOffset(st.Tail.Versionstamp(), st.Tail.Order(), 1).String()})
		_, err = e.Ack(ctx, id, c.Token, back)
		mustFail(t, err, CodeInvalidOffset)
		if l, _ := e.cursor("s", "events/a"); l.Acked != st.Tail {
			t.Fatalf("the cursor moved back: %+v", l)
		}
	})
}

// A lease ends by time, without anybody asking; what held it is fenced and the
// work is announced again.
func TestLeaseEndsByItself(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		ctx, id := t.Context(), ID{Name: "s"}
		e.create("wake", "")
		e.put("s", pull("events/*"))
		st := e.create("events/a", `1`)
		e.work(t)
		c := e.claim("s", "w1")
		e.clock.advance(9 * time.Second)
		if _, err := e.Ack(ctx, id, c.Token, request(c, false)); err != nil { // a heartbeat
			t.Fatal(err)
		}
		e.clock.advance(9 * time.Second)
		e.work(t)
		if n := len(e.events("wake")); n != 1 {
			t.Fatalf("%d events while the lease was held", n)
		}
		e.clock.advance(time.Second)
		_, err := e.Ack(ctx, id, c.Token, request(c, true, Ack{"events/a", st.Tail.String()}))
		mustFail(t, err, CodeFenced)
		e.work(t)
		ev := e.events("wake")
		if len(ev) != 2 || ev[1].Generation != 2 {
			t.Fatalf("%+v", ev)
		}
		if d := e.get("s").Delivery; d.Expired != 1 || d.Holder != "" || d.Phase != "woken" {
			t.Fatalf("%+v", d)
		}
		if c2 := e.claim("s", "w2"); c2.Generation != 2 || c2.WakeID == c.WakeID {
			t.Fatalf("%+v", c2)
		}
	})
}

// Work that comes while a wake is held is found when it ends.
func TestWorkDuringAWakeIsNotLost(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		ctx, id := t.Context(), ID{Name: "s"}
		e.create("wake", "")
		e.put("s", pull("events/*"))
		st := e.create("events/a", `1`)
		e.work(t)
		c := e.claim("s", "w1")
		e.post("events/a", `2`)
		e.create("events/b", `1`)
		e.work(t)
		next, err := e.Ack(ctx, id, c.Token, request(c, true, Ack{"events/a", st.Tail.String()}))
		if err != nil || !next {
			t.Fatal(next, err)
		}
		e.work(t)
		if ev := e.events("wake"); len(ev) != 2 {
			t.Fatalf("%+v", ev)
		}
		if c := e.claim("s", "w1"); len(c.Streams) != 2 {
			t.Fatalf("%+v", c.Streams)
		}
	})
}

// An event nobody claims is written again, in the same generation; one that
// can't be written is tried again until it can.
func TestWakeEventsAreWrittenOnceAndRemindedOf(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.put("s", pull("events/*"))
		e.create("events/a", `1`)
		e.work(t)
		if s := e.get("s"); !s.Failed || s.Delivery.LastError != "wake_stream_missing" || s.Delivery.Attempts != 1 {
			t.Fatalf("%+v", s)
		}
		e.create("wake", "")
		e.clock.advance(time.Second)
		e.work(t)
		if ev := e.events("wake"); len(ev) != 1 || e.get("s").Failed {
			t.Fatalf("%+v %+v", ev, e.get("s"))
		}
		e.clock.advance(59 * time.Second)
		e.work(t)
		if ev := e.events("wake"); len(ev) != 1 {
			t.Fatalf("%+v", ev)
		}
		e.clock.advance(time.Second)
		e.work(t)
		if ev := e.events("wake"); len(ev) != 2 || ev[1].Generation != 1 {
			t.Fatalf("%+v", ev)
		}
		// Whoever writes the same event once more writes nothing.
		var w *issued
		err := e.change(t.Context(), ID{Name: "s"}, func(_ ctxType, _ txType, u *sub) error {
			w = &issued{sub: u}
			w.Announced = 1
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.writeEvent(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if ev := e.events("wake"); len(ev) != 2 {
			t.Fatalf("%+v", ev)
		}
	})
}

// A deleted stream takes its glob links with it; an explicit link stays on the
// path and follows what is created there from its first byte.
func TestDeletedAndRecreatedStreams(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create("wake", "")
		e.put("s", pull("events/*", "manual"))
		e.create("events/a", `1`)
		e.create("manual", `1`)
		if l, ok := e.cursor("s", "manual"); !ok || !l.Acked.IsStart() || l.Type != Explicit {
			t.Fatalf("%v %+v", ok, l)
		}
		e.work(t)
		e.remove("events/a")
		e.remove("manual")
		e.work(t)
		if _, ok := e.cursor("s", "events/a"); ok {
			t.Fatal("the glob link stayed")
		}
		if l, ok := e.cursor("s", "manual"); !ok || !l.Acked.IsStart() {
			t.Fatalf("%v %+v", ok, l)
		}
		_, err := e.Claim(t.Context(), ID{Name: "s"}, "w")
		mustFail(t, err, CodeNoPendingWork)
		st := e.create("events/a", `2`)
		st2 := e.create("manual", `2`)
		c := e.claim("s", "w")
		if len(c.Streams) != 2 || c.Streams[0].Tail != st.Tail || c.Streams[1].Tail != st2.Tail || !c.Streams[0].Acked.IsStart() {
			t.Fatalf("%+v", c.Streams)
		}
		// Recreated while nobody looked, and after an ack.
		if _, err := e.Ack(t.Context(), ID{Name: "s"}, c.Token, request(c, true,
			Ack{"events/a", st.Tail.String()}, Ack{"manual", st2.Tail.String()})); err != nil {
			t.Fatal(err)
		}
		e.remove("events/a")
		e.create("events/a", `3`)
		c = e.claim("s", "w")
		if in := c.Streams[0]; in.Path != "events/a" || !in.Acked.IsStart() || !in.Pending {
			t.Fatalf("%+v", c.Streams)
		}
	})
}

// Removing an explicit link leaves the glob link, and a stream that nobody
// follows any more costs nothing again.
func TestMembership(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		ctx, id := t.Context(), ID{Name: "s"}
		e.create("wake", "")
		e.put("s", pull("events/*", "x"))
		tail := e.create("events/a", `1`).Tail
		xt := e.create("x", `1`).Tail
		if err := e.AddStreams(ctx, id, []string{"events/a", "y"}); err != nil {
			t.Fatal(err)
		}
		if l, _ := e.cursor("s", "events/a"); l.Type != Explicit || !l.Acked.IsStart() {
			t.Fatalf("%+v", l)
		}
		for range 2 {
			for _, p := range []string{"events/a", "x", "y", "never"} {
				if err := e.RemoveStream(ctx, id, p); err != nil {
					t.Fatal(err)
				}
			}
		}
		e.work(t)
		links := e.get("s").Links
		if len(links) != 1 || links[0].Path != "events/a" || links[0].Type != Glob {
			t.Fatalf("%+v", links)
		}
		if e.followed("x") || !e.followed("events/a") {
			t.Fatal("the flags are wrong")
		}
		if err := e.Delete(ctx, id); err != nil {
			t.Fatal(err)
		}
		e.work(t)
		if e.followed("events/a") {
			t.Fatal("followed by nobody")
		}
		mustFail(t, e.AddStreams(ctx, id, []string{"x"}), CodeNotFound)
		// A link is made at the tail.
		e.put("s", pull("", "x"))
		if l, _ := e.cursor("s", "x"); l.Acked != xt {
			t.Fatalf("%+v, want %v", l, xt)
		}
		_ = tail
		e.empty()
	})
}

func (e *env) followed(path string) bool {
	e.t.Helper()
	var on bool
	_, err := e.store.Update(e.t.Context(), func(ctx ctxType, tx txType, _ attemptType) error {
		st, err := e.store.See(ctx, tx, []fdblayer.StreamID{{Stream: path}})
		if err == nil {
			on = st[0].Followed
		}
		return err
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return on
}

// empty checks that what is left hangs under subscriptions that exist.
func (e *env) empty() {
	e.t.Helper()
	e.work(e.t)
	alive := map[string]bool{}
	subs, err := e.ListAll(e.t.Context(), ID{}, 1000)
	if err != nil {
		e.t.Fatal(err)
	}
	for _, u := range subs {
		err := e.change(e.t.Context(), u.ID, func(_ ctxType, _ txType, u *sub) error {
			alive[string(u.uid[:])] = true
			return nil
		})
		if err != nil {
			e.t.Fatal(err)
		}
	}
	rows, err := e.page(e.t.Context(), e.space.All(), 0)
	if err != nil {
		e.t.Fatal(err)
	}
	for _, row := range rows {
		switch keys.Kind(row.Key[len(e.prefix)]) {
		case keys.KindSubState, keys.KindSubLink, keys.KindSubPending, keys.KindSubFill:
			if uid := row.Key[len(e.prefix)+1:][:16]; !alive[string(uid)] {
				e.t.Errorf("left behind: %q", row.Key)
			}
		case keys.KindFollower, keys.KindSubGlob, keys.KindSubDue:
			if uid := row.Key[len(row.Key)-16:]; !alive[string(uid)] {
				e.t.Errorf("left behind: %q", row.Key)
			}
		case keys.KindSubMark:
			e.t.Errorf("a mark is left: %q", row.Key)
		}
	}
}

func TestPurgedBuckets(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		ctx, id := t.Context(), ID{"bucket", "s"}
		e.createIn("bucket", "wake", "")
		cfg := pull("*")
		if _, _, err := e.Put(ctx, id, cfg, ""); err != nil {
			t.Fatal(err)
		}
		e.createIn("bucket", "a", `1`)
		e.work(t)
		if err := e.store.PurgeBucket(ctx, "bucket", func(int) {}); err != nil {
			t.Fatal(err)
		}
		e.empty()
		_, err := e.Get(ctx, id)
		mustFail(t, err, CodeNotFound)
		_, _, err = e.Put(ctx, id, cfg, "")
		mustFail(t, err, CodeNotFound)
	})
}

// A subscription is an ordinary writer of its wake stream: another that
// follows that stream is woken by it.
func TestWakeStreamsCanBeFollowed(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create("wake", "")
		e.create("wake2", "")
		e.put("s", pull("events/*"))
		cfg := pull("", "wake")
		cfg.WakeStream = "wake2"
		e.put("over", cfg)
		e.create("events/a", `1`)
		e.work(t)
		if ev := e.events("wake2"); len(ev) != 1 || ev[0].Stream != "wake" || ev[0].SubscriptionID != "over" {
			t.Fatalf("%+v", ev)
		}
	})
}

// A subscription does not follow its own wake stream, whatever its pattern: it
// would wake itself for ever.
func TestOwnWakeStream(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create("wake", "")
		e.put("s", pull("**"))
		e.create("events/a", `1`)
		e.work(t)
		if links := e.get("s").Links; len(links) != 1 || links[0].Path != "events/a" {
			t.Fatalf("%+v", links)
		}
		if ev := e.events("wake"); len(ev) != 1 || e.followed("wake") {
			t.Fatalf("%+v", ev)
		}
		mustFail(t, e.AddStreams(t.Context(), ID{Name: "s"}, []string{"x", "wake"}), CodeInvalidRequest)
		_, _, err := e.Put(t.Context(), ID{Name: "t"}, pull("", "wake"), "")
		mustFail(t, err, CodeInvalidRequest)
	})
}

// A fork is linked where its own bytes begin.
func TestForksAreLinkedAtTheForkPoint(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create("wake", "")
		src := e.create("src", `1`)
		e.put("s", pull("events/*"))
		if _, err := e.store.Create(t.Context(), fdblayer.CreateRequest{
			ID: fdblayer.StreamID{Stream: "events/fork"}, Fork: &fdblayer.Fork{Source: fdblayer.StreamID{Stream: "src"}},
		}); err != nil {
			t.Fatal(err)
		}
		if l, ok := e.cursor("s", "events/fork"); !ok || l.Acked != src.Tail {
			t.Fatalf("%v %+v", ok, l)
		}
		e.work(t)
		if ev := e.events("wake"); len(ev) != 0 {
			t.Fatalf("inherited history woke: %+v", ev)
		}
		e.post("events/fork", `2`)
		e.work(t)
		if ev := e.events("wake"); len(ev) != 1 {
			t.Fatalf("%+v", ev)
		}
	})
}
