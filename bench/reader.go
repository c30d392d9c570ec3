package bench

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// liveReader follows one stream, over as many responses as it takes.
type liveReader struct {
	*run
	user   int
	stream *stream
	check  *checker
	// offset is where the next request begins.
	offset string
	// mark is what check expected at offset: what came after it comes again
	// when a response breaks off between data and its control event.
	mark []uint64
	// got is the number of records received in their places.
	got atomic.Int64
	// responses counts those after the first.
	responses int64
}

func (r *run) newLiveReader(user int, s *stream) *liveReader {
	l := &liveReader{run: r, user: user, stream: s, offset: "-1", mark: make([]uint64, len(s.sources))}
	l.check = newChecker(fmt.Sprintf("live reader %d of %s", user, s.readPath), r.record, r.cfg.ContentType, len(s.sources))
	l.check.seen = func(_ uint32, _ uint64, sent int64) {
		l.got.Add(1)
		now := r.clock.now()
		r.events.add(user, 1)
		if sent >= r.warmFrom.Load() && sent < r.warmTo.Load() {
			r.delivery.record(user, now-sent)
		}
	}
	return l
}

// settle notes that everything before offset has arrived.
func (l *liveReader) settle(offset string) {
	l.offset = offset
	copy(l.mark, l.check.next)
}

// rewind forgets what arrived since settle.
func (l *liveReader) rewind() {
	for w, n := range l.mark {
		l.got.Add(int64(n) - int64(l.check.next[w]))
		l.check.next[w] = n
	}
	l.check.partial = l.check.partial[:0]
}

// follow reads until ctx ends. It calls ready once, when the server has
// answered, so that what is written from then on is live for this reader.
func (l *liveReader) follow(ctx context.Context, ready func()) error {
	once := ready
	step := l.longPoll(ctx)
	if l.cfg.Live == LiveSSE {
		step = l.sse
	}
	for {
		err := step(ctx, func() {
			if once != nil {
				once()
				once = nil
			}
		})
		if ctx.Err() != nil {
			return nil //nolint:nilerr // its end is how a reader is told to leave
		}
		if err != nil {
			return fmt.Errorf("live reader %d: %w", l.user, err)
		}
		l.responses++
		l.rewind()
	}
}

// minResponse is the shortest time an event stream may last without being a
// failure: a server that ends them at once must not be asked in a tight loop.
const minResponse = 100 * time.Millisecond

