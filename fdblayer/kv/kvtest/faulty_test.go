package kvtest_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"headwater/fdblayer/kv"
	"headwater/fdblayer/kv/embedded"
	"headwater/fdblayer/kv/kvtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func memory(t *testing.T) kv.Database {
	db, err := embedded.Open(t.Context(), embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func faulty(t *testing.T, plan kvtest.Plan) *kvtest.Faulted {
	f := kvtest.Faulty(memory(t), plan)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// A wrapper that injects nothing is an engine like any other.
func TestFaultyPassesTheContract(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 8 s")
	}
	kvtest.Run(t, func(t *testing.T) kv.Database { return faulty(t, nil) })
}

func TestFates(t *testing.T) {
	for _, c := range []struct {
		name    string
		fault   kvtest.Fault
		code    int
		applied bool
		maybe   bool
	}{
		{"pass", kvtest.Fault{}, 0, true, false},
		{"refuse", kvtest.Fault{Fate: kvtest.Refuse, Code: kv.CodeProcessBehind}, kv.CodeProcessBehind, false, false},
		{"applied", kvtest.Fault{Fate: kvtest.Applied}, kv.CodeCommitUnknownResult, true, true},
		{"applied, cluster changed", kvtest.Fault{Fate: kvtest.Applied, Code: kv.CodeClusterVersionChanged}, kv.CodeClusterVersionChanged, true, true},
		{"dropped", kvtest.Fault{Fate: kvtest.Dropped}, kv.CodeCommitUnknownResult, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := faulty(t, kvtest.Script(map[int]kvtest.Fault{0: c.fault}))
			tx := db.Begin()
			tx.Set([]byte("a"), []byte("1"))
			err := tx.Commit(t.Context())
			if kv.Code(err) != c.code || kv.MaybeCommitted(err) != c.maybe {
				t.Errorf("got %v, want code %d", err, c.code)
			}
			if err != nil && (tx.CommittedVersion() != -1 || tx.Versionstamp() != [10]byte{}) {
				t.Error("a commit that failed has a version")
			}
			tx.Reset()
			v, err := tx.Get([]byte("a")).Wait(t.Context())
			if err != nil || (v != nil) != c.applied {
				t.Errorf("got value %q, %v; applied should be %v", v, err, c.applied)
			}
			// The same transaction object works again.
			tx.Set([]byte("b"), []byte("1"))
			if err := tx.Commit(t.Context()); err != nil {
				t.Error(err)
			}
			tx.Cancel()
			if n := db.Count(c.fault.Fate); n == 0 {
				t.Error("the fate was not counted")
			}
		})
	}
}

