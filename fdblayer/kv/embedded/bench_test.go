package embedded

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"headwater/fdblayer/kv"
)

// BenchmarkCommit is a blind append of 100 B by a number of writers that each
// wait for their commit, synced to disk.
func BenchmarkCommit(b *testing.B) {
	for _, mode := range []struct {
		name string
		opts func(b *testing.B) Options
	}{
		{"disk", func(b *testing.B) Options { return Options{Dir: b.TempDir()} }},
		{"memory", func(*testing.B) Options { return Options{InMemory: true} }},
	} {
		for _, writers := range []int{1, 16, 64, 256} {
			b.Run(fmt.Sprintf("%s/writers=%d", mode.name, writers), func(b *testing.B) {
				db := openTest(b, mode.opts(b))
				value := make([]byte, 100)
				spread(b, writers, func(w, i int) error {
					tx := db.Begin()
					defer tx.Cancel()
					key := fmt.Appendf([]byte("log/0123456789"), "/%d", w)
					tx.Atomic(kv.SetVersionstampedKey, binary.LittleEndian.AppendUint32(key, 4), value)
					return tx.Commit(context.Background())
				})
			})
		}
	}
}

// BenchmarkCommitChecked is the shape of an append to a stream: conflict keys
// by hand, a record, a wake key, a producer.
func BenchmarkCommitChecked(b *testing.B) {
	for _, writers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			db := openTest(b, Options{Dir: b.TempDir()})
			value := make([]byte, 100)
			spread(b, writers, func(w, i int) error {
				tx := db.Begin()
				defer tx.Cancel()
				if _, err := tx.ReadVersion(context.Background()); err != nil {
					return err
				}
				tx.AddReadConflictKey(fmt.Appendf(nil, "meta/%d", w))
				tx.AddReadConflictKey(fmt.Appendf(nil, "fence/%d", w))
				key := fmt.Appendf([]byte("log/0123456789"), "/%d", w)
				tx.Atomic(kv.SetVersionstampedKey, binary.LittleEndian.AppendUint32(key, 4), value)
				tx.Atomic(kv.SetVersionstampedValue, fmt.Appendf(nil, "tail/%d", w), make([]byte, 14))
				tx.Set(fmt.Appendf(nil, "producer/%d", w), value[:20])
				return tx.Commit(context.Background())
			})
		})
	}
}

// spread has writers share b.N calls of fn.
func spread(b *testing.B, writers int, fn func(writer, i int) error) {
	b.Helper()
	var next atomic.Int64
	var g sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for w := range writers {
		g.Go(func() {
			for {
				i := int(next.Add(1))
				if i > b.N {
					return
				}
				if err := fn(w, i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	g.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
}

// BenchmarkConflictCheck is the resolver alone: the cost of one transaction of
// two read points and three written points, with 5 s of 100,000 writes/s known.
func BenchmarkConflictCheck(b *testing.B) {
	fill := func() (*history, int64) {
		h := newHistory(0, 1<<30)
		version := int64(0)
		for i := range 500_000 {
			version += 10
			h.add(pointSpan(fmt.Appendf(nil, "log/%016x", i)), version)
		}
		return h, version
	}
	b.Run("points", func(b *testing.B) {
		h, version := fill()
		keys := make([][]byte, 1<<16)
		for i := range keys {
			keys[i] = fmt.Appendf(nil, "new/%016x", i)
		}
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			version += 50
			h.forget(version - windowVersions)
			for j := range 2 {
				h.conflicts(pointSpan(keys[(2*i+j)%len(keys)]), version-10_000)
			}
			for j := range 3 {
				h.add(pointSpan(keys[(7*i+j)%len(keys)]), version)
			}
		}
	})
	for _, age := range []int64{10_000, 1_000_000, 4_900_000} {
		b.Run(fmt.Sprintf("range/age=%dms", age/1000), func(b *testing.B) {
			h, version := fill()
			q := span{[]byte("meta/a"), []byte("meta/b")}
			h.conflicts(q, 0) // sort
			b.ResetTimer()
			for range b.N {
				if h.conflicts(q, version-age) {
					b.Fatal("a conflict")
				}
			}
		})
	}
}

// filled is a store of rows of a size, on disk and not in the memtable.
func filled(b *testing.B, rows, size int) *DB {
	db := openTest(b, Options{Dir: b.TempDir()})
	value := make([]byte, size)
	for i := range value {
		value[i] = byte(i * 7919 >> 3)
	}
	for i := 0; i < rows; {
		tx := db.Begin()
		for bytes := 0; i < rows && bytes < 4<<20; bytes += size {
			tx.Set(fmt.Appendf(nil, "row/%08d", i), value)
			i++
		}
		if err := tx.Commit(context.Background()); err != nil {
			b.Fatal(err)
		}
		tx.Cancel()
	}
	if err := db.store.Flush(); err != nil {
		b.Fatal(err)
	}
	return db
}

func BenchmarkPointRead(b *testing.B) {
	const rows = 100_000
	db := filled(b, rows, 100)
	for _, c := range []struct{ name, format string }{{"present", "row/%08d"}, {"absent", "row/%08dx"}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				tx := db.Begin()
				if _, err := tx.Get(fmt.Appendf(nil, c.format, i*7919%rows)).Wait(context.Background()); err != nil {
					b.Fatal(err)
				}
				tx.Cancel()
			}
		})
	}
	b.Run("tail", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			tx := db.Begin()
			if _, err := tx.Snapshot().GetKey(kv.LastLessThan([]byte("row0"))).Wait(context.Background()); err != nil {
				b.Fatal(err)
			}
			tx.Cancel()
		}
	})
}

func BenchmarkRangeRead(b *testing.B) {
	const rows = 512
	for _, size := range []int{64_000, 1000} {
		b.Run(fmt.Sprintf("rows=%dB", size), func(b *testing.B) {
			n := rows * 64_000 / size
			db := filled(b, n, size)
			b.SetBytes(int64(n * size))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				tx := db.Begin()
				it := tx.Snapshot().GetRange(kv.FirstGreaterOrEqual([]byte("row/")), kv.FirstGreaterOrEqual([]byte("row0")), kv.RangeOptions{})
				got := 0
				for more := true; more; {
					var batch []kv.KeyValue
					var err error
					if batch, more, err = it.Next(context.Background()); err != nil {
						b.Fatal(err)
					}
					got += len(batch)
				}
				if got != n {
					b.Fatalf("%d rows", got)
				}
				tx.Cancel()
			}
		})
	}
}
