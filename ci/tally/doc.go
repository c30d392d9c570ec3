// Package tally adds up the outcomes of test runs: the event stream of
// "go test -json" and the report of vitest's JSON reporter.
//
// A test is counted once and only where it is a leaf: a Go test with subtests
// counts as its subtests. What fails without a test of its own to blame (a
// package that does not build, a file that can't be loaded, a test binary that
// exits early) counts as one failure, so that a broken run never adds up to
// zero failures.
package tally
