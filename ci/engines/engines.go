// Package engines gives tests every engine that can be had here: the embedded
// one in memory, and FoundationDB where package fdbcluster finds a cluster.
// Only tests may import it.
package engines

import (
	"log/slog"
	"testing"

	"headwater/ci/fdbcluster"
	"headwater/fdblayer/kv"
	"headwater/fdblayer/kv/embedded"
	"headwater/fdblayer/kv/foundationdb"
)

// Each runs test once on every engine, as a subtest of its name. Engines may
// be shared: a test keeps to a key prefix of its own.
func Each(t *testing.T, test func(t *testing.T, db kv.Database)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) { test(t, Embedded(t)) })
	t.Run("foundationdb", func(t *testing.T) { test(t, FoundationDB(t)) })
}

// Embedded opens the embedded engine in memory.
func Embedded(tb testing.TB) kv.Database {
	tb.Helper()
	db, err := embedded.Open(tb.Context(), embedded.Options{InMemory: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return db
}

// FoundationDB opens a cluster, and skips the test where there is none or the
// build has no client for it.
func FoundationDB(tb testing.TB) kv.Database {
	tb.Helper()
	db, err := foundationdb.Open(foundationdb.Options{ClusterFile: fdbcluster.Open(tb)})
	if err != nil {
		tb.Skip(err)
	}
	return db
}
