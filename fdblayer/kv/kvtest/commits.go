package kvtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"headwater/fdblayer/kv"
)

var commitCases = []testCase{
	{"commit/a transaction that wrote nothing", testReadOnlyCommit},
	{"commit/versions grow", testCommittedVersions},
	{"commit/write conflicts alone are a commit", testConflictOnlyCommit},
	{"commit/reset", testReset},
	{"commit/cancel", testCancel},
	{"commit/a transaction is used up", testUsedUp},
	{"commit/with a context that has ended", testCommitEndedContext},
	{"commit/one that is sent is awaited", testCommitAwaited},
	{"commit/all or nothing", testAllOrNothing},
}

var limitCases = []testCase{
	{"limits/keys and values", testSizeLimits},
	{"limits/transactions", testTransactionLimit},
	{"limits/legal keys", testLegalKeys},
}

var retryCases = []testCase{
	{"retry/conflicts", testRetryConflicts},
	{"retry/an error of the function passes through", testRetryPassesErrors},
	{"retry/ends with the context", testRetryContext},
	{"retry/a failed read makes it try again", testRetryReads},
}

func testReadOnlyCommit(e *env) {
	e.set("a", "1")
	tx := e.begin()
	e.read(tx, "a")
	e.must(tx.Commit(e.ctx))
	if v := tx.CommittedVersion(); v != -1 {
		e.Errorf("committed version is %d, want -1", v)
	}
	if s := tx.Versionstamp(); s != [kv.VersionstampLen]byte{} {
		e.Errorf("versionstamp is %x, want zero", s)
	}
	tx = e.begin()
	e.must(tx.Commit(e.ctx)) // nothing at all
	if v := tx.CommittedVersion(); v != -1 {
		e.Errorf("committed version of nothing is %d, want -1", v)
	}
}

func testCommittedVersions(e *env) {
	last := int64(0)
	for range 10 {
		tx := e.begin()
		at, err := tx.ReadVersion(e.ctx)
		e.must(err)
		tx.Set(e.k("a"), nil)
		e.must(tx.Commit(e.ctx))
		if v := tx.CommittedVersion(); v <= last || v <= at {
			e.Fatalf("committed version %d after %d, read version %d", v, last, at)
		}
		last = tx.CommittedVersion()
		tx.Cancel()
	}
}

func testConflictOnlyCommit(e *env) {
	tx := e.begin()
	tx.AddWriteConflictKey(e.k("a"))
	e.must(tx.Commit(e.ctx))
	if v := tx.CommittedVersion(); v <= 0 {
		e.Errorf("committed version is %d, want one above 0", v)
	}
}

func testReset(e *env) {
	e.set("a", "1")
	tx := e.begin()
	e.read(tx, "a")
	tx.Set(e.k("b"), []byte("dropped"))
	tx.SetNextWriteNoConflict()
	e.set("a", "2")
	tx.Reset()
	e.wantAbsent(e.read(tx, "b"))
	e.wantValue(e.read(tx, "a"), "2") // a new read version
	tx.Set(e.k("c"), []byte("kept"))
	e.must(tx.Commit(e.ctx)) // the read before the reset does not count
	e.want(e.list(e.begin(), "a", "z", kv.RangeOptions{}), "a=2 c=kept")
	// And again after a commit.
	tx.Reset()
	e.wantValue(e.read(tx, "c"), "kept")
	tx.Set(e.k("d"), nil)
	e.must(tx.Commit(e.ctx))
}

func testCancel(e *env) {
	tx := e.begin()
	tx.Set(e.k("a"), []byte("1"))
	tx.Cancel()
	tx.Cancel()
	_, err := tx.Get(e.k("a")).Wait(e.ctx)
	e.wantCode(err, kv.CodeTransactionCancelled)
	e.wantCode(tx.Commit(e.ctx), kv.CodeTransactionCancelled)
	e.wantAbsent(e.now("a"))
	tx = e.begin()
	tx.Set(e.k("a"), []byte("1"))
	e.must(tx.Commit(e.ctx))
	tx.Cancel() // after the commit: recalls nothing
	e.wantValue(e.now("a"), "1")
}

