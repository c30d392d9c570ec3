package sim

import (
	"bytes"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"headwater/fdblayer"
	"headwater/keys"
)

// op is one request and what it came to. The moments order requests by what
// their clients could know of each other; the clocks are the frontends', for
// expiry.
type op struct {
	n          int
	kind, name string
	front      int
	call, ret  int64
	called     time.Time
	returned   time.Time
	pre        keys.Incarnation // asked for; zero for none
	err        error
	unknown    bool
	what       string
}

// life is one incarnation of a stream, as far as anybody has seen it.
type life struct {
	inc  keys.Incarnation
	name string
	// born is the op that made it, nil where nobody was told.
	born   *op
	ttl    time.Duration
	until  time.Time
	access time.Time // the last access known to have renewed the TTL
	// content from the first byte as far as it was read, and the position of
	// every offset seen. A fork's begin with its source's.
	content    []byte
	at         map[keys.Offset]int
	inherited  int // how much of content is the source's; -1: not known
	loose      []fdblayer.Piece
	acked      []acked
	closedAt   *keys.Offset // the tail that a close was acknowledged with
	closed     *op
	retained   keys.Offset // the greatest that was acknowledged, by retainedBy
	retainedBy *op
	dropped    keys.Offset // the greatest that was asked for
}

type acked struct {
	op   *op
	next keys.Offset
	body string
	seq  string
}

// history is everything that was seen, and judges it as it comes. The rules
// are the promises of docs/architecture.md.
type history struct {
	mu     sync.Mutex
	moment int64
	lives  map[keys.Incarnation]*life
	byName map[string][]*life
	// kills are the requests that may have ended a life.
	kills map[string][]*op
	// closes are the requests that may have closed one.
	closes map[string][]*op
	// bodies are the appends by what they wrote.
	bodies map[string]*op
	log    []string
	faults []string
	steps  int
}

func newHistory() *history {
	return &history{lives: map[keys.Incarnation]*life{}, byName: map[string][]*life{}, kills: map[string][]*op{},
		closes: map[string][]*op{}, bodies: map[string]*op{}}
}

func (h *history) fail(format string, args ...any) {
	if len(h.faults) < 10 {
		h.faults = append(h.faults, fmt.Sprintf(format, args...))
		h.log = append(h.log, "VIOLATION: "+h.faults[len(h.faults)-1])
	}
}

func (h *history) report() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.faults) == 0 {
		return ""
	}
	from := max(0, len(h.log)-150)
	return strings.Join(h.faults, "\n") + "\nthe history before:\n" + strings.Join(h.log[from:], "\n")
}

func (h *history) failed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.faults) > 0
}

func (h *history) begin(c *cluster, f *front, kind, name string) *op {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.moment++
	h.steps++
	return &op{n: h.steps, kind: kind, name: name, front: f.name, call: h.moment, called: c.now()}
}

