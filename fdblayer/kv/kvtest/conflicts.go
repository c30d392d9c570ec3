package kvtest

import (
	"headwater/fdblayer/kv"
)

var conflictCases = []testCase{
	{"conflicts/what was read against what was written", testConflictTable},
	{"conflicts/write skew", testWriteSkew},
	{"conflicts/blind writes never conflict", testBlindWrites},
	{"conflicts/a transaction that only reads never conflicts", testReadOnlyNoConflict},
	{"conflicts/are judged from a version that was set", testConflictFromVersion},
	{"conflicts/a lost update is refused", testLostUpdate},
	{"conflicts/later batches of a range count", testLaterBatches},
}

// testConflictTable has one transaction read, another write and commit, and the
// first commit: refused exactly where the write touched what it depends on. The
// database holds a, b, c, d, e.
func testConflictTable(e *env) {
	get := func(key string) func(*env, kv.Tx) { return func(e *env, tx kv.Tx) { e.read(tx, key) } }
	list := func(begin, end string, opt kv.RangeOptions) func(*env, kv.Tx) {
		return func(e *env, tx kv.Tx) { e.list(tx, begin, end, opt) }
	}
	getKey := func(make func([]byte) kv.Selector, key string) func(*env, kv.Tx) {
		return func(e *env, tx kv.Tx) {
			_, err := tx.GetKey(make(e.k(key))).Wait(e.ctx)
			e.must(err)
		}
	}
	set := func(key string) func(*env, kv.Tx) { return func(e *env, tx kv.Tx) { tx.Set(e.k(key), []byte("1")) } }
	clearKey := func(key string) func(*env, kv.Tx) { return func(e *env, tx kv.Tx) { tx.Clear(e.k(key)) } }
	clearRange := func(begin, end string) func(*env, kv.Tx) {
		return func(e *env, tx kv.Tx) { tx.ClearRange(e.r(begin, end)) }
	}
	full := kv.RangeOptions{}
	first2 := kv.RangeOptions{Limit: 2}
	last2 := kv.RangeOptions{Limit: 2, Reverse: true}

	for _, c := range []struct {
		name     string
		read     func(*env, kv.Tx)
		write    func(*env, kv.Tx)
		conflict bool
	}{
		{"get, set", get("b"), set("b"), true},
		{"get, set of another", get("b"), set("c"), false},
		{"get, set of the successor", get("b"), set("b\x00"), false},
		{"get of an absent key, set", get("x"), set("x"), true},
		{"get, clear", get("b"), clearKey("b"), true},
		{"get of an absent key, clear", get("x"), clearKey("x"), true},
		{"get, clear of a range around", get("b"), clearRange("a", "c"), true},
		{"get, clear of a range from it", get("b"), clearRange("b", "c"), true},
		{"get, clear of a range up to it", get("b"), clearRange("a", "b"), false},
		{"get, clear of a range after it", get("b"), clearRange("b\x00", "c"), false},
		{"get, clear of an empty range", get("b"), clearRange("b", "b"), false},
		{"get, add", get("b"), func(e *env, tx kv.Tx) { tx.Atomic(kv.Add, e.k("b"), []byte{0}) }, true},
		{"get, stamped value", get("b"), func(e *env, tx kv.Tx) {
			tx.Atomic(kv.SetVersionstampedValue, e.k("b"), stamped(nil, ""))
		}, true},
		{"snapshot get, set", func(e *env, tx kv.Tx) { e.read(tx.Snapshot(), "b") }, set("b"), false},
		{"snapshot range, set", func(e *env, tx kv.Tx) { e.list(tx.Snapshot(), "a", "e", full) }, set("b"), false},
		{"snapshot selector, set", func(e *env, tx kv.Tx) {
			_, err := tx.Snapshot().GetKey(kv.LastLessThan(e.k("c"))).Wait(e.ctx)
			e.must(err)
		}, set("b"), false},

		{"range, set in it", list("a", "d", full), set("b"), true},
		{"range, phantom", list("a", "d", full), set("bb"), true},
		{"range, phantom at its begin", list("aa", "d", full), set("aa"), true},
		{"range, set at its end", list("a", "d", full), set("d"), false},
		{"range, set before it", list("b", "d", full), set("a"), false},
		{"range, clear of a key in it", list("a", "d", full), clearKey("c"), true},
		{"range, clear of a range that overlaps its end", list("a", "d", full), clearRange("cc", "e"), true},
		{"range, clear of a range that touches its end", list("a", "d", full), clearRange("d", "e"), false},
		{"range, clear of a range within it", list("a", "d", full), clearRange("bb", "bc"), true},
		{"range without rows, set in it", list("m", "p", full), set("n"), true},
		{"empty range, set there", list("b", "b", full), set("b"), false},
		{"range, stamped key in it", list("a", "zz", full), func(e *env, tx kv.Tx) {
			tx.Atomic(kv.SetVersionstampedKey, stamped(e.k("s"), ""), nil)
		}, true},
		{"limited range, set in what was read", list("a", "e", first2), set("aa"), true},
		{"limited range, set of the last row", list("a", "e", first2), set("b"), true},
		{"limited range, set after what was read", list("a", "e", first2), set("bb"), false},
		{"reverse limited range, set in what was read", list("a", "e", last2), set("cc"), true},
		{"reverse limited range, set after the last row", list("a", "e", last2), set("dd"), true},
		{"reverse limited range, set of the first row read", list("a", "e", last2), set("c"), true},
		{"reverse limited range, set before what was read", list("a", "e", last2), set("bb"), false},

		{"last less than, set in between", getKey(kv.LastLessThan, "d"), set("cc"), true},
		{"last less than, set of the answer", getKey(kv.LastLessThan, "d"), clearKey("c"), true},
		{"last less than, set of the key", getKey(kv.LastLessThan, "d"), set("d"), false},
		{"last less than, set before the answer", getKey(kv.LastLessThan, "d"), set("bb"), false},
		{"last less or equal, set of the key", getKey(kv.LastLessOrEqual, "cc"), set("cc"), true},
		{"first greater or equal, set in between", getKey(kv.FirstGreaterOrEqual, "bb"), set("bc"), true},
		{"first greater or equal, set of the key", getKey(kv.FirstGreaterOrEqual, "bb"), set("bb"), true},
		{"first greater or equal, set after the answer", getKey(kv.FirstGreaterOrEqual, "bb"), set("cc"), false},
		{"first greater than, set of the key", getKey(kv.FirstGreaterThan, "b"), set("b"), false},
		{"first greater than, clear of the answer", getKey(kv.FirstGreaterThan, "b"), clearKey("c"), true},

		{"conflict key, set", func(e *env, tx kv.Tx) { tx.AddReadConflictKey(e.k("x")) }, set("x"), true},
		{"conflict key, set of another", func(e *env, tx kv.Tx) { tx.AddReadConflictKey(e.k("x")) }, set("x\x00"), false},
		{"conflict key written after, set", func(e *env, tx kv.Tx) {
			tx.AddReadConflictKey(e.k("x"))
			tx.Set(e.k("x"), nil)
		}, set("x"), true},
		{"conflict range, set in it", func(e *env, tx kv.Tx) { tx.AddReadConflictRange(e.r("p", "r")) }, set("q"), true},
		{"conflict range, set at its end", func(e *env, tx kv.Tx) { tx.AddReadConflictRange(e.r("p", "r")) }, set("r"), false},
		{"empty conflict range, set there", func(e *env, tx kv.Tx) { tx.AddReadConflictRange(e.r("p", "p")) }, set("p"), false},

		{"get, write conflict key", get("b"), func(e *env, tx kv.Tx) { tx.AddWriteConflictKey(e.k("b")) }, true},
		{"get, write conflict range", get("b"), func(e *env, tx kv.Tx) { tx.AddWriteConflictRange(e.r("a", "c")) }, true},
		{"get, write conflict range beside", get("b"), func(e *env, tx kv.Tx) { tx.AddWriteConflictRange(e.r("c", "e")) }, false},
		{"get, hidden set", get("b"), func(e *env, tx kv.Tx) {
			tx.SetNextWriteNoConflict()
			tx.Set(e.k("b"), []byte("2"))
		}, false},
		{"get, set after a hidden one", get("b"), func(e *env, tx kv.Tx) {
			tx.SetNextWriteNoConflict()
			tx.Set(e.k("x"), nil)
			tx.Set(e.k("b"), []byte("2"))
		}, true},
		{"get, hidden add and a hand-made conflict elsewhere", get("b"), func(e *env, tx kv.Tx) {
			tx.SetNextWriteNoConflict()
			tx.Atomic(kv.Add, e.k("b"), []byte{1})
			tx.AddWriteConflictKey(e.k("c"))
		}, false},

		{"get of an own write, set", func(e *env, tx kv.Tx) {
			tx.Set(e.k("b"), []byte("mine"))
			e.read(tx, "b")
		}, set("b"), false},
		{"get of an own add, set", func(e *env, tx kv.Tx) {
			tx.Atomic(kv.Add, e.k("b"), []byte{1})
			e.read(tx, "b")
		}, set("b"), true},
		{"range within an own clear, set in it", func(e *env, tx kv.Tx) {
			tx.ClearRange(e.r("a", "e"))
			e.list(tx, "b", "d", full)
		}, set("c"), false},
		{"range around an own clear, set outside it", func(e *env, tx kv.Tx) {
			tx.ClearRange(e.r("b", "c"))
			e.list(tx, "a", "e", full)
		}, set("d"), true},
	} {
		e.transact(func(tx kv.Tx) {
			tx.ClearRange(e.all())
			for _, k := range []string{"a", "b", "c", "d", "e"} {
				tx.Set(e.k(k), []byte("0"))
			}
		})
		tx := e.begin()
		_, err := tx.ReadVersion(e.ctx)
		e.must(err)
		c.read(e, tx)
		tx.Set(e.k("outcome"), []byte(c.name))
		e.transact(func(tx kv.Tx) { c.write(e, tx) })
		err = tx.Commit(e.ctx)
		switch {
		case c.conflict && kv.Code(err) != kv.CodeNotCommitted:
			e.Errorf("%s: got %v, want a conflict", c.name, err)
		case !c.conflict && err != nil:
			e.Errorf("%s: %v", c.name, err)
		case c.conflict != (e.now("outcome") == nil):
			e.Errorf("%s: the write does not agree with the outcome %v", c.name, err)
		}
		tx.Cancel()
	}
}

