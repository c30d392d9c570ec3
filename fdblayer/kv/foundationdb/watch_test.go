//go:build foundationdb

package foundationdb

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"headwater/ci/fdbcluster"
	"headwater/fdblayer/kv"
)

// arm returns a watch on each key, armed in one transaction.
func arm(tb testing.TB, db kv.Database, keys ...[]byte) []kv.Watch {
	tb.Helper()
	var watches []kv.Watch
	transact(tb, db, func(_ context.Context, tx kv.Tx) error {
		watches = nil
		for _, k := range keys {
			watches = append(watches, tx.Watch(k))
		}
		return nil
	})
	return watches
}

func TestWatchOutlivesTheContextOfAWait(t *testing.T) {
	db := open(t)
	key := prefixed(t)("k")
	w := arm(t, db, key)[0]
	defer w.Cancel()
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := w.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait: %v, want the context's error", err)
		}
		cancel()
	}
	set(t, db, key, []byte("v"))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 2 { // a watch that fired stays fired
		if err := w.Wait(ctx); err != nil {
			t.Errorf("wait after the write: %v", err)
		}
	}
}

func TestWatchesEnd(t *testing.T) {
	file := fdbcluster.Open(t)
	key := prefixed(t)("k")
	db, err := Open(Options{ClusterFile: file})
	if err != nil {
		t.Fatal(err)
	}
	set(t, db, key, nil) // starts what the client keeps running
	before := runtime.NumGoroutine()
	watches := arm(t, db, key, key, key)
	cancelled, unwaited, closed := watches[0], watches[1], watches[2]

	errs := make(chan error, 1)
	go func() { errs <- cancelled.Wait(context.Background()) }()
	time.Sleep(20 * time.Millisecond)
	cancelled.Cancel()
	cancelled.Cancel()
	if err := <-errs; err == nil || errors.Is(err, kv.ErrClosed) {
		t.Errorf("cancelled during a wait: %v", err)
	}
	unwaited.Cancel()
	if err := unwaited.Wait(t.Context()); err == nil {
		t.Error("a cancelled watch fired")
	}

	go func() { errs <- closed.Wait(context.Background()) }()
	time.Sleep(20 * time.Millisecond)
	late := arm(t, db, key)[0]
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-errs; !errors.Is(err, kv.ErrClosed) {
		t.Errorf("closed during a wait: %v", err)
	}
	if err := late.Wait(t.Context()); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("waited for after Close: %v", err)
	}
	late.Cancel()
	settle(t, before)
}

// TestManyWatches: a goroutine for each that is waited for, none afterwards,
// whether they fired or were cancelled.
func TestManyWatches(t *testing.T) {
	db := open(t)
	key := prefixed(t)
	var keys [][]byte
	for i := range 2000 {
		keys = append(keys, key(fmt.Sprint(i)))
	}
	set(t, db, key(""), nil)
	before := runtime.NumGoroutine()
	var watches []kv.Watch
	for i := 0; i < len(keys); i += 200 {
		watches = append(watches, arm(t, db, keys[i:i+200]...)...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fired := make(chan int, len(watches))
	var waits sync.WaitGroup
	for i, w := range watches {
		waits.Go(func() {
			if w.Wait(ctx) == nil {
				fired <- i
			}
		})
	}
	half := len(keys) / 2
	transact(t, db, func(_ context.Context, tx kv.Tx) error {
		for _, k := range keys[:half] {
			tx.Set(k, []byte("v"))
		}
		return nil
	})
	seen := map[int]bool{}
	deadline := time.After(20 * time.Second)
	for len(seen) < half {
		select {
		case i := <-fired:
			if seen[i] = true; i >= half {
				t.Errorf("watch %d fired without a change", i)
			}
		case <-deadline:
			t.Fatalf("%d watches fired, want %d", len(seen), half)
		}
	}
	cancel()
	waits.Wait()
	for _, w := range watches {
		w.Cancel()
	}
	settle(t, before)
}

// TestTooManyWatches: the bound is the engine's option.
func TestTooManyWatches(t *testing.T) {
	c := fdbcluster.OpenThrowaway(t, fdbcluster.Options{Engine: "memory"})
	db := openFile(t, Options{ClusterFile: c.File, MaxWatches: 2})
	watches := arm(t, db, []byte("a"), []byte("b"), []byte("c"))
	refused := 0
	for _, w := range watches {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if err := w.Wait(ctx); kv.Code(err) == kv.CodeTooManyWatches {
			refused++
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait: %v", err)
		}
		cancel()
		w.Cancel()
	}
	if refused != 1 {
		t.Errorf("%d of 3 watches refused with a bound of 2", refused)
	}
	// Cancelled ones count no more.
	again := arm(t, db, []byte("a"), []byte("b"))
	set(t, db, []byte("b"), []byte("v"))
	if err := again[1].Wait(t.Context()); err != nil {
		t.Error(err)
	}
	again[0].Cancel()
}

// TestWatchOfAFailedCommit ends with the commit's error.
func TestWatchOfAFailedCommit(t *testing.T) {
	db := open(t)
	key := prefixed(t)
	tx := db.Begin()
	defer tx.Cancel()
	w := tx.Watch(key("watched"))
	if _, err := tx.Get(key("read")).Wait(t.Context()); err != nil {
		t.Skipf("injected: %v", err)
	}
	tx.Set(key("written"), nil)
	set(t, db, key("read"), []byte("changed"))
	err := tx.Commit(t.Context())
	if !kv.Retryable(err) {
		t.Fatalf("commit: %v, want a conflict", err)
	}
	if werr := w.Wait(t.Context()); kv.Code(werr) != kv.Code(err) {
		t.Errorf("watch: %v, commit: %v", werr, err)
	}
	w.Cancel()

	// Neither does a watch wait for ever whose transaction was never committed.
	tx.Reset()
	w = tx.Watch(key("watched"))
	tx.Cancel()
	if err := w.Wait(t.Context()); kv.Code(err) != kv.CodeTransactionCancelled {
		t.Errorf("watch of a cancelled transaction: %v", err)
	}
}
