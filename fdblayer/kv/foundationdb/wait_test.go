//go:build foundationdb

package foundationdb

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"headwater/ci/fdbcluster"
	"headwater/fdblayer/kv"
)

// frozen is a cluster that does not answer until it is thawed, and a database on
// it that has answered before.
func frozen(t *testing.T, opts Options) (db kv.Database, thaw func()) {
	t.Helper()
	c := fdbcluster.OpenThrowaway(t, fdbcluster.Options{Engine: "memory"})
	opts.ClusterFile = c.File
	db = openFile(t, opts)
	set(t, db, []byte("k"), []byte("v"))
	signal := func(s syscall.Signal) {
		if err := syscall.Kill(c.PID, s); err != nil {
			t.Error(err)
		}
	}
	signal(syscall.SIGSTOP)
	return db, func() { signal(syscall.SIGCONT) }
}

// TestContextEndsWaits: every kind of read returns when its context ends, though
// the cluster does not answer; nothing is left running, and the transaction can
// be used again.
func TestContextEndsWaits(t *testing.T) {
	db, thaw := frozen(t, Options{})
	all := func(tx kv.Tx) kv.Rows {
		return tx.GetRange(kv.FirstGreaterOrEqual([]byte{}), kv.FirstGreaterOrEqual([]byte{0xff}), kv.RangeOptions{})
	}
	waits := map[string]func(context.Context, kv.Tx) error{
		"Get": func(ctx context.Context, tx kv.Tx) error { _, err := tx.Get([]byte("k")).Wait(ctx); return err },
		"GetKey": func(ctx context.Context, tx kv.Tx) error {
			_, err := tx.GetKey(kv.FirstGreaterThan([]byte("a"))).Wait(ctx)
			return err
		},
		"Rows": func(ctx context.Context, tx kv.Tx) error { _, _, err := all(tx).Next(ctx); return err },
		"ReadVersion": func(ctx context.Context, tx kv.Tx) error {
			_, err := tx.ReadVersion(ctx)
			return err
		},
		"Snapshot": func(ctx context.Context, tx kv.Tx) error {
			_, err := tx.Snapshot().Get([]byte("k")).Wait(ctx)
			return err
		},
	}
	before := runtime.NumGoroutine()
	txs := map[string]kv.Tx{}
	for name, wait := range waits {
		tx := db.Begin()
		defer tx.Cancel()
		txs[name] = tx

		ended, end := context.WithCancel(t.Context())
		end()
		if err := wait(ended, tx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a context that has ended: %v", name, err)
		}

		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := wait(ctx, tx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want the context's error", name, err)
		}
		cancel()
		// The transaction is ended as a whole, and says why.
		if _, err := tx.Get([]byte("other")).Wait(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: read after the end: %v", name, err)
		}
		tx.Set([]byte("k"), []byte("never"))
		if err := tx.Commit(t.Context()); !errors.Is(err, context.DeadlineExceeded) || kv.MaybeCommitted(err) {
			t.Errorf("%s: commit after the end: %v", name, err)
		}
	}
	settle(t, before)
	thaw()
	for name, tx := range txs {
		tx.Reset()
		if v, err := tx.Get([]byte("k")).Wait(t.Context()); err != nil || string(v) != "v" {
			t.Errorf("%s: after Reset: %q, %v", name, v, err)
		}
	}
}

// TestCancelEndsWaits is the same for Cancel from another goroutine.
func TestCancelEndsWaits(t *testing.T) {
	db, thaw := frozen(t, Options{})
	defer thaw()
	tx := db.Begin()
	value := tx.Get([]byte("k"))
	rows := tx.GetRange(kv.FirstGreaterOrEqual([]byte{}), kv.FirstGreaterOrEqual([]byte{0xff}), kv.RangeOptions{})
	time.AfterFunc(50*time.Millisecond, tx.Cancel)
	if _, err := value.Wait(t.Context()); kv.Code(err) != kv.CodeTransactionCancelled {
		t.Errorf("Get: %v", err)
	}
	if _, _, err := rows.Next(t.Context()); kv.Code(err) != kv.CodeTransactionCancelled {
		t.Errorf("Rows: %v", err)
	}
	if _, err := tx.ReadVersion(t.Context()); kv.Code(err) != kv.CodeTransactionCancelled {
		t.Errorf("ReadVersion: %v", err)
	}
}

