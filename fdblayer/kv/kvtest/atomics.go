package kvtest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"headwater/fdblayer/kv"
)

var atomicCases = []testCase{
	{"atomics/every operation", testAtomicTable},
	{"atomics/in one transaction apply in order", testAtomicOrder},
	{"atomics/concurrent adds all count", testConcurrentAdds},
}

var stampCases = []testCase{
	{"stamps/key and value", testStamps},
	{"stamps/order is commit order", testStampOrder},
	{"stamps/several in one transaction", testManyStamps},
	{"stamps/a place that does not fit is refused", testBadStamps},
	{"stamps/of two transactions never meet", testStampsUnique},
}

// absent stands for no value in testAtomicTable.
const absent = "ABSENT"

func testAtomicTable(e *env) {
	for i, c := range []struct {
		op               kv.AtomicOp
		old, param, want string
	}{
		{kv.Add, absent, "\x05", "\x05"},
		{kv.Add, "", "\x05\x00", "\x05\x00"},
		{kv.Add, "\x01", "\x02", "\x03"},
		{kv.Add, "\xff\x00", "\x01\x00", "\x00\x01"},                        // carry
		{kv.Add, "\xff\xff", "\x01\x00", "\x00\x00"},                        // overflow is dropped
		{kv.Add, "\xff\xff\x01", "\x01\x00", "\x00\x00"},                    // cut to the operand
		{kv.Add, "\xff", "\x01\x00\x00", "\x00\x01\x00"},                    // grown to it
		{kv.Add, "\x05\x00", "\xff\xff", "\x04\x00"},                        // minus one
		{kv.Add, "\x05", "", ""},                                            // no operand
		{kv.Max, absent, "\x05", "\x05"},                                    //
		{kv.Max, "\x01\x02", "\x02\x01", "\x01\x02"},                        // little-endian: 0x0201 > 0x0102
		{kv.Max, "\x02\x01", "\x01\x02", "\x01\x02"},                        //
		{kv.Max, "\xff", "\x00\x01", "\x00\x01"},                            // the shorter grows
		{kv.Max, "\xff", "\x01\x00", "\xff\x00"},                            //
		{kv.Max, "\x01\x01", "\x02", "\x02"},                                // what is longer than the operand is cut
		{kv.Max, "\x03\x01", "\x02", "\x03"},                                //
		{kv.Max, "\x07", "\x07", "\x07"},                                    //
		{kv.ByteMax, absent, "a", "a"},                                      //
		{kv.ByteMax, "a", "b", "b"},                                         //
		{kv.ByteMax, "b", "a", "b"},                                         //
		{kv.ByteMax, "a", "aa", "aa"},                                       // a prefix is less
		{kv.ByteMax, "b", "aaa", "b"},                                       //
		{kv.ByteMax, "\x01\x02", "\x02\x01", "\x02\x01"},                    // not little-endian
		{kv.ByteMax, "", "", ""},                                            //
		{kv.CompareAndClear, "x", "x", absent},                              //
		{kv.CompareAndClear, "x", "y", "x"},                                 //
		{kv.CompareAndClear, "x", "", "x"},                                  //
		{kv.CompareAndClear, "", "", absent},                                //
		{kv.CompareAndClear, absent, "x", absent},                           //
		{kv.SetVersionstampedValue, "x", string(stamped(nil, "")), "STAMP"}, // replaces
	} {
		key := fmt.Sprint(i)
		if c.old != absent {
			e.set(key, c.old)
		}
		done := e.transact(func(tx kv.Tx) { tx.Atomic(c.op, e.k(key), []byte(c.param)) })
		if c.want == "STAMP" {
			c.want = string(done.Versionstamp[:])
		}
		got := absent
		if v := e.now(key); v != nil {
			got = string(v)
		}
		if got != c.want {
			e.Errorf("operation %d on %q with %q: got %q, want %q", c.op, c.old, c.param, got, c.want)
		}
		// The same must come out where the transaction reads its own write.
		if c.op == kv.SetVersionstampedValue {
			continue
		}
		tx := e.begin()
		tx.Clear(e.k(key))
		if c.old != absent {
			tx.Set(e.k(key), []byte(c.old))
		}
		tx.Atomic(c.op, e.k(key), []byte(c.param))
		got = absent
		if v := e.read(tx, key); v != nil {
			got = string(v)
		}
		if got != c.want {
			e.Errorf("operation %d on an own write of %q with %q: got %q, want %q", c.op, c.old, c.param, got, c.want)
		}
		tx.Cancel()
	}
}

