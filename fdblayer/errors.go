package fdblayer

import (
	"fmt"
	"time"

	"headwater/keys"
)

// Code names a way an operation can fail. The text is part of the HTTP
// interface: it is the machine-readable code of the problem body. What status
// it becomes is the frontend's business.
type Code string

// The codes of this package.
const (
	CodeNotFound          Code = "stream_not_found"
	CodeSourceNotFound    Code = "fork_source_not_found"
	CodeSoftDeleted       Code = "stream_deleted"  // soft-deleted: forks still need it
	CodeRetained          Code = "offset_retained" // below the earliest retained offset
	CodeOffsetBeyondTail  Code = "offset_beyond_tail"
	CodeBadOffset         Code = "invalid_offset" // no position of this stream, or not a message boundary where one is needed
	CodeExists            Code = "stream_exists"  // with another configuration
	CodePathDeleted       Code = "path_deleted"   // soft-deleted: the path can't be created anew
	CodeSourceDeleted     Code = "fork_source_deleted"
	CodeForkConflict      Code = "fork_conflict" // fork refused: other content type
	CodeBadFork           Code = "invalid_fork"
	CodeClosed            Code = "stream_closed"
	CodeContentType       Code = "content_type_mismatch"
	CodeSequence          Code = "sequence_regression"
	CodeStaleEpoch        Code = "stale_producer_epoch"
	CodeEpochStart        Code = "producer_epoch_must_start_at_zero"
	CodeProducerGap       Code = "producer_sequence_gap"
	CodeIncarnation       Code = "incarnation_mismatch"
	CodeSnapshotNotFound  Code = "snapshot_not_found"
	CodeSnapshotConflict  Code = "snapshot_conflict"
	CodeRetentionConflict Code = "retention_conflict"
	CodeTooLarge          Code = "too_large"
	CodeEmptyBody         Code = "empty_body"
	CodeBodyRead          Code = "body_read"       // the client's body ended early
	CodeOverloaded        Code = "overloaded"      // a queue is full; nothing was applied
	CodeUnavailable       Code = "unavailable"     // the store can't be reached in time; nothing was applied
	CodeUnknownOutcome    Code = "unknown_outcome" // the store can't say whether the write was applied
	CodeDraining          Code = "draining"        // this frontend is shutting down
)

// CodeInternal is a fault of the server or its data; nothing the client can mend.
const CodeInternal Code = "internal_error"

// Error is what operations of this package fail with. Only the fields that go
// with its code are set.
type Error struct {
	Code Code
	// Detail is one line for a person.
	Detail string

	// Incarnation is the current one (CodeIncarnation; zero if the stream
	// does not exist) or that of the stream that refused the request.
	Incarnation keys.Incarnation
	// Offset is the tail (CodeClosed, CodeOffsetBeyondTail, CodeSequence) or
	// the retained offset (CodeRetained).
	Offset    keys.Offset
	HasOffset bool
	// Epoch is the producer's current epoch (CodeStaleEpoch).
	Epoch uint64
	// Expected and Received are sequence numbers (CodeProducerGap).
	Expected, Received uint64
	// RetryAfter is when trying again makes sense (CodeOverloaded,
	// CodeUnavailable, CodeUnknownOutcome, CodeDraining).
	RetryAfter time.Duration
	// Err is the cause, for the log.
	Err error
}

func (e *Error) Error() string {
	s := string(e.Code)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

func errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}