func testWriteSkew(e *env) {
	e.set("a", "on", "b", "on")
	first, second := e.begin(), e.begin()
	for _, tx := range []kv.Tx{first, second} {
		e.wantValue(e.read(tx, "a"), "on")
		e.wantValue(e.read(tx, "b"), "on")
	}
	first.Set(e.k("a"), []byte("off"))
	second.Set(e.k("b"), []byte("off"))
	e.must(first.Commit(e.ctx))
	e.wantCode(second.Commit(e.ctx), kv.CodeNotCommitted)
	e.want(e.list(e.begin(), "a", "c", kv.RangeOptions{}), "a=off b=on")
}

func testBlindWrites(e *env) {
	txs := make([]kv.Tx, 10)
	for i := range txs {
		txs[i] = e.begin()
		_, err := txs[i].ReadVersion(e.ctx)
		e.must(err)
		txs[i].Set(e.k("a"), []byte{byte('0' + i)})
		txs[i].Atomic(kv.Add, e.k("n"), []byte{1})
		txs[i].ClearRange(e.r("x", "y"))
	}
	for _, tx := range txs {
		e.must(tx.Commit(e.ctx))
	}
	e.wantValue(e.now("a"), "9")
	e.wantValue(e.now("n"), "\x0a")
}

func testReadOnlyNoConflict(e *env) {
	e.set("a", "1")
	tx := e.begin()
	e.read(tx, "a")
	tx.AddReadConflictRange(e.all())
	e.set("a", "2")
	e.must(tx.Commit(e.ctx))
	if v := tx.CommittedVersion(); v != -1 {
		e.Fatalf("committed version is %d, want -1", v)
	}
}

