package kvtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"headwater/fdblayer/kv"
)

var watchCases = []testCase{
	{"watches/a change fires", testWatchFires},
	{"watches/a write of the same value does not", testWatchSameValue},
	{"watches/firing before the wait is kept", testWatchFireBeforeWait},
	{"watches/many on one key", testWatchMany},
	{"watches/cancel", testWatchCancel},
	{"watches/the wait ends with its context", testWatchContext},
	{"watches/are armed by the commit", testWatchArmed},
	{"watches/end with a transaction that does not commit", testWatchUncommitted},
	{"watches/see a change between read and commit", testWatchBetween},
	{"watches/expect the transaction's own write", testWatchOwnWrite},
	{"watches/no wake-up is lost", testWatchNoneLost},
}

// arm commits a transaction that only watches key.
func (e *env) arm(key string) kv.Watch {
	e.Helper()
	tx := e.begin()
	w := tx.Watch(e.k(key))
	e.must(tx.Commit(e.ctx))
	tx.Cancel() // must not harm the watch
	e.Cleanup(w.Cancel)
	return w
}

// idle fails the test if w fires within a moment.
func (e *env) idle(w kv.Watch, what string) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, 150*time.Millisecond)
	defer cancel()
	if err := w.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		e.Fatalf("%s: the wait returned %v", what, err)
	}
}

func testWatchFires(e *env) {
	add := func(tx kv.Tx) { tx.Atomic(kv.Add, e.k("a"), []byte{1}) }
	stamp := func(tx kv.Tx) { tx.Atomic(kv.SetVersionstampedValue, e.k("a"), stamped(nil, "")) }
	for _, c := range []struct {
		name   string
		before string
		change func(tx kv.Tx)
	}{
		{"set", "1", func(tx kv.Tx) { tx.Set(e.k("a"), []byte("2")) }},
		{"set of an absent key", absent, func(tx kv.Tx) { tx.Set(e.k("a"), []byte("2")) }},
		{"set of an absent key to nothing", absent, func(tx kv.Tx) { tx.Set(e.k("a"), nil) }},
		{"clear", "1", func(tx kv.Tx) { tx.Clear(e.k("a")) }},
		{"clear of an empty value", "", func(tx kv.Tx) { tx.Clear(e.k("a")) }},
		{"clear of a range", "1", func(tx kv.Tx) { tx.ClearRange(e.all()) }},
		{"add", "1", add},
		{"versionstamp", "1", stamp},
		{"hidden from conflicts", "1", func(tx kv.Tx) {
			tx.SetNextWriteNoConflict()
			tx.Set(e.k("a"), []byte("2"))
		}},
		{"long value", string(make([]byte, 5000)), func(tx kv.Tx) { tx.Set(e.k("a"), append(make([]byte, 4999), 1)) }},
	} {
		e.transact(func(tx kv.Tx) { tx.ClearRange(e.all()) })
		if c.before != absent {
			e.set("a", c.before)
		}
		w := e.arm("a")
		e.transact(func(tx kv.Tx) { tx.Set(e.k("b"), nil) })
		e.transact(c.change)
		if err := w.Wait(e.ctx); err != nil {
			e.Errorf("%s: %v", c.name, err)
		}
		if err := w.Wait(e.ctx); err != nil {
			e.Errorf("%s: a second wait returned %v", c.name, err)
		}
	}
}

func testWatchSameValue(e *env) {
	e.set("a", "1")
	w, other := e.arm("a"), e.arm("never")
	for range 5 {
		e.set("a", "1")
	}
	e.transact(func(tx kv.Tx) {
		tx.Clear(e.k("a"))
		tx.Set(e.k("a"), []byte("1"))
		tx.ClearRange(e.r("n", "o"))
	})
	e.idle(w, "the same value was written")
	e.idle(other, "an absent key was cleared")
	e.set("a", "2", "never", "2")
	e.must(w.Wait(e.ctx))
	e.must(other.Wait(e.ctx))
}

func testWatchFireBeforeWait(e *env) {
	e.set("a", "1")
	w := e.arm("a")
	e.set("a", "2")
	time.Sleep(50 * time.Millisecond)
	e.must(w.Wait(e.ctx))
}

func testWatchMany(e *env) {
	e.set("a", "1")
	const n = 50
	var watches []kv.Watch
	tx := e.begin()
	for range n {
		watches = append(watches, tx.Watch(e.k("a")))
	}
	e.must(tx.Commit(e.ctx))
	for i := 0; i < n; i += 5 {
		watches[i].Cancel()
	}
	var g sync.WaitGroup
	for i, w := range watches {
		g.Go(func() {
			err := w.Wait(e.ctx)
			if cancelled := i%5 == 0; cancelled != (err != nil) {
				e.Errorf("watch %d (cancelled: %v) returned %v", i, cancelled, err)
			}
		})
	}
	e.set("a", "2")
	g.Wait()
}

