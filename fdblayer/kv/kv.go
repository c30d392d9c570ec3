package kv

import (
	"context"
	"time"
)

// Limits every engine keeps, so that code which runs on one runs on the other.
const (
	MaxKeySize         = 10_000
	MaxValueSize       = 100_000
	MaxTransactionSize = 10_000_000
	// MaxTransactionAge is how long a read version stays readable and
	// checkable for conflicts.
	MaxTransactionAge = 5 * time.Second
)

// VersionstampLen is the length in bytes of a versionstamp.
const VersionstampLen = 10

// Database is an open engine. Safe for concurrent use.
type Database interface {
	// Begin returns a new transaction. It does no I/O.
	Begin() Tx
	// Close releases the engine. Watches end with [ErrClosed]; transactions
	// must have ended.
	Close() error
}

// KeyValue is one row of a range read. The slices belong to the caller.
type KeyValue struct {
	Key, Value []byte
}

// Value is a point read under way.
type Value interface {
	// Wait returns the value; nil means the key is absent, an empty non-nil
	// slice that it is present and empty. It may be called more than once.
	Wait(ctx context.Context) ([]byte, error)
}

// Rows is a range read under way. Its first batch is requested when the read
// is issued, each later one by the Next that needs it.
type Rows interface {
	// Next returns the next batch of rows in order, and whether another Next may
	// bring more: not once a limit is reached. The last batch may be empty.
	Next(ctx context.Context) (batch []KeyValue, more bool, err error)
}

// Selector names a key by its place in the order of existing keys, as
// FoundationDB's key selectors do: start at the last key less than Key (or
// equal to it, with OrEqual), then move Offset keys to the right.
type Selector struct {
	Key     []byte
	OrEqual bool
	Offset  int
}

// LastLessThan selects the last key that is less than key.
func LastLessThan(key []byte) Selector { return Selector{key, false, 0} }

// LastLessOrEqual selects the last key that is not greater than key.
func LastLessOrEqual(key []byte) Selector { return Selector{key, true, 0} }

// FirstGreaterThan selects the first key that is greater than key.
func FirstGreaterThan(key []byte) Selector { return Selector{key, true, 1} }

// FirstGreaterOrEqual selects the first key that is not less than key.
func FirstGreaterOrEqual(key []byte) Selector { return Selector{key, false, 1} }

// Range is the keys from Begin, included, to End, excluded.
type Range struct {
	Begin, End []byte
}

// RangeOptions shape a range read.
type RangeOptions struct {
	// Limit is the most rows to return; 0 means no limit.
	Limit int
	// Reverse returns rows from the end of the range backwards.
	Reverse bool
}

// Reader is what a transaction and its snapshot view have in common. Reads
// are issued by the call and answered by the returned future, so several can
// be under way at once. All see the transaction's own writes.
type Reader interface {
	Get(key []byte) Value
	// GetKey resolves a selector. Like FoundationDB it answers the empty key
	// where the selector runs off the front of the key space, and the first
	// key past user space where it runs off the end.
	GetKey(sel Selector) Value
	// GetRange reads the rows from begin, included, to end, excluded.
	GetRange(begin, end Selector, opt RangeOptions) Rows
}

// AtomicOp is a read-modify-write the engine applies without a read conflict.
type AtomicOp int

// The atomic operations Headwater uses, with FoundationDB's semantics.
const (
	Add                    AtomicOp = iota // little-endian addition
	Max                                    // little-endian unsigned maximum
	ByteMax                                // lexicographic maximum
	CompareAndClear                        // clear the key if its value equals the parameter
	SetVersionstampedKey                   // the key's last four bytes say, little-endian, where its versionstamp goes
	SetVersionstampedValue                 // the same for the value
)

// Tx is one transaction. It is not safe for concurrent use, except that futures
// it returned may be waited for from any goroutine. After Commit it must not be
// used again except for CommittedVersion, Versionstamp and Reset.
type Tx interface {
	Reader
	// Snapshot returns a view whose reads add no conflict ranges.
	Snapshot() Reader

	// ReadVersion returns the version the transaction reads at, choosing it
	// now if it is not chosen yet.
	ReadVersion(ctx context.Context) (int64, error)
	// SetReadVersion fixes the version to read at and to check conflicts from.
	// It must come before any read.
	SetReadVersion(version int64)

	Set(key, value []byte)
	Clear(key []byte)
	ClearRange(r Range)
	Atomic(op AtomicOp, key, param []byte)

	// AddReadConflictKey and AddReadConflictRange make the transaction
	// conflict with later writes as if it had read the keys. They must come
	// before the transaction writes the keys itself.
	AddReadConflictKey(key []byte)
	AddReadConflictRange(r Range)
	// AddWriteConflictKey and AddWriteConflictRange make transactions that
	// read the keys conflict with this one as if it had written them.
	AddWriteConflictKey(key []byte)
	AddWriteConflictRange(r Range)
	// SetNextWriteNoConflict makes the next write invisible to the conflict
	// checks of others.
	SetNextWriteNoConflict()
	// SetPriorityBatch marks background work, which the engine may delay.
	SetPriorityBatch()

	// Watch returns a watch that fires once the value of key differs from the
	// value this transaction sees. It becomes active when the transaction
	// commits; commit a transaction that only reads to activate its watches.
	// It reads the key, with a read conflict.
	Watch(key []byte) Watch

	// Commit makes the writes durable and visible. Once it is called the
	// outcome is waited for whatever becomes of ctx, up to a bound of the
	// engine's own; an error for which [MaybeCommitted] holds leaves the
	// outcome unknown. A transaction that wrote nothing commits without I/O.
	Commit(ctx context.Context) error
	// CommittedVersion returns the version a successful Commit wrote at; -1
	// if the transaction wrote nothing.
	CommittedVersion() int64
	// Versionstamp returns what versionstamped operations of a successful
	// Commit were stamped with; zero if the transaction wrote nothing.
	Versionstamp() [VersionstampLen]byte

	// Reset returns the transaction to the state Begin left it in.
	Reset()
	// Cancel ends the transaction and releases what it holds. Reads under way
	// fail; a commit under way is not recalled. It may be called at any time,
	// more than once, and after Commit.
	Cancel()
}

// Watch is one armed watch. Safe for concurrent use.
type Watch interface {
	// Wait returns nil when the watch fires (spurious firing is allowed,
	// missing a lasting change is not), ctx's error when ctx ends first, or the
	// error that ended the watch, after which the caller reads again and arms
	// a new one.
	Wait(ctx context.Context) error
	// Cancel releases the watch; a Wait under way returns an error.
	Cancel()
}
