package kvtest

import (
	"bytes"
	"fmt"

	"headwater/fdblayer/kv"
)

var selectorCases = []testCase{
	{"selectors/every offset", testSelectors},
	{"selectors/both ends of the key space", testSelectorEnds},
	{"selectors/as ends of a range", testSelectorRanges},
}

var rangeCases = []testCase{
	{"ranges/limits and directions", testRangeLimits},
	{"ranges/empty and inverted", testEmptyRanges},
	{"ranges/many batches", testManyBatches},
	{"ranges/several at once", testParallelReads},
	{"ranges/an empty value is not an absent key", testEmptyValue},
	{"ranges/keys of any bytes", testAnyBytes},
}

func testSelectors(e *env) {
	state := model{}
	for _, k := range []string{"a0", "a1", "a2", "a3", "b", "d", "d\x00", "f", "y0", "y1", "y2", "y3"} {
		state[k] = "v"
		e.set(k, "v")
	}
	tx := e.begin()
	for _, key := range []string{"b", "c", "d", "d\x00", "e", "f"} {
		for _, orEqual := range []bool{false, true} {
			for offset := -3; offset <= 3; offset++ {
				want := state.selected(kv.Selector{Key: []byte(key), OrEqual: orEqual, Offset: offset}, "", "")
				got, err := tx.GetKey(kv.Selector{Key: e.k(key), OrEqual: orEqual, Offset: offset}).Wait(e.ctx)
				e.must(err)
				if e.name(got) != want {
					e.Errorf("selector (%q, %v, %d): got %q, want %q", key, orEqual, offset, e.name(got), want)
				}
			}
		}
	}
}

func testSelectorEnds(e *env) {
	e.set("a", "1")
	tx := e.begin()
	for _, c := range []struct {
		sel  kv.Selector
		want string
	}{
		{kv.LastLessThan(nil), ""},
		{kv.Selector{Key: e.k("a"), Offset: -1_000_000}, ""},
		{kv.FirstGreaterOrEqual([]byte{0xff}), "\xff"},
		{kv.Selector{Key: []byte{0xff}, Offset: 7}, "\xff"},
		{kv.Selector{Key: []byte{0xff}, Offset: 2}, "\xff"},
	} {
		got, err := tx.GetKey(c.sel).Wait(e.ctx)
		e.must(err)
		if string(got) != c.want {
			e.Errorf("selector %+v: got %q, want %q", c.sel, got, c.want)
		}
	}
	got, err := tx.GetKey(kv.LastLessThan([]byte{0xff})).Wait(e.ctx)
	e.must(err)
	if bytes.Compare(got, e.k("a")) < 0 || got[0] == 0xff {
		e.Errorf("the last key of the database is %q, want at least %q", got, e.k("a"))
	}
}

func testSelectorRanges(e *env) {
	e.set("a", "1", "b", "1", "c", "1", "d", "1", "e", "1", "f", "1")
	tx := e.begin()
	off := func(key string, orEqual bool, offset int) kv.Selector {
		return kv.Selector{Key: e.k(key), OrEqual: orEqual, Offset: offset}
	}
	for _, c := range []struct {
		begin, end kv.Selector
		opt        kv.RangeOptions
		want       string
	}{
		{kv.FirstGreaterThan(e.k("b")), kv.FirstGreaterThan(e.k("d")), kv.RangeOptions{}, "c=1 d=1"},
		{kv.LastLessThan(e.k("d")), kv.FirstGreaterOrEqual(e.k("f")), kv.RangeOptions{}, "c=1 d=1 e=1"},
		{kv.LastLessOrEqual(e.k("bb")), kv.LastLessOrEqual(e.k("e")), kv.RangeOptions{}, "b=1 c=1 d=1"},
		{off("c", false, 2), off("c", false, 4), kv.RangeOptions{}, "d=1 e=1"},
		{off("f", false, -2), off("f", true, 0), kv.RangeOptions{Reverse: true}, "e=1 d=1 c=1"},
		{off("c", false, 1), off("c", false, 1), kv.RangeOptions{}, ""},
		{kv.LastLessThan(e.k("d")), kv.FirstGreaterOrEqual(e.k("f")), kv.RangeOptions{Limit: 1}, "c=1"},
		{kv.LastLessThan(e.k("d")), kv.FirstGreaterOrEqual(e.k("f")), kv.RangeOptions{Limit: 2, Reverse: true}, "e=1 d=1"},
	} {
		if got := e.listSel(tx, c.begin, c.end, c.opt); got != c.want {
			e.Errorf("range %+v to %+v %+v: got %q, want %q", c.begin, c.end, c.opt, got, c.want)
		}
	}
}

func testRangeLimits(e *env) {
	state := model{}
	for i := range 9 {
		k := string(rune('a' + i))
		state[k] = "v" + k
		e.set(k, "v"+k)
	}
	tx := e.begin()
	for limit := range 11 {
		for _, reverse := range []bool{false, true} {
			opt := kv.RangeOptions{Limit: limit, Reverse: reverse}
			for _, r := range [][2]string{{"a", "z"}, {"b", "h"}, {"bb", "gg"}, {"d", "e"}, {"d", "d\x00"}} {
				if got, want := e.list(tx, r[0], r[1], opt), state.list(r[0], r[1], opt); got != want {
					e.Errorf("[%s, %s) %+v: got %q, want %q", r[0], r[1], opt, got, want)
				}
			}
		}
	}
}

