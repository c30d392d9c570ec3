package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"time"
)

// conn is one keep-alive HTTP/1.1 connection with at most one request under
// way. It exists because net/http's client costs as much CPU per append as a
// good server: two goroutines per connection, a context, and some twenty
// allocations per request. It knows what servers answer to PUT, POST, HEAD and
// GET, and refuses anything else rather than guess.
type conn struct {
	nc      *net.TCPConn
	io      exchange
	br      *bufio.Reader
	timeout time.Duration
	// deadline is the one set on nc; moving it is a lock in the runtime, so
	// that is done once per timeout only.
	deadline time.Time
	// sink receives the bodies of good answers; nil for none.
	sink io.Writer
	// dead is set once the connection can't be used any more.
	dead bool
	res  response
}

// response is the part of an answer that workloads look at. It is valid until
// the next request.
type response struct {
	status int
	// next is Stream-Next-Offset, expected is Producer-Expected-Seq (-1 where
	// there is none).
	next     []byte
	expected int64
	// cursor is Stream-Cursor.
	cursor []byte
	// body is that of an error only, cut at maxErrorBody.
	body []byte

	length  int64 // Content-Length, -1 for none
	chunked bool
	close   bool
}

const (
	maxHeaderLines = 100
	maxErrorBody   = 1 << 10
	maxBody        = 1 << 30
	connBuffer     = 4 << 10
)

func dial(ctx context.Context, t target, timeout time.Duration) (*conn, error) {
	d := net.Dialer{Timeout: timeout}
	c, err := d.DialContext(ctx, "tcp", t.address)
	if err != nil {
		return nil, err
	}
	nc, ok := c.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%s: not a TCP connection", t.address), c.Close())
	}
	cn := &conn{nc: nc, timeout: timeout}
	if err := cn.io.open(nc); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	cn.br = bufio.NewReaderSize(&cn.io, connBuffer)
	return cn, nil
}

// close may be called by any goroutine, to end a request under way.
func (c *conn) close() { _ = c.nc.Close() }

// send writes a request; body may be nil where head holds all of it. A small
// one goes out with the first read of its answer.
func (c *conn) send(head, body []byte, now time.Time) error {
	if c.deadline.Sub(now) < c.timeout {
		c.deadline = now.Add(2 * c.timeout)
		if err := c.nc.SetDeadline(c.deadline); err != nil {
			return c.fail(err)
		}
	}
	if len(body) == 0 && len(head) <= maxDeferred {
		c.io.pending = head
		return nil
	}
	buffers := net.Buffers{head, body}
	if _, err := buffers.WriteTo(c.nc); err != nil {
		return c.fail(fmt.Errorf("sending: %w", err))
	}
	return nil
}

// flush sends what send has put off.
func (c *conn) flush() error {
	if len(c.io.pending) == 0 {
		return nil
	}
	_, err := c.nc.Write(c.io.pending)
	c.io.pending = nil
	if err != nil {
		return c.fail(fmt.Errorf("sending: %w", err))
	}
	return nil
}

// do sends a request and reads the answer to it; method tells which answers
// have a body.
func (c *conn) do(method string, head, body []byte, now time.Time) (*response, error) {
	if err := c.send(head, body, now); err != nil {
		return nil, err
	}
	return c.receive(method)
}

func (c *conn) receive(method string) (*response, error) {
	if err := c.readHead(); err != nil {
		return nil, c.fail(fmt.Errorf("reading the answer: %w", err))
	}
	if err := c.readBody(method); err != nil {
		return nil, c.fail(fmt.Errorf("reading the answer's body: %w", err))
	}
	if c.res.close {
		c.dead = true
	}
	return &c.res, nil
}

func (c *conn) fail(err error) error {
	c.dead = true
	c.close()
	return err
}

var (
	errStatusLine = errors.New("bad status line")
	errHeader     = errors.New("bad header")
)

// readHead parses the status line and the header fields; informational answers
// are skipped.
func (c *conn) readHead() error {
	for range 10 {
		if err := c.readOneHead(); err != nil {
			return err
		}
		if c.res.status >= 200 {
			return nil
		}
	}
	return errStatusLine
}

