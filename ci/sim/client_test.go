package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"headwater/fdblayer"
	"headwater/keys"
)

// client makes one request after another.
type client struct {
	c     *cluster
	h     *history
	dice  *dice
	id    int
	names int
	large bool
	// tuples are the producer's next number in each life, 1 higher than the
	// number sent last if its outcome is known.
	tuples map[keys.Incarnation]*tuple
	seq    *atomic.Int64
}

type tuple struct{ epoch, next uint64 }

func sid(name string) fdblayer.StreamID { return fdblayer.StreamID{Stream: name} }

func (cl *client) name() string { return "s" + strconv.Itoa(cl.dice.n(cl.names)) }

// contentType depends on the name, so that most recreations agree.
func contentType(name string) string {
	if name[1]%2 == 1 {
		return "application/json"
	}
	return "text/plain"
}

// context is mostly one that lasts, sometimes that of a client who gives up.
func (cl *client) context() (context.Context, context.CancelFunc) {
	if cl.dice.in(1, 25) {
		return context.WithTimeout(context.Background(), cl.dice.upTo(20*time.Millisecond))
	}
	return context.WithTimeout(context.Background(), time.Minute)
}

// step makes one request.
func (cl *client) step() {
	time.Sleep(cl.dice.upTo(10 * time.Millisecond))
	switch n := cl.dice.n(1000); {
	case n < 130:
		cl.create()
	case n < 190:
		cl.fork()
	case n < 480:
		cl.append()
	case n < 620:
		cl.produce()
	case n < 650:
		cl.close()
	case n < 690:
		cl.delete()
	case n < 740:
		cl.publish()
	case n < 770:
		cl.retain()
	case n < 810:
		cl.openSnapshot()
	case n < 830:
		cl.bootstrap()
	default:
		cl.read()
	}
}

// do runs one request and hands its outcome to note, under the history's lock.
func (cl *client) do(kind, name string, prepare func(o *op), run func(ctx context.Context, f *front, o *op) error, note func(o *op)) *op {
	f := cl.c.any()
	o := cl.h.begin(cl.c, f, kind, name)
	if prepare != nil {
		cl.h.mu.Lock()
		prepare(o)
		cl.h.mu.Unlock()
	}
	ctx, cancel := cl.context()
	err := run(ctx, f, o)
	gaveUp := ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
	cancel()
	cl.h.mu.Lock()
	defer cl.h.mu.Unlock()
	if gaveUp && codeOf(err) == "" {
		err = &fdblayer.Error{Code: "gave_up", Err: err} // withdrawn: nothing was applied
	}
	cl.h.end(cl.c, f, o, err)
	if err == nil && !o.unknown {
		note(o)
	}
	return o
}

// pre asks for a life now and then: the present one, or one of the past.
func (cl *client) pre(name string, o *op) fdblayer.Precondition {
	lives := cl.h.byName[name]
	if len(lives) == 0 || !cl.dice.in(1, 4) {
		return fdblayer.Precondition{}
	}
	l := lives[len(lives)-1]
	if cl.dice.in(1, 4) {
		l = lives[cl.dice.n(len(lives))]
	}
	o.pre = l.inc
	return fdblayer.Precondition{Incarnation: l.inc, Set: true}
}

func (cl *client) size() int {
	switch n := cl.dice.n(1000); {
	case n < 20:
		return 40_000 + cl.dice.n(100_000)
	case n == 999 && cl.large:
		return fdblayer.MaxInlineBody + cl.dice.n(200_000)
	}
	return 8 + cl.dice.n(100)
}

func (cl *client) create() {
	name := cl.name()
	req := fdblayer.CreateRequest{ID: sid(name), ContentType: contentType(name)}
	switch cl.dice.n(6) {
	case 0:
		req.Expiry = fdblayer.Expiry{HasTTL: true, TTL: uint64(1500 + cl.dice.n(3000))}
	case 1:
		req.Expiry = fdblayer.Expiry{At: time.UnixMilli(cl.c.now().Add(cl.dice.upTo(3 * time.Hour)).UnixMilli()), AtText: "then"}
	}
	req.Closed = cl.dice.in(1, 30)
	b := ""
	var r fdblayer.CreateResult
	cl.do("create", name, func(o *op) {
		if cl.dice.in(1, 2) {
			b = body(o.n, cl.size())
			cl.h.bodies[b] = o
			req.Body = []byte(b)
		}
		if req.Closed {
			cl.h.closes[name] = append(cl.h.closes[name], o)
		}
	}, func(ctx context.Context, f *front, o *op) (err error) {
		r, err = f.Create(ctx, req)
		return err
	}, func(o *op) {
		l := cl.h.bornBy(o, r)
		if !r.Created {
			return
		}
		l.inherited = 0
		if b != "" {
			cl.h.place(o, l, r.Stream.Tail, len(b))
			l.acked = append(l.acked, acked{op: o, next: r.Stream.Tail, body: b})
		}
		if r.Stream.Closed {
			l.closed, l.closedAt = o, &r.Stream.Tail
		}
	})
}

