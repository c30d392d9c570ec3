package embedded

import (
	"bytes"
	"slices"
	"sort"
	"strings"
)

// history is what the committer knows of the writes of the last 5 s: enough to
// answer, exactly, whether a key or a range was written after a version. It
// belongs to the committer and has no lock.
//
// A point read is answered by a hash map from key to the version of its last
// write. A range read, or a read of a point that a range write may cover, walks
// the segments from the newest back to the version it read at; each segment is
// the writes of a stretch of time. Read versions are mostly milliseconds old,
// so that is a segment or two. A segment is sorted when the first range read
// asks for it, which in a load of appends is never.
//
// Memory is bounded twice: by age, and by bytes, where a full history forgets
// its oldest segment before its time and refuses the transactions that would
// need it as too old.
type history struct {
	// oldest is the lowest read version that can still be judged.
	oldest int64
	points map[string]pointWrite
	// segments are in the order of time; the last one is being filled.
	segments []*segment
	// lastRange is the version of the newest range write.
	lastRange int64
	bytes     int
	maxBytes  int
}

const (
	// segmentWrites is how many writes make a segment: few enough to look
	// through the newest, which is not sorted.
	segmentWrites = 512
	// pointCost is what a point write costs besides its key: an entry of the
	// map with its spare room and one of a segment.
	pointCost = 120
)

type pointWrite struct {
	key     string
	version int64
}

// rangeWrite is a write of the keys from begin, included, to end, excluded.
type rangeWrite struct {
	begin, end string
	version    int64
}

// segment is the writes of a stretch of time, in the order of their versions
// until points is sorted by key.
type segment struct {
	last      int64
	lastRange int64
	points    []pointWrite
	ranges    []rangeWrite
	sealed    bool
	sorted    bool
	// steps are the ranges of a sealed segment as the greatest version of each
	// stretch of keys, built when first asked for.
	steps []step
	bytes int
}

// step says that the keys from begin to the next step's begin were last written
// at version; 0 means not in this segment.
type step struct {
	begin   string
	version int64
}

func newHistory(start int64, maxBytes int) *history {
	return &history{oldest: start, points: make(map[string]pointWrite), maxBytes: maxBytes}
}

// filling returns the segment to write into.
func (h *history) filling() *segment {
	if n := len(h.segments); n > 0 && !h.segments[n-1].sealed {
		return h.segments[n-1]
	}
	s := &segment{}
	h.segments = append(h.segments, s)
	return s
}

func (h *history) wrote(s *segment, version int64, bytes int) {
	s.last = version
	s.bytes += bytes
	h.bytes += bytes
	s.sealed = len(s.points)+len(s.ranges) >= segmentWrites
}

// add records a write of w at version, which never goes back.
func (h *history) add(w span, version int64) {
	if !w.isPoint() {
		if bytes.Compare(w.begin, w.end) >= 0 {
			return
		}
		s := h.filling()
		s.ranges = append(s.ranges, rangeWrite{string(w.begin), string(w.end), version})
		s.lastRange = version
		h.lastRange = version
		h.wrote(s, version, pointCost+len(w.begin)+len(w.end))
		return
	}
	p, known := h.points[string(w.begin)]
	if known && p.version == version {
		return
	}
	if !known {
		p.key = string(w.begin)
	}
	p.version = version
	h.points[p.key] = p
	s := h.filling()
	s.points = append(s.points, p)
	// A key that is written again costs less than this, but which segment
	// holds the share of its map entry would have to be kept too.
	h.wrote(s, version, pointCost+len(p.key))
}

// conflicts reports whether a key of r was written after version.
func (h *history) conflicts(r span, version int64) bool {
	if r.isPoint() {
		if h.points[string(r.begin)].version > version {
			return true
		}
		if h.lastRange <= version {
			return false
		}
		return h.rangesOverlap(string(r.begin), string(r.begin)+"\x00", version)
	}
	begin, end := string(r.begin), string(r.end)
	if begin >= end {
		return false
	}
	for i := len(h.segments) - 1; i >= 0 && h.segments[i].last > version; i-- {
		if h.segments[i].pointIn(begin, end, version) {
			return true
		}
	}
	return h.rangesOverlap(begin, end, version)
}

func (h *history) rangesOverlap(begin, end string, version int64) bool {
	for i := len(h.segments) - 1; i >= 0 && h.segments[i].last > version; i-- {
		if h.segments[i].lastRange > version && h.segments[i].rangeIn(begin, end, version) {
			return true
		}
	}
	return false
}

func (s *segment) pointIn(begin, end string, version int64) bool {
	if !s.sealed {
		for _, p := range s.points {
			if p.version > version && p.key >= begin && p.key < end {
				return true
			}
		}
		return false
	}
	if !s.sorted {
		slices.SortFunc(s.points, func(a, b pointWrite) int { return strings.Compare(a.key, b.key) })
		s.sorted = true
	}
	i := sort.Search(len(s.points), func(i int) bool { return s.points[i].key >= begin })
	for ; i < len(s.points) && s.points[i].key < end; i++ {
		if s.points[i].version > version {
			return true
		}
	}
	return false
}

func (s *segment) rangeIn(begin, end string, version int64) bool {
	if !s.sealed {
		for _, r := range s.ranges {
			if r.version > version && r.begin < end && begin < r.end {
				return true
			}
		}
		return false
	}
	if s.steps == nil {
		s.buildSteps()
	}
	i := sort.Search(len(s.steps), func(i int) bool { return s.steps[i].begin > begin })
	for i = max(i-1, 0); i < len(s.steps) && s.steps[i].begin < end; i++ {
		if s.steps[i].version > version {
			return true
		}
	}
	return false
}

// buildSteps paints the ranges over the sorted edges of all of them. They are
// in the order of their versions, so the last one to paint a step is the newest.
func (s *segment) buildSteps() {
	edges := make([]string, 0, 2*len(s.ranges))
	for _, r := range s.ranges {
		edges = append(edges, r.begin, r.end)
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	s.steps = make([]step, len(edges))
	for i, e := range edges {
		s.steps[i].begin = e
	}
	for _, r := range s.ranges {
		i, _ := slices.BinarySearch(edges, r.begin)
		for ; edges[i] < r.end; i++ {
			s.steps[i].version = r.version
		}
	}
}

// forget drops what no transaction may ask for any more: read versions below
// oldest are refused from now on.
func (h *history) forget(oldest int64) {
	h.oldest = max(h.oldest, oldest)
	n := 0
	for n < len(h.segments) && (h.segments[n].last <= h.oldest || h.bytes > h.maxBytes) {
		s := h.segments[n]
		h.oldest = max(h.oldest, s.last)
		for _, p := range s.points {
			if h.points[p.key].version <= s.last {
				delete(h.points, p.key)
			}
		}
		h.bytes -= s.bytes
		n++
	}
	h.segments = slices.Delete(h.segments, 0, n)
}