func testUsedUp(e *env) {
	tx := e.begin()
	tx.Set(e.k("a"), []byte("1"))
	e.must(tx.Commit(e.ctx))
	if err := tx.Commit(e.ctx); err == nil {
		e.Error("a transaction committed twice")
	}
	e.wantValue(e.now("a"), "1")
}

func testCommitEndedContext(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	tx := e.begin()
	tx.Set(e.k("a"), []byte("1"))
	err := tx.Commit(ctx)
	if landed := e.now("a") != nil; err == nil != landed && !kv.MaybeCommitted(err) {
		e.Fatalf("the commit returned %v, and that the key is there is %v", err, landed)
	}
}

// testCommitAwaited ends the context at all moments of a commit: whatever the
// commit returns must be true.
func testCommitAwaited(e *env) {
	for i := range 60 {
		ctx, cancel := context.WithCancel(e.ctx)
		key := fmt.Sprintf("%03d", i)
		tx := e.begin()
		tx.Set(e.k(key), nil)
		stop := time.AfterFunc(time.Duration(i)*100*time.Microsecond, cancel)
		err := tx.Commit(ctx)
		stop.Stop()
		cancel()
		landed := e.now(key) != nil
		switch {
		case err == nil && !landed:
			e.Fatal("an acknowledged write is missing")
		case err != nil && landed && !kv.MaybeCommitted(err):
			e.Fatalf("the commit failed with %v and took effect", err)
		}
		tx.Cancel()
	}
}

func testAllOrNothing(e *env) {
	e.set("gate", "0")
	tx := e.begin()
	e.read(tx, "gate")
	for i := range 100 {
		tx.Set(e.k(fmt.Sprintf("row/%03d", i)), []byte("x"))
	}
	e.set("gate", "1")
	e.wantCode(tx.Commit(e.ctx), kv.CodeNotCommitted)
	e.want(e.list(e.begin(), "row/", "row0", kv.RangeOptions{}), "")
}

func testSizeLimits(e *env) {
	pad := func(n int) []byte { return append(e.k(""), slices.Repeat([]byte{'x'}, n-len(e.prefix))...) }
	for _, c := range []struct {
		name       string
		key, value int
		code       int
	}{
		{"largest key", kv.MaxKeySize, 1, 0},
		{"key one too large", kv.MaxKeySize + 1, 1, kv.CodeKeyTooLarge},
		{"largest value", 100, kv.MaxValueSize, 0},
		{"value one too large", 100, kv.MaxValueSize + 1, kv.CodeValueTooLarge},
	} {
		tx := e.begin()
		tx.Set(pad(c.key), make([]byte, c.value))
		if err := tx.Commit(e.ctx); kv.Code(err) != c.code {
			e.Errorf("%s: got %v, want code %d", c.name, err, c.code)
		}
		tx.Cancel()
	}
	// The largest key is read back, alone and in a range.
	tx := e.begin()
	v, err := tx.Get(pad(kv.MaxKeySize)).Wait(e.ctx)
	e.must(err)
	e.wantValue(v, "\x00")
	v, err = tx.Get(pad(100)).Wait(e.ctx)
	e.must(err)
	if len(v) != kv.MaxValueSize {
		e.Fatalf("got %d bytes, want %d", len(v), kv.MaxValueSize)
	}
}

func testTransactionLimit(e *env) {
	fill := func(tx kv.Tx, bytes int) {
		value := make([]byte, 90_000)
		for i := 0; bytes > 0; i++ {
			n := min(len(value), bytes)
			tx.Set(e.k(fmt.Sprintf("%04d", i)), value[:n])
			bytes -= n
		}
	}
	tx := e.begin()
	fill(tx, kv.MaxTransactionSize-200_000)
	e.must(tx.Commit(e.ctx))
	tx = e.begin()
	fill(tx, kv.MaxTransactionSize+1)
	tx.Set(e.k("mark"), nil)
	e.wantCode(tx.Commit(e.ctx), kv.CodeTransactionTooLarge)
	e.wantAbsent(e.now("mark"))
	// A clear counts by its ends, not by what it clears.
	tx = e.begin()
	tx.ClearRange(e.all())
	e.must(tx.Commit(e.ctx))
	e.want(e.list(e.begin(), "", "\xff", kv.RangeOptions{Limit: 1}), "")
}

