// Package sim runs several frontends over one embedded engine in one process
// and one bubble of virtual time, makes the engine misbehave, and checks what
// clients may see of it.
//
//   - cluster_test.go is the frontends and the faults: commits that are lost,
//     refused, applied without a word or applied late, reads that fail, watches
//     that fire late or for nothing, frontends that die in the middle of
//     everything, clocks that differ and jump.
//   - client_test.go makes random requests, live_test.go follows streams.
//   - history_test.go is what was seen, and the promises it is held against.
//   - linear_test.go checks histories of single streams with Porcupine, against
//     a model of which only the outcome in doubt is not deterministic.
//
// A bubble (testing/synctest) makes time virtual: hours of it pass in a second,
// every timeout and lease is met, and the bubble ends only once every goroutine
// has, so that none can leak. A run is its seed. It draws every fault, delay
// and request; what it does not draw is the choice Go's scheduler makes between
// goroutines that could both run, and the random ids of incarnations and lanes.
// So a seed that failed fails again most of the time and not always; -repeat
// runs it more than once.
package sim
