// Command mutants proves that the checks can fail: it puts one known bug after
// another into a copy of the sources, runs the tests that are to catch it, and
// fails if one of them passes.
//
// A bug is a piece of a file and what to put in its place. The sources are left
// alone: the go command reads the changed files through -overlay. A piece that
// is no longer found, or found twice, fails the run, and so does a bug that
// does not compile: so the list can't rot.
//
//	go run ./ci/mutants [-only regexp] [-v]
package main