func testAtomicOrder(e *env) {
	e.set("a", "\x01", "b", "x")
	e.transact(func(tx kv.Tx) {
		tx.Atomic(kv.Add, e.k("a"), []byte{2})
		tx.Set(e.k("a"), []byte{10})
		tx.Atomic(kv.Add, e.k("a"), []byte{2})
		tx.Atomic(kv.Max, e.k("a"), []byte{11})
		tx.Atomic(kv.Add, e.k("a"), []byte{1})

		tx.Atomic(kv.CompareAndClear, e.k("b"), []byte("x"))
		tx.Atomic(kv.ByteMax, e.k("b"), []byte("a"))

		tx.Atomic(kv.Add, e.k("c"), []byte{1})
		tx.ClearRange(e.r("c", "d"))
		tx.Atomic(kv.Add, e.k("c"), []byte{1})
		tx.Clear(e.k("d"))
		tx.Atomic(kv.Add, e.k("d"), []byte{7})
	})
	e.want(e.list(e.begin(), "a", "z", kv.RangeOptions{}), "a=\x0d b=a c=\x01 d=\x07")
}

func testConcurrentAdds(e *env) {
	const workers, each = 8, 25
	var g sync.WaitGroup
	errs := make(chan error, workers*each)
	for range workers {
		g.Go(func() {
			for range each {
				tx := e.db.Begin()
				tx.Atomic(kv.Add, e.k("n"), []byte{1, 0, 0, 0})
				tx.Atomic(kv.Max, e.k("max"), []byte{1})
				errs <- tx.Commit(e.ctx) // not retried: it must not conflict
				tx.Cancel()
			}
		})
	}
	g.Wait()
	close(errs)
	applied, unknown := uint32(0), uint32(0)
	for err := range errs {
		switch {
		case err == nil:
			applied++
		case kv.MaybeCommitted(err):
			unknown++ // a cluster may answer so at any time
		default:
			e.Fatal(err)
		}
	}
	if n := binary.LittleEndian.Uint32(e.now("n")); n < applied || n > applied+unknown {
		e.Fatalf("the sum is %d after %d adds and %d of unknown outcome", n, applied, unknown)
	}
}

func testStamps(e *env) {
	tx := e.begin()
	tx.Atomic(kv.SetVersionstampedKey, stamped(e.k("log/"), "/tail"), []byte("value"))
	tx.Atomic(kv.SetVersionstampedValue, e.k("at"), stamped([]byte("<"), ">"))
	e.must(tx.Commit(e.ctx))
	stamp, version := tx.Versionstamp(), tx.CommittedVersion()
	if got := int64(binary.BigEndian.Uint64(stamp[:])); got != version {
		e.Fatalf("the stamp begins with %d, the committed version is %d", got, version)
	}
	e.wantValue(e.now("at"), "<"+string(stamp[:])+">")
	e.want(e.list(e.begin(), "log/", "log0", kv.RangeOptions{}), "log/"+string(stamp[:])+"/tail=value")
}

