// Package frontends runs "headwater serve" processes for tests that talk to
// them over HTTP only: the public conformance suite, the official client, the
// extension suite.
//
// Every process listens on a free port of 127.0.0.1, is ready before Start
// returns, and is ended by Stop, by its process id. A server that exits by
// itself is reported by Stop, so that a crash under test is never missed.
package frontends
