package bench_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"headwater/bench"
	"headwater/ci/engines"
	"headwater/fdblayer"
	"headwater/frontend"
)

// TestHeadwater runs every workload on the real server, on both layouts.
func TestHeadwater(t *testing.T) {
	url := serveHeadwater(t)
	for _, layout := range []string{bench.LayoutBase, bench.LayoutBucket} {
		for _, name := range bench.Workloads() {
			t.Run(layout+" "+name, func(t *testing.T) {
				c := bench.Config{
					Workload: name, URL: url, Layout: layout, Duration: 200 * time.Millisecond, Warmup: 50 * time.Millisecond,
					// Content is not what makes them long.
					Writers: 8, Total: 200_000, Timeout: 10 * time.Second,
				}
				switch name {
				case "append-many":
					c.Streams = 30
				case "append-large":
					c.Streams, c.Writers = 2, 1
				case "create":
					// Deleting them would take longer than the rest.
					c.Keep = true
				case "fan-out", "idle":
					c.Streams, c.Readers = 3, 30
				case "tail-latency", "long-poll":
					c.Rate = 50
				case "producers":
					c.Writers = 2
				}
				res, err := bench.Run(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				if res.Verification.Records == 0 {
					t.Error("nothing was verified")
				}
			})
		}
	}
}

func serveHeadwater(t *testing.T) string {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, err := fdblayer.Open(t.Context(), engines.Embedded(t), fdblayer.Options{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- frontend.NewServer(frontend.New(store, frontend.Options{Logger: log}), frontend.ServerOptions{}).Serve(ctx, l)
	}()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-served, store.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}
