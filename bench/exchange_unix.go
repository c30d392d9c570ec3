//go:build unix

package bench

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// maxDeferred is the longest request that is put off to the first read of its
// answer: it always fits an idle socket's send buffer.
const maxDeferred = 16 << 10

// exchange reads from a socket, and writes a pending request first.
//
// A Go connection that waits for an answer makes three system calls: a write, a
// read that finds nothing, and, woken by the poller, the read that gets it. The
// second can't be left out with net.Conn. Here the request is written inside
// the poller's read, which then waits before it reads: a readiness that comes
// from then on is the answer's. On two shared cores this is about a tenth of
// the generator's CPU time.
type exchange struct {
	raw     syscall.RawConn
	pending []byte

	into []byte
	n    int
	err  error
	// ready is step, bound once.
	ready func(fd uintptr) bool
}

func (x *exchange) open(nc *net.TCPConn) error {
	raw, err := nc.SyscallConn()
	x.raw = raw
	x.ready = x.step
	return err
}

func (x *exchange) Read(p []byte) (int, error) {
	x.into = p
	if err := x.raw.Read(x.ready); err != nil {
		return 0, err
	}
	if x.err != nil {
		return 0, x.err
	}
	if x.n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return x.n, nil
}

// step reports whether it is done; if not, it is called again when the socket
// is readable.
func (x *exchange) step(fd uintptr) bool {
	if len(x.pending) > 0 {
		n, err := ignoringEINTR(syscall.Write, int(fd), x.pending)
		if err == nil && n < len(x.pending) {
			err = io.ErrShortWrite
		}
		x.pending = nil
		if err != nil {
			x.err = err
			return true
		}
		return false
	}
	x.n, x.err = ignoringEINTR(syscall.Read, int(fd), x.into)
	return !errors.Is(x.err, syscall.EAGAIN)
}

func ignoringEINTR(call func(int, []byte) (int, error), fd int, p []byte) (int, error) {
	for {
		n, err := call(fd, p)
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}
