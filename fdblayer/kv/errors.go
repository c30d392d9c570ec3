package kv

import (
	"errors"
	"fmt"
)

// Error is an engine's error, carrying FoundationDB's code. Both engines use
// the same codes for the same conditions.
type Error struct {
	Code int
	// Detail is what the engine adds for the log; it may be empty.
	Detail string
}

// The codes this module tells apart.
const (
	CodeTransactionTooOld      = 1007
	CodeFutureVersion          = 1009
	CodeNotCommitted           = 1020
	CodeCommitUnknownResult    = 1021
	CodeTransactionCancelled   = 1025
	CodeTransactionTimedOut    = 1031
	CodeTooManyWatches         = 1032
	CodeAccessedUnreadable     = 1036
	CodeProcessBehind          = 1037
	CodeDatabaseLocked         = 1038
	CodeClusterVersionChanged  = 1039
	CodeCommitProxyMemoryLimit = 1042
	CodeBatchThrottled         = 1051
	CodeGrvProxyMemoryLimit    = 1078
	CodeOperationCancelled     = 1101
	CodeTagThrottled           = 1213
	CodeIOError                = 1510
	CodeClientInvalidOperation = 2000
	CodeKeyOutsideLegalRange   = 2004
	CodeInvertedRange          = 2005
	CodeUsedDuringCommit       = 2017
	CodeTransactionTooLarge    = 2101
	CodeKeyTooLarge            = 2102
	CodeValueTooLarge          = 2103
)

var names = map[int]string{
	CodeTransactionTooOld:      "transaction is too old to perform reads or be committed",
	CodeFutureVersion:          "request for future version",
	CodeNotCommitted:           "transaction not committed due to conflict with another transaction",
	CodeCommitUnknownResult:    "transaction may or may not have committed",
	CodeTransactionCancelled:   "transaction was cancelled",
	CodeTransactionTimedOut:    "operation aborted because the transaction timed out",
	CodeTooManyWatches:         "too many watches set",
	CodeAccessedUnreadable:     "read a versionstamped key of the same transaction",
	CodeProcessBehind:          "storage process is lagging",
	CodeDatabaseLocked:         "database is locked",
	CodeClusterVersionChanged:  "cluster has been upgraded to a new protocol version",
	CodeCommitProxyMemoryLimit: "commit proxy memory limit exceeded",
	CodeBatchThrottled:         "batch transaction rate exceeded",
	CodeGrvProxyMemoryLimit:    "GRV proxy memory limit exceeded",
	CodeOperationCancelled:     "operation was cancelled",
	CodeTagThrottled:           "transaction tag is being throttled",
	CodeIOError:                "disk i/o operation failed",
	CodeClientInvalidOperation: "invalid API call",
	CodeInvertedRange:          "range begin key larger than end key",
	CodeKeyOutsideLegalRange:   "key outside legal range",
	CodeUsedDuringCommit:       "operation issued while a commit was outstanding",
	CodeTransactionTooLarge:    "transaction exceeds byte limit",
	CodeKeyTooLarge:            "key length exceeds limit",
	CodeValueTooLarge:          "value length exceeds limit",
}

func (e *Error) Error() string {
	msg := names[e.Code]
	if msg == "" {
		msg = "database error"
	}
	if e.Detail != "" {
		msg += ": " + e.Detail
	}
	return fmt.Sprintf("kv: %s (%d)", msg, e.Code)
}

// ErrClosed ends watches and transactions of a closed engine.
var ErrClosed = errors.New("kv: database is closed")

// Code returns the engine's code of err, or 0 if it has none.
func Code(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// Retryable reports whether running the whole transaction again may succeed.
// It includes the errors for which [MaybeCommitted] holds.
func Retryable(err error) bool {
	switch Code(err) {
	case CodeTransactionTooOld, CodeFutureVersion, CodeNotCommitted, CodeCommitUnknownResult,
		CodeProcessBehind, CodeDatabaseLocked, CodeClusterVersionChanged, CodeCommitProxyMemoryLimit,
		CodeBatchThrottled, CodeGrvProxyMemoryLimit, CodeTagThrottled:
		return true
	}
	return false
}

// MaybeCommitted reports whether a Commit that returned err may have taken
// effect, or may yet. The caller must look for a witness of its own write
// before it writes again, with a read that conflicts with that write.
func MaybeCommitted(err error) bool {
	switch Code(err) {
	case CodeCommitUnknownResult, CodeClusterVersionChanged, CodeTransactionTimedOut,
		CodeTransactionCancelled, CodeOperationCancelled:
		return true
	}
	return false
}
