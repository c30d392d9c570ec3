package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err == nil {
		return
	}
	if !errors.Is(err, errChecksFailed) {
		fmt.Fprintln(os.Stderr, "drive:", err)
	}
	os.Exit(1)
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: drive conformance|client|extensions|check [flags]")
	}
	if args[0] == "check" {
		flags := flag.NewFlagSet("check", flag.ContinueOnError)
		only := flags.String("only", "", "comma-separated names of the steps to run; empty for all")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return check(ctx, *only)
	}
	s, ok := suites[args[0]]
	if !ok {
		return fmt.Errorf("no suite %q", args[0])
	}
	t, err := parseTarget(args[0], args[1:])
	if err != nil {
		return err
	}
	counts, err := runSuite(ctx, s, t)
	if err != nil {
		return err
	}
	for _, name := range counts.Failures {
		fmt.Println("failed:", name)
	}
	fmt.Printf("%s, %s: %v\n", args[0], t, counts)
	if counts.Failed > 0 {
		return fmt.Errorf("%d tests failed", counts.Failed)
	}
	return nil
}

// target is what a suite runs against.
type target struct {
	store       string
	frontends   int
	surface     string
	clusterFile string
	// urls are those of running servers; empty to start some.
	urls []string
	// binary is a built server; empty to build one.
	binary string
	// only restricts the suite to matching tests, in the suite's own syntax.
	only string
	// rounds is how often the extension suite's race cases are repeated; 0 for
	// its default.
	rounds int
	// pids are the processes of the servers that were started, admins the base
	// URLs of their admin planes.
	pids   []int
	admins []string
	// serverLog is where the servers' output goes; empty for a file that is
	// shown when a server fails.
	serverLog string
}

func parseTarget(name string, args []string) (target, error) {
	var t target
	var urls string
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.StringVar(&t.store, "store", "embedded", "memory, embedded or fdb")
	flags.IntVar(&t.frontends, "frontends", 1, "how many servers share the store and take requests in turn; more than one needs fdb")
	flags.StringVar(&t.surface, "surface", "base", "base (/v1/stream/{path}), bucket (/{bucket}/{stream}) or, for extensions, both")
	flags.StringVar(&t.clusterFile, "cluster-file", "", "FoundationDB cluster file; empty to find or start a cluster")
	flags.StringVar(&urls, "urls", "", "comma-separated base URLs of running servers to use instead of starting some")
	flags.StringVar(&t.binary, "binary", "", "server binary to start; empty to build one")
	flags.StringVar(&t.only, "run", "", "only tests that match: a regular expression")
	flags.IntVar(&t.rounds, "rounds", 0, "rounds of each race case of the extension suite; 0 for its short default")
	flags.StringVar(&t.serverLog, "server-log", "", "file for the servers' output")
	if err := flags.Parse(args); err != nil {
		return target{}, err
	}
	if flags.NArg() > 0 {
		return target{}, fmt.Errorf("unexpected arguments %q", flags.Args())
	}
	if t.surface != "base" && t.surface != "bucket" && (t.surface != "both" || name != "extensions") {
		return target{}, fmt.Errorf("no surface %q", t.surface)
	}
	if urls != "" {
		t.urls = strings.Split(urls, ",")
	}
	return t, nil
}

func (t target) String() string {
	if len(t.urls) > 0 {
		return fmt.Sprintf("surface %s at %s", t.surface, strings.Join(t.urls, ","))
	}
	return fmt.Sprintf("store %s, frontends %d, surface %s", t.store, t.frontends, t.surface)
}