func testWatchCancel(e *env) {
	w := e.arm("a")
	done := make(chan error, 1)
	go func() { done <- w.Wait(e.ctx) }()
	time.Sleep(20 * time.Millisecond)
	w.Cancel()
	w.Cancel()
	if err := <-done; err == nil || errors.Is(err, context.DeadlineExceeded) {
		e.Errorf("the wait returned %v after a cancel", err)
	}
	if err := w.Wait(e.ctx); err == nil {
		e.Error("a wait after the cancel returned no error")
	}
}

func testWatchContext(e *env) {
	w := e.arm("a")
	ctx, cancel := context.WithCancelCause(e.ctx)
	done := make(chan error, 1)
	go func() { done <- w.Wait(ctx) }()
	time.Sleep(20 * time.Millisecond)
	mine := errors.New("mine")
	cancel(mine)
	if err := <-done; !errors.Is(err, mine) && !errors.Is(err, context.Canceled) {
		e.Errorf("the wait returned %v, want its context's error", err)
	}
	// The watch goes on.
	e.set("a", "1")
	e.must(w.Wait(e.ctx))
}

func testWatchArmed(e *env) {
	e.set("a", "1")
	tx := e.begin()
	w := tx.Watch(e.k("a"))
	e.idle(w, "not committed yet")
	tx.Set(e.k("b"), nil)
	e.must(tx.Commit(e.ctx))
	e.idle(w, "nothing changed")
	e.set("a", "2")
	e.must(w.Wait(e.ctx))
}

func testWatchUncommitted(e *env) {
	e.set("a", "1")
	for name, end := range map[string]func(kv.Tx){
		"cancel": kv.Tx.Cancel,
		"reset":  kv.Tx.Reset,
		"conflict": func(tx kv.Tx) {
			e.set("b", "changed")
			e.wantCode(tx.Commit(e.ctx), kv.CodeNotCommitted)
			tx.Reset()
		},
	} {
		tx := e.begin()
		e.read(tx, "b")
		tx.Set(e.k("c"), nil)
		w := tx.Watch(e.k("a"))
		end(tx)
		if err := w.Wait(e.ctx); err == nil || e.ctx.Err() != nil {
			e.Errorf("%s: the wait returned %v", name, err)
		}
		tx.Cancel()
	}
}

func testWatchBetween(e *env) {
	e.set("a", "1")
	tx := e.begin()
	w := tx.Watch(e.k("a"))
	e.set("a", "2")
	e.must(tx.Commit(e.ctx)) // it only read, so it does not conflict
	e.must(w.Wait(e.ctx))

	tx = e.begin()
	w = tx.Watch(e.k("a"))
	e.set("a", "3")
	e.set("a", "2")
	e.must(tx.Commit(e.ctx))
	// It may fire or not; it must not miss what comes.
	e.set("a", "4")
	e.must(w.Wait(e.ctx))
}

func testWatchOwnWrite(e *env) {
	e.set("a", "1")
	tx := e.begin()
	tx.Set(e.k("a"), []byte("2"))
	w := tx.Watch(e.k("a"))
	e.must(tx.Commit(e.ctx))
	e.idle(w, "the own write is what it expects")
	e.set("a", "1")
	e.must(w.Wait(e.ctx))
}

// testWatchNoneLost has readers follow a counter by watch and read alone while
// a writer moves it: each must come to see the last value.
func testWatchNoneLost(e *env) {
	const last, readers = 150, 8
	e.set("n", fmt.Sprintf("%04d", 0))
	want := fmt.Sprintf("%04d", last)
	var g sync.WaitGroup
	for range readers {
		g.Go(func() {
			for {
				tx := e.db.Begin()
				w := tx.Watch(e.k("n"))
				v, err := tx.Get(e.k("n")).Wait(e.ctx)
				if err == nil {
					err = tx.Commit(e.ctx)
				}
				tx.Cancel()
				if err == nil && string(v) == want {
					w.Cancel()
					return
				}
				if err == nil {
					err = w.Wait(e.ctx)
				}
				w.Cancel()
				if err != nil && !kv.Retryable(err) {
					e.Errorf("at %s: %v", v, err)
					return
				}
			}
		})
	}
	for i := 1; i <= last; i++ {
		e.set("n", fmt.Sprintf("%04d", i))
	}
	g.Wait()
}

// testClose has its engine to itself.
func testClose(e *env) {
	e.set("a", "1")
	w := e.arm("a")
	done := make(chan error, 1)
	go func() { done <- w.Wait(e.ctx) }()
	time.Sleep(20 * time.Millisecond)
	if err := e.db.Close(); err != nil {
		e.Fatal(err)
	}
	if err := <-done; !errors.Is(err, kv.ErrClosed) {
		e.Errorf("the watch ended with %v, want kv.ErrClosed", err)
	}
}
