package kv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Backoff bounds of the retry loop; FoundationDB's client has the same shape.
const (
	firstBackoff = 2 * time.Millisecond
	maxBackoff   = 500 * time.Millisecond
)

// Attempt is what a transaction function may know of the attempts before it.
type Attempt struct {
	// Number counts from 0.
	Number int
	// Unknown says that an earlier attempt's commit may have taken effect. The
	// function must look for its own witness before it writes again.
	Unknown bool
}

// Committed is the outcome of a transaction that committed.
type Committed struct {
	// Version is the version it wrote at, -1 if it only read.
	Version int64
	// Versionstamp stamps its versionstamped writes.
	Versionstamp [VersionstampLen]byte
}

// Transact runs fn in a transaction and commits it, again and again until it
// commits, fn fails with an error that is not [Retryable], or ctx ends. fn may
// run several times and must have no side effect but on tx; results it stores
// in captured variables must be stored anew in each run.
//
// Where ctx or the engine ends the loop after a commit whose outcome is unknown,
// the error says so by [MaybeCommitted]. An error of fn's own is returned as it
// is: fn knows of the unknown outcome and looked for its witness.
func Transact(ctx context.Context, db Database, fn func(ctx context.Context, tx Tx, at Attempt) error) (Committed, error) {
	tx := db.Begin()
	defer tx.Cancel()
	var at Attempt
	for {
		err := fn(ctx, tx, at)
		if err == nil {
			err = tx.Commit(ctx)
			if err == nil {
				return Committed{tx.CommittedVersion(), tx.Versionstamp()}, nil
			}
			at.Unknown = at.Unknown || MaybeCommitted(err)
		}
		if !Retryable(err) {
			if at.Unknown && !MaybeCommitted(err) && (ctx.Err() != nil || Code(err) != 0 || errors.Is(err, ErrClosed)) {
				err = unknown(err)
			}
			return Committed{}, err
		}
		if werr := Pause(ctx, at.Number); werr != nil {
			if at.Unknown {
				return Committed{}, unknown(werr)
			}
			return Committed{}, fmt.Errorf("%w after %w", werr, err)
		}
		at.Number++
		tx.Reset()
	}
}

func unknown(cause error) error {
	return fmt.Errorf("%w: %w", &Error{Code: CodeCommitUnknownResult}, cause)
}

// Read runs fn in a transaction that only reads, with the same retries, and
// commits it so that watches armed in it become active.
func Read(ctx context.Context, db Database, fn func(ctx context.Context, tx Tx) error) error {
	_, err := Transact(ctx, db, func(ctx context.Context, tx Tx, _ Attempt) error { return fn(ctx, tx) })
	return err
}

// Pause waits before attempt number n+1: exponential, with full jitter.
func Pause(ctx context.Context, n int) error {
	limit := maxBackoff
	if n < 8 {
		limit = min(limit, firstBackoff<<n)
	}
	t := time.NewTimer(rand.N(limit))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
