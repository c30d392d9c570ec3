// Command compare measures Headwater beside its peers and beside the ceiling,
// and writes what it saw to docs/benchmarks: a table, a plot and the figures.
//
//	go run ./ci/bench/compare                 everything, five rounds
//	go run ./ci/bench/compare --cases append-one-64,create --rounds 3
//	go run ./ci/bench/compare --render        the table and plot again, from the figures
//
// Run it from the repository's root, on a machine that does nothing else.
//
// The contenders take turns: each case of each round starts one server after
// the other, with an empty data directory, on loopback, drives it with package
// bench, and stops it. So a slow minute of the machine meets all of them, and
// what is quoted are medians over the rounds. A run that fails its verification
// is quoted as a failure, never as a figure.
//
// The ceiling is a handler that reads a body and answers 204, driven by the same
// generator: what is left for any server with this HTTP stack.
package main
