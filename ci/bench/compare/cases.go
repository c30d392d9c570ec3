package main

import (
	"slices"
	"strings"

	"headwater/bench"
)

// metric is what a case is about, and what its ratios and its plot show.
type metric struct {
	name string
	of   func(r bench.Result) float64
	// less tells a metric of which less is better.
	less bool
}

var (
	opsPerSec = metric{name: "ops/s", of: func(r bench.Result) float64 { return r.OpsPerSec }}
	mbPerSec  = metric{name: "MB/s", of: func(r bench.Result) float64 { return r.MBPerSec }}
	latency99 = metric{name: "p99, ms", less: true, of: func(r bench.Result) float64 {
		if r.Latency == nil {
			return 0
		}
		return r.Latency.P99
	}}
	delivery50 = metric{name: "delivery p50, ms", less: true, of: func(r bench.Result) float64 {
		if r.Delivery == nil {
			return 0
		}
		return r.Delivery.P50
	}}
	delivery99 = metric{name: "delivery p99, ms", less: true, of: func(r bench.Result) float64 {
		if r.Delivery == nil {
			return 0
		}
		return r.Delivery.P99
	}}
	readerMemory = metric{name: "server memory per reader, B", less: true, of: figure("server memory per connected reader")}
)

func figure(name string) func(bench.Result) float64 {
	return func(r bench.Result) float64 {
		for _, f := range r.Figures {
			if f.Name == name {
				return f.Value
			}
		}
		return 0
	}
}

// benchCase is one row of the comparison.
type benchCase struct {
	name   string
	about  string
	config bench.Config
	metric metric
	// ceiling tells that the ceiling can take part.
	ceiling bool
	// without names the kinds of contenders that can't.
	without []string
	// halfOf names the case at half of whose rate, by the same contender in the
	// same round, this one runs.
	halfOf string
}

var cases = []benchCase{
	{name: "append-one-64", about: "100 B appends to one stream, 64 writers", metric: opsPerSec, ceiling: true,
		config: bench.Config{Workload: "append-one", Writers: 64}},
	{name: "append-one-64-half", about: "the same at half of that rate, open loop", metric: latency99, ceiling: true, halfOf: "append-one-64",
		config: bench.Config{Workload: "append-one", Writers: 64}},
	{name: "append-one-256", about: "100 B appends to one stream, 256 writers", metric: opsPerSec, ceiling: true,
		config: bench.Config{Workload: "append-one", Writers: 256}},
	{name: "append-json-64", about: "100 B JSON appends to one stream, 64 writers", metric: opsPerSec, ceiling: true,
		config: bench.Config{Workload: "append-one", Writers: 64, ContentType: "application/json"}},
	{name: "append-many-500", about: "256 B appends, 500 streams, one writer each", metric: opsPerSec, ceiling: true,
		config: bench.Config{Workload: "append-many", Streams: 500, Writers: 500}},
	{name: "append-many-10000", about: "256 B appends, 10,000 streams in turn, 256 writers", metric: opsPerSec, ceiling: true,
		config: bench.Config{Workload: "append-many", Streams: 10_000, Writers: 256}},
	{name: "append-large", about: "1 MB appends, 16 streams, 4 writers", metric: mbPerSec, ceiling: true,
		config: bench.Config{Workload: "append-large"}},
	{name: "create", about: "creates of empty streams, 16 writers", metric: opsPerSec, ceiling: true,
		config: bench.Config{Workload: "create"}},
	{name: "create-128", about: "creates of empty streams, 128 writers", metric: opsPerSec, ceiling: true,
		config: bench.Config{Workload: "create", Writers: 128}},
	{name: "producers", about: "100 B appends by 16 idempotent producers, 5 requests under way each", metric: opsPerSec,
		config: bench.Config{Workload: "producers"}},
	{name: "catch-up-100MB", about: "one reader, a stream of 100 MB", metric: mbPerSec,
		config: bench.Config{Workload: "catch-up"}},
	{name: "catch-up-records", about: "16 readers, a stream of 1,000 appends of 1 kB", metric: mbPerSec,
		config: bench.Config{Workload: "catch-up", Readers: 16, Batch: 1, Total: 1_000_000}},
	{name: "tail-latency", about: "append to SSE receipt, 1 reader, 20 events/s", metric: delivery50,
		config: bench.Config{Workload: "tail-latency"}},
	{name: "long-poll", about: "append to long-poll receipt, 1 reader, 20 events/s", metric: delivery50,
		config: bench.Config{Workload: "long-poll"}},
	{name: "fan-out-1", about: "1 stream, 1,000 SSE readers, 50 events/s", metric: delivery99,
		config: bench.Config{Workload: "fan-out"}},
	{name: "fan-out-100", about: "100 streams, 2,048 SSE readers in all, 1 event/s each", metric: delivery99,
		config: bench.Config{Workload: "fan-out", Streams: 100, Readers: 2048}},
	{name: "fan-out-1000", about: "1,000 streams, 2,048 SSE readers in all, 1 event/s each", metric: delivery99,
		config: bench.Config{Workload: "fan-out", Streams: 1000, Readers: 2048}},
	{name: "fan-out-100-poll", about: "100 streams, 2,048 long-poll readers in all, 1 event/s each", metric: delivery99,
		config: bench.Config{Workload: "fan-out", Streams: 100, Readers: 2048, Live: bench.LiveLongPoll}},
	{name: "idle", about: "10,000 idle SSE readers on one stream", metric: readerMemory,
		config: bench.Config{Workload: "idle", Readers: 10_000}},
	{name: "bootstrap", about: "8 readers, snapshot of 64 KiB and 200 messages of 1 kB", metric: opsPerSec, without: []string{"node", "rust"},
		config: bench.Config{Workload: "bootstrap"}},
}

func findCase(name string) (benchCase, bool) {
	i := slices.IndexFunc(cases, func(c benchCase) bool { return c.name == name })
	if i < 0 {
		return benchCase{}, false
	}
	return cases[i], true
}

// takes tells whether a contender can take part in the case.
func (c benchCase) takes(name string) bool {
	kind, _, _ := strings.Cut(name, "-")
	return (kind != "ceiling" || c.ceiling) && !slices.Contains(c.without, kind)
}
