// Command profile shows where the server's time and memory go under one
// workload: it serves from the embedded engine in this process, lets a child
// process drive it, and writes cpu.pprof, allocs.pprof, and on demand block and
// mutex profiles of the measured time alone.
//
//	go run ./ci/bench/profile --workload append-one --writers 64 --out /tmp/p
//	go tool pprof -top /tmp/p/cpu.pprof
//
// Beside them it prints the driver's result and what each commit carried.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"time"

	"headwater/bench"
	"headwater/fdblayer"
	"headwater/fdblayer/kv/embedded"
	"headwater/frontend"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "profile:", err)
		os.Exit(1)
	}
}

type options struct {
	cfg       bench.Config
	out       string
	memory    bool
	lanes     int
	blocking  bool
	drivesFor bool // this is the child
}

func parse() options {
	var o options
	flag.StringVar(&o.cfg.Workload, "workload", "append-one", "workload of package bench")
	flag.StringVar(&o.cfg.URL, "url", "", "for the child")
	flag.IntVar(&o.cfg.Writers, "writers", 0, "connections that write")
	flag.IntVar(&o.cfg.Readers, "readers", 0, "connections that read")
	flag.IntVar(&o.cfg.Streams, "streams", 0, "streams")
	flag.IntVar(&o.cfg.Size, "size", 0, "length of a record")
	flag.Float64Var(&o.cfg.Rate, "rate", 0, "operations per second")
	flag.StringVar(&o.cfg.ContentType, "content-type", "", "content type of the streams")
	flag.DurationVar(&o.cfg.Warmup, "warmup", 2*time.Second, "time before measuring")
	flag.DurationVar(&o.cfg.Duration, "duration", 5*time.Second, "measured time")
	flag.StringVar(&o.out, "out", ".", "directory of the profiles")
	flag.BoolVar(&o.memory, "memory", false, "serve from memory")
	flag.IntVar(&o.lanes, "lanes", 0, "commit lanes; 0 for the default")
	flag.BoolVar(&o.blocking, "blocking", false, "also block and mutex profiles, which cost time themselves")
	flag.BoolVar(&o.drivesFor, "drive", false, "for the child")
	flag.Parse()
	return o
}

func run(ctx context.Context) error {
	o := parse()
	if o.drivesFor {
		o.cfg.Keep = true
		res, err := bench.Run(ctx, o.cfg)
		return errors.Join(err, res.Print(os.Stdout))
	}
	dir, err := os.MkdirTemp("", "headwater-profile-")
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, o, dir), os.RemoveAll(dir))
}

func serve(ctx context.Context, o options, dir string) (err error) {
	log := slog.New(slog.DiscardHandler)
	db, err := embedded.Open(ctx, embedded.Options{Dir: dir, InMemory: o.memory, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	store, err := fdblayer.Open(ctx, db, fdblayer.Options{Lanes: o.lanes, Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close(context.WithoutCancel(ctx))) }()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	sctx, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		served <- frontend.NewServer(frontend.New(store, frontend.Options{Logger: log}), frontend.ServerOptions{}).Serve(sctx, l)
	}()
	err = profile(ctx, o, store, "http://"+l.Addr().String())
	stop()
	return errors.Join(err, <-served)
}

// profile runs the driver and takes the profiles of its measured time.
func profile(ctx context.Context, o options, store *fdblayer.Store, url string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := o.cfg
	cmd := exec.CommandContext(ctx, self, "-drive", "-url", url, "-workload", c.Workload,
		"-writers", strconv.Itoa(c.Writers), "-readers", strconv.Itoa(c.Readers), "-streams", strconv.Itoa(c.Streams), "-size", strconv.Itoa(c.Size),
		"-rate", strconv.FormatFloat(c.Rate, 'g', -1, 64), "-content-type", c.ContentType, "-warmup", c.Warmup.String(), "-duration", c.Duration.String())
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := pause(ctx, c.Warmup); err != nil {
		return errors.Join(err, cmd.Wait())
	}
	if o.blocking {
		runtime.SetBlockProfileRate(10_000)
		runtime.SetMutexProfileFraction(10)
	}
	var cpu bytes.Buffer
	before, began := store.Stats(), time.Now()
	var m1, m2 runtime.MemStats
	runtime.ReadMemStats(&m1)
	if err := pprof.StartCPUProfile(&cpu); err != nil {
		return err
	}
	err = pause(ctx, c.Duration)
	pprof.StopCPUProfile()
	if err != nil {
		return errors.Join(err, cmd.Wait())
	}
	runtime.ReadMemStats(&m2)
	after, took := store.Stats(), time.Since(began).Seconds()
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	err = os.WriteFile(filepath.Join(o.out, "cpu.pprof"), cpu.Bytes(), 0o644)
	names := []string{"allocs"}
	if o.blocking {
		names = append(names, "block", "mutex")
	}
	for _, name := range names {
		err = errors.Join(err, save(filepath.Join(o.out, name+".pprof"), name))
	}
	requests := float64(after.Requests - before.Requests)
	commits := float64(after.WarmCommits + after.ColdCommits - before.WarmCommits - before.ColdCommits)
	err = errors.Join(err, cmd.Wait())
	fmt.Printf("\nin the server: %.0f writes/s in %.0f commits/s (%.1f each, %.1f%% warm), %d conflicts; %.0f B and %.1f allocations per write; %d GCs, %.1f%% of the time stopped for them\n",
		requests/took, commits/took, requests/commits, 100*float64(after.WarmCommits-before.WarmCommits)/commits, after.Conflicts-before.Conflicts,
		float64(m2.TotalAlloc-m1.TotalAlloc)/requests, float64(m2.Mallocs-m1.Mallocs)/requests,
		m2.NumGC-m1.NumGC, float64(m2.PauseTotalNs-m1.PauseTotalNs)/took/1e7)
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func save(file, name string) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return pprof.Lookup(name).WriteTo(f, 0)
}
