package subscriptions

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"headwater/ci/engines"
	"headwater/fdblayer"
	"headwater/fdblayer/kv"
)

// BenchmarkAppend is what an append pays for subscriptions: to a stream that
// none follows, and to one that all follow.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{0, 100, 10_000} {
		var e *env
		for _, path := range []string{"other", "events/a"} {
			b.Run(fmt.Sprintf("subscriptions=%d/stream=%s", n, path), func(b *testing.B) {
				if e == nil || e.t != b {
					e = benchEnv(b, n)
				}
				body := append(bytes.Repeat([]byte("1"), 99), '\n')
				req := fdblayer.AppendRequest{ID: fdblayer.StreamID{Stream: path}, ContentType: "application/json", Body: body}
				b.ReportAllocs()
				for b.Loop() {
					if _, err := e.store.Append(b.Context(), req); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// benchEnv has n subscriptions to events/*, all of them linked and none idle,
// as they are when their workers are behind.
func benchEnv(b *testing.B, n int) *env {
	b.Helper()
	e := newEnv(b, engines.Embedded(b))
	e.clock.ms.Store(time.Now().UnixMilli())
	start := time.Now()
	for _, path := range []string{"wake", "other", "events/a"} {
		e.create(path, "")
	}
	var g errgroup.Group
	g.SetLimit(32)
	for i := range n {
		g.Go(func() error {
			_, _, err := e.Put(b.Context(), ID{Name: fmt.Sprint(i)}, pull("events/*"), "")
			return err
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	e.marksAll(b)
	if n > 0 && !e.followed("events/a") || e.followed("other") {
		b.Fatal("the flags are wrong")
	}
	b.Logf("%d subscriptions made and linked in %v", n, time.Since(start))
	return e
}

// BenchmarkReconcile is what the mark of a stream costs, once however many
// appends made it, for the number of subscriptions that follow the stream.
func BenchmarkReconcile(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("subscriptions=%d", n), func(b *testing.B) {
			e := benchEnv(b, n)
			e.post("events/a", `1`)
			e.marksAll(b)
			for b.Loop() {
				e.post("events/a", `1`)
				if err := e.reconcile(b.Context(), fdblayer.StreamID{Stream: "events/a"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWake is the time from an append to the end of the webhook it causes:
// acked, and idle again.
func BenchmarkWake(b *testing.B) {
	for name, open := range map[string]func(testing.TB) kv.Database{"embedded": engines.Embedded, "foundationdb": engines.FoundationDB} {
		b.Run(name, func(b *testing.B) {
			e := newEnv(b, open(b))
			e.node = e.frontend(func(o *Options) { o.Now = nil })
			got := make(chan struct{}, 1)
			r := newReceiver(b, func(w http.ResponseWriter, req *http.Request, d delivered) {
				done(w, req, d)
				got <- struct{}{}
			})
			e.put("s", hook(r, "events/*"))
			e.create("events/a", "")
			e.Start()
			for b.Loop() {
				e.post("events/a", `1`)
				<-got
			}
		})
	}
}
