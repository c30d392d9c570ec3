package kvtest

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"headwater/fdblayer/kv"
)

var concurrencyCases = []testCase{
	{"concurrency/a bank keeps its total", testBank},
	{"concurrency/a random history is serializable", testHistory},
}

// testBank moves money between accounts from many goroutines while others sum
// it up, by ranges and by single reads, serializable and by snapshot.
func testBank(e *env) {
	const accounts, movers, moves, auditors = 8, 8, 30, 3
	account := func(i int) []byte { return e.k(fmt.Sprintf("account/%d", i)) }
	amount := func(v []byte) int64 { return int64(binary.BigEndian.Uint64(v)) }
	put := func(tx kv.Tx, i int, n int64) { tx.Set(account(i), binary.BigEndian.AppendUint64(nil, uint64(n))) }
	e.transact(func(tx kv.Tx) {
		for i := range accounts {
			put(tx, i, 100)
		}
	})
	var moving, auditing sync.WaitGroup
	var stop atomic.Bool
	for range auditors {
		auditing.Go(func() {
			for audits := 0; !stop.Load() || audits == 0; audits++ {
				total := int64(0)
				err := kv.Read(e.ctx, e.db, func(ctx context.Context, tx kv.Tx) error {
					total = 0
					if audits%2 == 0 {
						all, err := rows(ctx, tx.Snapshot(), kv.FirstGreaterOrEqual(e.k("account/")),
							kv.FirstGreaterOrEqual(e.k("account0")), kv.RangeOptions{Reverse: audits%4 == 0})
						for _, row := range all {
							total += amount(row.Value)
						}
						return err
					}
					for i := range accounts {
						v, err := tx.Get(account(i)).Wait(ctx)
						if err != nil {
							return err
						}
						total += amount(v)
					}
					return nil
				})
				if err != nil {
					e.Error(err)
					return
				}
				if total != 100*accounts {
					e.Errorf("the bank holds %d, want %d", total, 100*accounts)
					return
				}
			}
		})
	}
	for m := range movers {
		moving.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(m), 1))
			for range moves {
				from, to, n := rng.IntN(accounts), rng.IntN(accounts), rng.Int64N(40)
				_, err := kv.Transact(e.ctx, e.db, func(ctx context.Context, tx kv.Tx, _ kv.Attempt) error {
					a, b := tx.Get(account(from)), tx.Get(account(to))
					av, err := a.Wait(ctx)
					if err != nil {
						return err
					}
					bv, err := b.Wait(ctx)
					if err != nil || from == to || amount(av) < n {
						return err
					}
					put(tx, from, amount(av)-n)
					put(tx, to, amount(bv)+n)
					return nil
				})
				if err != nil {
					e.Error(err)
					return
				}
			}
		})
	}
	moving.Wait()
	stop.Store(true)
	auditing.Wait()
}

// event is one committed transaction of testHistory, as its client saw it.
type event struct {
	read    int64 // read version
	version int64 // -1 if it only read
	stamp   [kv.VersionstampLen]byte
	ops     []historyOp
	// floor is the newest version that was acknowledged to anyone before the
	// transaction began: it must not read from before it.
	floor int64
}

// historyOp is a read, with what it answered, or a write.
type historyOp struct {
	kind     string
	key, end string
	opt      kv.RangeOptions
	value    string
	snapshot bool
}

// testHistory runs random transactions from many goroutines, then replays those
// that committed in the order of their versionstamps against a model. Each read
// must have answered what the model held at the read version; and, since the
// transaction committed, what it held right before the transaction, unless it
// was a snapshot read.
func testHistory(e *env) {
	const workers, each = 8, 40
	seed := rand.Uint64()
	e.Logf("seed %d", seed)
	var acked atomic.Int64
	var mu sync.Mutex
	var events []event
	inDoubt := false
	var g sync.WaitGroup
	for w := range workers {
		g.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for i := range each {
				ev, err := e.randomTransaction(rng, fmt.Sprintf("%d.%d", w, i), acked.Load())
				switch {
				case err == nil:
				case kv.MaybeCommitted(err):
					mu.Lock()
					inDoubt = true
					mu.Unlock()
					continue
				case kv.Retryable(err):
					continue
				default:
					e.Error(err)
					return
				}
				for {
					old := acked.Load()
					if ev.version <= old || acked.CompareAndSwap(old, ev.version) {
						break
					}
				}
				mu.Lock()
				events = append(events, ev)
				mu.Unlock()
			}
		})
	}
	g.Wait()
	if inDoubt {
		e.Skip("a commit had an unknown outcome: the history cannot be judged")
	}
	e.checkHistory(events)
}

