package bench

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestChecker feeds streams of several writers, in pieces cut anywhere, and
// with at most one fault, which must be found and named.
func TestChecker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rec := newRecord(rapid.IntRange(minRecord, 200).Draw(t, "size"))
		writers := rapid.IntRange(1, 4).Draw(t, "writers")
		order := rapid.SliceOfN(rapid.IntRange(0, writers-1), 3, 60).Draw(t, "order")
		sources := make([]*source, writers)
		for w := range sources {
			sources[w] = &source{}
		}
		var records [][]byte
		for _, w := range order {
			p := slices.Clone(rec.template)
			rec.put(p, uint32(w), sources[w].issued.Add(1)-1, 42)
			records = append(records, p)
		}

		fault := rapid.SampledFrom([]string{"none", "lost", "unsure and lost", "unsure and there", "duplicate", "swap", "flip", "cut", "foreign"}).Draw(t, "fault")
		at := rapid.IntRange(0, len(records)-1).Draw(t, "at")
		w, seq, _, _ := rec.parse(records[at])
		switch fault {
		case "lost":
			records = slices.Delete(records, at, at+1)
		case "unsure and lost":
			sources[w].unsure = []uint64{seq}
			records = slices.Delete(records, at, at+1)
		case "unsure and there":
			sources[w].unsure = []uint64{seq}
		case "duplicate":
			records = slices.Insert(records, at+1, records[at])
		case "swap":
			other := slices.IndexFunc(records[at+1:], func(p []byte) bool {
				o, _, _, _ := rec.parse(p)
				return o == w
			})
			if other < 0 {
				t.Skip("the writer's last record")
			}
			records[at], records[at+1+other] = records[at+1+other], records[at]
		case "flip":
			// Within the numbers a flip makes another valid record, which the
			// sequence shows; what stands between them is fixed.
			p := slices.Clone(records[at])
			p[rapid.SampledFrom([]int{0, writerAt - 1, seqAt - 1, fillerAt - 1, len(p) - 1}).Draw(t, "byte")] ^= 1
			records[at] = p
		case "cut":
			last := len(records) - 1
			records[last] = records[last][:rapid.IntRange(1, rec.size()-1).Draw(t, "length")]
		case "foreign":
			p := slices.Clone(rec.template)
			rec.put(p, uint32(writers), 0, 1)
			records[at] = p
		}

		json := rapid.Bool().Draw(t, "json")
		contentType, sep := "text/plain", ""
		if json {
			contentType, sep = "application/json; charset=utf-8", rapid.SampledFrom([]string{"\n", ",", "]\n[", ", \r\n"}).Draw(t, "separator")
		}
		var all []byte
		for _, p := range records {
			all = append(append(all, p...), sep...)
		}
		if fault == "cut" {
			all = all[:len(all)-len(sep)]
		}
		c := newChecker("test", rec, contentType, writers)
		seen := 0
		c.seen = func(uint32, uint64, int64) { seen++ }
		for len(all) > 0 {
			n := rapid.IntRange(1, min(len(all), 2*rec.size())).Draw(t, "piece")
			c.feed(all[:n])
			all = all[n:]
		}
		v := c.finish(sources)
		count := map[string]int64{"lost": v.Lost, "duplicate": v.Duplicate, "swap": v.Reordered, "flip": v.Corrupt, "cut": v.Corrupt, "foreign": v.Corrupt}
		switch n, faulty := count[fault]; {
		case faulty && (n == 0 || v.OK()):
			t.Errorf("%s at %d: found %v", fault, at, v)
		case !faulty && (!v.OK() || seen != len(records) || !c.caughtUp(sources)):
			t.Errorf("%s at %d: found %v, saw %d of %d", fault, at, v, seen, len(records))
		}
	})
}

// FuzzChecker: no input may crash it, and none but the right one may pass.
func FuzzChecker(f *testing.F) {
	rec := newRecord(80)
	good := slices.Clone(rec.template)
	rec.put(good, 0, 0, 7)
	f.Add(good, 10)
	f.Add(append(slices.Clone(good), good...), 100)
	f.Fuzz(func(t *testing.T, p []byte, cut int) {
		c := newChecker("fuzz", rec, "text/plain", 1)
		cut = min(max(cut, 0), len(p))
		c.feed(p[:cut])
		c.feed(p[cut:])
		one := &source{}
		one.issued.Store(1)
		_, seq, _, right := uint32(0), uint64(1), int64(0), false
		if len(p) == rec.size() {
			var w uint32
			w, seq, _, right = rec.parse(p)
			right = right && w == 0
		}
		if v := c.finish([]*source{one}); v.OK() != (right && seq == 0) {
			t.Errorf("%q: %v", p, v)
		}
	})
}
