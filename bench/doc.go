// Package bench drives any Durable Streams server over HTTP, measures it, and
// checks everything it measures.
//
// A workload ([Workloads] lists them) runs for a fixed time after a warm-up.
// With a rate it is an open loop: every operation has an intended time, and its
// latency counts from then, so that a server that stalls is charged for all the
// operations it kept waiting (coordinated omission). Without one it is a closed
// loop, which finds the peak; its latencies are those of a client that waits,
// and [Result.Loop] says so.
//
// Every record carries its writer, its sequence number and the time it was
// meant to be sent ([record]). What was written is read back, and what a live
// reader gets is followed, record by record: one that is lost, repeated, out of
// order or altered fails the run, and [Run] returns its result beside an error.
// A record whose append had no clear answer may be there once or not at all.
//
// Writers, live readers and the server often share one machine, and all times
// are of one clock, the process's own. So the client is lean: one connection
// and one goroutine for each writer and each live reader, requests put together
// in place (conn.go), no allocation per append. net/http serves where it is not
// the limit: catch-up, bootstrap, and what is done before and after measuring.
//
// The package knows the protocol from its text alone and imports nothing of the
// server's.
package bench