func (e *env) randomTransaction(rng *rand.Rand, id string, floor int64) (event, error) {
	ev := event{floor: floor}
	key := func() string { return string(rune('a' + rng.IntN(6))) }
	tx := e.db.Begin()
	defer tx.Cancel()
	var err error
	if ev.read, err = tx.ReadVersion(e.ctx); err != nil {
		return ev, err
	}
	for i := range 1 + rng.IntN(3) {
		op := historyOp{key: key(), end: key(), snapshot: rng.IntN(4) == 0}
		var r kv.Reader = tx
		if op.snapshot {
			r = tx.Snapshot()
		}
		if i == 0 || rng.IntN(2) == 0 {
			op.kind, op.end = "get", ""
			v, err := r.Get(e.k(op.key)).Wait(e.ctx)
			if err != nil {
				return ev, err
			}
			op.value = absent
			if v != nil {
				op.value = string(v)
			}
		} else {
			if op.key > op.end {
				op.key, op.end = op.end, op.key
			}
			op.kind, op.opt = "list", kv.RangeOptions{Limit: rng.IntN(3), Reverse: rng.IntN(2) == 0}
			all, err := rows(e.ctx, r, kv.FirstGreaterOrEqual(e.k(op.key)), kv.FirstGreaterOrEqual(e.k(op.end)), op.opt)
			if err != nil {
				return ev, err
			}
			op.value = e.line(all)
		}
		ev.ops = append(ev.ops, op)
	}
	for i := range rng.IntN(3) {
		op := historyOp{kind: "set", key: key(), value: fmt.Sprintf("%s.%d", id, i)}
		switch rng.IntN(5) {
		case 0:
			op.kind = "clear"
			tx.Clear(e.k(op.key))
		case 1:
			if op.end = key(); op.key > op.end {
				op.key, op.end = op.end, op.key
			}
			op.kind = "clear range"
			tx.ClearRange(e.r(op.key, op.end))
		case 2:
			op.kind = "byte max"
			tx.Atomic(kv.ByteMax, e.k(op.key), []byte(op.value))
		default:
			tx.Set(e.k(op.key), []byte(op.value))
		}
		ev.ops = append(ev.ops, op)
	}
	if err := tx.Commit(e.ctx); err != nil {
		return ev, err
	}
	ev.version, ev.stamp = tx.CommittedVersion(), tx.Versionstamp()
	return ev, nil
}

func (e *env) checkHistory(events []event) {
	var writers, readers []event
	for _, ev := range events {
		if ev.read < ev.floor {
			e.Errorf("a transaction read at %d, after %d was acknowledged", ev.read, ev.floor)
		}
		if ev.version == -1 {
			readers = append(readers, ev)
		} else {
			writers = append(writers, ev)
		}
	}
	if len(writers) < 20 || len(readers) < 20 {
		e.Errorf("%d transactions wrote and %d read: too few to mean much", len(writers), len(readers))
	}
	slices.SortFunc(writers, func(a, b event) int { return slices.Compare(a.stamp[:], b.stamp[:]) })
	// states[i] is the database before writers[i].
	states := []model{{}}
	for _, ev := range writers {
		next := model{}
		for k, v := range states[len(states)-1] {
			next[k] = v
		}
		for _, op := range ev.ops {
			op.write(next)
		}
		states = append(states, next)
	}
	at := func(version int64) model {
		n, _ := slices.BinarySearchFunc(writers, version+1, func(ev event, v int64) int {
			if ev.version < v {
				return -1
			}
			return 1
		})
		return states[n]
	}
	for _, ev := range readers {
		e.checkReads(ev, at(ev.read), "at its read version", true)
	}
	for i, ev := range writers {
		if ev.read >= ev.version {
			e.Errorf("read version %d is not before the committed version %d", ev.read, ev.version)
		}
		e.checkReads(ev, at(ev.read), "at its read version", true)
		e.checkReads(ev, states[i], "at its commit", false)
	}
	final := states[len(states)-1]
	e.want(e.list(e.begin(), "", "\xff", kv.RangeOptions{}), final.list("", "\xff", kv.RangeOptions{}))
}

func (e *env) checkReads(ev event, state model, when string, snapshots bool) {
	for _, op := range ev.ops {
		if op.snapshot && !snapshots {
			continue
		}
		var want string
		switch op.kind {
		case "get":
			var ok bool
			if want, ok = state[op.key]; !ok {
				want = absent
			}
		case "list":
			want = state.list(op.key, op.end, op.opt)
		default:
			continue
		}
		if op.value != want {
			e.Errorf("transaction %x (read version %d): %s [%s %s] %+v answered %q; %s it was %q",
				ev.stamp, ev.read, op.kind, op.key, op.end, op.opt, op.value, when, want)
		}
	}
}

func (op historyOp) write(m model) {
	switch op.kind {
	case "set":
		m[op.key] = op.value
	case "clear":
		delete(m, op.key)
	case "clear range":
		for _, k := range m.keys() {
			if k >= op.key && k < op.end {
				delete(m, k)
			}
		}
	case "byte max":
		if old, ok := m[op.key]; !ok || strings.Compare(op.value, old) > 0 {
			m[op.key] = op.value
		}
	}
}
