package kv_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"headwater/fdblayer/kv"
)

// scripted is a database whose nth commit returns the nth error.
type scripted struct {
	kv.Database
	commits []error
	begun   int
	resets  int
	ended   int
}

func (s *scripted) Begin() kv.Tx {
	s.begun++
	return &scriptedTx{s: s}
}

// scriptedTx panics where a method is called that the loop has no business with.
type scriptedTx struct {
	kv.Tx
	s *scripted
}

func (t *scriptedTx) Commit(context.Context) error {
	err := t.s.commits[0]
	t.s.commits = t.s.commits[1:]
	return err
}
func (t *scriptedTx) CommittedVersion() int64                { return 42 }
func (t *scriptedTx) Versionstamp() [kv.VersionstampLen]byte { return [kv.VersionstampLen]byte{7: 42} }
func (t *scriptedTx) Reset()                                 { t.s.resets++ }
func (t *scriptedTx) Cancel()                                { t.s.ended++ }

func code(c int) error { return &kv.Error{Code: c} }

func TestTransactRetriesUntilItCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{commits: []error{code(kv.CodeNotCommitted), code(kv.CodeCommitUnknownResult), code(kv.CodeNotCommitted), nil}}
		var seen []kv.Attempt
		done, err := kv.Transact(t.Context(), s, func(_ context.Context, _ kv.Tx, at kv.Attempt) error {
			seen = append(seen, at)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if done.Version != 42 || done.Versionstamp[7] != 42 {
			t.Errorf("got %+v", done)
		}
		// Once unknown, always unknown: a later conflict proves nothing.
		want := []kv.Attempt{{0, false}, {1, false}, {2, true}, {3, true}}
		if len(seen) != len(want) {
			t.Fatalf("ran %d times, want %d", len(seen), len(want))
		}
		for i := range want {
			if seen[i] != want[i] {
				t.Errorf("attempt %d is %+v, want %+v", i, seen[i], want[i])
			}
		}
		if s.begun != 1 || s.resets != 3 || s.ended != 1 {
			t.Errorf("begun %d, reset %d, ended %d times", s.begun, s.resets, s.ended)
		}
	})
}

func TestTransactEndsWithWhatCannotBeRetried(t *testing.T) {
	mine := errors.New("mine")
	for _, c := range []struct {
		name    string
		commits []error
		fn      func(at kv.Attempt, cancel func()) error
		is      error
		code    int
		maybe   bool
	}{
		{"own error", nil, func(kv.Attempt, func()) error { return mine }, mine, 0, false},
		{"own error after an unknown outcome", []error{code(kv.CodeCommitUnknownResult)},
			func(at kv.Attempt, _ func()) error {
				if at.Unknown {
					return mine // it looked for its witness and knows
				}
				return nil
			}, mine, 0, false},
		{"too large", []error{code(kv.CodeTransactionTooLarge)}, nil, nil, kv.CodeTransactionTooLarge, false},
		{"timed out", []error{code(kv.CodeTransactionTimedOut)}, nil, nil, kv.CodeTransactionTimedOut, true},
		{"closed after an unknown outcome", []error{code(kv.CodeCommitUnknownResult)},
			func(at kv.Attempt, _ func()) error {
				if at.Unknown {
					return kv.ErrClosed
				}
				return nil
			}, kv.ErrClosed, kv.CodeCommitUnknownResult, true},
		{"engine stopped after an unknown outcome", []error{code(kv.CodeCommitUnknownResult), code(kv.CodeIOError)},
			nil, nil, kv.CodeCommitUnknownResult, true},
		{"context ended in the function after an unknown outcome", []error{code(kv.CodeCommitUnknownResult)},
			func(at kv.Attempt, cancel func()) error {
				if at.Unknown {
					cancel()
					return context.Canceled
				}
				return nil
			}, context.Canceled, kv.CodeCommitUnknownResult, true},
		{"context ended before the pause, unknown", []error{code(kv.CodeCommitUnknownResult)},
			func(_ kv.Attempt, cancel func()) error {
				cancel()
				return nil
			}, context.Canceled, kv.CodeCommitUnknownResult, true},
		{"context ended before the pause, known", []error{code(kv.CodeNotCommitted)},
			func(_ kv.Attempt, cancel func()) error {
				cancel()
				return nil
			}, context.Canceled, kv.CodeNotCommitted, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := &scripted{commits: c.commits}
			_, err := kv.Transact(ctx, s, func(_ context.Context, _ kv.Tx, at kv.Attempt) error {
				if c.fn == nil {
					return nil
				}
				return c.fn(at, cancel)
			})
			if err == nil || c.is != nil && !errors.Is(err, c.is) || kv.Code(err) != c.code || kv.MaybeCommitted(err) != c.maybe {
				t.Errorf("got %v: code %d, maybe committed %v", err, kv.Code(err), kv.MaybeCommitted(err))
			}
			if s.ended != 1 {
				t.Errorf("the transaction was ended %d times", s.ended)
			}
		})
	}
}

func TestPauseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n := range 100 {
			start := time.Now()
			if err := kv.Pause(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(start); d > 500*time.Millisecond {
				t.Errorf("pause %d took %v", n, d)
			}
		}
	})
}

func TestCodesAreToldApart(t *testing.T) {
	for c := 1000; c < 2300; c++ {
		err := code(c)
		if kv.Code(err) != c {
			t.Fatalf("code of %v is %d", err, kv.Code(err))
		}
		// What may have committed and can be retried must be found by its
		// witness; what is neither is a definite no.
		if kv.Retryable(err) && kv.MaybeCommitted(err) && c != kv.CodeCommitUnknownResult && c != kv.CodeClusterVersionChanged {
			t.Errorf("code %d is retryable and may have committed", c)
		}
	}
	if kv.Retryable(nil) || kv.MaybeCommitted(nil) || kv.Code(errors.New("x")) != 0 {
		t.Error("an error that is none of ours has a code")
	}
}
