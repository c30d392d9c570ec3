package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"headwater/bench"
)

// benchCmd is the options of "headwater bench". A zero means the workload's
// own default.
type benchCmd struct {
	Workload string `arg:"" help:"What to measure; without one, the workloads are listed." optional:""`

	URL         string `help:"The server's base URL." default:"http://127.0.0.1:4437" group:"Target"`
	ReadURL     string `help:"Base URL for readers, such as another frontend's; the same if empty." placeholder:"URL" group:"Target"`
	Layout      string `help:"How the server names streams: ${enum}. base is /v1/stream/{name}, bucket /{bucket}/{name}." enum:"base,bucket" default:"base" group:"Target"`
	Bucket      string `help:"The bucket of that layout." default:"bench" group:"Target"`
	AllowRemote bool   `help:"Also load servers that are not on this machine." group:"Target"`
	PID         int    `name:"pid" help:"The server's process, to sample its CPU time and memory." group:"Target"`

	Duration time.Duration `help:"How long to measure." default:"10s" group:"Load"`
	Warmup   time.Duration `help:"How long to run before." default:"3s" group:"Load"`
	Timeout  time.Duration `help:"How long to wait for one answer." default:"30s" group:"Load"`
	Rate     float64       `help:"Operations per second of all writers: an open loop, whose latencies count from the intended send time. A closed loop if 0." group:"Load"`

	Writers     int      `help:"Connections that write." placeholder:"N" group:"Load"`
	Readers     int      `help:"Connections that read." placeholder:"N" group:"Load"`
	Streams     int      `help:"Streams in use." placeholder:"N" group:"Load"`
	Size        byteSize `help:"Length of a record." placeholder:"SIZE" group:"Load"`
	Batch       int      `help:"Records per request where streams are filled." placeholder:"N" group:"Load"`
	Total       byteSize `help:"Length of a filled stream." placeholder:"SIZE" group:"Load"`
	InFlight    int      `help:"Requests each producer keeps under way." placeholder:"N" group:"Load"`
	Live        string   `help:"How live readers read: sse or long-poll." placeholder:"MODE" group:"Load"`
	ContentType string   `help:"Content type of the streams." placeholder:"TYPE" group:"Load"`

	JSON     bool   `name:"json" help:"Print the result as JSON."`
	Quiet    bool   `help:"Show no progress."`
	Keep     bool   `help:"Leave the streams in the server."`
	NoVerify bool   `help:"Check nothing: for the ceiling, which stores nothing."`
	Listen   string `help:"Address the ceiling serves on." default:"127.0.0.1:4440" env:"HEADWATER_BENCH_LISTEN"`
}

// Help lists the workloads.
func (c *benchCmd) Help() string {
	var b strings.Builder
	b.WriteString("Drives any Durable Streams server, measures it, and checks every record it wrote or read. Workloads:\n\n")
	for _, w := range bench.Workloads() {
		fmt.Fprintf(&b, "  %-13s %s\n", w, bench.About(w))
	}
	fmt.Fprintf(&b, "  %-13s %s\n", ceiling, "serves what is to be compared with: a handler that reads the body and answers 204")
	return b.String()
}

const ceiling = "ceiling"

// Run runs one workload. Its result is printed even where the run failed its
// checks.
func (c *benchCmd) Run(ctx context.Context, out output) error {
	switch c.Workload {
	case "":
		_, err := fmt.Fprint(out.stdout, c.Help())
		return err
	case ceiling:
		return c.serveCeiling(ctx, out)
	}
	cfg := bench.Config{
		Workload: c.Workload, URL: c.URL, ReadURL: c.ReadURL, Layout: c.Layout, Bucket: c.Bucket, AllowRemote: c.AllowRemote, PID: c.PID,
		Duration: c.Duration, Warmup: c.Warmup, Timeout: c.Timeout, Rate: c.Rate,
		Writers: c.Writers, Readers: c.Readers, Streams: c.Streams, Size: int(c.Size), Batch: c.Batch, Total: int64(c.Total),
		InFlight: c.InFlight, Live: c.Live, ContentType: c.ContentType,
		NoVerify: c.NoVerify, Keep: c.Keep,
	}
	if !c.Quiet {
		cfg.Progress = out.stderr
	}
	res, err := bench.Run(ctx, cfg)
	switch {
	case errors.Is(err, bench.ErrConfig):
		return usageError{err}
	case res.Workload == "":
		return err
	case c.JSON:
		enc := json.NewEncoder(out.stdout)
		enc.SetIndent("", "  ")
		return errors.Join(err, enc.Encode(res))
	}
	return errors.Join(err, res.Print(out.stdout))
}

func (c *benchCmd) serveCeiling(ctx context.Context, out output) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return usageError{fmt.Errorf("can't listen on %s: %w", c.Listen, err)}
	}
	fmt.Fprintf(out.stderr, "The ceiling is at http://%s; drive it with --no-verify.\n", dialable(l.Addr()))
	return bench.ServeCeiling(ctx, l)
}
