// Package fdbcluster gives tests a FoundationDB cluster, and only tests and the
// tools under ci may import it (a test in fdblayer/kv/foundationdb sees to it).
//
// [Find] looks in this order:
//
//   - FDB_CLUSTER_FILE names a running cluster: it is used, and left running.
//     Tests keep to prefixes of their own in it and never lock or configure it.
//   - fdbserver and fdbcli are on PATH: a throw-away cluster of one process on
//     loopback, its data in a temporary folder.
//   - a Docker engine answers within two seconds: the same in a container.
//   - else there is none: [Open] skips the test, with a line that begins with
//     [SkipText].
//
// A throw-away cluster that [Open] starts is shared by all tests of the process.
// It does not outlive it, however the process ends: on Linux the kernel kills
// the server with it, and the folder it leaves is removed by the next start.
// Packages tested by one go test each start their own; to share one, run
//
//	go run ./ci/fdbcluster/run -- go test -tags foundationdb ./...
//
// The goroutine that keeps the server process, and the C client's network
// thread, live as long as the test process; leak checks take what is there when
// they begin as given.
package fdbcluster