// testConflictFromVersion is what the design's read-free path stands on: a
// conflict is a write after the read version, not at it.
func testConflictFromVersion(e *env) {
	done := e.set("a", "1")
	try := func(version int64) error {
		tx := e.begin()
		defer tx.Cancel()
		tx.SetReadVersion(version)
		tx.AddReadConflictKey(e.k("a"))
		tx.Set(e.k("b"), []byte("1"))
		return tx.Commit(e.ctx)
	}
	e.wantCode(try(done.Version-1), kv.CodeNotCommitted)
	e.must(try(done.Version))
}

func testLostUpdate(e *env) {
	e.set("n", "0")
	first, second := e.begin(), e.begin()
	e.read(first, "n")
	e.read(second, "n")
	first.Set(e.k("n"), []byte("1"))
	second.Set(e.k("n"), []byte("1"))
	e.must(second.Commit(e.ctx))
	e.wantCode(first.Commit(e.ctx), kv.CodeNotCommitted)
	// The next attempt of the same transaction sees the winner.
	first.Reset()
	e.wantValue(e.read(first, "n"), "1")
	first.Set(e.k("n"), []byte("2"))
	e.must(first.Commit(e.ctx))
	e.wantValue(e.now("n"), "2")
}

// testLaterBatches reads a range of several batches and stops after the first:
// what it did not read does not count, what it read does.
func testLaterBatches(e *env) {
	const n = 30
	value := make([]byte, 10_000)
	key := func(i int) []byte { return e.k(string(rune('A' + i))) }
	e.transact(func(tx kv.Tx) {
		for i := range n {
			tx.Set(key(i), value)
		}
	})
	for _, c := range []struct {
		batches  int
		conflict bool
	}{{1, false}, {100, true}} {
		tx := e.begin()
		it := tx.GetRange(kv.FirstGreaterOrEqual(e.k("A")), kv.FirstGreaterOrEqual(e.k("\xff")), kv.RangeOptions{})
		got := 0
		for range c.batches {
			batch, more, err := it.Next(e.ctx)
			e.must(err)
			got += len(batch)
			if !more {
				break
			}
		}
		if all := got == n; all != c.conflict {
			e.Fatalf("%d batches brought %d of %d rows", c.batches, got, n)
		}
		tx.Set(e.k("0"), nil)
		e.transact(func(tx kv.Tx) { tx.Set(key(n-1), value) })
		err := tx.Commit(e.ctx)
		if c.conflict {
			e.wantCode(err, kv.CodeNotCommitted)
		} else {
			e.must(err)
		}
	}
}