// known returns the newest life of a name and an offset of it whose position is
// known; nil if there is none.
func (cl *client) known(name string) (*life, keys.Offset) {
	cl.h.mu.Lock()
	defer cl.h.mu.Unlock()
	lives := cl.h.byName[name]
	if len(lives) == 0 {
		return nil, keys.Offset{}
	}
	l := lives[len(lives)-1]
	want := cl.dice.n(len(l.content) + 1)
	if cl.dice.in(1, 2) {
		want = len(l.content)
	}
	best := keys.StartOffset
	for at, pos := range l.at { // the last one before a position: not the map's choice
		if pos <= want && best.Less(at) {
			best = at
		}
	}
	return l, best
}

func (cl *client) fork() {
	name, source := cl.name(), cl.name()
	src, at := cl.known(source)
	if src == nil || name == source || contentType(name) != contentType(source) {
		return
	}
	req := fdblayer.CreateRequest{ID: sid(name), Fork: &fdblayer.Fork{Source: sid(source)}}
	if !at.IsStart() && cl.dice.in(2, 3) {
		req.Fork.Offset = &at
	}
	var r fdblayer.CreateResult
	cl.do("fork", name, func(o *op) { o.what = "of " + source },
		func(ctx context.Context, f *front, o *op) (err error) {
			r, err = f.Create(ctx, req)
			return err
		}, func(o *op) {
			l := cl.h.bornBy(o, r)
			if !r.Created {
				return
			}
			// The anchor's versionstamp says whose it is.
			pos, ok := src.at[r.Stream.Tail]
			if !ok || r.Stream.Tail.IsStart() || pos > len(src.content) {
				if r.Stream.Tail.IsStart() {
					l.inherited = 0
				}
				return
			}
			l.inherited = pos
			l.content = append([]byte(nil), src.content[:pos]...)
			for o, p := range src.at {
				if !r.Stream.Tail.Less(o) {
					l.at[o] = p
				}
			}
		})
}

func (cl *client) append() {
	name := cl.name()
	req := fdblayer.AppendRequest{ID: sid(name), ContentType: contentType(name)}
	var b, seq string
	var r fdblayer.AppendResult
	cl.do("append", name, func(o *op) {
		req.Precondition = cl.pre(name, o)
		b = body(o.n, cl.size())
		cl.h.bodies[b] = o
		req.Body = []byte(b)
		if cl.dice.in(1, 5) {
			seq = fmt.Sprintf("%09d", cl.seq.Add(1))
			req.Seq = &seq
		}
	}, func(ctx context.Context, f *front, o *op) (err error) {
		r, err = f.Append(ctx, req)
		return err
	}, func(o *op) {
		if r.Duplicate {
			cl.h.fail("#%d: an append without a producer was called a duplicate", o.n)
		}
		cl.h.appended(o, r, b, seq)
	})
}

