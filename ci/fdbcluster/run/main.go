// Run runs a command with FDB_CLUSTER_FILE set to a throw-away FoundationDB
// cluster, which ends with the command:
//
//	go run ./ci/fdbcluster/run -- go test -tags foundationdb ./...
//
// Where FDB_CLUSTER_FILE is set already the command is run on that cluster. The
// exit status is the command's own; 125 says that there is no cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"headwater/ci/fdbcluster"
)

const exitNoCluster = 125

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
	}
	os.Exit(code)
}

func run() (code int, err error) {
	var opts fdbcluster.Options
	knobs := ""
	flag.StringVar(&opts.Engine, "engine", "ssd", "storage engine of a local throw-away cluster, as in fdbcli's configure")
	flag.StringVar(&knobs, "knobs", "", "its server knobs: name=value,name=value")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: run [flags] -- COMMAND [ARGUMENTS]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		return 2, nil
	}
	if knobs != "" {
		opts.Knobs = strings.Split(knobs, ",")
	}

	// The command gets the terminal's signals too; this process waits for it,
	// so that the cluster is not pulled away from under it.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cluster, err := find(ctx, opts)
	if err != nil {
		return exitNoCluster, err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()

	cmd := exec.CommandContext(ctx, flag.Arg(0), flag.Args()[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(os.Environ(), "FDB_CLUSTER_FILE="+cluster.File)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	if err != nil {
		return exitNoCluster, err
	}
	return 0, nil
}

// find prefers a cluster that is there; flags only shape a local one.
func find(ctx context.Context, opts fdbcluster.Options) (*fdbcluster.Cluster, error) {
	if os.Getenv("FDB_CLUSTER_FILE") == "" {
		if c, err := fdbcluster.Start(ctx, opts); !errors.Is(err, fdbcluster.ErrNone) {
			return c, err
		}
	}
	return fdbcluster.Find(ctx)
}
