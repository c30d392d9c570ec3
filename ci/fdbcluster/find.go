package fdbcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// ErrNone says that this machine has no FoundationDB cluster and no means to
// start one.
var ErrNone = errors.New("set FDB_CLUSTER_FILE, or put fdbserver and fdbcli on PATH, or start Docker")

// clusterFileEnv is the variable the C client and fdbcli read, too.
const clusterFileEnv = "FDB_CLUSTER_FILE"

// Cluster is a FoundationDB cluster.
type Cluster struct {
	// File is the path of its cluster file.
	File string
	// PID is the process of a throw-away cluster on this machine, for tests that
	// suspend it; 0 where there is none.
	PID int

	stop func() error // nil where the cluster is not ours
}

// Find finds a running cluster or starts a throw-away one, see the package
// comment. It returns [ErrNone] where neither can be done; any other error means
// that a means there is did not work.
func Find(ctx context.Context) (*Cluster, error) {
	if file := os.Getenv(clusterFileEnv); file != "" {
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("fdbcluster: %s: %w", clusterFileEnv, err)
		}
		return &Cluster{File: file}, nil
	}
	c, err := Start(ctx, Options{})
	if errors.Is(err, ErrNone) {
		c, err = startContainer(ctx)
	}
	return c, err
}

// Throwaway reports whether the cluster may be locked, configured and broken.
// It ends with Close.
func (c *Cluster) Throwaway() bool { return c.stop != nil }

// Close ends a throw-away cluster and removes its data. It must not be called
// twice.
func (c *Cluster) Close() error {
	if c.stop == nil {
		return nil
	}
	return c.stop()
}

// CLI runs one command line of fdbcli on the cluster and returns what it printed.
func (c *Cluster) CLI(ctx context.Context, command string) (string, error) {
	bin, err := exec.LookPath("fdbcli")
	if err != nil {
		return "", fmt.Errorf("fdbcluster: %w", err)
	}
	cmd := exec.CommandContext(ctx, bin, "-C", c.File, "--timeout", "10", "--exec", command)
	cmd.Env = plainEnv()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("fdbcluster: fdbcli %s: %w: %s", command, err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

// plainEnv is the environment without the network options of the C client: a
// test process may have its own client inject faults, fdbcli's must not.
func plainEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "FDB_NETWORK_OPTION_") && !strings.HasPrefix(kv, clusterFileEnv+"=") {
			env = append(env, kv)
		}
	}
	return env
}
