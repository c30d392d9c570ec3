package kvtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"headwater/fdblayer/kv"
)

// Run runs the contract suite. open returns an engine and registers its close
// with t.Cleanup; it is called twice, once for a test that closes the engine
// itself, so closing twice must be possible.
func Run(t *testing.T, open func(t *testing.T) kv.Database) {
	db := open(t)
	// The group ends before Run does, so that open's cleanup comes after.
	t.Run("contract", func(t *testing.T) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(newEnv(t, db))
			})
		}
	})
	t.Run("close", func(t *testing.T) { testClose(newEnv(t, open(t))) })
}

type testCase struct {
	name string
	run  func(e *env)
}

var cases = concat(
	versionCases, overlayCases, conflictCases, selectorCases, rangeCases, atomicCases,
	stampCases, commitCases, watchCases, limitCases, retryCases, concurrencyCases,
)

func concat(groups ...[]testCase) []testCase {
	var all []testCase
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

// env is one test: a database, a prefix of its own, and a deadline.
type env struct {
	*testing.T
	db     kv.Database
	ctx    context.Context
	prefix string
}

// testTimeout bounds one test, so that a lost wake-up fails instead of hanging.
const testTimeout = 90 * time.Second

func newEnv(t *testing.T, db kv.Database) *env {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	e := &env{T: t, db: db, ctx: ctx, prefix: "kvtest/" + rand.Text() + "/"}
	t.Cleanup(func() {
		_, err := kv.Transact(context.Background(), db, func(_ context.Context, tx kv.Tx, _ kv.Attempt) error {
			tx.ClearRange(e.all())
			return nil
		})
		if err != nil && !errors.Is(err, kv.ErrClosed) {
			t.Errorf("clear the test's keys: %v", err)
		}
	})
	return e
}

// k is a key of this test.
func (e *env) k(s string) []byte { return []byte(e.prefix + s) }

// r is a range of this test.
func (e *env) r(begin, end string) kv.Range { return kv.Range{Begin: e.k(begin), End: e.k(end)} }

// all is the range of the test's keys.
func (e *env) all() kv.Range { return kv.Range{Begin: e.k(""), End: []byte(e.prefix + "\xff")} }

// name is what is left of a key without the prefix.
func (e *env) name(key []byte) string {
	if rest, ok := bytes.CutPrefix(key, []byte(e.prefix)); ok {
		return string(rest)
	}
	return fmt.Sprintf("OUTSIDE:%q", key)
}

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

func (e *env) wantCode(err error, code int) {
	e.Helper()
	if kv.Code(err) != code {
		e.Fatalf("got error %v, want code %d", err, code)
	}
}

func (e *env) wantValue(got []byte, want string) {
	e.Helper()
	if got == nil {
		e.Fatalf("the key is absent, want %q", want)
	}
	if string(got) != want {
		e.Fatalf("got value %q, want %q", got, want)
	}
}

func (e *env) wantAbsent(got []byte) {
	e.Helper()
	if got != nil {
		e.Fatalf("got value %q, want the key to be absent", got)
	}
}

// begin returns a transaction that ends with the test.
func (e *env) begin() kv.Tx {
	tx := e.db.Begin()
	e.Cleanup(tx.Cancel)
	return tx
}

// transact commits fn, retrying, and fails the test if it cannot.
func (e *env) transact(fn func(tx kv.Tx)) kv.Committed {
	e.Helper()
	done, err := kv.Transact(e.ctx, e.db, func(_ context.Context, tx kv.Tx, _ kv.Attempt) error {
		fn(tx)
		return nil
	})
	e.must(err)
	return done
}

// set commits pairs of key and value.
func (e *env) set(pairs ...string) kv.Committed {
	e.Helper()
	return e.transact(func(tx kv.Tx) {
		for i := 0; i < len(pairs); i += 2 {
			tx.Set(e.k(pairs[i]), []byte(pairs[i+1]))
		}
	})
}

// read returns what a reader has of a key.
func (e *env) read(r kv.Reader, key string) []byte {
	e.Helper()
	v, err := r.Get(e.k(key)).Wait(e.ctx)
	e.must(err)
	return v
}

// now returns the committed value of a key.
func (e *env) now(key string) []byte {
	e.Helper()
	tx := e.begin()
	defer tx.Cancel()
	return e.read(tx, key)
}

// rows reads a range to its end.
func rows(ctx context.Context, r kv.Reader, begin, end kv.Selector, opt kv.RangeOptions) ([]kv.KeyValue, error) {
	var all []kv.KeyValue
	it := r.GetRange(begin, end, opt)
	for {
		batch, more, err := it.Next(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, batch...)
		if !more || opt.Limit > 0 && len(all) >= opt.Limit {
			return all, nil
		}
	}
}

// list returns the rows of [begin, end) as "key=value" in a line.
func (e *env) list(r kv.Reader, begin, end string, opt kv.RangeOptions) string {
	e.Helper()
	return e.listSel(r, kv.FirstGreaterOrEqual(e.k(begin)), kv.FirstGreaterOrEqual(e.k(end)), opt)
}

func (e *env) listSel(r kv.Reader, begin, end kv.Selector, opt kv.RangeOptions) string {
	e.Helper()
	all, err := rows(e.ctx, r, begin, end, opt)
	e.must(err)
	return e.line(all)
}

func (e *env) line(all []kv.KeyValue) string {
	var b bytes.Buffer
	for i, row := range all {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s=%s", e.name(row.Key), row.Value)
	}
	return b.String()
}

func (e *env) want(got, want string) {
	e.Helper()
	if got != want {
		e.Fatalf("got %q, want %q", got, want)
	}
}
