package embedded

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"headwater/fdblayer/kv"
)

// disk is a file system in memory whose log can be made to fail or to hang.
type disk struct {
	vfs.FS
	mem      *vfs.MemFS
	syncErr  atomic.Pointer[error]
	writeErr atomic.Pointer[error]
	mu       sync.Mutex
	gate     chan struct{} // syncs wait for it; nil is open
	waiting  atomic.Int32
}

func newDisk() *disk {
	d := &disk{mem: vfs.NewCrashableMem()}
	d.FS = errorfs.Wrap(d.mem, errorfs.InjectorFunc(d.inject))
	return d
}

func (d *disk) inject(op errorfs.Op) error {
	if !strings.HasSuffix(op.Path, ".log") {
		return nil
	}
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		d.mu.Lock()
		gate := d.gate
		d.mu.Unlock()
		if gate != nil {
			d.waiting.Add(1)
			<-gate
			d.waiting.Add(-1)
		}
		if e := d.syncErr.Load(); e != nil {
			return *e
		}
	case errorfs.OpFileWrite:
		if e := d.writeErr.Load(); e != nil {
			return *e
		}
	}
	return nil
}

// hang makes syncs wait until the returned function is called.
func (d *disk) hang() (release func()) {
	gate := make(chan struct{})
	d.mu.Lock()
	d.gate = gate
	d.mu.Unlock()
	return func() {
		d.mu.Lock()
		d.gate = nil
		d.mu.Unlock()
		close(gate)
	}
}

func startPut(db *DB, key, val string, prepare ...func(kv.Tx)) (kv.Tx, chan error) {
	tx := db.Begin()
	for _, p := range prepare {
		p(tx)
	}
	tx.Set([]byte(key), []byte(val))
	done := make(chan error, 1)
	go func() { done <- tx.Commit(context.Background()) }()
	return tx, done
}

