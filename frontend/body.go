package frontend

import (
	"errors"
	"io"
	"strings"
	"time"

	"headwater/fdblayer"
	"headwater/jsontext"
)

const (
	// pacedPiece is how much of a body has one deadline.
	pacedPiece = 64 << 10
	// firstBuffer is what a body of unknown length is given to begin with.
	firstBuffer = 4 << 10
	// abandonGrace is how long net/http may drain a body that was refused, so
	// that the connection can be used again.
	abandonGrace = time.Second
)

// checkEncoding refuses a body that is encoded: it would be stored as it is,
// and readers would not be told.
func (x *exchange) checkEncoding() error {
	for _, v := range x.r.Header["Content-Encoding"] {
		if !strings.EqualFold(v, "identity") {
			return refuse(codeContentEncoding, "Content-Encoding %s is not understood", clip(v))
		}
	}
	return nil
}

// body receives the request's body. The slice is the request's until it has
// been served.
//
// Memory is reserved as bytes arrive and not as Content-Length promises them:
// a client that announces much and sends nothing takes no room from others.
func (x *exchange) body() ([]byte, error) { return x.bodyUpTo(x.f.opts.MaxBodyBytes) }

func (x *exchange) bodyUpTo(limit int64) ([]byte, error) {
	length := x.r.ContentLength
	if err := x.checkLength(limit); err != nil {
		return nil, err
	}
	if x.bodyRead {
		return nil, nil
	}
	if err := x.checkEncoding(); err != nil {
		return nil, err
	}
	// One byte more than expected, so that the end is seen without growing.
	most := limit + 1
	if length >= 0 {
		most = length + 1
	}
	size := min(most, firstBuffer)
	if length >= 0 {
		size = min(most, pacedPiece)
	}
	if err := x.reserve(size); err != nil {
		return nil, err
	}
	in := x.paced()
	buf := make([]byte, 0, size)
	for {
		n, err := in.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > limit:
			return nil, x.tooLarge(limit)
		case errors.Is(err, io.EOF):
			in.done()
			return buf, nil
		case err != nil:
			return nil, &fdblayer.Error{Code: fdblayer.CodeBodyRead, Detail: "the body ended early or is malformed", Err: err}
		case len(buf) < cap(buf):
			continue
		}
		size := min(2*int64(cap(buf)), most)
		if err := x.reserve(size); err != nil {
			return nil, err
		}
		buf = append(make([]byte, 0, size), buf...)
	}
}

// dropBody reads a body that means nothing, as one of a GET, out of the way:
// net/http would do so too, but wait for it without a limit of time.
func (x *exchange) dropBody() error {
	if x.bodyRead {
		return nil
	}
	if err := x.checkLength(pacedPiece); err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, io.LimitReader(x.paced(), pacedPiece+1))
	switch {
	case err != nil:
		return &fdblayer.Error{Code: fdblayer.CodeBodyRead, Detail: "the body ended early or is malformed", Err: err}
	case n > pacedPiece:
		return x.tooLarge(pacedPiece)
	}
	return nil
}

// checkLength refuses a body whose announced length is over limit.
func (x *exchange) checkLength(limit int64) error {
	if x.r.ContentLength > limit {
		return x.tooLarge(limit)
	}
	return nil
}

func (x *exchange) tooLarge(limit int64) error {
	return refuse(fdblayer.CodeTooLarge, "the body can't be longer than %d bytes", limit)
}

// reserve takes n bytes of the memory for bodies, until the request is served.
func (x *exchange) reserve(n int64) error {
	if !x.f.bodies.TryAcquire(n) {
		return &fdblayer.Error{Code: fdblayer.CodeOverloaded, Detail: "too many bytes are being received", RetryAfter: time.Second}
	}
	x.reserved += n
	x.f.bodyBytes.Add(n)
	return nil
}

// abandonBody lets net/http drain what is left of a refused body, for a short
// while only.
func (x *exchange) abandonBody() {
	if !x.bodyRead {
		_ = x.rc.SetReadDeadline(time.Now().Add(abandonGrace))
	}
}

// pacedBody reads the body with a deadline on each piece. Time the reader
// spends elsewhere between two calls is not the client's and does not count.
type pacedBody struct {
	x    *exchange
	left time.Duration // for the rest of the piece
	size int           // read of the piece
}

// paced returns the body as a reader that gives up on a slow client. Call done
// at its end.
func (x *exchange) paced() *pacedBody {
	return &pacedBody{x: x, left: x.f.opts.BodyTimeout}
}

func (b *pacedBody) Read(p []byte) (int, error) {
	begun := time.Now()
	_ = b.x.rc.SetReadDeadline(begun.Add(b.left))
	n, err := b.x.r.Body.Read(p[:min(len(p), pacedPiece)])
	b.size += n
	b.x.tally.in += int64(n)
	if b.size >= pacedPiece {
		b.size, b.left = 0, b.x.f.opts.BodyTimeout
	} else {
		b.left -= time.Since(begun)
	}
	if errors.Is(err, io.EOF) {
		b.done()
	}
	return n, err
}

// done clears the deadline: net/http goes on reading, to notice when the client
// goes away, and would take its passing for that.
func (b *pacedBody) done() {
	b.x.bodyRead = true
	_ = b.x.rc.SetReadDeadline(time.Time{})
}

// store turns a body into what is stored of it: a JSON one into messages.
func (x *exchange) store(contentType string, body []byte) (stored []byte, messages int, err error) {
	if len(body) == 0 || fdblayer.MediaType(contentType) != typeJSON {
		return body, 0, nil
	}
	if err := x.reserve(int64(len(body)) + 1); err != nil {
		return nil, 0, err
	}
	stored, messages, err = jsontext.AppendMessages(nil, body)
	if err != nil {
		return nil, 0, refuse(codeInvalidJSON, "the body is not acceptable JSON: %v", err)
	}
	return stored, messages, nil
}