// TestNothingRecallsACommit: neither a context nor Cancel ends a commit under
// way; both outcomes are reported as they are.
func TestNothingRecallsACommit(t *testing.T) {
	for name, recall := range map[string]func(cancel context.CancelFunc, tx kv.Tx){
		"context": func(cancel context.CancelFunc, _ kv.Tx) { cancel() },
		"Cancel":  func(_ context.CancelFunc, tx kv.Tx) { tx.Cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			db, thaw := frozen(t, Options{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tx := db.Begin()
			defer tx.Cancel()
			tx.Set([]byte("k"), []byte("w"))
			committed := make(chan error, 1)
			go func() { committed <- tx.Commit(ctx) }()
			time.Sleep(100 * time.Millisecond)
			recall(cancel, tx)
			select {
			case err := <-committed:
				t.Errorf("recalled: %v", err)
			case <-time.After(200 * time.Millisecond):
			}
			thaw()
			if err := <-committed; err != nil {
				t.Fatal(err)
			}
			if v := tx.CommittedVersion(); v <= 0 {
				t.Errorf("committed version %d", v)
			}
			if s := tx.Versionstamp(); s == [kv.VersionstampLen]byte{} {
				t.Error("no versionstamp")
			}
		})
	}
}

// TestCommitIsBounded: a commit without an answer is given up as unknown, and a
// write that ends up in the database all the same is what unknown means.
func TestCommitIsBounded(t *testing.T) {
	const bound = 200 * time.Millisecond
	db, thaw := frozen(t, Options{CommitTimeout: bound})
	before := runtime.NumGoroutine()
	tx := db.Begin()
	defer tx.Cancel()
	tx.Set([]byte("k"), []byte("w"))
	err := tx.Commit(t.Context())
	if kv.Code(err) != kv.CodeCommitUnknownResult || !strings.Contains(err.Error(), bound.String()) {
		t.Errorf("commit without an answer: %v", err)
	}
	settle(t, before)
	thaw()
	tx.Reset()
	tx.Set([]byte("k"), []byte("x"))
	if err := tx.Commit(t.Context()); err != nil && !kv.Retryable(err) {
		t.Errorf("after Reset: %v", err)
	}
}

func TestLockedDatabase(t *testing.T) {
	c := fdbcluster.OpenThrowaway(t, fdbcluster.Options{Engine: "memory"})
	db := openFile(t, Options{ClusterFile: c.File})
	set(t, db, []byte("k"), []byte("v"))
	if _, err := c.CLI(t.Context(), "lock"); err != nil {
		t.Fatal(err)
	}
	tx := db.Begin()
	defer tx.Cancel()
	_, err := tx.Get([]byte("k")).Wait(t.Context())
	if kv.Code(err) != kv.CodeDatabaseLocked || !kv.Retryable(err) {
		t.Errorf("read: %v", err)
	}
	tx.Reset()
	tx.Set([]byte("k"), []byte("w"))
	if err := tx.Commit(t.Context()); kv.Code(err) != kv.CodeDatabaseLocked || kv.MaybeCommitted(err) {
		t.Errorf("commit: %v", err)
	}

	// The retry loop waits for the lock to go, up to its context.
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err = kv.Read(ctx, db, func(ctx context.Context, tx kv.Tx) error {
		_, err := tx.Get([]byte("k")).Wait(ctx)
		return err
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("retry loop: %v", err)
	}
	// fdbcli's own unlock asks a person for a passphrase.
	if _, err := c.CLI(t.Context(), `writemode on; option on SPECIAL_KEY_SPACE_ENABLE_WRITES; clear \xff\xff/management/db_locked`); err != nil {
		t.Fatal(err)
	}
	set(t, db, []byte("k"), []byte("x"))
}

// TestNoCluster: nothing answers at all, from the start. Every wait is bounded
// all the same, and Close too.
func TestNoCluster(t *testing.T) {
	fdbcluster.Open(t) // the client library alone is not worth a run
	file := filepath.Join(t.TempDir(), "fdb.cluster")
	if err := os.WriteFile(file, []byte("no:cluster@127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	db := openFile(t, Options{ClusterFile: file, CommitTimeout: 100 * time.Millisecond})
	before := runtime.NumGoroutine()
	wait := func(what string, fn func(ctx context.Context, tx kv.Tx) error) {
		tx := db.Begin()
		defer tx.Cancel()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := fn(ctx, tx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
	wait("Get", func(ctx context.Context, tx kv.Tx) error { _, err := tx.Get([]byte("k")).Wait(ctx); return err })
	wait("ReadVersion", func(ctx context.Context, tx kv.Tx) error { _, err := tx.ReadVersion(ctx); return err })
	wait("Rows", func(ctx context.Context, tx kv.Tx) error {
		_, _, err := tx.GetRange(kv.FirstGreaterOrEqual([]byte("a")), kv.FirstGreaterOrEqual([]byte("b")), kv.RangeOptions{}).Next(ctx)
		return err
	})
	wait("Watch", func(ctx context.Context, tx kv.Tx) error {
		w := tx.Watch([]byte("k"))
		defer w.Cancel()
		return w.Wait(ctx)
	})
	tx := db.Begin()
	defer tx.Cancel()
	tx.Set([]byte("k"), nil)
	if err := tx.Commit(t.Context()); !kv.MaybeCommitted(err) {
		t.Errorf("commit: %v", err)
	}
	settle(t, before)
}
