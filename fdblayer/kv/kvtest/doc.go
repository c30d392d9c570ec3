// Package kvtest is the contract of kv.Database as a test suite, and an engine
// wrapper that makes commits go wrong.
//
// Run is written against the interface only and holds for every engine. Each of
// its tests keeps to keys under a random prefix of its own, so it runs on a
// cluster that others use, and its tests run beside each other. What the suite
// does not promise is left to the engines: the two differ there.
//
// Faulty wraps any engine. It is for the tests of what is built on kv: each of
// a commit's possible fates can be brought about at a chosen commit.
package kvtest
