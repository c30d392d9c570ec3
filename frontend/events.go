package frontend

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"headwater/fdblayer"
	"headwater/sse"
)

// encoding is the form of an SSE response's data events. It is the key under
// which readers of a stream share what they have in common.
type encoding int

const (
	encodeText encoding = iota
	encodeArray
	encodeBase64
)

func (e encoding) data(p fdblayer.Piece) []byte {
	switch e {
	case encodeArray:
		return sse.AppendJSONArray(nil, p.Data)
	case encodeBase64:
		return sse.AppendBase64(nil, p.Data)
	}
	return sse.AppendData(nil, p.Data)
}

// eventStream is an SSE response under way.
type eventStream struct {
	x        *exchange
	encoding encoding
	// client is the cursor the request came with, cursor the last one sent.
	client, cursor uint64
	// last is what the last control event said.
	last sse.Control
	sent time.Time
	buf  []byte
}

// maxEventBytes caps the stream bytes of one event, below the cap of other
// reads: what a slow client has not taken yet is kept for it alone.
const maxEventBytes = 1 << 20

// events serves a stream as Server-Sent Events (PROTOCOL.md 5.8).
func (f *Frontend) events(x *exchange, q *readQuery, req fdblayer.ReadRequest, wanted form) error {
	ctx := x.r.Context()
	x.tally.route = routeEvents
	reader, p, err := f.store.Live(ctx, req)
	draining := hasCode(err, fdblayer.CodeDraining)
	if draining {
		// What there is now, and the client goes on elsewhere.
		p, err = f.store.Read(ctx, req)
	}
	if err != nil {
		return err
	}
	if reader != nil {
		defer reader.Close()
	}
	s := &eventStream{x: x, client: q.cursor}
	done, err := x.hold(2 * int64(len(p.Data)))
	if err != nil {
		return err
	}
	// The end of the response is written after the handler has returned.
	defer func() { x.writeBy(time.Now().Add(f.opts.WriteTimeout)) }()
	s.begin(&p, wanted)
	var first []byte
	if len(p.Data) > 0 {
		first = s.encoding.data(p)
	}
	err = s.send(first, &p)
	done()
	if err != nil || draining || p.Closed {
		return err
	}
	x.park()
	return s.follow(ctx, reader)
}

// begin sends the headers.
func (s *eventStream) begin(p *fdblayer.Piece, wanted form) {
	h := s.x.header()
	h["Content-Type"] = []string{"text/event-stream"}
	h["Cache-Control"] = []string{"no-cache"}
	h["X-Accel-Buffering"] = []string{"no"} // nginx would hold events back
	h[hIncarnation] = []string{p.Stream.Incarnation.String()}
	dataType := p.Stream.ContentType
	switch {
	case p.Stream.JSON():
		h["Vary"] = varyAccept
		if wanted == asArray {
			s.encoding = encodeArray
		} else {
			dataType = typeNDJSON
		}
	case !p.Stream.Text():
		s.encoding = encodeBase64
		h[hSSEEncoding] = base64Value
	}
	h[hDataContentType] = []string{dataType}
	s.x.begin(http.StatusOK)
}

// follow sends what comes until the stream, the response's time or the server's
// ends, or the client goes away.
func (s *eventStream) follow(ctx context.Context, reader *fdblayer.LiveReader) error {
	end := time.Now().Add(jitter(s.x.f.opts.EventsMaxAge))
	for {
		err := s.forward(ctx, reader, end)
		var e *fdblayer.Error
		switch {
		case errors.Is(err, errEnd):
			return nil
		case errors.Is(err, errSilent):
			if err := s.write(sse.AppendComment(s.buf[:0]), nil); err != nil {
				return err
			}
			continue
		case ctx.Err() != nil || errors.Is(err, errWrite):
			return err
		case errors.As(err, &e) && e.Code == fdblayer.CodeDraining:
			// The same position again: a promise that nothing was left out.
			return s.control(nil)
		}
		if e == nil {
			e = classify(ctx, err)
		}
		return errors.Join(err, s.write(sse.AppendError(s.buf[:0], string(e.Code), e.Detail), nil))
	}
}

var (
	errEnd    = errors.New("frontend: the SSE response is complete")
	errSilent = errors.New("frontend: nothing was sent for a while")
	errWrite  = errors.New("frontend: the client does not take what is sent")
)

// forward sends events until the connection has been silent for a while or
// something ends it. Waiting has one timer for many events.
func (s *eventStream) forward(ctx context.Context, reader *fdblayer.LiveReader, end time.Time) error {
	until := s.sent.Add(s.x.f.opts.EventsKeepAlive)
	if end.Before(until) {
		until = end
	}
	wait, cancel := context.WithDeadlineCause(ctx, until, errSilent)
	defer cancel()
	for {
		ev, err := reader.Next(wait)
		now := time.Now()
		switch {
		case err != nil && wait.Err() != nil && ctx.Err() == nil && !isStoreError(err):
			if !now.Before(end) {
				return errEnd
			}
			if now.Sub(s.sent) < s.x.f.opts.EventsKeepAlive {
				return s.forward(ctx, reader, end)
			}
			return errSilent
		case err != nil:
			return err
		}
		if err := s.event(ev); err != nil {
			return err
		}
		if ev.Closed || !now.Before(end) {
			return errEnd
		}
	}
}

func isStoreError(err error) bool {
	var e *fdblayer.Error
	return errors.As(err, &e)
}

// event sends what a reader yields. An event that many share costs nobody
// anything; one read for a reader that fell behind is its own.
func (s *eventStream) event(ev *fdblayer.Event) error {
	var data []byte
	if len(ev.Data) > 0 {
		if !ev.Shared() {
			done, err := s.x.hold(2 * int64(len(ev.Data)))
			if err != nil {
				return err
			}
			defer done()
		}
		data = ev.Encoded(int(s.encoding), s.encoding.data)
	}
	return s.send(data, &ev.Piece)
}

// send sends a data event, if there is data, and the control event that goes
// with it, in one write to the network.
func (s *eventStream) send(data []byte, p *fdblayer.Piece) error {
	s.last = sse.Control{NextOffset: p.Next.String(), UpToDate: p.UpToDate, Closed: p.Closed}
	return s.control(data)
}

// control sends the last control event after data. Cursors go up only.
func (s *eventStream) control(data []byte) error {
	s.last.Cursor = ""
	if !s.last.Closed {
		if s.cursor == 0 {
			s.cursor = s.x.f.nextCursor(s.client)
		} else {
			s.cursor = max(s.cursor, s.x.f.nextCursor(0))
		}
		s.last.Cursor = cursorText(s.cursor)
	}
	s.buf = sse.AppendControl(s.buf[:0], s.last)
	return s.write(data, s.buf)
}

func (s *eventStream) write(frames ...[]byte) error {
	s.sent = time.Now()
	for _, b := range frames {
		if len(b) == 0 {
			continue
		}
		if _, err := s.x.Write(b); err != nil {
			return fmt.Errorf("%w: %w", errWrite, err)
		}
	}
	// Not gin's Flush, which swallows the error.
	if err := s.x.rc.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errWrite, err)
	}
	return nil
}
