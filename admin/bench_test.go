package admin

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"headwater/ci/engines"
	"headwater/fdblayer"
	"headwater/frontend"
)

// What a request costs the metrics, with the latencies spread over the buckets.
func BenchmarkObserve(b *testing.B) {
	m := NewMetrics(Build{})
	observations := make([]frontend.Observation, 64)
	for i := range observations {
		observations[i] = observation()
		observations[i].Took = time.Duration(i+1) * 300 * time.Microsecond
		m.Observe(observations[i])
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m.Observe(observations[i%64])
	}
}

func observation() frontend.Observation {
	return frontend.Observation{
		Method: "POST", Route: "stream", Surface: "base", Status: 204, Took: 3 * time.Millisecond, BytesIn: 100, BytesOut: 10,
	}
}

// A request through the frontend without and with an observer.
func BenchmarkRequest(b *testing.B) {
	for name, observer := range map[string]frontend.Observer{"unobserved": nil, "observed": NewMetrics(Build{})} {
		b.Run(name, func(b *testing.B) {
			store, err := fdblayer.Open(b.Context(), engines.Embedded(b), fdblayer.Options{SweepInterval: -1})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() {
				if err := store.Close(context.Background()); err != nil {
					b.Error(err)
				}
			})
			h := frontend.New(store, frontend.Options{Observer: observer}).Handler()
			// The path names no stream: the least a request can do.
			req := httptest.NewRequest(http.MethodPost, "/v1/stream/", strings.NewReader("x"))
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(httptest.NewRecorder(), req)
			}
		})
	}
}
