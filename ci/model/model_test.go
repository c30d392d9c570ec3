package model

import (
	"bytes"
	"fmt"
	"sort"
	"strings"
	"time"
)

// stream is what the protocol says a stream is.
type stream struct {
	incarnation string
	contentType string
	data        []byte // JSON: one compact message and LF each
	// inherited is how much of data came from the fork's source.
	inherited int
	closed    bool
	closer    *tuple
	producers map[string]*producer
	seq       string
	ttl       time.Duration // 0: none
	touched   time.Time
	hidden    bool
	parent    *stream
	forks     int
	fork      *forkConfig
	// tokens are the offsets the server gave out, by position.
	tokens map[int]string
}

type tuple struct {
	id         string
	epoch, seq int
}

type producer struct {
	epoch, seq, next int
}

type forkConfig struct {
	source string
	at     int // -1: not given
	anchor int // what at came to
	sub    int
	noTTL  bool // the TTL was inherited
}

// world is every stream by name.
type world struct {
	streams map[string]*stream
	now     time.Time
}

// reply is what an answer must be. A nil body is not compared.
type reply struct {
	status     int
	body       *string
	next       int // position that Stream-Next-Offset must name; -1: no such header is looked at
	upToDate   bool
	closed     bool
	of         *stream // whose tokens next is one of
	headers    map[string]string
	created    *stream
	incarnated bool // Stream-Incarnation must be of's
}

func refused(status int) reply { return reply{status: status, next: -1} }

func (s *stream) json() bool { return s.contentType == "application/json" }

func (s *stream) expired(now time.Time) bool {
	return s.ttl > 0 && !now.Before(s.touched.Add(s.ttl))
}

// find returns the stream a request addresses, or the refusal it gets.
func (w *world) find(name string) (*stream, *reply) {
	s := w.streams[name]
	switch {
	case s == nil:
		return nil, ptr(refused(404))
	case s.hidden, s.expired(w.now) && s.forks > 0:
		return nil, ptr(refused(410))
	case s.expired(w.now):
		return nil, ptr(refused(404))
	}
	return s, nil
}

// drop removes a stream, and the hidden sources it was the last fork of.
func (w *world) drop(name string, s *stream) {
	delete(w.streams, name)
	for p := s.parent; p != nil; {
		p.forks--
		if p.forks > 0 || !p.hidden {
			return
		}
		for n, x := range w.streams {
			if x == p {
				delete(w.streams, n)
			}
		}
		p = p.parent
	}
}

type createOp struct {
	name, contentType string
	ttl               time.Duration
	closed            bool
	body              []string // messages, or one chunk of bytes
	fork              *forkConfig
}

func stored(contentType string, parts []string) []byte {
	if contentType != "application/json" {
		return []byte(strings.Join(parts, ""))
	}
	var b []byte
	for _, p := range parts {
		b = append(append(b, p...), '\n')
	}
	return b
}

func (w *world) create(op createOp) reply {
	s, no := w.find(op.name)
	if no != nil && no.status == 410 {
		return refused(409)
	}
	if s != nil {
		if !s.matches(op) {
			return refused(409)
		}
		s.touched = w.now
		return reply{status: 200, next: len(s.data), of: s, closed: s.closed, incarnated: true}
	}
	fresh := &stream{contentType: op.contentType, ttl: op.ttl, closed: op.closed,
		touched: w.now, producers: map[string]*producer{}, tokens: map[int]string{}}
	if op.fork != nil {
		src, no := w.find(op.fork.source)
		switch {
		case no != nil && no.status == 410:
			return refused(409)
		case no != nil:
			return refused(404)
		case op.contentType != "" && op.contentType != src.contentType:
			return refused(409)
		}
		at := op.fork.at
		if at < 0 {
			at = len(src.data)
		}
		end, ok := src.advance(at, op.fork.sub)
		if !ok {
			return refused(400)
		}
		fresh.contentType = src.contentType
		fresh.data = append(fresh.data, src.data[:end]...)
		fresh.inherited = end
		for p, t := range src.tokens {
			if p <= end {
				fresh.tokens[p] = t
			}
		}
		fc := *op.fork
		fc.anchor = at
		if op.ttl == 0 {
			fresh.ttl, fc.noTTL = src.ttl, true
		}
		fresh.fork, fresh.parent = &fc, src
		src.forks++
	}
	if old := w.streams[op.name]; old != nil {
		w.drop(op.name, old)
	}
	fresh.data = append(fresh.data, stored(fresh.contentType, op.body)...)
	w.streams[op.name] = fresh
	return reply{status: 201, next: len(fresh.data), of: fresh, closed: op.closed, created: fresh, incarnated: true}
}

