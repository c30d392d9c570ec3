package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// bufferLen is the size of the one buffer of a response. The snapshot passes
// through it, and small parts are gathered in it, so that a thousand messages
// are not two thousand writes.
const bufferLen = 64 << 10

// WriteTo writes the body to w, once. A snapshot that is shorter or longer than
// its size is an error: what follows would no longer fit the Content-Length
// that was announced. After an error the response can't be mended; the
// connection must be cut so that the client notices.
func (r *Response) WriteTo(w io.Writer) (int64, error) {
	o := output{w: w, buf: make([]byte, 0, bufferLen)}
	o.buf = opening(o.buf, r.boundary, r.snapshot.ContentType)
	if r.snapshot.Body != nil {
		if err := o.copy(r.snapshot.Body, r.snapshot.Size); err != nil {
			return o.n, err
		}
	} else if r.snapshot.Size != 0 {
		return o.n, errSnapshotSize
	}
	o.text("\r\n")
	for rest := r.updates.Data; len(rest) > 0; {
		part := rest
		if r.updates.Messages {
			part = rest[:bytes.IndexByte(rest, '\n')+1]
		}
		rest = rest[len(part):]
		o.room(int(partLen(r.updates.ContentType)))
		o.buf = opening(o.buf, r.boundary, r.updates.ContentType)
		o.bytes(part)
		o.text("\r\n")
	}
	o.room(boundaryLen + 6)
	o.buf = closing(o.buf, r.boundary)
	o.flush()
	return o.n, o.err
}

var errSnapshotSize = errors.New("bootstrap: the snapshot is not as long as announced")

// output gathers small writes. The first error stays.
type output struct {
	w   io.Writer
	buf []byte
	n   int64
	err error
}

func (o *output) flush() {
	if len(o.buf) > 0 {
		o.write(o.buf)
		o.buf = o.buf[:0]
	}
}

func (o *output) write(b []byte) {
	if o.err != nil {
		return
	}
	n, err := o.w.Write(b)
	o.n += int64(n)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	o.err = err
}

// room makes sure that n bytes fit into the buffer if they ever can.
func (o *output) room(n int) {
	if len(o.buf)+n > cap(o.buf) {
		o.flush()
	}
}

func (o *output) text(s string) {
	o.room(len(s))
	o.buf = append(o.buf, s...)
}

// bytes writes b, past the buffer if it is too large to gather.
func (o *output) bytes(b []byte) {
	o.room(len(b))
	if len(b) > cap(o.buf) {
		o.write(b)
		return
	}
	o.buf = append(o.buf, b...)
}

// copy passes exactly size bytes of src through the buffer.
func (o *output) copy(src io.Reader, size int64) error {
	for left := size; ; {
		o.room(1)
		free := o.buf[len(o.buf):cap(o.buf)]
		// One byte more than is left, so that a longer body is noticed.
		free = free[:min(int64(len(free)), left+1)]
		n, err := src.Read(free)
		if left -= int64(n); left < 0 {
			return errSnapshotSize
		}
		o.buf = o.buf[:len(o.buf)+n]
		if o.err != nil {
			return o.err
		}
		switch {
		case err == io.EOF && left > 0:
			return errSnapshotSize
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("bootstrap: snapshot: %w", err)
		}
	}
}
