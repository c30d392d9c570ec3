package fdbcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// SkipText begins the message of every test that is skipped for want of a
// cluster, and the one line a process writes about it to its standard error.
const SkipText = "SKIPPED WITHOUT FOUNDATIONDB"

// shared is the cluster of this test process.
var shared struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

// Open returns the cluster file of the cluster that all tests of this process
// share, and finds or starts it first where nobody has. Where there can be none
// it skips tb; where one should have started and did not, tb fails.
//
// Every test keeps to keys of its own, and none locks or configures the cluster;
// [OpenThrowaway] is for that.
func Open(tb testing.TB) (clusterFile string) {
	tb.Helper()
	shared.once.Do(func() {
		shared.cluster, shared.err = Find(context.Background())
		if errors.Is(shared.err, ErrNone) {
			fmt.Fprintf(os.Stderr, "%s: %v\n", SkipText, shared.err)
		}
	})
	check(tb, shared.err)
	return shared.cluster.File
}

// OpenThrowaway starts a cluster of tb's own, which ends with tb.
func OpenThrowaway(tb testing.TB, opts Options) *Cluster {
	tb.Helper()
	c, err := Start(tb.Context(), opts)
	check(tb, err)
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Errorf("close the throw-away cluster: %v", err)
		}
	})
	return c
}

func check(tb testing.TB, err error) {
	tb.Helper()
	switch {
	case errors.Is(err, ErrNone):
		tb.Skipf("%s: %v", SkipText, err)
	case err != nil:
		tb.Fatal(err)
	}
}

// Main runs the tests of a package and then ends the cluster they shared. It is
// the whole of a TestMain: os.Exit(fdbcluster.Main(m)). Without it the cluster
// ends with the process all the same, but its folder is left to the next start.
func Main(m *testing.M) (code int) {
	code = m.Run()
	shared.once.Do(func() { shared.err = ErrNone }) // no test is left that could start one
	if shared.cluster != nil {
		if err := shared.cluster.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}