func (s *stream) matches(op createOp) bool {
	if op.closed != s.closed || (op.fork == nil) != (s.fork == nil) {
		return false
	}
	if op.fork == nil {
		return op.contentType == s.contentType && op.ttl == s.ttl
	}
	f := s.fork
	return (op.contentType == "" || op.contentType == s.contentType) &&
		(op.ttl == s.ttl || op.ttl == 0 && f.noTTL) &&
		op.fork.source == f.source && op.fork.sub == f.sub &&
		(op.fork.at == f.at || op.fork.at >= 0 && op.fork.at == f.anchor)
}

// advance returns the position sub messages, or bytes, past at.
func (s *stream) advance(at, sub int) (int, bool) {
	if !s.json() {
		return at + sub, at+sub <= len(s.data)
	}
	for range sub {
		i := bytes.IndexByte(s.data[at:], '\n')
		if i < 0 {
			return 0, false
		}
		at += i + 1
	}
	return at, true
}

type appendOp struct {
	name, contentType string
	body              []string
	closing           bool
	producer          *tuple
	seq               string
}

func (w *world) append(op appendOp) reply {
	s, no := w.find(op.name)
	if no != nil {
		return *no
	}
	if s.closed {
		same := op.producer != nil && s.closer != nil && *op.producer == *s.closer
		if !same && (len(op.body) > 0 || !op.closing) {
			return reply{status: 409, next: len(s.data), of: s, closed: true}
		}
		s.touched = w.now
		return reply{status: 204, next: len(s.data), of: s, closed: true, incarnated: true}
	}
	if len(op.body) > 0 && op.contentType != s.contentType {
		return refused(409)
	}
	headers := map[string]string{}
	if p := op.producer; p != nil {
		st := s.producers[p.id]
		switch {
		case st != nil && p.epoch < st.epoch:
			return reply{status: 403, next: -1, headers: map[string]string{"Producer-Epoch": fmt.Sprint(st.epoch)}}
		case st != nil && p.epoch > st.epoch && p.seq != 0:
			return refused(400)
		case st != nil && p.epoch == st.epoch && p.seq <= st.seq:
			s.touched = w.now
			return reply{status: 204, next: st.next, of: s, incarnated: true, headers: map[string]string{"Producer-Seq": fmt.Sprint(st.seq)}}
		case st != nil && p.epoch == st.epoch && p.seq > st.seq+1:
			return reply{status: 409, next: -1, headers: map[string]string{
				"Producer-Expected-Seq": fmt.Sprint(st.seq + 1), "Producer-Received-Seq": fmt.Sprint(p.seq)}}
		case st == nil && p.seq != 0:
			return reply{status: 409, next: -1, headers: map[string]string{"Producer-Expected-Seq": "0"}}
		}
		headers["Producer-Seq"] = fmt.Sprint(p.seq)
		headers["Producer-Epoch"] = fmt.Sprint(p.epoch)
	}
	if op.seq != "" && s.seq != "" && op.seq <= s.seq {
		return refused(409)
	}
	s.data = append(s.data, stored(s.contentType, op.body)...)
	s.touched = w.now
	if op.seq != "" {
		s.seq = op.seq
	}
	if p := op.producer; p != nil {
		s.producers[p.id] = &producer{p.epoch, p.seq, len(s.data)}
	}
	if op.closing {
		s.closed, s.closer = true, op.producer
	}
	status := 204
	if op.producer != nil && len(op.body) > 0 {
		status = 200
	}
	return reply{status: status, next: len(s.data), of: s, closed: op.closing, headers: headers, incarnated: true}
}

func (w *world) remove(name string) reply {
	s, no := w.find(name)
	if no != nil {
		return *no
	}
	if s.forks > 0 {
		s.hidden = true
	} else {
		w.drop(name, s)
	}
	return refused(204)
}

func (w *world) head(name string) reply {
	s, no := w.find(name)
	if no != nil {
		return *no
	}
	return reply{status: 200, next: len(s.data), of: s, closed: s.closed, incarnated: true,
		headers: map[string]string{"Content-Type": s.contentType}}
}

// read is a catch-up or a long-poll that need not wait.
func (w *world) read(name string, at int, poll bool) reply {
	s, no := w.find(name)
	if no != nil {
		return *no
	}
	s.touched = w.now
	r := reply{status: 200, next: len(s.data), of: s, upToDate: true, closed: s.closed, incarnated: true}
	body := string(s.data[at:])
	if poll && body == "" {
		r.status = 204
		return r
	}
	if s.json() {
		body = "[" + strings.ReplaceAll(strings.TrimSuffix(body, "\n"), "\n", ",") + "]"
	}
	r.body = &body
	return r
}

// positions are the lengths the server has given a token for.
func (s *stream) positions() []int {
	var ps []int
	for p := range s.tokens {
		ps = append(ps, p)
	}
	sort.Ints(ps)
	return ps
}

func ptr[T any](v T) *T { return &v }