// produce appends with a producer, until it is known what became of it.
func (cl *client) produce() {
	name := cl.name()
	l, _ := cl.known(name)
	if l == nil {
		return
	}
	tp := cl.tuples[l.inc]
	if tp == nil {
		tp = &tuple{}
		cl.tuples[l.inc] = tp
	}
	p := fdblayer.Producer{ID: "p" + strconv.Itoa(cl.id), Epoch: tp.epoch, Seq: tp.next}
	closing := cl.dice.in(1, 40)
	b, doubt := "", false
	for try := 0; ; try++ {
		var r fdblayer.AppendResult
		o := cl.do("produce", name, func(o *op) {
			o.pre = l.inc
			if b == "" {
				b = body(o.n, cl.size())
			}
			o.what = fmt.Sprintf("%d/%d try %d %s", p.Epoch, p.Seq, try, clip([]byte(b)))
			if was := cl.h.bodies[b]; was == nil || !was.maybeApplied() {
				cl.h.bodies[b] = o
			}
			if closing {
				cl.h.closes[name] = append(cl.h.closes[name], o)
			}
		}, func(ctx context.Context, f *front, o *op) (err error) {
			r, err = f.Append(ctx, fdblayer.AppendRequest{
				ID: sid(name), ContentType: contentType(name), Body: []byte(b), Producer: &p, Close: closing,
				Precondition: fdblayer.Precondition{Incarnation: l.inc, Set: true},
			})
			return err
		}, func(o *op) {
			if r.Duplicate && !doubt {
				cl.h.fail("#%d: what was sent once was called a duplicate", o.n)
			}
			if r.ProducerSeq != p.Seq {
				cl.h.fail("#%d: the producer is at %d, and was answered %d", o.n, p.Seq, r.ProducerSeq)
			}
			if r.Duplicate {
				// Whoever closed meanwhile made the tail the answer.
				o.what = "again " + o.what
			}
			x := cl.h.appended(o, r, b, "")
			if closing {
				x.closed = o
				next := r.Next
				x.closedAt = &next
			}
			cl.h.bodies[b] = o
		})
		code := codeOf(o.err)
		switch {
		case o.err == nil && !o.unknown:
			tp.next++
			return
		case o.unknown:
			doubt = true
		case (code == fdblayer.CodeProducerGap || code == fdblayer.CodeStaleEpoch || code == fdblayer.CodeEpochStart) && refusedBy(o.err) == l.inc:
			cl.h.mu.Lock()
			cl.h.fail("#%d: producer %v of one client: %v", o.n, p, o.err)
			cl.h.mu.Unlock()
			return
		case code == fdblayer.CodeUnavailable, code == fdblayer.CodeOverloaded, code == fdblayer.CodeDraining, code == "gave_up":
		default: // closed, deleted or recreated: the life is over for this producer
			if doubt {
				cl.h.mu.Lock()
				cl.h.bodies[b] = &op{n: o.n, name: name, ret: o.ret, unknown: true}
				cl.h.mu.Unlock()
			}
			tp.epoch, tp.next = tp.epoch+1, 0
			return
		}
		if try >= 6 {
			if doubt {
				cl.h.mu.Lock()
				cl.h.bodies[b] = &op{n: o.n, name: name, ret: o.ret, unknown: true}
				cl.h.mu.Unlock()
			}
			tp.epoch, tp.next = tp.epoch+1, 0
			return
		}
		time.Sleep(cl.dice.upTo(100 * time.Millisecond))
	}
}

// refusedBy is the life that refused a request. The precondition is asked last,
// so it may be another than was asked for.
func refusedBy(err error) keys.Incarnation {
	var e *fdblayer.Error
	if errors.As(err, &e) {
		return e.Incarnation
	}
	return keys.Incarnation{}
}

func (cl *client) close() {
	name := cl.name()
	req := fdblayer.AppendRequest{ID: sid(name), Close: true, ContentType: contentType(name)}
	b := ""
	var r fdblayer.AppendResult
	cl.do("close", name, func(o *op) {
		req.Precondition = cl.pre(name, o)
		if cl.dice.in(1, 2) {
			b = body(o.n, cl.size())
			cl.h.bodies[b] = o
			req.Body = []byte(b)
		}
		cl.h.closes[name] = append(cl.h.closes[name], o)
	}, func(ctx context.Context, f *front, o *op) (err error) {
		r, err = f.Append(ctx, req)
		return err
	}, func(o *op) {
		if !r.Closed {
			cl.h.fail("#%d closed %s and was told that it is open", o.n, name)
		}
		var l *life
		if b != "" {
			l = cl.h.appended(o, r, b, "")
		} else {
			l = cl.h.seen(o, fdblayer.Stream{Incarnation: r.Incarnation}, true)
		}
		if l.closedAt != nil && *l.closedAt != r.Next {
			cl.h.fail("#%d closed %s at %v, it was closed at %v", o.n, name, r.Next, *l.closedAt)
		}
		if l.closed == nil {
			l.closed = o
		}
		next := r.Next
		l.closedAt = &next
	})
}

