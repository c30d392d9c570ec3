package frontend

import (
	"strconv"
	"strings"
)

// negotiate chooses the form of a JSON stream from Accept (RFC 9110 12.5.1).
// usual is the surface's own form; the other one must be ranked above it, or be
// named where the usual one is only covered by a wildcard. Where neither is
// acceptable the usual one is sent: a 406 would help nobody.
//
// In an SSE request the list also holds text/event-stream, which ranks nothing
// here.
func negotiate(accept []string, usual form) form {
	var array, ndjson preference
	for _, list := range accept {
		for r := range strings.SplitSeq(list, ",") {
			array.consider(r, typeJSON)
			ndjson.consider(r, typeNDJSON)
		}
	}
	mine, other, otherForm := array, ndjson, asStored
	if usual == asStored {
		mine, other, otherForm = ndjson, array, asArray
	}
	if other.q > mine.q || other.q > 0 && other.q == mine.q && other.rank == rankExact && mine.rank < rankExact {
		return otherForm
	}
	return usual
}

// preference is how much one media type is wanted, as the most specific range
// that covers it says.
type preference struct {
	rank int
	q    int // thousandths
}

// How specific a media range is.
const (
	rankAny = iota + 1
	rankType
	rankExact
)

// consider takes one media range into account.
func (p *preference) consider(mediaRange, mediaType string) {
	name, params, _ := strings.Cut(mediaRange, ";")
	name = strings.TrimSpace(name)
	rank := 0
	switch {
	case name == "*/*" || name == "*":
		rank = rankAny
	case strings.EqualFold(name, "application/*"):
		rank = rankType
	case strings.EqualFold(name, mediaType):
		rank = rankExact
	}
	if rank == 0 || rank < p.rank {
		return
	}
	q := quality(params)
	if rank == p.rank {
		q = max(q, p.q)
	}
	p.rank, p.q = rank, q
}

// quality returns the weight among the parameters of a media range, in
// thousandths. A malformed one counts as none given.
func quality(params string) int {
	for p := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if !strings.EqualFold(name, "q") {
			continue
		}
		q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(q >= 0 && q <= 1) {
			return 1000
		}
		return int(q*1000 + 0.5)
	}
	return 1000
}
