package bench

import (
	"math"
	"sync"
	"testing"
	"time"
)

func TestRecorder(t *testing.T) {
	r := newRecorder()
	var group sync.WaitGroup
	for user := range 20 {
		group.Go(func() {
			for i := 1; i <= 1000; i++ {
				r.record(user, int64(i)*int64(time.Millisecond))
			}
		})
	}
	group.Wait()
	r.record(3, int64(time.Hour)) // beyond the range: kept, at its end
	r.record(3, -5)
	l := r.latency()
	if l.Count != 20_002 {
		t.Errorf("%d values", l.Count)
	}
	for _, q := range []struct{ got, want float64 }{{l.P50, 500}, {l.P90, 900}, {l.P99, 990}, {l.P999, 999}, {l.Max, 600_000}, {l.Mean, 500.5 + 600_000.0/20_002}} {
		if math.Abs(q.got-q.want) > q.want*0.002+0.5 {
			t.Errorf("got %v, want %v", q.got, q.want)
		}
	}
}

func TestCounter(t *testing.T) {
	var c counter
	for i := range 100 {
		c.add(i, int64(i))
	}
	if got := c.total(); got != 4950 {
		t.Errorf("got %d", got)
	}
}

func BenchmarkRecord(b *testing.B) {
	r := newRecorder()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			r.record(i, int64(i%1000)*1000)
		}
	})
}
