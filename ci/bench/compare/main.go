package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"headwater/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// options are those of the command line.
type options struct {
	rounds           int
	duration, warmup time.Duration
	cases, servers   []string
	out              string
	log              string
	render           bool
}

func parse(args []string) (options, error) {
	var o options
	var cs, ss string
	var crates bool
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.IntVar(&o.rounds, "rounds", 5, "rounds, of which medians are taken")
	flags.DurationVar(&o.duration, "duration", 5*time.Second, "measured time of each run")
	flags.DurationVar(&o.warmup, "warmup", 2*time.Second, "time before it")
	flags.StringVar(&cs, "cases", "", "comma-separated cases; empty for all")
	flags.StringVar(&ss, "servers", "", "comma-separated servers; empty for all but those of crates.io")
	flags.BoolVar(&crates, "crates", false, "also the server of crates.io (compiles it, which takes minutes)")
	flags.StringVar(&o.out, "out", "docs/benchmarks/compare", "where to write: .md, .svg and .json are added")
	flags.StringVar(&o.log, "log", "", "file for what servers and builds print; dropped if empty")
	flags.BoolVar(&o.render, "render", false, "only write the table and the plot again, from the figures of the last run")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for _, c := range cases {
		o.cases = append(o.cases, c.name)
	}
	if cs != "" {
		o.cases = strings.Split(cs, ",")
	}
	for _, name := range order {
		if crates || !strings.HasPrefix(name, "rust-") {
			o.servers = append(o.servers, name)
		}
	}
	if ss != "" {
		o.servers = strings.Split(ss, ",")
	}
	for _, name := range o.cases {
		if c, ok := findCase(name); !ok {
			return o, fmt.Errorf("no case %q", name)
		} else if c.halfOf != "" && !slices.Contains(o.cases, c.halfOf) {
			return o, fmt.Errorf("%s needs %s", name, c.halfOf)
		}
	}
	for _, name := range o.servers {
		if !slices.Contains(order, name) {
			return o, fmt.Errorf("no server %q", name)
		}
	}
	if flags.NArg() > 0 || o.rounds < 1 || o.rounds > 1000 {
		return o, errors.New("unexpected arguments, or rounds out of range")
	}
	return o, nil
}

// figures are all that was measured; the table and the plot are made of them.
type figures struct {
	Machine  machine           `json:"machine"`
	Rounds   int               `json:"rounds"`
	Duration float64           `json:"duration_s"`
	Warmup   float64           `json:"warmup_s"`
	Absent   map[string]string `json:"absent,omitempty"`
	Runs     []measured        `json:"runs"`
}

// measured is one run.
type measured struct {
	Case   string       `json:"case"`
	Server string       `json:"server"`
	Round  int          `json:"round"`
	Result bench.Result `json:"result"`
	// Failure is set where the run's figures mean nothing.
	Failure string `json:"failure,omitempty"`
}

func run(ctx context.Context, args []string) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.render {
		p, err := os.ReadFile(o.out + ".json")
		if err != nil {
			return err
		}
		var f figures
		if err := json.Unmarshal(p, &f); err != nil {
			return err
		}
		return write(o.out, f)
	}
	log, err := os.OpenFile(cmp.Or(o.log, os.DevNull), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	dir, err := os.MkdirTemp("", "headwater-compare-")
	if err != nil {
		return err
	}
	y := &yard{dir: dir, log: log}
	defer func() { err = errors.Join(err, y.close()) }()
	f := figures{Machine: thisMachine(ctx), Rounds: o.rounds, Duration: o.duration.Seconds(), Warmup: o.warmup.Seconds(), Absent: map[string]string{}}
	absent, err := y.prepare(ctx, o.servers)
	if err != nil {
		return err
	}
	for name, why := range absent {
		fmt.Fprintf(os.Stderr, "without %s: %v\n", name, why)
		f.Absent[name] = why.Error()
	}
	if f.Machine.Fsync50, f.Machine.Fsync99, err = fsyncLoop(dir, 300); err != nil {
		return err
	}
	if err := compete(ctx, o, y, &f); err != nil {
		return err
	}
	return write(o.out, f)
}

// compete runs all rounds. What it has is written after each, so that a run
// that is broken off leaves its figures.
func compete(ctx context.Context, o options, y *yard, f *figures) error {
	contenders := y.contenders()
	for round := range o.rounds {
		fsync, _, err := fsyncLoop(y.dir, 100)
		if err != nil {
			return err
		}
		f.Machine.Fsyncs = append(f.Machine.Fsyncs, fsync)
		load, _, _ := strings.Cut(procLine("/proc/loadavg"), " ")
		f.Machine.Loads = append(f.Machine.Loads, load)
		peaks := map[string]float64{}
		for _, name := range o.cases {
			c, _ := findCase(name)
			// Who goes first changes from round to round.
			for i := range o.servers {
				server := o.servers[(i+round)%len(o.servers)]
				if _, gone := f.Absent[server]; gone || !c.takes(server) {
					continue
				}
				m := measure(ctx, o, c, contenders[server], peaks[server+" "+c.halfOf])
				if ctx.Err() != nil {
					return ctx.Err()
				}
				m.Round = round
				peaks[server+" "+c.name] = m.Result.OpsPerSec
				f.Runs = append(f.Runs, m)
				fmt.Fprintf(os.Stderr, "%d/%d %-18s %-19s %s\n", round+1, o.rounds, c.name, server, m.line(c))
			}
		}
		if err := write(o.out, *f); err != nil {
			return err
		}
	}
	return nil
}

// measure starts a server, drives it and stops it.
func measure(ctx context.Context, o options, c benchCase, s contender, peak float64) (m measured) {
	m = measured{Case: c.name, Server: s.name}
	failed := func(err error) measured {
		m.Failure = err.Error()
		return m
	}
	cfg := c.config
	if c.halfOf != "" {
		if peak == 0 {
			return failed(fmt.Errorf("%s failed, so half of its rate is not known", c.halfOf))
		}
		cfg.Rate = peak / 2
	}
	server, err := s.start(ctx)
	if err != nil {
		return failed(err)
	}
	cfg.URL, cfg.PID = server.url, server.pid
	cfg.Duration, cfg.Warmup, cfg.NoVerify, cfg.Keep = o.duration, o.warmup, s.pseudo, true
	// What an earlier run left is not to be collected during this one.
	debug.FreeOSMemory()
	m.Result, err = bench.Run(ctx, cfg)
	if err := errors.Join(err, server.stop()); err != nil {
		return failed(err)
	}
	return m
}

func (m measured) line(c benchCase) string {
	if m.Failure != "" {
		return "FAILED: " + m.Failure
	}
	return fmt.Sprintf("%s %s", number(c.metric.of(m.Result)), c.metric.name)
}

// write writes the figures, the table and the plot.
func write(out string, f figures) error {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	p, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return err
	}
	plot, err := svg(f)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(out+".json", append(p, '\n'), 0o644),
		os.WriteFile(out+".md", []byte(markdown(f, filepath.Base(out))), 0o644),
		os.WriteFile(out+".svg", plot, 0o644),
	)
}