func testEmptyRanges(e *env) {
	e.set("a", "1", "b", "1")
	tx := e.begin()
	for _, reverse := range []bool{false, true} {
		opt := kv.RangeOptions{Reverse: reverse}
		e.want(e.list(tx, "a", "a", opt), "")
		e.want(e.list(tx, "b", "a", opt), "")
		e.want(e.list(tx, "c", "z", opt), "")
	}
	tx.ClearRange(e.r("a", "a"))
	e.must(tx.Commit(e.ctx))
	e.want(e.list(e.begin(), "a", "z", kv.RangeOptions{}), "a=1 b=1")

	tx = e.begin()
	tx.ClearRange(e.r("b", "a"))
	e.wantCode(tx.Commit(e.ctx), kv.CodeInvertedRange)
	e.want(e.list(e.begin(), "a", "z", kv.RangeOptions{}), "a=1 b=1")
}

func testManyBatches(e *env) {
	const n = 60
	key := func(i int) string { return fmt.Sprintf("%03d", i) }
	value := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 5000+i) }
	e.transact(func(tx kv.Tx) {
		for i := range n {
			tx.Set(e.k(key(i)), value(i))
		}
	})
	for _, opt := range []kv.RangeOptions{{}, {Reverse: true}, {Limit: 37}, {Limit: 37, Reverse: true}, {Limit: n + 1}} {
		tx := e.begin()
		it := tx.GetRange(kv.FirstGreaterOrEqual(e.k("")), kv.FirstGreaterOrEqual(e.k("\xff")), opt)
		// Changes of others between batches are not seen.
		e.transact(func(tx kv.Tx) { tx.Set(e.k(key(n-1)+"x"), []byte("new")) })
		got, batches := 0, 0
		for more := true; more; batches++ {
			var batch []kv.KeyValue
			var err error
			batch, more, err = it.Next(e.ctx)
			e.must(err)
			for _, row := range batch {
				i := got
				if opt.Reverse {
					i = n - 1 - got
				}
				if e.name(row.Key) != key(i) || !bytes.Equal(row.Value, value(i)) {
					e.Fatalf("%+v: row %d is %q of %d bytes", opt, got, e.name(row.Key), len(row.Value))
				}
				got++
			}
		}
		want := n
		if opt.Limit > 0 {
			want = min(n, opt.Limit)
		}
		if got != want {
			e.Errorf("%+v: got %d rows, want %d", opt, got, want)
		}
		if batches < 2 {
			e.Errorf("%+v: %d rows of 5 kB came in %d batch", opt, got, batches)
		}
		tx.Cancel()
		e.transact(func(tx kv.Tx) { tx.Clear(e.k(key(n-1) + "x")) })
	}
}

func testParallelReads(e *env) {
	e.set("a", "1", "b", "2", "c", "3")
	tx := e.begin()
	a, b := tx.Get(e.k("a")), tx.Get(e.k("b"))
	k := tx.GetKey(kv.LastLessThan(e.k("c")))
	it := tx.GetRange(kv.FirstGreaterOrEqual(e.k("a")), kv.FirstGreaterOrEqual(e.k("z")), kv.RangeOptions{})
	c := tx.Get(e.k("c"))
	done := make(chan string)
	for _, f := range []kv.Value{c, k, b, a} {
		go func() {
			v, err := f.Wait(e.ctx)
			if err == nil {
				v, err = f.Wait(e.ctx) // again
			}
			done <- fmt.Sprintf("%s %v", bytes.TrimPrefix(v, []byte(e.prefix)), err)
		}()
	}
	seen := map[string]bool{}
	for range 4 {
		seen[<-done] = true
	}
	for _, want := range []string{"1 <nil>", "2 <nil>", "3 <nil>", "b <nil>"} {
		if !seen[want] {
			e.Errorf("no read answered %q: %v", want, seen)
		}
	}
	batch, _, err := it.Next(e.ctx)
	e.must(err)
	e.want(e.line(batch), "a=1 b=2 c=3")
}

func testEmptyValue(e *env) {
	e.set("empty", "")
	tx := e.begin()
	v := e.read(tx, "empty")
	if v == nil || len(v) != 0 {
		e.Fatalf("got %#v, want an empty value that is not nil", v)
	}
	e.wantAbsent(e.read(tx, "absent"))
	tx.Set(e.k("own"), nil)
	if v := e.read(tx, "own"); v == nil || len(v) != 0 {
		e.Fatalf("got %#v of an own write, want an empty value that is not nil", v)
	}
	e.want(e.list(tx, "a", "z", kv.RangeOptions{}), "empty= own=")
	e.must(tx.Commit(e.ctx))
	e.want(e.list(e.begin(), "a", "z", kv.RangeOptions{}), "empty= own=")
}

func testAnyBytes(e *env) {
	names := []string{"", "\x00", "\x00\x00", "\x00\xff", "a", "a\x00", "a\xff", "\xfe\xff\xff", "\xff", "\xff\xff"}
	e.transact(func(tx kv.Tx) {
		for _, n := range names {
			tx.Set(e.k(n), []byte(n))
		}
	})
	tx := e.begin()
	got, err := rows(e.ctx, tx, kv.FirstGreaterOrEqual(e.k("")), kv.FirstGreaterOrEqual([]byte(e.prefix[:len(e.prefix)-1]+"0")), kv.RangeOptions{})
	e.must(err)
	if len(got) != len(names) {
		e.Fatalf("got %d rows, want %d", len(got), len(names))
	}
	for i, row := range got {
		if e.name(row.Key) != names[i] || string(row.Value) != names[i] {
			e.Errorf("row %d is %q=%q, want %q", i, e.name(row.Key), row.Value, names[i])
		}
	}
	e.transact(func(tx kv.Tx) {
		tx.Clear(e.k("\xff"))
		tx.Clear(e.k("\xff\xff"))
	})
}
