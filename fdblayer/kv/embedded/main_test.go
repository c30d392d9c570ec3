package embedded

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"headwater/fdblayer/kv"
)

// The test binary runs itself again as the process that is killed, or that
// holds a directory.
const (
	childMode = "HEADWATER_EMBEDDED_CHILD"
	childDir  = "HEADWATER_EMBEDDED_DIR"
	childFrom = "HEADWATER_EMBEDDED_FROM"
)

func TestMain(m *testing.M) {
	switch os.Getenv(childMode) {
	case "load":
		runLoad()
	case "hold":
		runHold()
	default:
		goleak.VerifyTestMain(m)
	}
}

// quiet drops the log of engines that are made to fail.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func openTest(tb testing.TB, opts Options) *DB {
	tb.Helper()
	if opts.Log == nil {
		opts.Log = quiet
	}
	db, err := Open(tb.Context(), opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() }) // where it matters the test closes it first
	return db
}

func memory(tb testing.TB) *DB { return openTest(tb, Options{InMemory: true}) }

func put(tb testing.TB, db *DB, key, value string) kv.Committed {
	tb.Helper()
	done, err := kv.Transact(testContext(tb), db, func(_ context.Context, tx kv.Tx, _ kv.Attempt) error {
		tx.Set([]byte(key), []byte(value))
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return done
}

// value reads a key; an absent one is "-".
func value(tb testing.TB, db *DB, key string) string {
	tb.Helper()
	tx := db.Begin()
	defer tx.Cancel()
	v, err := tx.Get([]byte(key)).Wait(testContext(tb))
	if err != nil {
		tb.Fatal(err)
	}
	if v == nil {
		return "-"
	}
	return string(v)
}

// testContext bounds what a broken engine would make wait for ever.
func testContext(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	tb.Cleanup(cancel)
	return ctx
}

func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for range 3000 {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	tb.Fatal("never: ", what)
}

func must0(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}
