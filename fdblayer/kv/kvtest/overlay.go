package kvtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"headwater/fdblayer/kv"
)

var overlayCases = []testCase{
	{"own writes/are read", testOwnWrites},
	{"own writes/atomics fold into reads", testOwnAtomics},
	{"own writes/clears fold into ranges", testOwnClears},
	{"own writes/a stamped key is unreadable", testUnreadableKey},
	{"own writes/a stamped value is unreadable", testUnreadableValue},
	{"own writes/a clear ends unreadable", testUnreadableCleared},
	{"own writes/are invisible to others until the commit", testIsolation},
	{"own writes/callers may reuse their slices", testSlicesCopied},
	{"own writes/random transactions match a model", testOverlayModel},
}

func testOwnWrites(e *env) {
	e.set("a", "1", "b", "1", "c", "1")
	tx := e.begin()
	tx.Set(e.k("b"), []byte("2"))
	tx.Clear(e.k("c"))
	tx.Set(e.k("d"), []byte("2"))
	for _, r := range []kv.Reader{tx, tx.Snapshot()} {
		e.wantValue(e.read(r, "a"), "1")
		e.wantValue(e.read(r, "b"), "2")
		e.wantAbsent(e.read(r, "c"))
		e.wantValue(e.read(r, "d"), "2")
		e.want(e.list(r, "a", "z", kv.RangeOptions{}), "a=1 b=2 d=2")
		e.want(e.list(r, "a", "z", kv.RangeOptions{Reverse: true}), "d=2 b=2 a=1")
		e.want(e.list(r, "a", "z", kv.RangeOptions{Limit: 2}), "a=1 b=2")
	}
	f := tx.Get(e.k("a"))
	tx.Set(e.k("a"), []byte("later"))
	v, err := f.Wait(e.ctx)
	e.must(err)
	e.wantValue(v, "1")
	e.must(tx.Commit(e.ctx))
	e.want(e.list(e.begin(), "a", "z", kv.RangeOptions{}), "a=later b=2 d=2")
}

func testOwnAtomics(e *env) {
	e.set("n", "\x05\x00", "x", "match")
	tx := e.begin()
	tx.Atomic(kv.Add, e.k("n"), []byte{1, 0})
	e.wantValue(e.read(tx, "n"), "\x06\x00")
	tx.Atomic(kv.Add, e.k("n"), []byte{1, 0})
	tx.Atomic(kv.Max, e.k("m"), []byte{9})
	tx.Atomic(kv.CompareAndClear, e.k("x"), []byte("match"))
	tx.Set(e.k("s"), []byte{1})
	tx.Atomic(kv.Add, e.k("s"), []byte{1})
	e.want(e.list(tx, "a", "z", kv.RangeOptions{}), "m=\x09 n=\x07\x00 s=\x02")
	tx.ClearRange(e.r("a", "z"))
	tx.Atomic(kv.Add, e.k("n"), []byte{3})
	e.want(e.list(tx, "a", "z", kv.RangeOptions{}), "n=\x03")
	e.must(tx.Commit(e.ctx))
	e.want(e.list(e.begin(), "a", "z", kv.RangeOptions{}), "n=\x03")
}

func testOwnClears(e *env) {
	e.set("a", "1", "b", "1", "c", "1", "d", "1", "e", "1")
	tx := e.begin()
	tx.ClearRange(e.r("b", "d"))
	e.want(e.list(tx, "a", "z", kv.RangeOptions{}), "a=1 d=1 e=1")
	e.want(e.list(tx, "a", "z", kv.RangeOptions{Reverse: true, Limit: 3}), "e=1 d=1 a=1")
	e.want(e.list(tx, "b", "d", kv.RangeOptions{}), "")
	tx.Set(e.k("c"), []byte("2"))
	e.want(e.list(tx, "a", "z", kv.RangeOptions{}), "a=1 c=2 d=1 e=1")
	tx.ClearRange(e.r("c", "e"))
	e.want(e.list(tx, "a", "z", kv.RangeOptions{}), "a=1 e=1")
	key, err := tx.GetKey(kv.FirstGreaterThan(e.k("a"))).Wait(e.ctx)
	e.must(err)
	e.want(e.name(key), "e")
	key, err = tx.GetKey(kv.LastLessThan(e.k("e"))).Wait(e.ctx)
	e.must(err)
	e.want(e.name(key), "a")
	e.must(tx.Commit(e.ctx))
	e.want(e.list(e.begin(), "a", "z", kv.RangeOptions{}), "a=1 e=1")
}

// stamped returns the operand of a versionstamped operation: before, ten bytes
// for the stamp, after, and where the stamp goes.
func stamped(before []byte, after string) []byte {
	b := append(slices.Clone(before), make([]byte, kv.VersionstampLen)...)
	b = append(b, after...)
	n := len(before)
	return append(b, byte(n), byte(n>>8), 0, 0)
}

