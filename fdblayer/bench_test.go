package fdblayer

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"headwater/fdblayer/kv/embedded"
)

func benchStore(b *testing.B, mem bool) *Store {
	b.Helper()
	opts := embedded.Options{InMemory: mem}
	if !mem {
		opts.Dir = b.TempDir()
	}
	quiet := slog.New(slog.DiscardHandler)
	opts.Log = quiet
	db, err := embedded.Open(b.Context(), opts)
	if err != nil {
		b.Fatal(err)
	}
	s, err := Open(b.Context(), db, Options{Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			b.Error(err)
		}
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// BenchmarkAppend is 100 B appends by a number of writers to one stream or to
// one each.
func BenchmarkAppend(b *testing.B) {
	for _, mem := range []bool{true, false} {
		for _, writers := range []int{1, 64, 256} {
			for _, streams := range []int{1, writers} {
				name := fmt.Sprintf("memory=%v/writers=%d/streams=%d", mem, writers, streams)
				b.Run(name, func(b *testing.B) { benchAppend(b, benchStore(b, mem), writers, streams) })
			}
		}
	}
}

func benchAppend(b *testing.B, s *Store, writers, streams int) {
	body := bytes.Repeat([]byte("x"), 100)
	for i := range streams {
		if _, err := s.Create(b.Context(), CreateRequest{ID: sid(fmt.Sprint(i))}); err != nil {
			b.Fatal(err)
		}
	}
	var next atomic.Int64
	b.SetParallelism((writers + 1) / 2)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		id := sid(fmt.Sprint(next.Add(1) % int64(streams)))
		for pb.Next() {
			if _, err := s.Append(b.Context(), AppendRequest{ID: id, ContentType: defaultContentType, Body: body}); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
	st := s.Stats()
	b.ReportMetric(float64(st.Requests)/float64(st.WarmCommits+st.ColdCommits), "reqs/commit")
	b.ReportMetric(float64(st.WarmCommits)/float64(st.WarmCommits+st.ColdCommits), "warm")
}