func testLegalKeys(e *env) {
	for name, write := range map[string]func(kv.Tx){
		"set":         func(tx kv.Tx) { tx.Set([]byte("\xffkvtest"), nil) },
		"clear":       func(tx kv.Tx) { tx.Clear([]byte("\xffkvtest")) },
		"clear range": func(tx kv.Tx) { tx.ClearRange(kv.Range{Begin: []byte("\xffkvtest"), End: []byte("\xffkvtest0")}) },
		"add":         func(tx kv.Tx) { tx.Atomic(kv.Add, []byte("\xffkvtest"), []byte{1}) },
	} {
		tx := e.begin()
		write(tx)
		if err := tx.Commit(e.ctx); kv.Code(err) != kv.CodeKeyOutsideLegalRange {
			e.Errorf("%s past user space: got %v, want code %d", name, err, kv.CodeKeyOutsideLegalRange)
		}
		tx.Cancel()
	}
	_, err := e.begin().Get([]byte("\xffkvtest")).Wait(e.ctx)
	e.wantCode(err, kv.CodeKeyOutsideLegalRange)
}

func testRetryConflicts(e *env) {
	e.set("n", "")
	runs := 0
	done, err := kv.Transact(e.ctx, e.db, func(ctx context.Context, tx kv.Tx, at kv.Attempt) error {
		if at.Number != runs {
			e.Errorf("attempt %d is numbered %d", runs, at.Number)
		}
		runs++
		v, err := tx.Get(e.k("n")).Wait(ctx)
		if err != nil {
			return err
		}
		if runs <= 3 { // somebody is always faster
			e.set("n", strings.Repeat("x", runs))
		}
		tx.Set(e.k("n"), append(v, '!'))
		return nil
	})
	e.must(err)
	if runs < 4 {
		e.Errorf("ran %d times, want at least 4", runs)
	}
	e.wantValue(e.now("n"), "xxx!")
	if done.Version <= 0 || done.Versionstamp == [kv.VersionstampLen]byte{} {
		e.Errorf("got outcome %+v", done)
	}
}

func testRetryPassesErrors(e *env) {
	mine := errors.New("mine")
	runs := 0
	_, err := kv.Transact(e.ctx, e.db, func(_ context.Context, tx kv.Tx, _ kv.Attempt) error {
		runs++
		tx.Set(e.k("a"), nil)
		return mine
	})
	if !errors.Is(err, mine) || runs != 1 {
		e.Errorf("got %v after %d runs, want the function's own error after one", err, runs)
	}
	_, err = kv.Transact(e.ctx, e.db, func(_ context.Context, tx kv.Tx, _ kv.Attempt) error {
		tx.Set(e.k("a"), make([]byte, kv.MaxValueSize+1))
		return nil
	})
	e.wantCode(err, kv.CodeValueTooLarge)
	e.wantAbsent(e.now("a"))
}

func testRetryContext(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	runs := 0
	_, err := kv.Transact(ctx, e.db, func(context.Context, kv.Tx, kv.Attempt) error {
		if runs++; runs == 3 {
			cancel()
		}
		return &kv.Error{Code: kv.CodeNotCommitted}
	})
	if !errors.Is(err, context.Canceled) {
		e.Errorf("got %v, want the context's error", err)
	}
	if kv.MaybeCommitted(err) {
		e.Errorf("%v says that it may have committed", err)
	}
}

func testRetryReads(e *env) {
	runs := 0
	_, err := kv.Transact(e.ctx, e.db, func(ctx context.Context, tx kv.Tx, _ kv.Attempt) error {
		if runs++; runs == 1 {
			at, err := tx.ReadVersion(ctx)
			if err != nil {
				return err
			}
			tx.Reset()
			tx.SetReadVersion(max(at-20_000_000, 1))
		}
		_, err := tx.Get(e.k("a")).Wait(ctx)
		if err == nil {
			tx.Set(e.k("b"), nil)
		}
		return err
	})
	e.must(err)
	if runs < 2 {
		e.Errorf("ran %d times, want a second run after a read that was too old", runs)
	}
}
