package embedded

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"headwater/fdblayer/kv"
)

func TestWatchesAreBounded(t *testing.T) {
	db := openTest(t, Options{InMemory: true, MaxWatches: 3})
	tx := db.Begin()
	var watches []kv.Watch
	for i := range 3 {
		watches = append(watches, tx.Watch(fmt.Append(nil, i)))
	}
	over := tx.Watch([]byte("over"))
	if err := over.Wait(t.Context()); kv.Code(err) != kv.CodeTooManyWatches {
		t.Errorf("the watch past the bound returned %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Each way a watch ends makes room for another.
	again := func() kv.Watch {
		t.Helper()
		tx := db.Begin()
		defer tx.Cancel()
		w := tx.Watch([]byte("again"))
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		return w
	}
	full := func(want bool) {
		t.Helper()
		w := again()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.Wait(ctx); (kv.Code(err) == kv.CodeTooManyWatches) != want {
			t.Errorf("full is %v, want %v", err, want)
		}
		w.Cancel()
	}
	full(true)
	watches[0].Cancel()
	full(false)
	put(t, db, "1", "changed")
	if err := watches[1].Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, b := again(), again()
	full(true)
	put(t, db, "again", "changed")
	for _, w := range []kv.Watch{a, b} {
		if err := w.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	full(false)
	// And transactions that never commit.
	for range 10 {
		tx := db.Begin()
		tx.Watch([]byte("x"))
		tx.Reset()
		tx.Watch([]byte("x"))
		tx.Cancel()
	}
	full(false)
	watches[2].Cancel()
	if n := len(db.watches.byKey) + db.watches.live + int(db.watches.armed.Load()) + db.watches.inOrder.Len(); n != 0 {
		t.Errorf("%d entries are left of watches that ended", n)
	}
}

func TestWatchesOfOneKeyEndInAnyOrder(t *testing.T) {
	db := memory(t)
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}} {
		var watches []kv.Watch
		tx := db.Begin()
		for range 3 {
			watches = append(watches, tx.Watch([]byte("a")))
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, n := range order {
			watches[n].Cancel()
			if left := db.watches.live; left != 2-i {
				t.Fatalf("%v: %d watches are left after %d cancels", order, left, i+1)
			}
		}
		if len(db.watches.byKey) != 0 || db.watches.inOrder.Len() != 0 {
			t.Fatalf("%v: the key is still there", order)
		}
	}
}

func TestFingerprintsDiffer(t *testing.T) {
	long, longer := make([]byte, 33), make([]byte, 34)
	seen := map[fingerprint]string{unknownValue: "unknown"}
	for name, v := range map[string][]byte{
		"absent": nil, "empty": {}, "zero": {0}, "mark": []byte("#"), "equals": []byte("="), "short": make([]byte, 32),
		"long": long, "longer": longer,
	} {
		f := fingerprintOf(v)
		if other, ok := seen[f]; ok {
			t.Errorf("%s and %s look the same", name, other)
		}
		seen[f] = name
		if len(f) > 33 {
			t.Errorf("%s takes %d bytes", name, len(f))
		}
	}
}

// An idle watch costs a few hundred bytes and no goroutine.
func BenchmarkIdleWatch(b *testing.B) {
	db := memory(b)
	before := runtime.NumGoroutine()
	var m0, m1 runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m0)
	b.ResetTimer()
	for n := 0; n < b.N; n += 1000 {
		tx := db.Begin()
		for i := n; i < min(n+1000, b.N); i++ {
			tx.Watch(fmt.Appendf(nil, "tail/0123456789abcdef/%d", i))
		}
		if err := tx.Commit(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	runtime.GC()
	runtime.ReadMemStats(&m1)
	b.ReportMetric(float64(m1.HeapAlloc-m0.HeapAlloc)/float64(b.N), "B/watch")
	if n := runtime.NumGoroutine(); n > before+8 {
		b.Errorf("%d goroutines, %d before the watches", n, before)
	}
	runtime.KeepAlive(db)
}
