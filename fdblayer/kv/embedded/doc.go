// Package embedded is FoundationDB's transaction model in one process, on
// Pebble: the engine for a laptop, a test and a single node. It keeps the
// contract of kv/kvtest. It owns one directory, and nobody else may open it.
//
// # Commit
//
// One goroutine, the committer, takes every commit that waits, refuses those
// that conflict, writes the rest as one Pebble batch, syncs the log once,
// publishes the new version and only then acknowledges. There is no timer:
// while one group is synced the next one gathers. Everything the committer
// decides with (the conflict history, the next version) is its own, so it takes
// no lock to decide. A transaction of a group sees the writes of those before
// it, because the history is written as the group is resolved. All of a group
// share one version and are told apart by their order, which also makes a
// versionstamp.
//
// # Versions
//
// A version is a microsecond of the process's monotonic clock on top of a base.
// The base is the end of the range of versions the last process reserved on
// disk, so versions go up across restarts, crashes and changes of the wall
// clock. An hour is reserved at a time, within a batch that is synced anyway.
//
// # Reads
//
// Each published version holds a Pebble snapshot, taken by the committer after
// the sync and before the next group touches the memtable. So no reader sees a
// write that a crash could take back. A snapshot costs well under a microsecond
// and no I/O; it lives until its version is 5 s old. What lost: keys with a
// version suffix (each range read then steps over old versions, and somebody
// must collect them), and an undo log in memory (it answers point reads well and
// range reads badly).
//
// A snapshot is held by no transaction, only by each single read of it, so a
// transaction that is never ended costs no disk space. Reads run in the call
// that issues them: a point read is a memtable or block cache lookup, cheaper
// than handing it to another goroutine. Only a read at a version that is not
// there yet runs in Wait.
//
// Keys are stored as they are. User keys are less than \xff, so the engine's
// own keys begin with it.
//
// # Conflicts
//
// See history: a hash map answers point reads, segments sorted on demand answer
// range reads. A skip list over all writes, which FoundationDB's resolver uses,
// lost: most transactions of this module read and write single keys, which the
// map answers in a tenth of the time.
//
// # Failure
//
// A log that cannot be written or synced stops the engine: every later commit
// is refused, and what was in flight has an unknown outcome. Trying again would
// be wrong, since the kernel may have dropped the pages it failed to write.
//
// # Lock order
//
// attempt.mu, then window.mu or registry.mu. Nothing is called back under a
// lock, and no lock is held while the log is synced.
package embedded
