package kvtest

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"sync"

	"headwater/fdblayer/kv"
)

// Fate is what becomes of one commit.
type Fate int

const (
	// Pass commits as if nothing were wrong.
	Pass Fate = iota
	// Refuse sends nothing and fails with Fault.Code. Use it for the codes that
	// mean "not committed": 1020, 1007, 1009, 1037, 1042 and the like.
	Refuse
	// Applied commits, and reports Fault.Code (1021 if it is 0) though it
	// succeeded: the reply was lost. A commit that fails by itself, say by a
	// conflict, is reported as it is.
	Applied
	// Dropped sends nothing, and reports Fault.Code (1021 if it is 0): the
	// request was lost. The caller cannot tell it from Applied.
	Dropped
	// Late reports Fault.Code (1031 if it is 0) at once and commits later, when
	// Fault.Hold lets it: the case that FoundationDB warns of for time-outs and
	// cancels. The commit may then succeed or fail, by a conflict for instance,
	// and nobody is told. Faulted.Settle waits for it. A transaction that has
	// no read version by then gets one only when it lands, so it conflicts with
	// nothing that happened in between.
	Late
)

// Fault is a fate with its circumstances.
type Fault struct {
	Fate Fate
	// Code is the kv code to report; see the fates for where it counts.
	Code int
	// Hold, if it is not nil, delays the commit until it is closed or receives.
	// For Late it delays what is done in the background, for the other fates
	// the caller. A hold that never ends is ended by Close.
	Hold <-chan struct{}
}

// Commit is what a plan knows of the commit it decides on.
type Commit struct {
	// N counts the commits that write, from 0, in the order they were called.
	// Commits that only read are never faulted.
	N int
	// Keys are the keys written, in order: for a clear of a range its begin, for
	// a versionstamped key the key with the place of the stamp still empty and
	// without its suffix. A plan must not keep or change them.
	Keys [][]byte
}

// Wrote reports whether the commit writes a key that begins with prefix.
func (c Commit) Wrote(prefix []byte) bool {
	return slices.ContainsFunc(c.Keys, func(k []byte) bool { return bytes.HasPrefix(k, prefix) })
}

// Plan decides the fate of each commit. Calls are one at a time and in the
// order of Commit.N, so a plan may keep state without a lock.
type Plan func(Commit) Fault

// Script gives the commits listed the faults listed, and lets the others pass.
func Script(faults map[int]Fault) Plan {
	return func(c Commit) Fault { return faults[c.N] }
}

// Once gives fault to the first commit for which when holds; nil holds always.
func Once(when func(Commit) bool, fault Fault) Plan {
	done := false
	return func(c Commit) Fault {
		if done || when != nil && !when(c) {
			return Fault{}
		}
		done = true
		return fault
	}
}

// Every gives fault to every nth commit, the first of them number n-1.
func Every(n int, fault Fault) Plan {
	return func(c Commit) Fault {
		if (c.N+1)%n == 0 {
			return fault
		}
		return Fault{}
	}
}

// Random gives one of faults, each as likely as the others, to a share of the
// commits between 0 and 1. The same seed gives the same fates in the same order.
func Random(seed uint64, share float64, faults ...Fault) Plan {
	rng := rand.New(rand.NewPCG(seed, 0))
	return func(Commit) Fault {
		if rng.Float64() >= share {
			return Fault{}
		}
		return faults[rng.IntN(len(faults))]
	}
}

// Usual are the faults of a bad day, for Random: conflicts, overload, and
// unknown outcomes of both kinds.
func Usual() []Fault {
	return []Fault{
		{Fate: Refuse, Code: kv.CodeNotCommitted},
		{Fate: Refuse, Code: kv.CodeCommitProxyMemoryLimit},
		{Fate: Refuse, Code: kv.CodeTransactionTooOld},
		{Fate: Applied},
		{Fate: Dropped},
		{Fate: Applied, Code: kv.CodeClusterVersionChanged},
	}
}

// Faulted is a database whose commits go wrong as planned. It passes on
// everything else, so reads, conflicts and watches are the engine's own.
type Faulted struct {
	db     kv.Database
	closed chan struct{}

	mu    sync.Mutex
	plan  Plan
	n     int
	count map[Fate]int
	late  sync.WaitGroup
	// landed and lost count the late commits by their outcome.
	landed, lost int
	ended        bool
}

var _ kv.Database = (*Faulted)(nil)

// Faulty wraps db. A nil plan lets everything pass. Close closes db too.
func Faulty(db kv.Database, plan Plan) *Faulted {
	return &Faulted{db: db, plan: plan, closed: make(chan struct{}), count: map[Fate]int{}}
}

// SetPlan replaces the plan; Commit.N counts from 0 again.
func (f *Faulted) SetPlan(plan Plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan, f.n = plan, 0
}

// Count returns how many commits met a fate. A test that expects faults checks
// that they happened.
func (f *Faulted) Count(fate Fate) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count[fate]
}