func TestFailedLogStopsTheEngine(t *testing.T) {
	for name, fail := range map[string]func(*disk, *error){
		"sync":  func(d *disk, e *error) { d.syncErr.Store(e) },
		"write": func(d *disk, e *error) { d.writeErr.Store(e) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			db := openTest(t, Options{Dir: "d", FS: d})
			put(t, db, "a", "kept")
			reader := db.Begin()
			if _, err := reader.ReadVersion(t.Context()); err != nil {
				t.Fatal(err)
			}
			cause := error(syscall.ENOSPC)
			fail(d, &cause)
			tx := db.Begin()
			tx.Set([]byte("a"), []byte("in doubt"))
			err := tx.Commit(t.Context())
			if kv.Code(err) != kv.CodeCommitUnknownResult || !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("the commit that failed returned %v", err)
			}
			// It does not try again, even if the disk would take it.
			none := (*error)(nil)
			d.syncErr.Store(none)
			d.writeErr.Store(none)
			var failed *FailedError
			tx.Reset()
			tx.Set([]byte("b"), nil)
			if err := tx.Commit(t.Context()); !errors.As(err, &failed) || kv.Code(err) != kv.CodeIOError || kv.Retryable(err) {
				t.Errorf("a later commit returned %v", err)
			}
			// Nor does it guess whether the write is there.
			if _, err := reader.Get([]byte("a")).Wait(t.Context()); !errors.As(err, &failed) {
				t.Errorf("a read returned %v", err)
			}
			tx.Reset()
			if _, err := tx.ReadVersion(t.Context()); !errors.As(err, &failed) {
				t.Errorf("a read version came with %v", err)
			}
			// The retry loop reports that the outcome is unknown.
			tx.Cancel()
			reader.Cancel()
			db.Close()
			after := openTest(t, Options{Dir: "d", FS: d.mem.CrashClone(vfs.CrashCloneCfg{})})
			if got := value(t, after, "a"); got != "kept" && got != "in doubt" {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestRetryAfterAFailedLogStaysUnknown(t *testing.T) {
	d := newDisk()
	db := openTest(t, Options{Dir: "d", FS: d})
	cause := error(syscall.EIO)
	d.syncErr.Store(&cause)
	_, err := kv.Transact(t.Context(), db, func(_ context.Context, tx kv.Tx, _ kv.Attempt) error {
		tx.Set([]byte("a"), nil)
		return nil
	})
	if !kv.MaybeCommitted(err) || !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v, want an unknown outcome", err)
	}
}

// While a group is synced, nobody sees it, and what arrives is the next group:
// one version, told apart by order, resolved in order.
func TestGroupCommit(t *testing.T) {
	d := newDisk()
	db := openTest(t, Options{Dir: "d", FS: d})
	put(t, db, "k", "old")
	release := d.hang()
	first, firstDone := startPut(db, "k", "new")
	eventually(t, "the first group reaches the disk", func() bool { return d.waiting.Load() == 1 })
	// At once, and when the newest version has grown stale.
	for range 2 {
		if got := value(t, db, "k"); got != "old" {
			t.Errorf("a reader sees %q, which is not durable", got)
		}
		time.Sleep(2 * time.Microsecond * time.Duration(refreshVersions))
	}
	reads := func(key string) func(kv.Tx) {
		return func(tx kv.Tx) {
			if _, err := tx.Get([]byte(key)).Wait(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}
	type member struct {
		tx   kv.Tx
		done chan error
	}
	var group []member
	for i, key := range []string{"x", "y", "z", "w"} {
		var prepare []func(kv.Tx)
		switch i {
		case 1:
			prepare = append(prepare, reads("x")) // written by the one before it in the group
		case 2:
			prepare = append(prepare, reads("y")) // by one that is refused: no conflict
		case 3:
			prepare = append(prepare, reads("k")) // by the group before
		}
		tx, done := startPut(db, key, "1", prepare...)
		group = append(group, member{tx, done})
		eventually(t, "the commit is queued", func() bool { return len(db.queue) == i+1 })
	}
	release()
	if err := <-firstDone; err != nil {
		t.Fatal(err)
	}
	var ok []kv.Tx
	for i, m := range group {
		err := <-m.done
		if refused := i == 1 || i == 3; refused != (kv.Code(err) == kv.CodeNotCommitted) {
			t.Errorf("commit %d of the group: %v", i, err)
		}
		if err == nil {
			ok = append(ok, m.tx)
		}
	}
	if len(ok) != 2 {
		t.Fatalf("%d committed", len(ok))
	}
	if first.CommittedVersion() >= ok[0].CommittedVersion() {
		t.Error("the second group is not after the first")
	}
	for i, tx := range ok {
		if tx.CommittedVersion() != ok[0].CommittedVersion() {
			t.Error("a group has two versions")
		}
		if tx.Versionstamp() != makeStamp(tx.CommittedVersion(), uint16(i)) {
			t.Errorf("commit %d has stamp %x", i, tx.Versionstamp())
		}
	}
	if got := value(t, db, "k") + value(t, db, "x") + value(t, db, "y") + value(t, db, "z"); got != "new1-1" {
		t.Errorf("got %q", got)
	}
}

func TestCommitWaitIsBounded(t *testing.T) {
	d := newDisk()
	db := openTest(t, Options{Dir: "d", FS: d, CommitTimeout: 50 * time.Millisecond})
	release := d.hang()
	_, taken := startPut(db, "taken", "1")
	eventually(t, "the first group reaches the disk", func() bool { return d.waiting.Load() == 1 })
	_, queued := startPut(db, "queued", "1")
	if err := <-taken; kv.Code(err) != kv.CodeTransactionTimedOut || !kv.MaybeCommitted(err) {
		t.Errorf("the commit under way returned %v", err)
	}
	if err := <-queued; kv.MaybeCommitted(err) || !kv.Retryable(err) {
		t.Errorf("the queued commit returned %v", err)
	}
	release()
	put(t, db, "next", "1")
	if got := value(t, db, "taken") + value(t, db, "queued"); got != "1-" {
		t.Errorf("got %q: one landed late, one was taken back", got)
	}
}

// The outcome of a commit that was sent is awaited after its context ended.
func TestCommitOutlivesItsContext(t *testing.T) {
	d := newDisk()
	db := openTest(t, Options{Dir: "d", FS: d})
	release := d.hang()
	ctx, cancel := context.WithCancel(t.Context())
	tx := db.Begin()
	tx.Set([]byte("a"), []byte("1"))
	done := make(chan error, 1)
	go func() { done <- tx.Commit(ctx) }()
	eventually(t, "the group reaches the disk", func() bool { return d.waiting.Load() == 1 })
	cancel()
	select {
	case err := <-done:
		t.Fatalf("the commit returned %v before its outcome was known", err)
	case <-time.After(50 * time.Millisecond):
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestQueueIsBounded(t *testing.T) {
	d := newDisk()
	db := openTest(t, Options{Dir: "d", FS: d, QueueBytes: 1})
	release := d.hang()
	big := func(tx kv.Tx) {
		for i := range 90 {
			tx.Set([]byte{'k', byte(i)}, make([]byte, kv.MaxValueSize))
		}
	}
	_, first := startPut(db, "first", "1", big)
	eventually(t, "the first group reaches the disk", func() bool { return d.waiting.Load() == 1 })
	// There is no room for a second one: it waits, and its context ends that.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	tx := db.Begin()
	big(tx)
	if err := tx.Commit(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	release()
	if err := <-first; err != nil {
		t.Fatal(err)
	}
}

func TestCloseFinishesCommits(t *testing.T) {
	dir := t.TempDir()
	db := openTest(t, Options{Dir: dir})
	const n = 200
	results := make([]error, n)
	var g sync.WaitGroup
	var started sync.WaitGroup
	for i := range n {
		started.Add(1)
		g.Go(func() {
			tx := db.Begin()
			tx.Set([]byte{'k', byte(i)}, nil)
			started.Done()
			results[i] = tx.Commit(context.Background())
		})
	}
	started.Wait()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	g.Wait()
	after := openTest(t, Options{Dir: dir})
	for i, err := range results {
		there := value(t, after, string([]byte{'k', byte(i)})) != "-"
		switch {
		case err == nil && !there:
			t.Errorf("commit %d was acknowledged and is lost", i)
		case err != nil && there:
			t.Errorf("commit %d failed with %v and is there", i, err)
		case err != nil && !errors.Is(err, kv.ErrClosed):
			t.Errorf("commit %d: %v", i, err)
		}
	}
}

func TestClosedEngineRefuses(t *testing.T) {
	db := memory(t)
	put(t, db, "a", "1")
	old, unarmed := db.Begin(), db.Begin()
	if _, err := old.ReadVersion(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := unarmed.Watch([]byte("a"))
	for range 2 {
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := unarmed.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(t.Context()); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("a watch armed after the close: %v", err)
	}
	for name, tx := range map[string]kv.Tx{"old": old, "new": db.Begin()} {
		if _, err := tx.Get([]byte("a")).Wait(t.Context()); !errors.Is(err, kv.ErrClosed) {
			t.Errorf("%s: a read returned %v", name, err)
		}
		tx.Set([]byte("b"), nil)
		if err := tx.Commit(t.Context()); !errors.Is(err, kv.ErrClosed) {
			t.Errorf("%s: a commit returned %v", name, err)
		}
		if err := tx.Watch([]byte("a")).Wait(t.Context()); err == nil {
			t.Errorf("%s: a watch fired", name)
		}
		tx.Cancel()
	}
}
