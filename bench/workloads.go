package bench

// workloads are those of the command, with the defaults of each.
var workloads = map[string]workload{
	"append-one": {
		about:    "appends to one stream by many writers",
		defaults: Config{Writers: 64, Streams: 1, Size: 100},
		run:      runAppend,
	},
	"append-many": {
		about:    "appends to many streams, each by one writer at a time",
		defaults: Config{Writers: 500, Streams: 500, Size: 256},
		run:      runAppend,
	},
	"append-large": {
		about:    "appends of large records",
		defaults: Config{Writers: 4, Streams: 16, Size: 1_000_000},
		run:      runAppend,
	},
	"create": {
		about:    "creates of new, empty streams",
		defaults: Config{Writers: 16, Size: 100},
		run:      runCreate,
	},
	"catch-up": {
		about:    "whole streams read from start to end",
		defaults: Config{Readers: 1, Streams: 1, Size: 1_000, Batch: 1_000, Total: 100_000_000},
		run:      runCatchUp,
	},
	"tail-latency": {
		about:    "from an append to its receipt by one reader over SSE",
		defaults: Config{Writers: 1, Readers: 1, Streams: 1, Size: 100, Rate: 20, Live: LiveSSE, ContentType: "text/plain"},
		live:     true,
		run:      runLive,
	},
	"long-poll": {
		about:    "from an append to its receipt by one reader over long polls",
		defaults: Config{Writers: 1, Readers: 1, Streams: 1, Size: 100, Rate: 20, Live: LiveLongPoll, ContentType: "text/plain"},
		live:     true,
		run:      runLive,
	},
	"fan-out": {
		about:    "from an append to its receipt by many live readers",
		defaults: Config{Writers: 16, Readers: 1_000, Streams: 1, Size: 256, Rate: 50, Live: LiveSSE, ContentType: "text/plain"},
		live:     true,
		run:      runLive,
	},
	"bootstrap": {
		about:    "a snapshot and the messages after it, in one request",
		defaults: Config{Readers: 8, Streams: 1, Size: 1_000, Batch: 100, Total: 200_000, ContentType: "application/json"},
		run:      runBootstrap,
	},
	"producers": {
		about:    "appends by idempotent producers, each with several requests under way",
		defaults: Config{Writers: 16, Streams: 1, Size: 100, InFlight: 5},
		run:      runProducers,
	},
	"idle": {
		about:    "what SSE readers cost while nothing happens",
		defaults: Config{Readers: 1_000, Streams: 1, Size: 100, Live: LiveSSE, ContentType: "text/plain"},
		run:      runIdle,
	},
}