func testStampOrder(e *env) {
	var last [kv.VersionstampLen]byte
	var want []string
	for i := range 20 {
		done := e.transact(func(tx kv.Tx) {
			tx.Atomic(kv.SetVersionstampedKey, stamped(e.k("log/"), ""), []byte{byte('a' + i)})
		})
		if slices.Compare(done.Versionstamp[:], last[:]) <= 0 {
			e.Fatalf("stamp %x does not come after %x", done.Versionstamp, last)
		}
		last = done.Versionstamp
		want = append(want, string(rune('a'+i)))
	}
	got, err := rows(e.ctx, e.begin(), kv.FirstGreaterOrEqual(e.k("log/")), kv.FirstGreaterOrEqual(e.k("log0")), kv.RangeOptions{})
	e.must(err)
	if len(got) < len(want) { // a cluster may have run one twice
		e.Fatalf("got %d rows, want %d", len(got), len(want))
	}
	var order []string
	for _, row := range got {
		order = append(order, string(row.Value))
	}
	if order = slices.Compact(order); !slices.Equal(order, want) {
		e.Fatalf("got order %q, want %q", order, want)
	}
}

func testManyStamps(e *env) {
	done := e.transact(func(tx kv.Tx) {
		for i := range 3 {
			tx.Atomic(kv.SetVersionstampedKey, stamped(e.k("log/"), fmt.Sprint(i)), []byte{byte('a' + i)})
		}
		tx.Atomic(kv.SetVersionstampedValue, e.k("x"), stamped(nil, ""))
		tx.Atomic(kv.SetVersionstampedValue, e.k("y"), stamped(nil, ""))
	})
	s := string(done.Versionstamp[:])
	tx := e.begin()
	e.want(e.list(tx, "log/"+s, "log/"+s+"\xff", kv.RangeOptions{}),
		fmt.Sprintf("log/%s0=a log/%s1=b log/%s2=c", s, s, s))
	e.wantValue(e.read(tx, "x"), s)
	e.wantValue(e.read(tx, "y"), s)
}

func testBadStamps(e *env) {
	for _, c := range []struct {
		name  string
		key   []byte
		value []byte
	}{
		{"key without room", append(e.k("log/"), 0xf0, 0, 0, 0), nil},
		{"value without room", nil, []byte("123456789\x00\x00\x00\x00")},
		{"value shorter than its suffix", nil, []byte("\x00\x00")},
		{"value with a place past its end", nil, []byte("0123456789\x01\x00\x00\x00")},
	} {
		tx := e.begin()
		if c.key != nil {
			tx.Atomic(kv.SetVersionstampedKey, c.key, nil)
		} else {
			tx.Atomic(kv.SetVersionstampedValue, e.k("v"), c.value)
		}
		tx.Set(e.k("other"), nil)
		if err := tx.Commit(e.ctx); kv.Code(err) != kv.CodeClientInvalidOperation {
			e.Errorf("%s: got %v, want code %d", c.name, err, kv.CodeClientInvalidOperation)
		}
		tx.Cancel()
	}
	e.wantAbsent(e.now("other"))
}

func testStampsUnique(e *env) {
	const workers, each = 8, 25
	stamps := make(chan [kv.VersionstampLen]byte, workers*each)
	var g sync.WaitGroup
	for range workers {
		g.Go(func() {
			for range each {
				tx := e.db.Begin()
				tx.Atomic(kv.SetVersionstampedKey, stamped(e.k("log/"), ""), nil)
				if err := tx.Commit(e.ctx); err == nil {
					stamps <- tx.Versionstamp()
				} else if !kv.MaybeCommitted(err) {
					e.Error(err)
				}
				tx.Cancel()
			}
		})
	}
	g.Wait()
	close(stamps)
	seen := map[[kv.VersionstampLen]byte]bool{}
	for s := range stamps {
		if seen[s] {
			e.Fatalf("stamp %x was given twice", s)
		}
		seen[s] = true
		if v, err := e.begin().Get(append(e.k("log/"), s[:]...)).Wait(e.ctx); err != nil || v == nil {
			e.Fatalf("no key has stamp %x: %v", s, err)
		}
	}
}