func testUnreadableKey(e *env) {
	e.set("a", "1", "z", "1")
	tx := e.begin()
	tx.Atomic(kv.SetVersionstampedKey, stamped(e.k("log/"), ""), []byte("v"))
	_, err := rows(e.ctx, tx, kv.FirstGreaterOrEqual(e.k("log/")), kv.FirstGreaterOrEqual(e.k("log0")), kv.RangeOptions{})
	e.wantCode(err, kv.CodeAccessedUnreadable)
	tx.Reset()
	tx.Atomic(kv.SetVersionstampedKey, stamped(e.k("log/"), ""), []byte("v"))
	e.wantValue(e.read(tx, "a"), "1")
	e.want(e.list(tx, "a", "b", kv.RangeOptions{}), "a=1")
	e.must(tx.Commit(e.ctx))
}

func testUnreadableValue(e *env) {
	e.set("a", "1", "v", "old")
	tx := e.begin()
	tx.Atomic(kv.SetVersionstampedValue, e.k("v"), stamped(nil, ""))
	_, err := tx.Get(e.k("v")).Wait(e.ctx)
	e.wantCode(err, kv.CodeAccessedUnreadable)
	tx.Reset()
	tx.Atomic(kv.SetVersionstampedValue, e.k("v"), stamped(nil, ""))
	_, err = rows(e.ctx, tx, kv.FirstGreaterOrEqual(e.k("a")), kv.FirstGreaterOrEqual(e.k("z")), kv.RangeOptions{})
	e.wantCode(err, kv.CodeAccessedUnreadable)
	tx.Reset()
	tx.Atomic(kv.SetVersionstampedValue, e.k("v"), stamped(nil, ""))
	e.wantValue(e.read(tx, "a"), "1")
	e.must(tx.Commit(e.ctx))
}

func testUnreadableCleared(e *env) {
	e.set("v", "old")
	tx := e.begin()
	tx.Atomic(kv.SetVersionstampedValue, e.k("v"), stamped(nil, ""))
	tx.Set(e.k("v"), []byte("set"))
	_, err := tx.Get(e.k("v")).Wait(e.ctx)
	e.wantCode(err, kv.CodeAccessedUnreadable)

	tx.Reset()
	tx.Atomic(kv.SetVersionstampedValue, e.k("v"), stamped(nil, ""))
	tx.Clear(e.k("v"))
	e.wantAbsent(e.read(tx, "v"))
	tx.Set(e.k("v"), []byte("set"))
	e.wantValue(e.read(tx, "v"), "set")
	tx.Atomic(kv.SetVersionstampedKey, stamped(e.k("log/"), ""), []byte("v"))
	tx.ClearRange(e.r("log/", "log0"))
	e.want(e.list(tx, "a", "z", kv.RangeOptions{}), "v=set")
	e.must(tx.Commit(e.ctx))
	e.want(e.list(e.begin(), "a", "z", kv.RangeOptions{}), "v=set")
}

func testIsolation(e *env) {
	e.set("a", "1")
	tx := e.begin()
	tx.Set(e.k("a"), []byte("2"))
	tx.Set(e.k("b"), []byte("2"))
	e.wantValue(e.now("a"), "1")
	e.wantAbsent(e.now("b"))
	tx.Cancel()
	e.wantValue(e.now("a"), "1")
	e.wantAbsent(e.now("b"))
}

func testSlicesCopied(e *env) {
	tx := e.begin()
	key, value := e.k("a"), []byte("1")
	tx.Set(key, value)
	copy(value, "X")
	key[len(key)-1] = 'b'
	tx.AddReadConflictKey(key)
	key[len(key)-1] = 'c'
	e.must(tx.Commit(e.ctx))
	e.want(e.list(e.begin(), "a", "z", kv.RangeOptions{}), "a=1")
	// And what a read returns belongs to the caller.
	tx = e.begin()
	tx.Set(e.k("own"), []byte("mine"))
	for range 2 {
		for _, name := range []string{"a", "own"} {
			v := e.read(tx, name)
			for i := range v {
				v[i] = 'X'
			}
		}
		e.want(e.list(tx, "a", "z", kv.RangeOptions{}), "a=1 own=mine")
	}
}

// model is a database as a sorted list of keys, to compare an engine with.
type model map[string]string

