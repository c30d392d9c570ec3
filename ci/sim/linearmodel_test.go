package sim

import (
	"fmt"
	"hash/fnv"
	"sync"

	"github.com/anishathalye/porcupine"

	"headwater/fdblayer"
	"headwater/keys"
)

// request is what a client asked one stream for.
type request struct {
	kind string // create, append, close, delete, read
	body string // of an append or a close
	pre  keys.Incarnation
	// producer is the client's number plus 1 where the append has one, seq its
	// sequence number; every producer stays in epoch 0.
	producer, seq int
	// shared tells a delete that overlaps another one: where its commit is in
	// doubt and the stream is gone, it can't tell which of them did it, and both
	// are answered that it is gone.
	shared bool
	// maker names a creation, until somebody says what it made.
	maker int
}

// answer is what came of it. Answers that say that nothing was applied, and
// why of no promise, are left out of a history.
type answer struct {
	code      fdblayer.Code // "" for success
	unknown   bool
	created   bool
	duplicate bool
	closed    bool
	inc       keys.Incarnation
	next      keys.Offset
	nowhere   bool   // a refusal that names no tail
	chain     uint64 // of a read: the hash of all the stream holds
}

const producers = 8

// state is one stream. It is constant in size: bytes are a hash chain.
type state struct {
	exists, closed bool
	inc            keys.Incarnation
	// maker is set instead of inc where nobody was told what was made.
	maker int
	chain uint64
	tail  keys.Offset
	// vague says the tail is at least tail, and not known: the last append's
	// outcome is not either.
	vague bool
	// seqs are the producers' last numbers, plus 1.
	seqs [producers]int16
}

func extend(chain uint64, body string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%x %s", chain, body)
	return h.Sum64()
}

// model is the sequential meaning of one stream. made tells which creation an
// incarnation is known to be of.
func model(made map[keys.Incarnation]int) porcupine.NondeterministicModel {
	return porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(st, in, out any) []any {
			s, r, a := st.(state), in.(request), out.(answer)
			if a.unknown {
				// It was applied, or not, or is yet to be.
				if next, ok := apply(s, r); ok {
					return []any{s, next}
				}
				return []any{s}
			}
			next, ok := judge(s, r, a, made)
			if !ok {
				return nil
			}
			return []any{next}
		},
		DescribeOperation: func(in, out any) string {
			r, a := in.(request), out.(answer)
			what := r.kind
			if r.producer > 0 {
				what += fmt.Sprintf(" producer %d/%d", r.producer, r.seq)
			}
			if r.body != "" {
				what += " " + clip([]byte(r.body))
			}
			switch {
			case a.unknown:
				return what + ": nobody knows"
			case a.code != "":
				return what + ": " + string(a.code)
			}
			return fmt.Sprintf("%s: %.8s next %v chain %x closed %v duplicate %v", what, a.inc, a.next, a.chain, a.closed, a.duplicate)
		},
		DescribeState: func(st any) string { return fmt.Sprintf("%+v", st) },
	}
}

// apply is what a write does that nobody was answered; ok is false if it does
// nothing.
func apply(s state, r request) (state, bool) {
	if r.kind == "create" {
		if s.exists {
			return s, false
		}
		return state{exists: true, maker: r.maker}, true
	}
	if !s.exists || r.pre != (keys.Incarnation{}) && r.pre != s.inc && s.maker == 0 {
		return s, false
	}
	if r.kind == "delete" {
		return state{}, true
	}
	if s.closed || r.producer > 0 && int(s.seqs[r.producer-1]) != r.seq {
		return s, false
	}
	if r.body != "" {
		s.chain, s.vague = extend(s.chain, r.body), true
	}
	if r.producer > 0 {
		s.seqs[r.producer-1]++
	}
	s.closed = s.closed || r.kind == "close"
	return s, true
}

// is reports whether the stream can be the incarnation an answer names.
func (s *state) is(inc keys.Incarnation, made map[keys.Incarnation]int) bool {
	if s.maker == 0 {
		return s.inc == inc
	}
	if maker, known := made[inc]; known && maker != s.maker {
		return false
	}
	s.inc, s.maker = inc, 0
	return true
}

