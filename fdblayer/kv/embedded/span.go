package embedded

import (
	"bytes"
	"slices"
)

// span is a set of keys: from begin, included, to end, excluded. A nil end
// makes it the single key begin, the usual case, which then costs one slice.
type span struct {
	begin, end []byte
}

func pointSpan(key []byte) span { return span{begin: key} }

// rangeSpan returns the span of [begin, end), as a point if it is one key.
func rangeSpan(begin, end []byte) span {
	if len(end) == len(begin)+1 && end[len(begin)] == 0 && bytes.Equal(begin, end[:len(begin)]) {
		return span{begin: begin}
	}
	return span{begin, end}
}

func (s span) isPoint() bool { return s.end == nil }

func (s span) size() int {
	if s.isPoint() {
		return 2*len(s.begin) + 1
	}
	return len(s.begin) + len(s.end)
}

// successor returns the smallest key that is greater than key.
func successor(key []byte) []byte {
	return append(append(make([]byte, 0, len(key)+1), key...), 0)
}

// spanSet is a set of keys as disjoint ranges in order, none of them a point
// in span's short form. Adding costs the ranges behind the new one a move, so
// it is for the few ranges of a transaction.
type spanSet []span

// from returns the index of the first range that ends after key.
func (s spanSet) from(key []byte) int {
	i, found := slices.BinarySearchFunc(s, key, func(r span, k []byte) int { return bytes.Compare(r.end, k) })
	if found {
		i++
	}
	return i
}

// holding returns the range that holds key.
func (s spanSet) holding(key []byte) (span, bool) {
	i := s.from(key)
	if i < len(s) && bytes.Compare(s[i].begin, key) <= 0 {
		return s[i], true
	}
	return span{}, false
}

// overlaps reports whether the set holds a key of [begin, end).
func (s spanSet) overlaps(begin, end []byte) bool {
	i := s.from(begin)
	return i < len(s) && bytes.Compare(s[i].begin, end) < 0
}

// add puts [begin, end) into the set, joined with the ranges it meets.
func (s *spanSet) add(begin, end []byte) {
	lo, _ := slices.BinarySearchFunc(*s, begin, func(r span, k []byte) int { return bytes.Compare(r.end, k) })
	hi := lo
	for hi < len(*s) && bytes.Compare((*s)[hi].begin, end) <= 0 {
		if bytes.Compare((*s)[hi].begin, begin) < 0 {
			begin = (*s)[hi].begin
		}
		if bytes.Compare((*s)[hi].end, end) > 0 {
			end = (*s)[hi].end
		}
		hi++
	}
	*s = slices.Replace(*s, lo, hi, span{begin, end})
}

// remove takes [begin, end) out of the set.
func (s *spanSet) remove(begin, end []byte) {
	lo := s.from(begin)
	hi := lo
	var rest []span
	for hi < len(*s) && bytes.Compare((*s)[hi].begin, end) < 0 {
		r := (*s)[hi]
		if bytes.Compare(r.begin, begin) < 0 {
			rest = append(rest, span{r.begin, begin})
		}
		if bytes.Compare(r.end, end) > 0 {
			rest = append(rest, span{end, r.end})
		}
		hi++
	}
	*s = slices.Replace(*s, lo, hi, rest...)
}
