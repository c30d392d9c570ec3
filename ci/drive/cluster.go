package main

import (
	"context"
	"errors"
	"os"
)

// errNoCluster says that nothing on this machine gives a FoundationDB cluster.
var errNoCluster = errors.New("no FoundationDB cluster: set FDB_CLUSTER_FILE")

// cluster is a FoundationDB cluster for tests.
type cluster struct {
	file  string
	close func()
}

// findCluster finds a running cluster or starts one.
func findCluster(context.Context) (cluster, error) {
	file := os.Getenv("FDB_CLUSTER_FILE")
	if file == "" {
		return cluster{}, errNoCluster
	}
	if _, err := os.Stat(file); err != nil {
		return cluster{}, err
	}
	return cluster{file: file, close: func() {}}, nil
}
