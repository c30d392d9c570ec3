//go:build foundationdb

package foundationdb

import (
	"context"
	"fmt"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"headwater/fdblayer/kv"
)

// Commit implements [kv.Tx].
func (t *tx) Commit(ctx context.Context) error {
	if ctx.Err() != nil {
		// Nothing was sent, so this is not an unknown outcome.
		return context.Cause(ctx)
	}
	commit, stamp, err := t.startCommit()
	if commit == nil || err != nil {
		return err
	}
	err = t.awaitCommit(commit)
	if err == nil && stamp != nil {
		err = t.readOutcome(stamp)
	}
	t.endCommit()
	return err
}

// startCommit sends the commit. It returns no future where there is nothing
// that FoundationDB would have to be asked.
func (t *tx) startCommit() (commit fdb.FutureNil, stamp fdb.FutureKey, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ended != nil:
		return nil, nil, t.ended
	case t.err != nil:
		return nil, nil, t.err
	case !t.wrote && !t.watched:
		return nil, nil, nil
	}
	if t.wrote {
		// The versionstamp can only be asked for before the commit.
		stamp = t.tr.GetVersionstamp()
	}
	t.committing = true
	return t.tr.Commit(), stamp, nil
}

// awaitCommit waits for the outcome whatever becomes of the caller's context,
// up to the bound of the engine.
func (t *tx) awaitCommit(commit fdb.FutureNil) error {
	gaveUp := make(chan struct{})
	timer := time.AfterFunc(t.db.commitTimeout, func() {
		defer close(gaveUp)
		commit.Cancel()
	})
	err := engineError(commit.Get())
	if !timer.Stop() {
		<-gaveUp
	}
	if kv.Code(err) == kv.CodeOperationCancelled {
		t.mu.Lock()
		t.abandoned = true
		t.mu.Unlock()
		return &kv.Error{
			Code:   kv.CodeCommitUnknownResult,
			Detail: fmt.Sprintf("no outcome within %v, it may still be on its way", t.db.commitTimeout),
		}
	}
	return err
}

// readOutcome takes the version and versionstamp of a commit that succeeded.
func (t *tx) readOutcome(stamp fdb.FutureKey) error {
	b, err := stamp.Get()
	if err = engineError(err); kv.Code(err) == codeNoCommitVersion {
		return nil // the writes came to nothing, e.g. a clear of an empty range
	}
	if err == nil {
		if copy(t.stamp[:], b) != kv.VersionstampLen {
			err = fmt.Errorf("versionstamp of %d bytes", len(b))
		} else {
			var version int64
			if version, err = t.tr.GetCommittedVersion(); err == nil {
				t.version = version
			}
		}
	}
	if err != nil {
		// Committed, but where is not known: the caller must look for itself.
		return &kv.Error{Code: kv.CodeCommitUnknownResult, Detail: err.Error()}
	}
	return nil
}

// endCommit lets Cancel reach the C transaction again, and catches up on one
// that came during the commit.
func (t *tx) endCommit() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.committing = false
	switch {
	case t.cancelled:
		t.letGoLocked()
	case t.ended != nil:
		t.tr.Reset()
	}
}

// CommittedVersion implements [kv.Tx].
func (t *tx) CommittedVersion() int64 { return t.version }

// Versionstamp implements [kv.Tx].
func (t *tx) Versionstamp() [kv.VersionstampLen]byte { return t.stamp }
