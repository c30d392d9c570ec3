//go:build !unix

package bench

import "net"

// maxDeferred is as in exchange_unix.go.
const maxDeferred = 16 << 10

// exchange reads from a socket, and writes a pending request first.
type exchange struct {
	nc      *net.TCPConn
	pending []byte
}

func (x *exchange) open(nc *net.TCPConn) error {
	x.nc = nc
	return nil
}

func (x *exchange) Read(p []byte) (int, error) {
	if len(x.pending) > 0 {
		_, err := x.nc.Write(x.pending)
		x.pending = nil
		if err != nil {
			return 0, err
		}
	}
	return x.nc.Read(p)
}