func codeOf(err error) fdblayer.Code {
	var e *fdblayer.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// end notes the outcome. A frontend that died answers nobody.
func (h *history) end(c *cluster, f *front, o *op, err error) {
	h.moment++
	o.ret, o.returned, o.err = h.moment, c.now(), err
	code := codeOf(err)
	o.unknown = code == fdblayer.CodeUnknownOutcome || err != nil && f.lossy.dead.Load()
	h.log = append(h.log, fmt.Sprintf("%v #%d [%d,%d] frontend %d: %s %s %s: %v", o.returned.Format("05.000"), o.n, o.call, o.ret, o.front, o.kind, o.name, o.what, err))
	if code == fdblayer.CodeInternal || err != nil && code == "" && !o.unknown {
		h.fail("#%d %s %s: %v", o.n, o.kind, o.name, err)
	}
	h.judgeExistence(o, code)
}

// applied reports whether a write may have taken effect.
func (o *op) maybeApplied() bool { return o.err == nil || o.unknown }

// life returns what is known of an incarnation that an answer named.
func (h *history) life(o *op, inc keys.Incarnation) *life {
	l := h.lives[inc]
	if l == nil {
		l = &life{inc: inc, name: o.name, at: map[keys.Offset]int{keys.StartOffset: 0}, inherited: -1}
		h.lives[inc] = l
		h.byName[o.name] = append(h.byName[o.name], l)
	}
	if l.name != o.name {
		h.fail("#%d: incarnation %v is of %s and of %s", o.n, inc, l.name, o.name)
	}
	return l
}

// seen notes that an answer was about an incarnation.
func (h *history) seen(o *op, st fdblayer.Stream, renews bool) *life {
	l := h.life(o, st.Incarnation)
	if o.pre != (keys.Incarnation{}) && o.pre != st.Incarnation {
		h.fail("#%d %s %s asked for %v and was done to %v", o.n, o.kind, o.name, o.pre, st.Incarnation)
	}
	if o.kind == "live" {
		return l // handed out what was found a moment ago
	}
	if dead := h.killedBefore(l, o); dead != nil {
		h.fail("#%d %s %s was done to %v, which #%d had deleted", o.n, o.kind, o.name, st.Incarnation, dead.n)
	}
	if !l.until.IsZero() && o.called.After(l.until.Add(maxSkew)) {
		h.fail("#%d %s %s was done to %v, which expired at %v", o.n, o.kind, o.name, st.Incarnation, l.until)
	}
	for _, x := range h.byName[o.name] {
		if x != l && h.mustBeAlive(x, o) {
			h.fail("#%d %s %s was done to %v while %v is alive", o.n, o.kind, o.name, st.Incarnation, x.inc)
		}
	}
	if renews && o.called.After(l.access) {
		l.access = o.called
	}
	if st.Retained != (keys.Offset{}) {
		if l.dropped.Less(st.Retained) && l.inherited == 0 {
			h.fail("#%d %s %s: retained is %v, nobody asked for more than %v", o.n, o.kind, o.name, st.Retained, l.dropped)
		}
	}
	return l
}

// killedBefore is an acknowledged delete that was asked for after l was born
// and answered before o was asked for.
func (h *history) killedBefore(l *life, o *op) *op {
	if l.born == nil {
		return nil
	}
	for _, k := range h.kills[l.name] {
		if k.err == nil && !k.unknown && k.call > l.born.ret && k.ret != 0 && k.ret < o.call && (k.pre == (keys.Incarnation{}) || k.pre == l.inc) {
			return k
		}
	}
	return nil
}

// mustBeAlive reports whether l was there all the time of o: it was born
// before, and nothing that o overlaps or follows can have ended it.
func (h *history) mustBeAlive(l *life, o *op) bool {
	if l.born == nil || l.born.ret >= o.call {
		return false
	}
	for _, k := range h.kills[l.name] {
		if (k.ret == 0 || k.maybeApplied() && (k.unknown || k.ret > l.born.call)) && k.call < o.ret && (k.pre == (keys.Incarnation{}) || k.pre == l.inc) {
			return false
		}
	}
	if l.ttl > 0 && o.returned.Sub(l.access) > l.ttl*85/100-2*maxSkew {
		return false
	}
	return l.until.IsZero() || o.returned.Before(l.until.Add(-maxSkew))
}

// judgeExistence holds refusals against what must have been there.
func (h *history) judgeExistence(o *op, code fdblayer.Code) {
	switch code {
	case fdblayer.CodeNotFound, fdblayer.CodeSoftDeleted, fdblayer.CodePathDeleted:
		for _, l := range h.byName[o.name] {
			if o.kind == "live" && o.pre != (keys.Incarnation{}) && o.pre != l.inc {
				continue // its end was found a moment ago, and another may have been made since
			}
			if h.mustBeAlive(l, o) {
				h.fail("#%d %s %s: %v, but %v is alive since #%d", o.n, o.kind, o.name, o.err, l.inc, l.born.n)
			}
		}
	case fdblayer.CodeIncarnation:
		if l := h.lives[o.pre]; l != nil && h.mustBeAlive(l, o) {
			h.fail("#%d %s %s: %v, but %v is alive since #%d", o.n, o.kind, o.name, o.err, l.inc, l.born.n)
		}
	case fdblayer.CodeClosed:
		for _, c := range h.closes[o.name] {
			if (c.ret == 0 || c.maybeApplied()) && c.call < o.ret {
				return
			}
		}
		h.fail("#%d %s %s: %v, but nobody has closed it", o.n, o.kind, o.name, o.err)
	}
}

// bornBy notes an acknowledged creation.
func (h *history) bornBy(o *op, r fdblayer.CreateResult) *life {
	l := h.seen(o, r.Stream, true)
	if !r.Created {
		return l
	}
	if l.born != nil {
		h.fail("#%d made %v, which #%d had made already", o.n, l.inc, l.born.n)
	}
	for _, x := range h.byName[o.name] {
		if h.mustBeAlive(x, o) {
			h.fail("#%d made %s anew, but %v is alive", o.n, o.name, x.inc)
		}
	}
	l.born = o
	if r.Stream.Expiry.HasTTL {
		l.ttl = time.Duration(r.Stream.Expiry.TTL) * time.Second
	}
	l.until = r.Stream.Expiry.At
	return l
}

// observe holds bytes that were read against all that were read before.
func (h *history) observe(o *op, p fdblayer.Piece) *life {
	// A live reader is handed what its frontend found a moment ago.
	live := o.kind == "live"
	l := h.seen(o, p.Stream, !live)
	h.match(o, l, p)
	if p.UpToDate && !live {
		// Every append that was acknowledged before is in what lies before the tail.
		for _, a := range l.acked {
			if a.op.ret < o.call && p.Next.Less(a.next) {
				h.fail("#%d read %s up to date at %v, but #%d was acknowledged at %v", o.n, o.name, p.Next, a.op.n, a.next)
			}
		}
		if l.closed != nil && l.closed.ret < o.call && (!p.Closed || p.Next != *l.closedAt) {
			h.fail("#%d read %s up to date at %v, closed %v, but #%d had closed it at %v", o.n, o.name, p.Next, p.Closed, l.closed.n, *l.closedAt)
		}
	}
	if p.Closed {
		if l.closedAt != nil && *l.closedAt != p.Next {
			h.fail("#%d read the end of %s at %v, it was at %v", o.n, o.name, p.Next, *l.closedAt)
		}
		next := p.Next
		l.closedAt = &next
	}
	return l
}

func (h *history) match(o *op, l *life, p fdblayer.Piece) {
	pos, ok := l.at[p.Start]
	if !ok {
		l.loose = append(l.loose, p)
		return
	}
	if pos > len(l.content) {
		return // a part that was never read lies before it
	}
	n := min(len(p.Data), len(l.content)-pos)
	if !bytes.Equal(l.content[pos:pos+n], p.Data[:n]) {
		h.fail("#%d read %q at %v (position %d) of %s, others read %q", o.n, clip(p.Data[:n]), p.Start, pos, o.name, clip(l.content[pos:pos+n]))
		return
	}
	l.content = append(l.content, p.Data[n:]...)
	h.place(o, l, p.Next, pos+len(p.Data))
}

func (h *history) place(o *op, l *life, at keys.Offset, pos int) {
	if was, ok := l.at[at]; ok && was != pos {
		h.fail("#%d: offset %v of %s is position %d and position %d", o.n, at, o.name, was, pos)
	}
	l.at[at] = pos
}

func clip(b []byte) string {
	if len(b) > 60 {
		return fmt.Sprintf("%s...(%d)", b[:60], len(b))
	}
	return string(b)
}

// appended notes an acknowledged append.
func (h *history) appended(o *op, r fdblayer.AppendResult, body, seq string) *life {
	l := h.seen(o, fdblayer.Stream{Incarnation: r.Incarnation}, true)
	if l.closed != nil && l.closed.ret < o.call {
		h.fail("#%d appended to %s, which #%d had closed", o.n, o.name, l.closed.n)
	}
	for _, a := range l.acked {
		if a.op.ret < o.call && !a.next.Less(r.Next) && !r.Duplicate {
			h.fail("#%d appended at %v, after #%d which was answered before at %v", o.n, r.Next, a.op.n, a.next)
		}
	}
	l.acked = append(l.acked, acked{o, r.Next, body, seq})
	return l
}

// settle checks what is whole only once nothing moves: every life that was read
// to its end.
func (h *history) settle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	owners := map[string]*life{}
	for _, l := range h.lives {
		h.settleLife(l, owners)
	}
}

