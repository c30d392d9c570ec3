package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// runProducers appends with producer headers (PROTOCOL.md 5.2.1), each producer
// with several requests under way, as the official client does: on connections
// of their own, sent in order. A server may see them out of order; one that
// answers 409 for that is asked again, and the retries are counted.
func runProducers(ctx context.Context, r *run) error {
	streams, err := r.createStreams(ctx, r.cfg.Streams, (r.cfg.Writers+r.cfg.Streams-1)/r.cfg.Streams)
	if err != nil {
		return err
	}
	producers := make([]*producer, r.cfg.Writers)
	for i := range producers {
		s := streams[i%len(streams)]
		producers[i] = &producer{path: s.path, id: fmt.Sprintf("bench-%d", i), writer: uint32(i / len(streams)), source: s.sources[i/len(streams)]}
	}
	err = r.loop(ctx, len(producers)*r.cfg.InFlight, func(ctx context.Context, i int) (operation, error) {
		w := &writer{run: r}
		if err := w.redial(ctx); err != nil {
			return nil, err
		}
		return producers[i/r.cfg.InFlight].slot(ctx, w), nil
	})
	if err != nil {
		return err
	}
	var gaps int64
	for _, p := range producers {
		gaps += p.gaps
	}
	r.figure("409 answers to requests that overtook another", float64(gaps), "")
	return r.verifyStreams(ctx, streams)
}

type producer struct {
	path, id string
	writer   uint32
	source   *source

	// mu keeps the requests' order on their ways to their connections.
	mu   sync.Mutex
	gaps int64
}

// A gap is asked for again after gapPause, and given up after maxGaps.
const (
	gapPause = 200 * time.Microsecond
	maxGaps  = 50_000
)

var errGap = errors.New("the server keeps asking for a sequence number that it has acknowledged")

// slot is the operation of one of a producer's connections.
func (p *producer) slot(ctx context.Context, w *writer) operation {
	size := w.record.size()
	var req []byte
	return func(_ int, intended int64) (int, error) {
		if w.conn.dead {
			if err := w.redial(ctx); err != nil {
				return 0, err
			}
		}
		p.mu.Lock()
		seq := p.source.issued.Add(1) - 1
		req = fmt.Appendf(req[:0], "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nProducer-Id: %s\r\nProducer-Epoch: 0\r\nProducer-Seq: %d\r\n\r\n",
			p.path, w.write.host, w.cfg.ContentType, size, p.id, seq)
		req = append(req, w.record.template...)
		w.record.put(req[len(req)-size:], p.writer, seq, intended)
		err := w.conn.send(req, nil, time.Now())
		if err == nil {
			err = w.conn.flush()
		}
		p.mu.Unlock()
		for try := 0; ; try++ {
			var res *response
			if err == nil {
				res, err = w.conn.receive("POST")
			}
			switch {
			case err == nil && (res.status == http.StatusOK || res.status == http.StatusNoContent):
				return size, nil
			case err == nil && res.status == http.StatusConflict && res.expected >= 0:
				p.mu.Lock()
				p.gaps++
				p.mu.Unlock()
				if try >= maxGaps {
					return 0, errGap
				}
			case err == nil && !(&statusError{status: res.status}).refusal():
				return 0, fmt.Errorf("producer: %w", errors.New((&statusError{"append", res.status, string(res.body)}).Error()))
			case err == nil:
				w.count(&statusError{"append", res.status, ""})
			default:
				var status *statusError
				if !errors.As(w.transport(ctx, err), &status) {
					return 0, err
				}
				// The producer's numbers make a repeat safe, and leaving one out
				// would stop the producer.
				w.count(status)
				if err := w.redial(ctx); err != nil {
					return 0, err
				}
			}
			if err := sleep(ctx, gapPause); err != nil {
				return 0, err
			}
			err = w.conn.send(req, nil, time.Now())
		}
	}
}
