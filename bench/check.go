package bench

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// source is what one writer put into one stream. Its writer alone changes it;
// others read issued while it runs, and the rest after it has stopped.
type source struct {
	// issued is the number of sequence numbers used, from 0.
	issued atomic.Uint64
	// unsure are those of appends that had no clear answer, ascending: the
	// record may be there or not.
	unsure []uint64
}

// maxUnsure bounds what a writer forgives a failing server.
const maxUnsure = 100_000

func (s *source) doubt(seq uint64) error {
	if len(s.unsure) >= maxUnsure {
		return fmt.Errorf("more than %d appends without a clear answer", maxUnsure)
	}
	s.unsure = append(s.unsure, seq)
	return nil
}

// Verification is what the checks of a run found.
type Verification struct {
	// Skipped tells a run against a pseudo-server, where nothing is checked.
	Skipped bool `json:"skipped,omitempty"`
	// Records is the number of records looked at, by all readers.
	Records int64 `json:"records"`
	// Lost, Duplicate, Reordered and Corrupt are violations; each is counted
	// once per reader that saw it.
	Lost      int64 `json:"lost"`
	Duplicate int64 `json:"duplicate"`
	Reordered int64 `json:"reordered"`
	Corrupt   int64 `json:"corrupt"`
	// First describes the first violation found.
	First string `json:"first,omitempty"`
}

// OK reports that no violation was found.
func (v Verification) OK() bool {
	return v.Lost+v.Duplicate+v.Reordered+v.Corrupt == 0 && v.First == ""
}

func (v Verification) String() string {
	switch {
	case v.Skipped:
		return "not verified: nothing is stored"
	case v.OK():
		return fmt.Sprintf("verified %d records", v.Records)
	}
	var parts []string
	for _, p := range []struct {
		n    int64
		what string
	}{{v.Lost, "lost"}, {v.Duplicate, "duplicate"}, {v.Reordered, "out of order"}, {v.Corrupt, "corrupt"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return fmt.Sprintf("VIOLATIONS among %d records: %s (first: %s)", v.Records, strings.Join(parts, ", "), v.First)
}

func (v *Verification) add(o Verification) {
	v.Records += o.Records
	v.Lost += o.Lost
	v.Duplicate += o.Duplicate
	v.Reordered += o.Reordered
	v.Corrupt += o.Corrupt
	set(&v.First, o.First)
}

// checker follows one reader's view of one stream. Its input may be cut
// anywhere.
type checker struct {
	record record
	// name is the reader's, for descriptions.
	name string
	// separators tells a JSON stream, whose representations differ in what
	// stands between the messages.
	separators bool
	// next is the sequence number expected from each writer, missing those
	// passed over, so that one that comes late is told from a duplicate.
	next    []uint64
	missing []map[uint64]struct{}
	// seen is called for every record in its place.
	seen func(writer uint32, seq uint64, sent int64)

	partial []byte
	found   Verification
}

func newChecker(name string, r record, contentType string, writers int) *checker {
	return &checker{
		record:     r,
		name:       name,
		separators: isJSON(contentType),
		next:       make([]uint64, writers),
		missing:    make([]map[uint64]struct{}, writers),
	}
}

func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(media), "application/json")
}

// feed takes the next bytes of the stream. After a corrupt record there is no
// telling where the next one begins, so what follows is not looked at.
func (c *checker) feed(p []byte) {
	size := c.record.size()
	if n := len(c.partial); n > 0 && n < size {
		take := min(size-n, len(p))
		c.partial = append(c.partial, p[:take]...)
		p = p[take:]
		if len(c.partial) < size {
			return
		}
		c.one(c.partial)
		c.partial = c.partial[:0]
	}
	for len(p) > 0 && c.found.Corrupt == 0 {
		if c.separators && strings.IndexByte("[],\r\n ", p[0]) >= 0 {
			p = p[1:]
			continue
		}
		if len(p) < size {
			c.partial = append(c.partial[:0], p...)
			return
		}
		c.one(p[:size])
		p = p[size:]
	}
}

func (c *checker) one(p []byte) {
	writer, seq, sent, ok := c.record.parse(p)
	if !ok || int(writer) >= len(c.next) {
		c.violation(&c.found.Corrupt, "corrupt record %.80q after %d good ones", p, c.found.Records)
		return
	}
	c.found.Records++
	switch next := c.next[writer]; {
	case seq == next:
		c.next[writer]++
	case seq > next:
		// A gap, or the first half of a swap: finish tells, when all is read.
		if seq-next > maxUnsure {
			c.violation(&c.found.Corrupt, "writer %d: record %d follows %d", writer, seq, next)
			return
		}
		if c.missing[writer] == nil {
			c.missing[writer] = make(map[uint64]struct{})
		}
		for s := next; s < seq; s++ {
			c.missing[writer][s] = struct{}{}
		}
		c.next[writer] = seq + 1
	default:
		if _, late := c.missing[writer][seq]; late {
			delete(c.missing[writer], seq)
			c.violation(&c.found.Reordered, "writer %d: record %d came after %d", writer, seq, next-1)
		} else {
			c.violation(&c.found.Duplicate, "writer %d: record %d came twice", writer, seq)
		}
		return
	}
	if c.seen != nil {
		c.seen(writer, seq, sent)
	}
}

func (c *checker) violation(count *int64, format string, args ...any) {
	*count++
	if c.found.First == "" {
		c.found.First = c.name + ": " + fmt.Sprintf(format, args...)
	}
}

// finish compares what was seen with what the writers sent, and returns what
// was found. The writers must have stopped.
func (c *checker) finish(sources []*source) Verification {
	if len(c.partial) > 0 && c.found.Corrupt == 0 {
		c.violation(&c.found.Corrupt, "ends within a record: %.40q", c.partial)
	}
	if c.found.Corrupt > 0 {
		return c.found
	}
	for w, s := range sources {
		unsure := func(seq uint64) bool {
			_, found := slices.BinarySearch(s.unsure, seq)
			return found
		}
		for seq := range c.missing[w] {
			if !unsure(seq) {
				c.violation(&c.found.Lost, "writer %d: record %d of %d is missing", w, seq, s.issued.Load())
			}
		}
		for seq := c.next[w]; seq < s.issued.Load(); seq++ {
			if !unsure(seq) {
				c.violation(&c.found.Lost, "writer %d: record %d of %d is missing at the end", w, seq, s.issued.Load())
			}
		}
		if issued := s.issued.Load(); c.next[w] > issued {
			c.violation(&c.found.Corrupt, "writer %d sent %d records, %d were read", w, issued, c.next[w])
		}
	}
	return c.found
}

// caughtUp reports that nothing the writers know of is still to come.
func (c *checker) caughtUp(sources []*source) bool {
	for w, s := range sources {
		for seq := c.next[w]; seq < s.issued.Load(); seq++ {
			if _, unsure := slices.BinarySearch(s.unsure, seq); !unsure {
				return false
			}
		}
	}
	return true
}