func (cl *client) delete() {
	name := cl.name()
	var pre fdblayer.Precondition
	cl.do("delete", name, func(o *op) {
		pre = cl.pre(name, o)
		cl.h.kills[name] = append(cl.h.kills[name], o)
	}, func(ctx context.Context, f *front, o *op) error {
		return f.Delete(ctx, sid(name), pre)
	}, func(*op) {})
}

// snapshotBody says what it is a snapshot of, and notices when it is torn.
func snapshotBody(inc keys.Incarnation, at keys.Offset, n, size int) []byte {
	pad := bytes.Repeat([]byte(strconv.Itoa(n)+","), size/4+1)
	head := fmt.Sprintf("%v %v %d %d %08x\n", inc, at, n, len(pad), crc32.ChecksumIEEE(pad))
	return append([]byte(head), pad...)
}

func (cl *client) checkSnapshot(o *op, s *fdblayer.SnapshotBody, err error, b []byte) {
	if err != nil {
		for _, k := range cl.h.kills[o.name] {
			if (k.ret == 0 || k.unknown || k.err == nil && k.ret > o.call) && k.call < o.ret {
				return // the stream was deleted while it was read
			}
		}
		if s.Stream.Expiry != (fdblayer.Expiry{}) || codeOf(err) != "" || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return
		}
		cl.h.fail("#%d: reading the snapshot: %v", o.n, err)
		return
	}
	head, pad, _ := bytes.Cut(b, []byte("\n"))
	f := strings.Fields(string(head))
	switch {
	case len(f) != 5, f[3] != strconv.Itoa(len(pad)), f[4] != fmt.Sprintf("%08x", crc32.ChecksumIEEE(pad)), int64(len(b)) != s.Snapshot.Size:
		cl.h.fail("#%d: a torn snapshot: %q, %d bytes of %d", o.n, clip(b), len(b), s.Snapshot.Size)
	case f[0] != s.Stream.Incarnation.String() && cl.h.lives[s.Stream.Incarnation].inherited == 0, // a fork may have its source's
		f[1] != s.Snapshot.Offset.String():
		cl.h.fail("#%d: the snapshot of %v at %v is that of %s at %s", o.n, s.Stream.Incarnation, s.Snapshot.Offset, f[0], f[1])
	}
}

func (cl *client) publish() {
	name := cl.name()
	l, at := cl.known(name)
	if l == nil {
		return
	}
	size := 10 + cl.dice.n(300_000)
	if cl.dice.in(1, 4) { // more than one transaction
		size = 1_000_000 + cl.dice.n(1_500_000)
	}
	var st fdblayer.Stream
	cl.do("publish", name, func(o *op) { o.pre, o.what = l.inc, at.String() }, func(ctx context.Context, f *front, o *op) (err error) {
		st, _, err = f.PublishSnapshot(ctx, fdblayer.PublishRequest{
			ID: sid(name), Precondition: fdblayer.Precondition{Incarnation: l.inc, Set: true}, Offset: at,
			Body: bytes.NewReader(snapshotBody(l.inc, at, o.n, size)), MaxBytes: 16 << 20,
		})
		return err
	}, func(o *op) { cl.h.seen(o, st, false) })
}

func (cl *client) retain() {
	name := cl.name()
	l, _ := cl.known(name)
	if l == nil {
		return
	}
	f := cl.c.any()
	pre := fdblayer.Precondition{Incarnation: l.inc, Set: true}
	_, snap, err := f.Head(context.Background(), sid(name), pre)
	if err != nil || snap == nil {
		return
	}
	at := snap.Offset
	var st fdblayer.Stream
	cl.do("retain", name, func(o *op) {
		o.pre, o.what = l.inc, at.String()
		if l.dropped.Less(at) {
			l.dropped = at
		}
	}, func(ctx context.Context, f *front, o *op) (err error) {
		st, err = f.Retain(ctx, sid(name), pre, at)
		return err
	}, func(o *op) {
		cl.h.seen(o, st, false)
		if st.Retained != at {
			cl.h.fail("#%d retained %v, and was told %v", o.n, at, st.Retained)
		}
		if l.retained.Less(at) {
			l.retained, l.retainedBy = at, o
		}
	})
}