// at reports whether the tail can be where an answer says.
func (s *state) at(next keys.Offset) bool {
	if s.vague && s.tail.Less(next) {
		s.tail, s.vague = next, false
	}
	return s.tail == next && !s.vague
}

// judge is what a request that was answered does, if it can be answered so.
func judge(s state, r request, a answer, made map[keys.Incarnation]int) (state, bool) {
	switch a.code {
	case "":
	case fdblayer.CodeNotFound:
		return s, !s.exists
	case fdblayer.CodeClosed:
		return s, s.exists && s.closed && s.is(a.inc, made) && (a.nowhere || s.at(a.next))
	case fdblayer.CodeIncarnation:
		return s, !s.exists || s.is(a.inc, made) && a.inc != r.pre
	case fdblayer.CodeProducerGap:
		return s, s.exists && r.producer > 0 && int(s.seqs[r.producer-1]) < r.seq
	case fdblayer.CodeExists:
		return s, s.exists && s.closed // all else is the same in every create
	default:
		return s, false
	}
	if r.kind == "create" && a.created {
		return state{exists: true, inc: a.inc, tail: a.next}, !s.exists
	}
	if !s.exists {
		return s, r.shared
	}
	if r.kind == "delete" {
		return state{}, r.pre == (keys.Incarnation{}) || s.is(r.pre, made)
	}
	if !s.is(a.inc, made) || r.pre != (keys.Incarnation{}) && r.pre != s.inc {
		return s, false
	}
	switch r.kind {
	case "create":
		return s, !s.closed && s.at(a.next)
	case "read":
		return s, s.chain == a.chain && s.closed == a.closed && s.at(a.next)
	case "append", "close":
	}
	if r.producer > 0 && int(s.seqs[r.producer-1]) > r.seq {
		return s, a.duplicate
	}
	if s.closed {
		return s, r.kind == "close" && r.body == "" && s.at(a.next)
	}
	if a.duplicate || r.producer > 0 && int(s.seqs[r.producer-1]) != r.seq {
		return s, false
	}
	if r.producer > 0 {
		s.seqs[r.producer-1]++
	}
	s.closed = r.kind == "close"
	if r.body == "" {
		return s, s.at(a.next)
	}
	s.chain = extend(s.chain, r.body)
	ok := s.tail.Less(a.next)
	s.tail, s.vague = a.next, false
	return s, ok
}

// recorder gathers the operations on one stream.
type recorder struct {
	mu   sync.Mutex
	ops  []porcupine.Operation
	made map[keys.Incarnation]int
	tick int64
}

func newRecorder() *recorder { return &recorder{made: map[keys.Incarnation]int{}} }

func (r *recorder) now() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tick++
	return r.tick
}

func (r *recorder) add(client int, call int64, in request, out answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tick++
	if out.created {
		r.made[out.inc] = in.maker
	}
	r.ops = append(r.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: r.tick})
}

// history returns the operations to check. One whose outcome is unknown may
// yet take effect after all others.
func (r *recorder) history() (ops []porcupine.Operation, unknown int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.ops {
		if o.Output.(answer).unknown {
			if o.Input.(request).kind == "read" {
				continue
			}
			o.Return = r.tick + 1
			unknown++
		}
		ops = append(ops, o)
	}
	for i := range ops {
		in := ops[i].Input.(request)
		for j, o := range ops {
			in.shared = in.shared || in.kind == "delete" && j != i && o.Input.(request).kind == "delete" &&
				o.Output.(answer).code == "" && o.Call <= ops[i].Return && ops[i].Call <= o.Return
		}
		ops[i].Input = in
	}
	return ops, unknown
}

// until is the part of a history that was answered by a moment; what was asked
// for by then and not answered yet may have taken effect.
func until(history []porcupine.Operation, moment int64) (ops []porcupine.Operation) {
	for _, o := range history {
		switch {
		case o.Return <= moment:
		case o.Call > moment, o.Input.(request).kind == "read":
			continue
		default:
			o.Output, o.Return = answer{unknown: true}, moment+1
		}
		ops = append(ops, o)
	}
	return ops
}
