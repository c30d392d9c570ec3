package embedded

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// recorded is a history as a plain list, to compare with.
type recorded []struct {
	span
	version int64
}

func (r recorded) conflicts(q span, version int64) bool {
	end := func(s span) []byte {
		if s.isPoint() {
			return successor(s.begin)
		}
		return s.end
	}
	for _, w := range r {
		if w.version > version && bytes.Compare(w.begin, end(q)) < 0 && bytes.Compare(q.begin, end(w.span)) < 0 &&
			bytes.Compare(w.begin, end(w.span)) < 0 && bytes.Compare(q.begin, end(q)) < 0 {
			return true
		}
	}
	return false
}

func randomSpan(rng *rand.Rand, points int) span {
	key := func() []byte { return []byte(fmt.Sprintf("%0*d", 1+rng.IntN(3), rng.IntN(1000))) }
	if rng.IntN(100) < points {
		return pointSpan(key())
	}
	return rangeSpan(key(), key()) // may be inverted: an empty range
}

// The history answers as a list of all writes would, through many segments,
// sorted and not, and after it forgot the oldest.
func TestHistoryMatchesAList(t *testing.T) {
	for _, points := range []int{100, 95, 50, 0} {
		t.Run(fmt.Sprintf("%d%% points", points), func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			h := newHistory(0, 1<<30)
			var all recorded
			version := int64(1)
			yes, no := 0, 0
			for i := range 6000 {
				if rng.IntN(5) == 0 {
					version += rng.Int64N(10)
				}
				w := randomSpan(rng, points)
				h.add(w, version)
				all = append(all, struct {
					span
					version int64
				}{w, version})
				if i%1500 == 1400 {
					h.forget(version - 2000)
				}
				q := randomSpan(rng, 50)
				from := max(h.oldest, version-rng.Int64N(1+rng.Int64N(4000)))
				got, want := h.conflicts(q, from), all.conflicts(q, from)
				if got != want {
					t.Fatalf("write %d: is %q to %q written after %d (now %d)? got %v, want %v",
						i, q.begin, q.end, from, version, got, want)
				}
				if got {
					yes++
				} else {
					no++
				}
			}
			if yes < 100 || no < 100 {
				t.Errorf("%d conflicts and %d none: too one-sided to mean much", yes, no)
			}
		})
	}
}

func TestHistoryForgets(t *testing.T) {
	h := newHistory(0, 1<<30)
	for v := int64(1); v <= 10_000; v++ {
		h.add(pointSpan([]byte(fmt.Sprint(v))), v)
		if v%100 == 0 {
			h.add(span{[]byte("a"), []byte("b")}, v)
		}
	}
	if h.bytes < 10_000*pointCost {
		t.Errorf("%d bytes are counted for 10,000 writes", h.bytes)
	}
	h.forget(10_000)
	if len(h.points) != 0 || len(h.segments) != 0 || h.bytes != 0 {
		t.Errorf("%d points, %d segments and %d bytes are left", len(h.points), len(h.segments), h.bytes)
	}
}

func TestHistoryKeepsToItsBytes(t *testing.T) {
	const most = 1 << 20
	h := newHistory(0, most)
	for v := int64(1); v <= 50_000; v++ {
		h.add(pointSpan([]byte(fmt.Sprintf("key %d", v%20_000))), v)
		if v%50 == 0 {
			h.forget(0)
			if h.bytes > most {
				t.Fatalf("%d bytes, want at most %d", h.bytes, most)
			}
		}
	}
	if h.oldest == 0 {
		t.Fatal("nothing was forgotten")
	}
	// What is left is still exact: a write after oldest conflicts.
	if !h.conflicts(pointSpan([]byte(fmt.Sprintf("key %d", 50_000%20_000))), h.oldest) {
		t.Error("the last write is forgotten")
	}
}

func TestSpanSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		var set spanSet
		var in [26]bool
		for range 1 + rng.IntN(12) {
			lo, hi := rng.IntN(26), rng.IntN(26)
			if lo >= hi {
				continue
			}
			remove := rng.IntN(3) == 0
			if remove {
				set.remove([]byte{byte('a' + lo)}, []byte{byte('a' + hi)})
			} else {
				set.add([]byte{byte('a' + lo)}, []byte{byte('a' + hi)})
			}
			for i := lo; i < hi; i++ {
				in[i] = !remove
			}
		}
		for i, want := range in {
			if _, got := set.holding([]byte{byte('a' + i)}); got != want {
				t.Fatalf("%v holds %c: %v, want %v", set, 'a'+i, got, want)
			}
			if got := set.overlaps([]byte{byte('a' + i)}, []byte{byte('a' + i), 0}); got != want {
				t.Fatalf("%v overlaps %c: %v, want %v", set, 'a'+i, got, want)
			}
		}
		for i := 1; i < len(set); i++ {
			if bytes.Compare(set[i-1].end, set[i].begin) > 0 || bytes.Compare(set[i].begin, set[i].end) >= 0 {
				t.Fatalf("%v is not disjoint", set)
			}
		}
	}
}