// sse reads one event stream.
func (l *liveReader) sse(ctx context.Context, ready func()) error {
	began := l.clock.now()
	nc, err := (&net.Dialer{Timeout: l.cfg.Timeout}).DialContext(ctx, "tcp", l.read.address)
	if err != nil {
		return err
	}
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer stop()

	path := l.stream.readPath + "?offset=" + url.QueryEscape(l.offset) + "&live=sse"
	if err := nc.SetDeadline(time.Now().Add(l.cfg.Timeout)); err != nil {
		return err
	}
	if _, err := nc.Write(l.head(l.read, "GET", path, 0, "Accept: text/event-stream")); err != nil {
		return err
	}
	res, err := http.ReadResponse(bufio.NewReaderSize(nc, connBuffer), nil)
	if err != nil {
		return fmt.Errorf("SSE: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		return fmt.Errorf("SSE: %s, content type %q", res.Status, res.Header.Get("Content-Type"))
	}
	if err := nc.SetDeadline(time.Time{}); err != nil {
		return err
	}
	ready()
	err = l.consume(newEventReader(res.Body), strings.EqualFold(res.Header.Get("Stream-Sse-Data-Encoding"), "base64"))
	switch {
	case ctx.Err() != nil:
		return nil
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("SSE: %w", err)
	case l.clock.now()-began < int64(minResponse):
		return fmt.Errorf("SSE: the server ended the stream after %v", time.Duration(l.clock.now()-began))
	}
	return nil
}

// control is the part of a control event that a reader needs.
type control struct {
	StreamNextOffset string `json:"streamNextOffset"`
	StreamClosed     bool   `json:"streamClosed"`
}

var errClosed = errors.New("the stream was closed")

func (l *liveReader) consume(events *eventReader, isBase64 bool) error {
	var decoded []byte
	for {
		name, data, err := events.next()
		if err != nil {
			return err
		}
		switch string(name) {
		case "data":
			if isBase64 {
				if decoded, err = appendBase64(decoded[:0], data); err != nil {
					return err
				}
				data = decoded
			}
			l.check.feed(data)
		case "control":
			// One field is needed per event; the whole is parsed only where the
			// short way fails.
			next, ok := nextOffset(data)
			if !ok {
				var c control
				if err := json.Unmarshal(data, &c); err != nil {
					return fmt.Errorf("control event %.80q: %w", data, err)
				}
				if c.StreamClosed {
					return errClosed
				}
				next = []byte(c.StreamNextOffset)
			}
			if len(next) == 0 {
				return fmt.Errorf("control event %.80q has no offset", data)
			}
			if string(next) != l.offset {
				l.settle(string(next))
			}
		default:
			return fmt.Errorf("event %.40q with data %.80q", name, data)
		}
	}
}

// nextOffset finds the offset of a control event that begins with it, and says
// nothing of a closed stream.
func nextOffset(data []byte) ([]byte, bool) {
	const prefix = `{"streamNextOffset":"`
	if len(data) < len(prefix) || string(data[:len(prefix)]) != prefix {
		return nil, false
	}
	for i := len(prefix); i < len(data); i++ {
		switch data[i] {
		case '\\':
			return nil, false
		case '"':
			const closed = `,"streamClosed":true`
			for j := i; j+len(closed) <= len(data); j++ {
				if string(data[j:j+len(closed)]) == closed {
					return nil, false
				}
			}
			return data[len(prefix):i], true
		}
	}
	return nil, false
}

func appendBase64(dst, text []byte) ([]byte, error) {
	kept := text[:0]
	for _, c := range text {
		if c != '\n' && c != '\r' {
			kept = append(kept, c)
		}
	}
	dst, err := base64.StdEncoding.AppendDecode(dst, kept)
	if err != nil {
		return nil, fmt.Errorf("base64 data: %w", err)
	}
	return dst, nil
}

// feeder makes a checker an io.Writer.
type feeder struct{ *checker }

func (f feeder) Write(p []byte) (int, error) {
	f.feed(p)
	return len(p), nil
}

// longPoll returns the step that makes one long-poll request. Its first one is
// a plain read, since a long poll at the tail answers nothing until there is
// something to tell.
func (l *liveReader) longPoll(ctx context.Context) func(context.Context, func()) error {
	var c *conn
	cursor := ""
	first := true
	return func(_ context.Context, ready func()) error {
		if c == nil || c.dead {
			var err error
			// A server may hold a request for a minute.
			if c, err = dial(ctx, l.read, l.cfg.Timeout+time.Minute); err != nil {
				return err
			}
			c.sink = feeder{l.check}
			context.AfterFunc(ctx, c.close)
		}
		path := l.stream.readPath + "?offset=" + url.QueryEscape(l.offset)
		if !first {
			path += "&live=long-poll"
			if cursor != "" {
				path += "&cursor=" + url.QueryEscape(cursor)
			}
		}
		if err := c.send(l.head(l.read, "GET", path, 0), nil, time.Now()); err != nil {
			return err
		}
		if err := c.flush(); err != nil {
			return err
		}
		if !first {
			ready()
		}
		first = false
		res, err := c.receive("GET")
		if err != nil {
			return err
		}
		if res.status != http.StatusOK && res.status != http.StatusNoContent {
			return &statusError{"long poll", res.status, string(res.body)}
		}
		if len(res.next) == 0 {
			return errors.New("long poll: no Stream-Next-Offset")
		}
		cursor = string(res.cursor)
		l.settle(string(res.next))
		return nil
	}
}