func TestLateCommitLandsAfterItsReport(t *testing.T) {
	hold := make(chan struct{})
	db := faulty(t, kvtest.Once(nil, kvtest.Fault{Fate: kvtest.Late, Hold: hold}))
	tx := db.Begin()
	defer tx.Cancel()
	if _, err := tx.ReadVersion(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx.AddReadConflictKey([]byte("witness"))
	tx.Set([]byte("a"), []byte("late"))
	err := tx.Commit(t.Context())
	if kv.Code(err) != kv.CodeTransactionTimedOut || !kv.MaybeCommitted(err) {
		t.Fatalf("got %v", err)
	}
	tx.Reset()
	if v, err := tx.Get([]byte("a")).Wait(t.Context()); v != nil || err != nil {
		t.Fatalf("it landed already: %q, %v", v, err)
	}
	close(hold)
	if landed, lost := db.Settle(); landed != 1 || lost != 0 {
		t.Fatalf("landed %d, lost %d", landed, lost)
	}
	tx.Reset()
	if v, err := tx.Get([]byte("a")).Wait(t.Context()); string(v) != "late" || err != nil {
		t.Fatalf("got %q, %v", v, err)
	}
}

func TestLateCommitCanConflict(t *testing.T) {
	hold := make(chan struct{})
	db := faulty(t, kvtest.Once(nil, kvtest.Fault{Fate: kvtest.Late, Hold: hold}))
	late := db.Begin()
	if _, err := late.Get([]byte("witness")).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	late.Set([]byte("witness"), []byte("late"))
	if err := late.Commit(t.Context()); !kv.MaybeCommitted(err) {
		t.Fatal(err)
	}
	late.Cancel() // does not recall it
	retry := db.Begin()
	defer retry.Cancel()
	if _, err := retry.Get([]byte("witness")).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	retry.Set([]byte("witness"), []byte("retry"))
	if err := retry.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(hold)
	if landed, lost := db.Settle(); landed != 0 || lost != 1 {
		t.Fatalf("landed %d, lost %d: the retry's conflict did not refuse the late commit", landed, lost)
	}
}

func TestHoldDelaysTheCaller(t *testing.T) {
	hold := make(chan struct{})
	db := faulty(t, kvtest.Script(map[int]kvtest.Fault{0: {Hold: hold}}))
	done := make(chan error, 1)
	go func() {
		tx := db.Begin()
		defer tx.Cancel()
		tx.Set([]byte("a"), nil)
		done <- tx.Commit(context.Background())
	}()
	// A second commit overtakes the one that is held.
	for db.Count(kvtest.Pass) == 0 {
		runtime.Gosched()
	}
	if _, err := kv.Transact(t.Context(), db, func(_ context.Context, tx kv.Tx, _ kv.Attempt) error {
		tx.Set([]byte("b"), nil)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Fatalf("the held commit returned %v", err)
	default:
	}
	close(hold)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestPlansChooseByKey(t *testing.T) {
	db := faulty(t, kvtest.Once(func(c kvtest.Commit) bool { return c.Wrote([]byte("log/")) },
		kvtest.Fault{Fate: kvtest.Refuse, Code: kv.CodeNotCommitted}))
	put := func(key string) error {
		tx := db.Begin()
		defer tx.Cancel()
		tx.Atomic(kv.SetVersionstampedKey, []byte(key+"0123456789\x04\x00\x00\x00"), nil)
		return tx.Commit(t.Context())
	}
	if err := put("tail"); err != nil {
		t.Fatal(err)
	}
	if err := put("log/"); kv.Code(err) != kv.CodeNotCommitted {
		t.Fatalf("got %v", err)
	}
	if err := put("log/"); err != nil {
		t.Fatal(err)
	}
}

func TestReadsAreNeverFaulted(t *testing.T) {
	db := faulty(t, kvtest.Every(1, kvtest.Fault{Fate: kvtest.Refuse, Code: kv.CodeNotCommitted}))
	for range 3 {
		if err := kv.Read(t.Context(), db, func(ctx context.Context, tx kv.Tx) error {
			_, err := tx.Get([]byte("a")).Wait(ctx)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRandomIsReproducible(t *testing.T) {
	fates := func() string {
		var b strings.Builder
		plan := kvtest.Random(7, 0.5, kvtest.Usual()...)
		for i := range 50 {
			f := plan(kvtest.Commit{N: i})
			fmt.Fprintf(&b, "%d:%d ", f.Fate, f.Code)
		}
		return b.String()
	}
	if a, b := fates(), fates(); a != b || !strings.Contains(a, "2:") || !strings.Contains(a, "0:") {
		t.Errorf("got\n%s\n%s", a, b)
	}
}

// The pattern that every write above kv follows: a witness, looked for after an
// unknown outcome. With it each increment counts once, whatever the faults;
// that the same count goes wrong without it shows that the faults are real.
func TestWitnessMakesWritesExactlyOnce(t *testing.T) {
	const workers, each = 4, 50
	run := func(witness bool) (int, *kvtest.Faulted) {
		db := faulty(t, kvtest.Random(11, 0.4, kvtest.Usual()...))
		var g sync.WaitGroup
		for w := range workers {
			g.Go(func() {
				for i := range each {
					mark := []byte(fmt.Sprintf("mark/%d/%d", w, i))
					_, err := kv.Transact(t.Context(), db, func(ctx context.Context, tx kv.Tx, at kv.Attempt) error {
						if witness {
							if v, err := tx.Get(mark).Wait(ctx); v != nil || err != nil {
								return err
							}
						}
						tx.Set(mark, nil)
						tx.Atomic(kv.Add, []byte("n"), []byte{1, 0, 0, 0})
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		g.Wait()
		db.SetPlan(nil)
		tx := db.Begin()
		defer tx.Cancel()
		v, err := tx.Get([]byte("n")).Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return int(binary.LittleEndian.Uint32(v)), db
	}
	n, db := run(true)
	if n != workers*each {
		t.Errorf("with a witness the count is %d, want %d", n, workers*each)
	}
	for _, fate := range []kvtest.Fate{kvtest.Refuse, kvtest.Applied, kvtest.Dropped} {
		if db.Count(fate) == 0 {
			t.Errorf("fate %d never happened", fate)
		}
	}
	if n, _ := run(false); n <= workers*each {
		t.Errorf("without a witness the count is %d: no outcome was unknown", n)
	}
}