// Settle waits until every late commit is decided, and returns how many took
// effect and how many did not. Their holds must have ended.
func (f *Faulted) Settle() (landed, lost int) {
	f.late.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.landed, f.lost
}

// Close ends every hold, waits for the late commits and closes the database.
func (f *Faulted) Close() error {
	f.mu.Lock()
	if !f.ended {
		f.ended = true
		close(f.closed)
	}
	f.mu.Unlock()
	f.late.Wait()
	return f.db.Close()
}

// Begin implements kv.Database.
func (f *Faulted) Begin() kv.Tx { return &faultedTx{Tx: f.db.Begin(), f: f} }

func (f *Faulted) decide(keys [][]byte) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := Commit{N: f.n, Keys: keys}
	f.n++
	var fault Fault
	if f.plan != nil {
		fault = f.plan(c)
	}
	f.count[fault.Fate]++
	if fault.Fate == Late {
		f.late.Add(1) // under mu, so that Close waits for it
	}
	return fault
}

// hold waits for the fault's hold, or until the database is closed.
func (f *Faulted) hold(h <-chan struct{}) {
	if h == nil {
		return
	}
	select {
	case <-h:
	case <-f.closed:
	}
}

// faultedTx adds the fates to a transaction. It is a kv.Tx by what it wraps; a
// late commit keeps the wrapped transaction, and a Reset begins another.
type faultedTx struct {
	kv.Tx
	f     *Faulted
	wrote bool
	keys  [][]byte
	// gone is set when a late commit owns Tx, or a fault ended it.
	gone bool
	// failed hides the version and stamp of a commit that reported a failure.
	failed bool
}

func (t *faultedTx) note(key []byte) {
	t.wrote = true
	t.keys = append(t.keys, bytes.Clone(key))
}

func (t *faultedTx) Set(key, value []byte) {
	t.note(key)
	t.Tx.Set(key, value)
}

func (t *faultedTx) Clear(key []byte) {
	t.note(key)
	t.Tx.Clear(key)
}

func (t *faultedTx) ClearRange(r kv.Range) {
	t.note(r.Begin)
	t.Tx.ClearRange(r)
}

func (t *faultedTx) Atomic(op kv.AtomicOp, key, param []byte) {
	if op == kv.SetVersionstampedKey && len(key) >= 4 {
		t.note(key[:len(key)-4])
	} else {
		t.note(key)
	}
	t.Tx.Atomic(op, key, param)
}

func (t *faultedTx) AddWriteConflictKey(key []byte) {
	t.wrote = true
	t.Tx.AddWriteConflictKey(key)
}

func (t *faultedTx) AddWriteConflictRange(r kv.Range) {
	t.wrote = true
	t.Tx.AddWriteConflictRange(r)
}

func (t *faultedTx) Commit(ctx context.Context) error {
	if t.gone {
		return &kv.Error{Code: kv.CodeUsedDuringCommit}
	}
	if !t.wrote {
		return t.Tx.Commit(ctx)
	}
	fault := t.f.decide(t.keys)
	code := func(usual int) error {
		t.failed = true
		if fault.Code != 0 {
			usual = fault.Code
		}
		return &kv.Error{Code: usual, Detail: "injected"}
	}
	if fault.Fate == Late {
		t.gone = true
		inner := t.Tx
		go t.f.land(context.WithoutCancel(ctx), inner, fault.Hold)
		return code(kv.CodeTransactionTimedOut)
	}
	t.f.hold(fault.Hold)
	switch fault.Fate {
	case Refuse:
		t.end()
		return code(kv.CodeNotCommitted)
	case Dropped:
		t.end()
		return code(kv.CodeCommitUnknownResult)
	case Applied:
		if err := t.Tx.Commit(ctx); err != nil {
			return err
		}
		return code(kv.CodeCommitUnknownResult)
	}
	return t.Tx.Commit(ctx)
}

// end makes the wrapped transaction unusable without a commit.
func (t *faultedTx) end() {
	t.Tx.Cancel()
	t.gone = true
}

// land is the background part of a late commit.
func (f *Faulted) land(ctx context.Context, tx kv.Tx, hold <-chan struct{}) {
	defer f.late.Done()
	defer tx.Cancel()
	f.hold(hold)
	err := tx.Commit(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.landed++
	} else {
		f.lost++
	}
}

func (t *faultedTx) CommittedVersion() int64 {
	if t.failed {
		return -1
	}
	return t.Tx.CommittedVersion()
}

func (t *faultedTx) Versionstamp() [kv.VersionstampLen]byte {
	if t.failed {
		return [kv.VersionstampLen]byte{}
	}
	return t.Tx.Versionstamp()
}

func (t *faultedTx) Reset() {
	if t.gone {
		t.Tx = t.f.db.Begin()
	} else {
		t.Tx.Reset()
	}
	*t = faultedTx{Tx: t.Tx, f: t.f}
}

func (t *faultedTx) Cancel() {
	if !t.gone { // else a late commit under way, which is not recalled
		t.Tx.Cancel()
	}
}
