//go:build foundationdb

package foundationdb

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"headwater/ci/fdbcluster"
	"headwater/fdblayer/kv"
)

func TestMain(m *testing.M) { os.Exit(fdbcluster.Main(m)) }

// open opens the cluster all tests share.
func open(tb testing.TB) kv.Database {
	tb.Helper()
	return openFile(tb, Options{ClusterFile: fdbcluster.Open(tb)})
}

func openFile(tb testing.TB, opts Options) kv.Database {
	tb.Helper()
	db, err := Open(opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return db
}

// prefixed returns a function that puts a key under a prefix of the test's own.
func prefixed(testing.TB) func(key string) []byte {
	prefix := "test/" + rand.Text() + "/"
	return func(key string) []byte { return []byte(prefix + key) }
}

func whole(key func(string) []byte) kv.Range {
	return kv.Range{Begin: key(""), End: key("\xff")}
}

func transact(tb testing.TB, db kv.Database, fn func(ctx context.Context, tx kv.Tx) error) kv.Committed {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	done, err := kv.Transact(ctx, db, func(ctx context.Context, tx kv.Tx, _ kv.Attempt) error { return fn(ctx, tx) })
	if err != nil {
		tb.Fatal(err)
	}
	return done
}

func set(tb testing.TB, db kv.Database, key, value []byte) {
	tb.Helper()
	transact(tb, db, func(_ context.Context, tx kv.Tx) error { tx.Set(key, value); return nil })
}

// settle waits until no more goroutines run than before, and fails with all
// stacks if they do not end.
func settle(tb testing.TB, before int) {
	tb.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			tb.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// buggified says that the C client injects faults in this process.
func buggified() bool {
	_, on := os.LookupEnv("FDB_NETWORK_OPTION_CLIENT_BUGGIFY_ENABLE")
	return on
}

func TestOpenMissingFile(t *testing.T) {
	if _, err := Open(Options{ClusterFile: t.TempDir() + "/none"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open: %v, want that the file does not exist", err)
	}
}

func TestHandleIsShared(t *testing.T) {
	file := fdbcluster.Open(t)
	key := prefixed(t)("k")
	first, err := Open(Options{ClusterFile: file})
	if err != nil {
		t.Fatal(err)
	}
	second := openFile(t, Options{ClusterFile: file})
	set(t, first, key, []byte("1"))
	for range 2 { // the second Close does nothing
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
	}
	set(t, second, key, []byte("2"))

	tx := first.Begin()
	defer tx.Cancel()
	if _, err := tx.Get(key).Wait(t.Context()); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("read of a closed database: %v", err)
	}
	tx.Set(key, nil)
	if err := tx.Commit(t.Context()); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("commit to a closed database: %v", err)
	}
}

func TestReopen(t *testing.T) {
	file := fdbcluster.Open(t)
	key := prefixed(t)("k")
	for range 3 {
		db, err := Open(Options{ClusterFile: file})
		if err != nil {
			t.Fatal(err)
		}
		set(t, db, key, []byte("v"))
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestInvertedRange: clearing such a range ends the process inside libfdb_c.
func TestInvertedRange(t *testing.T) {
	db := open(t)
	key := prefixed(t)
	bad := kv.Range{Begin: key("b"), End: key("a")}
	for name, op := range map[string]func(kv.Tx){
		"ClearRange":            func(tx kv.Tx) { tx.ClearRange(bad) },
		"AddReadConflictRange":  func(tx kv.Tx) { tx.AddReadConflictRange(bad); tx.Set(key("a"), nil) },
		"AddWriteConflictRange": func(tx kv.Tx) { tx.AddWriteConflictRange(bad) },
	} {
		tx := db.Begin()
		op(tx)
		if err := tx.Commit(t.Context()); kv.Code(err) != kv.CodeInvertedRange {
			t.Errorf("%s: %v, want %d", name, err, kv.CodeInvertedRange)
		}
		tx.Reset()
		tx.Set(key("a"), nil)
		if err := tx.Commit(t.Context()); err != nil && !kv.Retryable(err) {
			t.Errorf("%s: after Reset: %v", name, err)
		}
		tx.Cancel()
	}
}

func TestErrorsCarryTheCode(t *testing.T) {
	db := open(t)
	key := prefixed(t)
	tx := db.Begin()
	defer tx.Cancel()
	_, err := tx.Get([]byte("\xff\xff\xffx")).Wait(t.Context())
	var e *kv.Error
	if !errors.As(err, &e) || e.Code != kv.CodeKeyOutsideLegalRange || !strings.Contains(e.Detail, "2004") {
		t.Errorf("read past the end: %#v", err)
	}
	tx.Reset()
	if _, _, err := tx.GetRange(kv.FirstGreaterOrEqual(key("a")), kv.FirstGreaterOrEqual(key("b")),
		kv.RangeOptions{Limit: -1}).Next(t.Context()); kv.Code(err) != codeRangeLimitsInvalid {
		t.Errorf("negative limit: %v", err)
	}
	tx.Atomic(kv.AtomicOp(99), key("a"), nil)
	if err := tx.Commit(t.Context()); kv.Code(err) != kv.CodeClientInvalidOperation {
		t.Errorf("unknown atomic operation: %v", err)
	}
}

// TestRowsComeInBatches: whole storage replies, from the first on, and none
// that grows with the number of rows asked for.
func TestRowsComeInBatches(t *testing.T) {
	db := open(t)
	key := prefixed(t)
	const n, size = 500, 1000
	transact(t, db, func(_ context.Context, tx kv.Tx) error {
		for i := range n {
			tx.Set(key(string([]byte{byte(i >> 8), byte(i)})), make([]byte, size))
		}
		return nil
	})
	for _, tc := range []struct {
		opt  kv.RangeOptions
		rows int
	}{
		{kv.RangeOptions{}, n},
		{kv.RangeOptions{Reverse: true}, n},
		{kv.RangeOptions{Limit: 200}, 200},
		{kv.RangeOptions{Limit: 200, Reverse: true}, 200},
		{kv.RangeOptions{Limit: 1}, 1},
	} {
		var batches []int
		transact(t, db, func(ctx context.Context, tx kv.Tx) error {
			batches = nil
			r := whole(key)
			rows := tx.GetRange(kv.FirstGreaterOrEqual(r.Begin), kv.FirstGreaterOrEqual(r.End), tc.opt)
			for more := true; more; {
				batch, m, err := rows.Next(ctx)
				if err != nil {
					return err
				}
				if len(batch) > 0 {
					batches = append(batches, len(batch))
				}
				more = m
			}
			batch, more, err := rows.Next(ctx)
			if len(batch) > 0 || more || err != nil {
				t.Errorf("%+v: after the end: %d rows, %v, %v", tc.opt, len(batch), more, err)
			}
			return nil
		})
		total := 0
		for i, b := range batches {
			total += b
			if got := b * size; got > 2*batchBytes || got < batchBytes/2 && i < len(batches)-1 {
				t.Errorf("%+v: batches of %v rows of %d bytes", tc.opt, batches, size)
				break
			}
		}
		if total != tc.rows {
			t.Errorf("%+v: %d rows, want %d", tc.opt, total, tc.rows)
		}
	}
}

// TestCancelledIsDetached: after Cancel the C transaction serves another, and
// nothing that is still done with the cancelled one reaches that.
func TestCancelledIsDetached(t *testing.T) {
	db := open(t)
	key := prefixed(t)
	const n = 400
	transact(t, db, func(_ context.Context, tx kv.Tx) error {
		for i := range n {
			tx.Set(key(string([]byte{'r', byte(i >> 8), byte(i)})), make([]byte, 1000))
		}
		return nil
	})
	for range 20 {
		old := db.Begin()
		rows := old.GetRange(kv.FirstGreaterOrEqual(key("r")), kv.FirstGreaterOrEqual(key("s")), kv.RangeOptions{})
		if _, _, err := rows.Next(t.Context()); err != nil && !kv.Retryable(err) {
			t.Fatal(err)
		}
		old.Cancel()
		fresh := db.Begin() // most likely in the same C transaction
		old.Set(key("stray"), nil)
		old.ClearRange(whole(key))
		old.AddWriteConflictKey(key("stray"))
		old.SetReadVersion(1)
		old.AddReadConflictRange(whole(key))
		if w := old.Watch(key("stray")); w.Wait(t.Context()) == nil {
			t.Error("a watch of a cancelled transaction fired")
		}
		if _, _, err := rows.Next(t.Context()); kv.Code(err) != kv.CodeTransactionCancelled {
			t.Errorf("next batch after Cancel: %v", err)
		}
		old.Cancel()

		if _, err := fresh.Get(key("x")).Wait(t.Context()); err != nil && !kv.Retryable(err) {
			t.Errorf("read: %v", err)
		}
		set(t, db, key("r\x00\x01"), nil) // in what only old depends on
		fresh.Set(key("kept"), nil)
		if err := fresh.Commit(t.Context()); err != nil && (!buggified() || !kv.Retryable(err)) {
			t.Errorf("commit: %v", err)
		}
		// A cancelled transaction can begin again, as another one.
		old.Reset()
		if v, err := old.Get(key("stray")).Wait(t.Context()); v != nil || err != nil && !kv.Retryable(err) {
			t.Errorf("after Reset: %q, %v", v, err)
		}
		if _, _, err := rows.Next(t.Context()); err == nil {
			t.Error("a range read went on in another transaction")
		}
		fresh.Cancel()
		old.Cancel()
	}
}