func (cl *client) openSnapshot() {
	name := cl.name()
	f := cl.c.any()
	st, snap, err := f.Head(context.Background(), sid(name), fdblayer.Precondition{})
	if err != nil || snap == nil {
		return
	}
	var s *fdblayer.SnapshotBody
	var b []byte
	var rerr error
	cl.do("snapshot", name, func(o *op) { o.pre = st.Incarnation }, func(ctx context.Context, f *front, o *op) (err error) {
		s, err = f.OpenSnapshot(ctx, sid(name), fdblayer.Precondition{Incarnation: st.Incarnation, Set: true}, snap.Offset)
		if err == nil {
			b, rerr = io.ReadAll(s.Body)
			_ = s.Body.Close()
		}
		return err
	}, func(o *op) {
		cl.h.seen(o, s.Stream, true)
		cl.checkSnapshot(o, s, rerr, b)
	})
}

func (cl *client) bootstrap() {
	name := cl.name()
	var bt *fdblayer.Bootstrap
	var b []byte
	var rerr error
	cl.do("bootstrap", name, nil, func(ctx context.Context, f *front, o *op) (err error) {
		bt, err = f.Bootstrap(ctx, sid(name), fdblayer.Precondition{}, 1+cl.dice.n(1<<20))
		if err == nil && bt.Snapshot != nil {
			b, rerr = io.ReadAll(bt.Snapshot.Body)
		}
		return err
	}, func(o *op) {
		cl.h.observe(o, bt.Updates)
		at := bt.Updates.Stream.Retained
		if bt.Snapshot != nil {
			at = bt.Snapshot.Snapshot.Offset
			cl.checkSnapshot(o, bt.Snapshot, rerr, b)
		}
		if bt.Updates.Start != at {
			cl.h.fail("#%d: the updates begin at %v, the snapshot is of %v", o.n, bt.Updates.Start, at)
		}
	})
}

func (cl *client) read() {
	name := cl.name()
	l, at := cl.known(name)
	req := fdblayer.ReadRequest{ID: sid(name), From: fdblayer.From{Offset: at}, MaxBytes: 1 + cl.dice.n(1<<uint(1+cl.dice.n(20)))}
	switch {
	case cl.dice.in(1, 10):
		req.From = fdblayer.From{Now: true}
	case l == nil || cl.dice.in(1, 3):
		req.From = fdblayer.From{AtStart: true}
	default:
		req.Precondition = fdblayer.Precondition{Incarnation: l.inc, Set: true}
	}
	req.WholeMessages = cl.dice.in(1, 3) && !req.Precondition.Set
	var p fdblayer.Piece
	o := cl.do("read", name, func(o *op) {
		o.pre = req.Precondition.Incarnation
		o.what = fmt.Sprintf("%v max %d", req.From, req.MaxBytes)
	},
		func(ctx context.Context, f *front, o *op) (err error) {
			p, err = f.Read(ctx, req)
			return err
		}, func(o *op) {
			cl.h.observe(o, p)
			if len(p.Data) > req.MaxBytes && !req.WholeMessages {
				cl.h.fail("#%d: %d bytes, at most %d were asked for", o.n, len(p.Data), req.MaxBytes)
			}
			if len(p.Data) == 0 && !p.UpToDate {
				cl.h.fail("#%d: an empty read before the tail", o.n)
			}
		})
	if l == nil || !req.Precondition.Set {
		return
	}
	cl.h.mu.Lock()
	defer cl.h.mu.Unlock()
	cl.h.judgeRefusedRead(o, l, at)
}

// judgeRefusedRead: below the boundary always refused, above always served.
func (h *history) judgeRefusedRead(o *op, l *life, at keys.Offset) {
	if o.err != nil && refusedBy(o.err) != l.inc {
		return
	}
	switch codeOf(o.err) {
	case fdblayer.CodeRetained:
		if !at.Less(l.dropped) && l.inherited == 0 {
			h.fail("#%d: %v of %s was refused, nobody asked to drop more than %v", o.n, at, l.name, l.dropped)
		}
	case fdblayer.CodeOffsetBeyondTail, fdblayer.CodeBadOffset:
		h.fail("#%d: %v of %s was refused: %v", o.n, at, l.name, o.err)
	case "":
		if at.Less(l.retained) && l.retainedBy.ret < o.call {
			h.fail("#%d: %v of %s was served, it had been dropped", o.n, at, l.name)
		}
	}
}