func (c *conn) readOneHead() error {
	c.res = response{length: -1, expected: -1, next: c.res.next[:0], cursor: c.res.cursor[:0], body: c.res.body[:0]}
	line, err := c.line()
	if err != nil {
		return err
	}
	const version = "HTTP/1.1 "
	if len(line) < len(version)+3 || string(line[:len(version)]) != version || (len(line) > len(version)+3 && line[len(version)+3] != ' ') {
		return fmt.Errorf("%w %.80q", errStatusLine, line)
	}
	for _, d := range line[len(version) : len(version)+3] {
		if d < '0' || d > '9' {
			return fmt.Errorf("%w %.80q", errStatusLine, line)
		}
		c.res.status = c.res.status*10 + int(d-'0')
	}
	if c.res.status < 100 {
		return fmt.Errorf("%w %.80q", errStatusLine, line)
	}
	for range maxHeaderLines {
		line, err := c.line()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			return nil
		}
		if err := c.res.field(line); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: more than %d fields", errHeader, maxHeaderLines)
}

func (c *conn) line() ([]byte, error) {
	line, err := c.br.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	n := len(line)
	if n < 2 || line[n-2] != '\r' {
		return nil, fmt.Errorf("%w: line %.80q does not end in CR LF", errHeader, line)
	}
	return line[:n-2], nil
}

// field takes one header field. Its name's length chooses the candidates, so
// that the many fields nobody asks for cost one comparison.
func (r *response) field(line []byte) error {
	i := bytes.IndexByte(line, ':')
	if i <= 0 {
		return fmt.Errorf("%w %.80q", errHeader, line)
	}
	name := line[:i]
	is := func(s string) bool { return len(name) == len(s) && bytes.EqualFold(name, []byte(s)) }
	value := func() []byte { return bytes.Trim(line[i+1:], " \t") }
	switch {
	case is("content-length"):
		n, err := strconv.ParseInt(string(value()), 10, 64)
		if err != nil || n < 0 || (r.length >= 0 && r.length != n) {
			return fmt.Errorf("%w %.80q", errHeader, line)
		}
		r.length = n
	case is("transfer-encoding"):
		if !bytes.EqualFold(value(), []byte("chunked")) {
			return fmt.Errorf("%w %.80q", errHeader, line)
		}
		r.chunked = true
	case is("connection"):
		r.close = bytes.EqualFold(value(), []byte("close"))
	case is("stream-next-offset"):
		r.next = append(r.next[:0], value()...)
	case is("stream-cursor"):
		r.cursor = append(r.cursor[:0], value()...)
	case is("producer-expected-seq"):
		n, err := strconv.ParseInt(string(value()), 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("%w %.80q", errHeader, line)
		}
		r.expected = n
	}
	return nil
}

// readBody reads the body: a good answer's into the sink, the beginning of an
// error's into the response.
func (c *conn) readBody(method string) error {
	r := &c.res
	if r.status == 204 || r.status == 304 || method == "HEAD" || (r.length == 0 && !r.chunked) {
		return nil
	}
	var body io.Reader
	switch {
	case r.chunked:
		body = httputil.NewChunkedReader(c.br)
	case r.length > 0:
		body = io.LimitReader(c.br, r.length)
	default:
		return fmt.Errorf("%w: neither a length nor chunked", errHeader)
	}
	var kept int64
	sink := c.sink
	if sink == nil || r.status >= 400 {
		sink = io.Discard
	}
	if r.status >= 400 {
		p, err := io.ReadAll(io.LimitReader(body, maxErrorBody))
		if err != nil {
			return err
		}
		r.body, kept = append(r.body[:0], p...), int64(len(p))
	}
	n, err := io.Copy(sink, io.LimitReader(body, maxBody))
	switch {
	case err != nil:
		return err
	case n == maxBody:
		return fmt.Errorf("more than %d bytes", maxBody)
	case !r.chunked && kept+n != r.length:
		return io.ErrUnexpectedEOF
	case !r.chunked:
		return nil
	}
	// The reader stops after the last chunk: the trailer section, here an empty
	// one, is left.
	line, err := c.line()
	if err == nil && len(line) > 0 {
		err = fmt.Errorf("%w: trailer %.80q", errHeader, line)
	}
	return err
}