func (h *history) settleLife(l *life, owners map[string]*life) {
	for again := true; again; {
		again = false
		rest := l.loose
		l.loose = nil
		for _, p := range rest {
			if _, ok := l.at[p.Start]; ok {
				h.match(&op{kind: "read", name: l.name}, l, p)
				again = true
			} else {
				l.loose = append(l.loose, p)
			}
		}
	}
	type place struct {
		at  keys.Offset
		pos int
	}
	var places []place
	for at, pos := range l.at {
		places = append(places, place{at, pos})
	}
	sort.Slice(places, func(i, j int) bool { return places[i].at.Less(places[j].at) })
	for i := 1; i < len(places); i++ {
		if places[i].pos <= places[i-1].pos {
			h.fail("%s %v: offset %v is position %d, the later %v is %d", l.name, l.inc, places[i-1].at, places[i-1].pos, places[i].at, places[i].pos)
		}
	}
	// Where the stream was read, each body is there whole, and once.
	ends := map[string]int{}
	pos := min(max(l.inherited, 0), len(l.content)) // a fork may begin inside a body
	var lastSeq string
	seqs := map[string]string{}
	for _, a := range l.acked {
		if a.seq != "" {
			seqs[a.body] = a.seq
		}
	}
	for rest := l.content[pos:]; len(rest) > 0; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			break // read in pieces, the last one in the middle of a body
		}
		body := string(rest[:i+1])
		rest, pos = rest[i+1:], pos+i+1
		o := h.bodies[body]
		if o == nil && l.inherited < 0 {
			return // nobody was told where this fork begins
		}
		if o == nil {
			h.fail("%s %v holds %q, which nobody wrote", l.name, l.inc, clip([]byte(body)))
			return
		}
		if ends[body] != 0 {
			h.fail("%s %v holds #%d twice: %s", l.name, l.inc, o.n, clip([]byte(body)))
		}
		ends[body] = pos
		if l.inherited < 0 || pos <= l.inherited {
			continue
		}
		if o.name != l.name {
			h.fail("%s %v holds #%d, which was written to %s", l.name, l.inc, o.n, o.name)
		}
		if o.ret != 0 && !o.maybeApplied() {
			h.fail("%s %v holds #%d, which was refused: %v", l.name, l.inc, o.n, o.err)
		}
		if other := owners[body]; other != nil && other != l {
			h.fail("#%d is in two lives of %s: %v and %v", o.n, l.name, l.inc, other.inc)
		}
		owners[body] = l
		if s := seqs[body]; s != "" {
			if s <= lastSeq {
				h.fail("%s %v holds Stream-Seq %s after %s", l.name, l.inc, s, lastSeq)
			}
			lastSeq = s
		}
	}
	for _, a := range l.acked {
		if a.body == "" {
			continue
		}
		end, ok := ends[a.body]
		at, placed := l.at[a.next]
		switch {
		case ok && placed && end != at && !strings.HasPrefix(a.op.what, "again"):
			h.fail("#%d was acknowledged at %v, position %d, but is at %d of %s", a.op.n, a.next, at, end, l.name)
		case !ok && placed && at <= len(l.content):
			h.fail("#%d was acknowledged at %v, and is not in %s %v", a.op.n, a.next, l.name, l.inc)
		}
	}
}

// body is what one append writes: its number, so that nothing is written twice,
// padding, and LF, so that it can be told from what is around it.
func body(n, size int) string {
	s := strconv.Itoa(n)
	return `"` + s + ":" + strings.Repeat("x", max(0, size-len(s)-4)) + "\"\n"
}
