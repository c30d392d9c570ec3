package bench

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// answering is a connection whose requests get the given bytes as answers.
func answering(t *testing.T, answers ...string) *conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		request := make([]byte, 1<<20)
		for _, text := range answers {
			a := []byte(text)
			if n, err := nc.Read(request); n == 0 || err != nil {
				return
			}
			// In pieces, so that the parser must wait within lines.
			for len(a) > 0 {
				n := min(len(a), 7)
				if _, err := nc.Write(a[:n]); err != nil {
					return
				}
				a = a[n:]
			}
		}
	}()
	c, err := dial(t.Context(), target{address: l.Addr().String()}, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.close()
		_ = l.Close()
		<-done
	})
	return c
}

func TestConnReadsAnswers(t *testing.T) {
	c := answering(t,
		"HTTP/1.1 204 No Content\r\nStream-Next-Offset:  abc \r\nX: y\r\n\r\n",
		"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nSTREAM-CURSOR: 17\r\n\r\nhello",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
		"HTTP/1.1 409 Conflict\r\nContent-Length: 4\r\nProducer-Expected-Seq: 12\r\n\r\nbad!",
		"HTTP/1.1 500 E\r\nContent-Length: 3000\r\n\r\n"+strings.Repeat("x", 3000),
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
	)
	var sink bytes.Buffer
	c.sink = &sink
	want := []struct {
		status       int
		next, cursor string
		expected     int64
		body, sunk   string
		dead         bool
	}{
		{204, "abc", "", -1, "", "", false},
		{200, "", "17", -1, "", "hello", false},
		{200, "", "", -1, "", "abcde", false},
		{409, "", "", 12, "bad!", "", false},
		{500, "", "", -1, strings.Repeat("x", maxErrorBody), "", false},
		{200, "", "", -1, "", "", true},
	}
	for i, w := range want {
		sink.Reset()
		head, body := []byte("POST / HTTP/1.1\r\n\r\n"), []byte(nil)
		if i%2 == 1 {
			body = []byte("body")
		}
		res, err := c.do("POST", head, body, time.Now())
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		if res.status != w.status || string(res.next) != w.next || string(res.cursor) != w.cursor || res.expected != w.expected ||
			string(res.body) != w.body || sink.String() != w.sunk || c.dead != w.dead {
			t.Errorf("answer %d: got %+v, body %.20q, read %q, dead %v", i, *res, res.body, &sink, c.dead)
		}
	}
}

func TestConnRefusesBadAnswers(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 2x0 OK\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 99\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
		"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
		"HTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTrailer: x\r\n\r\n",
		"HTTP/1.1 204 No Content\r\n" + strings.Repeat("A: b\r\n", maxHeaderLines+1) + "\r\n",
		"HTTP/1.1 204 No Content\r\nA: " + strings.Repeat("b", connBuffer) + "\r\n\r\n",
		strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 11),
		"",
	} {
		c := answering(t, answer)
		if res, err := c.do("POST", []byte("POST / HTTP/1.1\r\n\r\n"), nil, time.Now()); err == nil {
			t.Errorf("%.60q is taken for %+v", answer, *res)
		} else if !c.dead {
			t.Errorf("%.60q: the connection would be used again", answer)
		}
	}
}

// TestConnTimeout: a server that does not answer is given up.
func TestConnTimeout(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := dial(t.Context(), target{address: l.Addr().String()}, 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.do("POST", []byte("POST / HTTP/1.1\r\n\r\n"), nil, time.Now())
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("got %v", err)
	}
}

// TestConnAllocs: an append costs the client no allocation.
func TestConnAllocs(t *testing.T) {
	const n = 200
	answers := make([]string, n+10)
	for i := range answers {
		answers[i] = "HTTP/1.1 204 No Content\r\nDate: Tue, 01 Dec 2026 04:00:00 GMT\r\nStream-Next-Offset: 00000000000000000000000000000001\r\n\r\n"
	}
	c := answering(t, answers...)
	r := &run{record: newRecord(100), write: target{prefix: "/", host: "h"}, cfg: Config{ContentType: "text/plain"}}
	o := r.newOutlet(r.newStream("x", 1), 0)
	seq := uint64(0)
	allocs := testing.AllocsPerRun(n, func() {
		r.record.put(o.record, 0, seq, 1)
		seq++
		if _, err := c.do("POST", o.head, o.body, time.Now()); err != nil {
			t.Fatal(err)
		}
	})
	// The other end of the connection is in this process and allocates, too.
	if allocs > 1 {
		t.Errorf("%v allocations per append", allocs)
	}
}
