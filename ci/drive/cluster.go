package main

import (
	"context"
	"errors"
	"fmt"

	"headwater/ci/fdbcluster"
)

// errNoCluster says that nothing on this machine gives a FoundationDB cluster.
var errNoCluster = errors.New("no FoundationDB cluster")

// withCluster runs f with the cluster file of a running cluster, or of one that
// is started for it and ended after it.
func withCluster(ctx context.Context, f func(file string) error) error {
	cluster, err := fdbcluster.Find(ctx)
	if errors.Is(err, fdbcluster.ErrNone) {
		return fmt.Errorf("%w: %w", errNoCluster, err)
	}
	if err != nil {
		return err
	}
	return errors.Join(f(cluster.File), cluster.Close())
}
