package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// runAppend is append-one, append-many and append-large: writers that append
// one record at a time. With at least as many streams as writers each stream
// has one writer, which goes round its streams; with fewer the writers share
// them.
func runAppend(ctx context.Context, r *run) error {
	writers, n := r.cfg.Writers, r.cfg.Streams
	sources := 1
	if writers > n {
		sources = (writers + n - 1) / n
	}
	streams, err := r.createStreams(ctx, n, sources)
	if err != nil {
		return err
	}
	err = r.loop(ctx, writers, func(ctx context.Context, i int) (operation, error) {
		w := &writer{run: r}
		if writers > n {
			w.outlets = append(w.outlets, r.newOutlet(streams[i%n], i/n))
		}
		for j := i; j < n && writers <= n; j += writers {
			w.outlets = append(w.outlets, r.newOutlet(streams[j], 0))
		}
		return w.connect(ctx)
	})
	if err != nil {
		return err
	}
	return r.verifyStreams(ctx, streams)
}

// outlet is one writer's side of one stream: a request whose record is filled
// in anew for each append.
type outlet struct {
	source *source
	writer uint32
	// head and body are what is sent; for a short request body is nil and
	// record points into head.
	head, body []byte
	record     []byte
}

func (r *run) newOutlet(s *stream, writer int) *outlet {
	size := r.record.size()
	o := &outlet{source: s.sources[writer], writer: uint32(writer)}
	o.head = r.head(r.write, "POST", s.path, size)
	if len(o.head)+size <= maxDeferred {
		n := len(o.head)
		o.head = append(o.head, r.record.template...)
		o.record = o.head[n:]
	} else {
		o.body = append([]byte(nil), r.record.template...)
		o.record = o.body
	}
	return o
}

// writer is one connection that appends.
type writer struct {
	*run
	conn    *conn
	outlets []*outlet
}

// connect returns the writer's operation. The connection ends with ctx, which
// ends an operation under way.
func (w *writer) connect(ctx context.Context) (operation, error) {
	if err := w.redial(ctx); err != nil {
		return nil, err
	}
	return func(k int, intended int64) (int, error) {
		if w.conn.dead {
			if err := w.redial(ctx); err != nil {
				return 0, err
			}
		}
		o := w.outlets[k%len(w.outlets)]
		seq := o.source.issued.Load()
		w.record.put(o.record, o.writer, seq, intended)
		res, err := w.conn.do("POST", o.head, o.body, time.Now())
		o.source.issued.Store(seq + 1)
		if err == nil && (res.status == http.StatusNoContent || res.status == http.StatusOK) {
			return len(o.record), nil
		}
		if err := o.source.doubt(seq); err != nil {
			return 0, err
		}
		if err != nil {
			return 0, w.transport(ctx, err)
		}
		return 0, &statusError{"append", res.status, string(res.body)}
	}, nil
}

func (w *writer) redial(ctx context.Context) error {
	c, err := w.dial(ctx, w.write)
	if err != nil {
		return err
	}
	w.conn = c
	context.AfterFunc(ctx, c.close)
	return nil
}

// transport turns a connection's failure into one that is counted, unless it is
// the end of the run.
func (r *run) transport(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Without the addresses, so that equal failures are counted together.
	var op *net.OpError
	if errors.As(err, &op) {
		err = fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	return &statusError{what: "append", body: fmt.Sprintf("(none: %v)", err)}
}

// fill writes a stream's first bytes, by as many writers as it has sources, a
// batch of records in each append. The order between the writers is free, so
// they need not wait for each other.
func (r *run) fill(ctx context.Context, s *stream, total int64) error {
	records := int(max(1, total/int64(r.record.size())))
	return all(ctx, len(s.sources), func(ctx context.Context, w int) error {
		c, err := r.dial(ctx, r.write)
		if err != nil {
			return err
		}
		defer c.close()
		left := records / len(s.sources)
		if w < records%len(s.sources) {
			left++
		}
		for left > 0 && ctx.Err() == nil {
			n := min(left, r.cfg.Batch)
			left -= n
			body := r.batch(s.sources[w], w, n)
			res, err := c.do("POST", r.head(r.write, "POST", s.path, len(body)), body, time.Now())
			if err != nil {
				return fmt.Errorf("filling a stream: %w", err)
			}
			if res.status != http.StatusNoContent && res.status != http.StatusOK {
				return fmt.Errorf("filling a stream: %w", &statusError{"append", res.status, string(res.body)})
			}
		}
		return ctx.Err()
	})
}

// batch is the body of an append of n records.
func (r *run) batch(s *source, writer, n int) []byte {
	size, now := r.record.size(), r.clock.now()
	body := make([]byte, 0, n*(size+1)+1)
	for i := range n {
		if isJSON(r.cfg.ContentType) {
			body = append(body, "[,"[min(i, 1)])
		}
		body = append(body, r.record.template...)
		r.record.put(body[len(body)-size:], uint32(writer), s.issued.Add(1)-1, now)
	}
	if isJSON(r.cfg.ContentType) {
		body = append(body, ']')
	}
	return body
}