func (m model) keys() []string {
	all := make([]string, 0, len(m))
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

func (m model) list(begin, end string, opt kv.RangeOptions) string {
	var out []string
	for _, k := range m.keys() {
		if k >= begin && k < end {
			out = append(out, k+"="+m[k])
		}
	}
	if opt.Reverse {
		slices.Reverse(out)
	}
	if opt.Limit > 0 && len(out) > opt.Limit {
		out = out[:opt.Limit]
	}
	return strings.Join(out, " ")
}

// selected is what a selector answers, with ends for where it leaves the keys.
func (m model) selected(sel kv.Selector, front, back string) string {
	all := m.keys()
	i, found := slices.BinarySearch(all, string(sel.Key))
	if !found || !sel.OrEqual {
		i-- // the last key less than sel.Key
	}
	i += sel.Offset
	switch {
	case i < 0:
		return front
	case i >= len(all):
		return back
	}
	return all[i]
}

func (m model) atomic(op kv.AtomicOp, key, param string) {
	old, ok := m[key]
	switch op {
	case kv.Add:
		sum, carry := make([]byte, len(param)), 0
		for i := range sum {
			carry += int(param[i])
			if i < len(old) {
				carry += int(old[i])
			}
			sum[i] = byte(carry)
			carry >>= 8
		}
		m[key] = string(sum)
	case kv.ByteMax:
		if !ok || param > old {
			m[key] = param
		}
	case kv.CompareAndClear:
		if ok && old == param {
			delete(m, key)
		}
	}
}

// testOverlayModel runs random transactions, each of which reads between its
// writes, against a plain map. After each commit the database must equal it.
func testOverlayModel(e *env) {
	seed := rand.Uint64()
	e.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	key := func() string { return fmt.Sprintf("%c%c", 'b'+rng.IntN(5), 'b'+rng.IntN(3)) }
	state := model{}
	// Guards at both ends keep selectors within the test's keys.
	for _, g := range []string{"a0", "a1", "a2", "a3", "y0", "y1", "y2", "y3"} {
		state[g] = "guard"
	}
	e.transact(func(tx kv.Tx) {
		for k, v := range state {
			tx.Set(e.k(k), []byte(v))
		}
	})
	for range 40 {
		tx := e.begin()
		var log []string
		// FoundationDB's client counts a key that the transaction itself takes away
		// by CompareAndClear as present when it resolves a selector (7.3,
		// resolveKeySelectorFromCache), so none is asked after one.
		compared := false
		for range 1 + rng.IntN(25) {
			k, l := key(), key()
			if k > l {
				k, l = l, k
			}
			value := fmt.Sprintf("%c%c", 'A'+rng.IntN(3), 'A'+rng.IntN(3))
			var r kv.Reader = tx
			if rng.IntN(2) == 0 {
				r = tx.Snapshot()
			}
			switch what := rng.IntN(10); what {
			case 0, 1:
				log = append(log, "set "+k+"="+value)
				tx.Set(e.k(k), []byte(value))
				state[k] = value
			case 2:
				log = append(log, "clear "+k)
				tx.Clear(e.k(k))
				delete(state, k)
			case 3:
				log = append(log, "clear ["+k+","+l+")")
				tx.ClearRange(e.r(k, l))
				for _, have := range state.keys() {
					if have >= k && have < l {
						delete(state, have)
					}
				}
			case 4, 5:
				op := []kv.AtomicOp{kv.Add, kv.ByteMax, kv.CompareAndClear}[rng.IntN(3)]
				log = append(log, fmt.Sprintf("atomic %d %s %s", op, k, value))
				tx.Atomic(op, e.k(k), []byte(value))
				state.atomic(op, k, value)
				compared = compared || op == kv.CompareAndClear
			case 6:
				log = append(log, "get "+k)
				got, want := "absent", "absent"
				if v := e.read(r, k); v != nil {
					got = "=" + string(v)
				}
				if v, ok := state[k]; ok {
					want = "=" + v
				}
				if got != want {
					e.Fatalf("%s: got %q, want %q\n%s", k, got, want, strings.Join(log, "\n"))
				}
			case 7, 8:
				opt := kv.RangeOptions{Limit: rng.IntN(4), Reverse: rng.IntN(2) == 0}
				log = append(log, fmt.Sprintf("list [%s,%s) %+v", k, l, opt))
				if got, want := e.list(r, k, l, opt), state.list(k, l, opt); got != want {
					e.Fatalf("got %q, want %q\n%s", got, want, strings.Join(log, "\n"))
				}
			case 9:
				if compared {
					continue
				}
				sel := kv.Selector{Key: []byte(k), OrEqual: rng.IntN(2) == 0, Offset: rng.IntN(7) - 3}
				log = append(log, fmt.Sprintf("select %s %v %d", k, sel.OrEqual, sel.Offset))
				want := state.selected(sel, "", "")
				sel.Key = e.k(k)
				got, err := r.GetKey(sel).Wait(e.ctx)
				e.must(err)
				if e.name(got) != want {
					e.Fatalf("got %q, want %q\n%s", e.name(got), want, strings.Join(log, "\n"))
				}
			}
		}
		e.must(tx.Commit(e.ctx))
		after := e.begin()
		if got, want := e.list(after, "", "\xff", kv.RangeOptions{}), state.list("", "\xff", kv.RangeOptions{}); got != want {
			e.Fatalf("after the commit: got %q, want %q\n%s", got, want, strings.Join(log, "\n"))
		}
		after.Cancel()
	}
}
