// Package foundationdb is the [kv] engine on a FoundationDB cluster, through
// the official Go binding and libfdb_c at API version 730. It is the only
// package that imports the binding. It needs cgo and the build tag
// foundationdb; without the tag [Open] is there and returns an error, so that
// no caller needs a tag of its own.
//
// It adds no semantics. A call of [kv.Tx] is the call of the same name on the
// C client, and what a caller may expect is FoundationDB's own contract. What
// this package does add is what the binding leaves out: contexts, batches of
// rows, one error type, and guards against the calls that end the process.
//
// # Waiting
//
// A goroutine that waits parks inside a future of the C client and holds no OS
// thread. When its context ends first, the whole transaction is ended (the
// binding offers no way to cancel a single range read), so every wait of that
// transaction returns the context's error, and no goroutine stays behind. A
// context that has ended before the wait begins ends nothing. Only watches
// survive the context of a Wait, because they outlive their transaction anyway.
//
// # Commit
//
// A commit under way is never cancelled by a context or by Cancel: its outcome
// would be unknown for no reason. It is bounded by [Options.CommitTimeout]
// alone; after that it is reported as commit_unknown_result (1021), although,
// other than after FoundationDB's own 1021, it may still be on its way. A
// caller that follows [kv.MaybeCommitted] (look for the own witness with a read
// that conflicts with the write) is safe in both cases. For the same reason no
// transaction has a timeout option: the client's own timeout (1031) gives up on
// a commit that may land later. Automatic idempotency is not used: it is
// experimental, and in 7.3 loses the commit version in its recovered branch.
//
// # Retries
//
// Transactions are retried by [kv.Transact] with Reset and its own pause, not
// with the client's OnError. That loses nothing a caller could see: the
// finality of 1021 is made inside Commit, which commits a conflicting dummy
// before it reports the error, and Reset does all that OnError does to a
// transaction except to wait. The client's retry counters in its trace files
// stay at zero, and its retry limit and delay options have no effect.
//
// # Memory
//
// The C client's memory is invisible to Go's garbage collector and to
// GOMEMLIMIT. Cancel and Reset free the arenas of a transaction at once, and
// Cancel passes the C transaction on to the next Begin; what never is cancelled
// waits for a finalizer. The results of range reads always do. A watch keeps the
// C transaction it was armed in, which is no loss while that one is in use
// again. A watch that is waited for costs about 12 kB (measured, 20,000 of
// them): 8 kB in the C client, the rest mostly the stack of its goroutine.
//
// # Process-wide state
//
// libfdb_c has one network thread and one API version per process. The thread
// starts with the first Open and cannot be started twice, so Close leaves it
// running. All Opens of one cluster file share one handle, which the last Close
// destroys.
//
// Network options come from the environment, as libfdb_c itself reads them:
// FDB_NETWORK_OPTION_TRACE_ENABLE (a directory), _TRACE_FORMAT, _TRACE_LOG_GROUP,
// _KNOB (name=value), _EXTERNAL_CLIENT_DIRECTORY, _CLIENT_BUGGIFY_ENABLE and so
// on for every option of fdb_c_options.g.h; TLS from FDB_TLS_CERTIFICATE_FILE,
// FDB_TLS_KEY_FILE, FDB_TLS_CA_FILE and FDB_TLS_VERIFY_PEERS. The cluster file
// must be writable: the client rewrites it when the coordinators change.
package foundationdb
