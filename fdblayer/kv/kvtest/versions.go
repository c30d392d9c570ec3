package kvtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"headwater/fdblayer/kv"
)

var versionCases = []testCase{
	{"versions/repeatable reads", testRepeatableReads},
	{"versions/snapshot reads are at the same version", testSnapshotSameVersion},
	{"versions/a commit is seen by who begins after it", testReadAfterCommit},
	{"versions/a read version can be set", testSetReadVersion},
	{"versions/they grow about 1e6 a second", testVersionRate},
	{"versions/a future one is refused", testFutureVersion},
	{"versions/one that comes soon is waited for", testSoonVersion},
	{"versions/an old one is refused", testOldVersion},
	{"versions/a transaction grows too old", testGrowsOld},
}

func testRepeatableReads(e *env) {
	e.set("a", "1", "b", "1")
	tx := e.begin()
	e.wantValue(e.read(tx, "a"), "1")
	e.set("a", "2", "b", "2", "c", "2")
	e.wantValue(e.read(tx, "a"), "1")
	e.wantValue(e.read(tx, "b"), "1")
	e.wantAbsent(e.read(tx, "c"))
	e.want(e.list(tx, "a", "z", kv.RangeOptions{}), "a=1 b=1")
	e.want(e.list(tx.Snapshot(), "a", "z", kv.RangeOptions{Reverse: true}), "b=1 a=1")
}

func testSnapshotSameVersion(e *env) {
	e.set("a", "1")
	tx := e.begin()
	e.wantValue(e.read(tx.Snapshot(), "a"), "1")
	e.set("a", "2")
	e.wantValue(e.read(tx.Snapshot(), "a"), "1")
	e.wantValue(e.read(tx, "a"), "1")
}

func testReadAfterCommit(e *env) {
	for i := range 20 {
		want := string(rune('a' + i))
		done := e.set("k", want)
		tx := e.begin()
		at, err := tx.ReadVersion(e.ctx)
		e.must(err)
		if at < done.Version {
			e.Fatalf("read version %d is before the commit at %d", at, done.Version)
		}
		e.wantValue(e.read(tx, "k"), want)
		again, err := tx.ReadVersion(e.ctx)
		e.must(err)
		if again != at {
			e.Fatalf("the read version changed from %d to %d", at, again)
		}
		tx.Cancel()
	}
}

func testSetReadVersion(e *env) {
	first := e.set("a", "1", "b", "1")
	second := e.set("a", "2")
	third := e.transact(func(tx kv.Tx) { tx.Clear(e.k("a")) })
	at := func(v int64) string {
		tx := e.begin()
		defer tx.Cancel()
		tx.SetReadVersion(v)
		got, err := tx.ReadVersion(e.ctx)
		e.must(err)
		if got != v {
			e.Fatalf("ReadVersion is %d after SetReadVersion(%d)", got, v)
		}
		return e.list(tx, "a", "z", kv.RangeOptions{})
	}
	e.want(at(first.Version-1), "")
	e.want(at(first.Version), "a=1 b=1")
	e.want(at(second.Version-1), "a=1 b=1")
	e.want(at(second.Version), "a=2 b=1")
	e.want(at(third.Version), "b=1")
}

func testVersionRate(e *env) {
	start := time.Now()
	first := e.set("a", "1")
	time.Sleep(time.Second)
	last := e.set("a", "2")
	// Commits and the scheduler take time too; a factor of four either way
	// still tells microseconds from anything else.
	elapsed := time.Since(start).Microseconds()
	grown := last.Version - first.Version
	if grown < 250_000 || grown > 4*elapsed {
		e.Fatalf("versions grew by %d in %d us", grown, elapsed)
	}
}

func testFutureVersion(e *env) {
	tx := e.begin()
	at, err := tx.ReadVersion(e.ctx)
	e.must(err)
	tx.Reset()
	tx.SetReadVersion(at + 1e9)
	_, err = tx.Get(e.k("a")).Wait(e.ctx)
	e.wantCode(err, kv.CodeFutureVersion)
	tx.Reset()
	tx.SetReadVersion(at + 1e9)
	_, err = rows(e.ctx, tx, kv.FirstGreaterOrEqual(e.k("a")), kv.FirstGreaterOrEqual(e.k("b")), kv.RangeOptions{})
	e.wantCode(err, kv.CodeFutureVersion)
}

func testSoonVersion(e *env) {
	done := e.set("a", "1")
	tx := e.begin()
	tx.SetReadVersion(done.Version + 200_000)
	f := tx.Get(e.k("a"))
	e.set("a", "2")
	// A cluster's versions come with its commits, so there must be some.
	ctx, stop := context.WithCancel(e.ctx)
	var g sync.WaitGroup
	defer g.Wait()
	defer stop()
	g.Go(func() {
		for ctx.Err() == nil {
			_, _ = kv.Transact(ctx, e.db, func(_ context.Context, tx kv.Tx, _ kv.Attempt) error {
				tx.Set(e.k("clock"), nil)
				return nil
			})
			time.Sleep(10 * time.Millisecond)
		}
	})
	// Either value may be the one at that version: the second commit may have
	// been before or after it. It must be the right one.
	v, err := f.Wait(e.ctx)
	if kv.Code(err) == kv.CodeFutureVersion {
		e.Skip("the engine's versions came late")
	}
	e.must(err)
	again := e.begin()
	again.SetReadVersion(done.Version + 200_000)
	e.wantValue(v, string(e.read(again, "a")))
}

func testOldVersion(e *env) {
	tx := e.begin()
	at, err := tx.ReadVersion(e.ctx)
	e.must(err)
	old := at - 20_000_000
	if old <= 0 {
		e.Skip("the database is too young")
	}
	tx.Reset()
	tx.SetReadVersion(old)
	_, err = tx.Get(e.k("a")).Wait(e.ctx)
	e.wantCode(err, kv.CodeTransactionTooOld)

	tx.Reset()
	tx.SetReadVersion(old)
	tx.AddReadConflictKey(e.k("a"))
	tx.Set(e.k("b"), []byte("1"))
	e.wantCode(tx.Commit(e.ctx), kv.CodeTransactionTooOld)
	e.wantAbsent(e.now("b"))
}

func testGrowsOld(e *env) {
	if testing.Short() {
		e.Skip("takes 7 s")
	}
	e.set("a", "1")
	reader, writer := e.begin(), e.begin()
	e.wantValue(e.read(reader, "a"), "1")
	e.wantValue(e.read(writer, "a"), "1")
	it := reader.GetRange(kv.FirstGreaterOrEqual(e.k("a")), kv.FirstGreaterOrEqual(e.k("b")), kv.RangeOptions{})
	time.Sleep(kv.MaxTransactionAge + 2*time.Second)
	_, err := reader.Get(e.k("b")).Wait(e.ctx)
	e.wantCode(err, kv.CodeTransactionTooOld)
	// A batch that was read in time may be handed over late; no other may.
	for more := true; more && err == nil; {
		_, more, err = it.Next(e.ctx)
	}
	if err != nil {
		e.wantCode(err, kv.CodeTransactionTooOld)
	}
	writer.Set(e.k("b"), []byte("1"))
	e.wantCode(writer.Commit(e.ctx), kv.CodeTransactionTooOld)
	// Reset makes it young again.
	writer.Reset()
	e.wantValue(e.read(writer, "a"), "1")
	writer.Set(e.k("b"), []byte("1"))
	e.must(writer.Commit(context.Background()))
}
