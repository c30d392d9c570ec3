//go:build foundationdb

package foundationdb

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"headwater/fdblayer/kv"
)

// reportLatency reports the percentiles of what was measured.
func reportLatency(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	for _, p := range []int{50, 99} {
		at := took[min(len(took)*p/100, len(took)-1)]
		b.ReportMetric(float64(at.Microseconds()), fmt.Sprintf("p%d-µs", p))
	}
}

// BenchmarkCommit is one blind write after another, each of its own transaction.
func BenchmarkCommit(b *testing.B) {
	db := open(b)
	key := prefixed(b)("k")
	value := make([]byte, 100)
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		set(b, db, key, value)
		took = append(took, time.Since(start))
	}
	reportLatency(b, took)
}

// BenchmarkReadVersion is the round trip every transaction that reads pays.
func BenchmarkReadVersion(b *testing.B) {
	db := open(b)
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		tx := db.Begin()
		if _, err := tx.ReadVersion(b.Context()); err != nil {
			b.Fatal(err)
		}
		tx.Cancel()
		took = append(took, time.Since(start))
	}
	reportLatency(b, took)
}

// BenchmarkCommitParallel is the throughput of small commits to many keys.
func BenchmarkCommitParallel(b *testing.B) {
	db := open(b)
	key := prefixed(b)
	value := make([]byte, 100)
	var mu sync.Mutex
	next := 0
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		mu.Lock()
		next++
		k := key(fmt.Sprint(next))
		mu.Unlock()
		for pb.Next() {
			set(b, db, k, value)
		}
	})
}

// BenchmarkWatchWake is the time from a commit's return to the watch's.
func BenchmarkWatchWake(b *testing.B) {
	db := open(b)
	key := prefixed(b)("k")
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		w := arm(b, db, key)[0]
		woken := make(chan time.Time, 1)
		go func() {
			if err := w.Wait(b.Context()); err != nil {
				b.Error(err)
			}
			woken <- time.Now()
		}()
		time.Sleep(2 * time.Millisecond) // lets the watch reach the storage server
		set(b, db, key, fmt.Append(nil, i))
		committed := time.Now()
		took = append(took, max(0, (<-woken).Sub(committed)))
	}
	reportLatency(b, took)
}

// BenchmarkRange reads 8 MB of 64 kB rows.
func BenchmarkRange(b *testing.B) {
	db := open(b)
	key := prefixed(b)
	const n, size = 128, 64_000
	for i := range n {
		set(b, db, key(string([]byte{byte(i)})), make([]byte, size))
	}
	r := whole(key)
	b.SetBytes(n * size)
	for b.Loop() {
		got := 0
		err := kv.Read(b.Context(), db, func(ctx context.Context, tx kv.Tx) error {
			got = 0
			rows := tx.Snapshot().GetRange(kv.FirstGreaterOrEqual(r.Begin), kv.FirstGreaterOrEqual(r.End), kv.RangeOptions{})
			for more := true; more; {
				batch, m, err := rows.Next(ctx)
				if err != nil {
					return err
				}
				got, more = got+len(batch), m
			}
			return nil
		})
		if err != nil || got != n {
			b.Fatalf("%d rows, %v", got, err)
		}
	}
}
