package fdblayer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"headwater/fdblayer/kv"
	"headwater/fdblayer/kv/kvtest"
	"headwater/keys"
)

// Whatever is created while a bucket is purged, by any frontend and on a bad
// day, is gone when the purge is done; and nothing can be created then.
func TestNoCreateOutlivesAPurge(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		ctx := t.Context()
		s, f := e.faulty(nil)
		stores := []*Store{e.Store, s}
		first := func(w int) StreamID { return StreamID{"bucket", fmt.Sprintf("first-%d", w)} }
		for w := range 8 {
			if _, err := e.Create(ctx, CreateRequest{ID: first(w), ContentType: "text/plain", Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		f.SetPlan(kvtest.Random(11, 0.2, append(kvtest.Usual(), kvtest.Fault{Fate: kvtest.Late})...))

		var workers sync.WaitGroup
		var made sync.Map // the ids that were said to be created
		var n atomic.Int64
		under, begin := context.WithTimeout(ctx, 20*time.Second)
		defer begin()
		for w := range 8 {
			workers.Go(func() {
				for i := 0; ; i++ {
					id := StreamID{"bucket", fmt.Sprintf("s-%d-%d", w, i)}
					req := CreateRequest{ID: id, ContentType: "text/plain", Body: []byte("x")}
					switch {
					case i%8 == 3:
						req.Fork = &Fork{Source: first(w)}
					case i == 5 && w < 2:
						req.Body = bytes.Repeat([]byte("x"), MaxInlineBody+1)
					}
					_, err := stores[i%2].Create(ctx, req)
					var x *Error
					switch {
					case err == nil:
						made.Store(id, true)
						if n.Add(1) == 50 {
							begin()
						}
					case isCode(err, CodeNotFound):
						return
					case errors.As(err, &x) && (x.Code == CodeUnknownOutcome || x.Code == CodeUnavailable || x.Code == CodeSourceNotFound):
					default:
						t.Errorf("%v: %v", id, err)
						return
					}
				}
			})
		}
		<-under.Done() // also where workers failed
		removed := -1
		if err := s.PurgeBucket(ctx, "bucket", func(n int) { removed = n }); err != nil {
			t.Fatal(err)
		}
		workers.Wait()
		f.SetPlan(nil)
		f.Settle()
		// A count may miss what nobody knows to exist, and no more than that.
		if removed < int(n.Load())+8 {
			t.Errorf("removed %d streams, %d were created", removed, n.Load()+8)
		}
		made.Range(func(id, _ any) bool {
			for _, s := range stores {
				_, _, err := s.Head(ctx, id.(StreamID), Precondition{})
				e.mustFail(err, CodeNotFound)
			}
			return true
		})
		if left := e.count(e.space.MetaRange("bucket")); left != 0 {
			t.Errorf("%d streams are left", left)
		}
		_, err := e.Create(ctx, CreateRequest{ID: first(0)})
		e.mustFail(err, CodeNotFound)
		e.onlyTheFence("bucket")
	})
}

// onlyTheFence checks that a purge left nothing, once what was being uploaded
// has been collected.
func (e *env) onlyTheFence(bucket string) {
	e.t.Helper()
	e.clock.advance(48 * time.Hour)
	for range 10 {
		if err := e.collectGarbage(e.t.Context()); err != nil {
			e.t.Fatal(err)
		}
	}
	_, err := e.transact(e.t.Context(), func(_ context.Context, tx kv.Tx, _ kv.Attempt) error {
		tx.Clear(e.space.Fence(bucket))
		return nil
	})
	if err != nil {
		e.t.Fatal(err)
	}
	e.onlyHousekeeping()
}

// A purge that was cut off leaves the bucket barred, and is completed by
// another. The blobs of snapshots and their successors go too.
func TestPurgeThatIsCutOffIsCompleted(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		ctx := t.Context()
		other := e.frontend(nil)
		var incs []keys.Incarnation
		const streams = 2*purgePage + 10
		for i := range streams {
			r, err := e.Create(ctx, CreateRequest{ID: StreamID{"bucket", fmt.Sprintf("s%03d", i)}, ContentType: "text/plain", Body: []byte("x")})
			if err != nil {
				t.Fatal(err)
			}
			if i%50 == 0 {
				for _, at := range []keys.Offset{{}, r.Stream.Tail} {
					_, _, err := e.PublishSnapshot(ctx, PublishRequest{ID: r.Stream.ID, Offset: at, Body: bytes.NewReader(make([]byte, 3<<20)), MaxBytes: 4 << 20})
					if err != nil {
						t.Fatal(err)
					}
				}
				incs = append(incs, r.Stream.Incarnation)
			}
		}
		cut, cancel := context.WithCancel(ctx)
		err := e.PurgeBucket(cut, "bucket", func(n int) {
			if n > 0 {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("a purge that was cut off returned %v", err)
		}
		left := e.count(e.space.MetaRange("bucket"))
		if left != streams-purgePage {
			t.Errorf("%d streams are left of %d", left, streams)
		}
		_, err = other.Create(ctx, CreateRequest{ID: StreamID{"bucket", "new"}})
		e.mustFail(err, CodeNotFound)

		removed := -1
		if err := other.PurgeBucket(ctx, "bucket", func(n int) { removed = n }); err != nil || removed != left {
			t.Fatalf("removed %d, want %d: %v", removed, left, err)
		}
		if err := e.PurgeBucket(ctx, "bucket", func(n int) { removed = n }); err != nil || removed != 0 {
			t.Fatalf("another purge removed %d: %v", removed, err)
		}
		for _, inc := range incs {
			if n := e.count(e.space.BlobsRange(inc)); n != 0 {
				t.Errorf("%d chunks of snapshots are left", n)
			}
		}
		e.onlyTheFence("bucket")
	})
}

// Live readers of a purged stream end on every frontend.
func TestPurgeEndsLiveReaders(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		id := StreamID{"bucket", "s"}
		if _, err := e.Create(ctx, CreateRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
		ends := make(chan error, 2)
		stores := []*Store{e.Store, e.frontend(nil)}
		for _, s := range stores {
			r, _, err := s.Live(ctx, ReadRequest{ID: id, From: From{Now: true}, MaxBytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			go func() {
				_, err := r.Next(ctx)
				ends <- err
			}()
		}
		for _, s := range stores {
			for s.Stats().Topics == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		if err := e.PurgeBucket(ctx, "bucket", func(int) {}); err != nil {
			t.Fatal(err)
		}
		for range stores {
			e.mustFail(<-ends, CodeNotFound)
		}
	})
}

// A create that looked before a bucket was fenced, and commits after the purge
// is done, is refused.
func TestCreateThatCommitsAfterThePurge(t *testing.T) {
	for name, req := range map[string]CreateRequest{
		"plain": {Body: []byte("x")},
		"large": {Body: make([]byte, MaxInlineBody+1)},
		"fork":  {Fork: &Fork{Source: StreamID{"bucket", "source"}}},
	} {
		t.Run(name, func(t *testing.T) {
			onEngines(t, func(t *testing.T, e *env) {
				ctx := t.Context()
				s, f := e.faulty(nil)
				if _, err := e.Create(ctx, CreateRequest{ID: StreamID{"bucket", "source"}, Body: []byte("x")}); err != nil {
					t.Fatal(err)
				}
				req.ID = StreamID{"bucket", "s"}
				held, hold := make(chan struct{}), make(chan struct{})
				f.SetPlan(kvtest.Once(func(c kvtest.Commit) bool {
					if !c.Wrote(e.space.Meta("bucket", "s")) {
						return false
					}
					close(held)
					return true
				}, kvtest.Fault{Hold: hold}))
				done := make(chan error, 1)
				go func() {
					_, err := s.Create(ctx, req)
					done <- err
				}()
				select {
				case <-held:
				case err := <-done:
					t.Fatalf("the create ended before its commit: %v", err)
				}
				if err := e.PurgeBucket(ctx, "bucket", func(int) {}); err != nil {
					t.Fatal(err)
				}
				close(hold)
				err := <-done
				if !isCode(err, CodeNotFound) && !isCode(err, CodeSourceNotFound) {
					t.Errorf("the create returned %v", err)
				}
				if left := e.count(e.space.MetaRange("bucket")); left != 0 {
					t.Errorf("%d streams are left", left)
				}
			})
		})
	}
}
