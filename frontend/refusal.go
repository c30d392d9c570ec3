package frontend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
)

// net/http refuses a request it can't parse, or whose header is too long,
// without asking a handler: in plain text and with none of our headers. A
// refusing listener's connections turn these answers, which are one write each
// and begin like nothing a handler sends, into ours. Connections that speak TLS
// are left as they are: net/http has to see them for what they are.
type refusing struct{ net.Listener }

func (l refusing) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // net/http looks at the kind of it
	}
	return refusingConn{c}, nil
}

type refusingConn struct{ net.Conn }

// refusalHeaders are all the headers net/http gives its own refusals.
const refusalHeaders = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

func (c refusingConn) Write(p []byte) (int, error) {
	status, detail, ok := refusal(p)
	if !ok {
		return c.Conn.Write(p) //nolint:wrapcheck // passes through
	}
	if _, err := c.Conn.Write(refusalAnswer(status, detail)); err != nil {
		return 0, err //nolint:wrapcheck // passes through
	}
	return len(p), nil
}

// refusal reports whether p is a refusal of net/http's own.
func refusal(p []byte) (status int, detail string, ok bool) {
	const version = "HTTP/1.1 "
	if len(p) < len(version)+3 || p[len(version)] < '4' || !bytes.HasPrefix(p, []byte(version)) {
		return 0, "", false
	}
	line, rest, found := bytes.Cut(p[len(version):], []byte("\r\n"))
	if !found || !bytes.HasPrefix(rest, []byte(refusalHeaders[2:])) {
		return 0, "", false
	}
	status, err := strconv.Atoi(string(line[:3]))
	return status, string(rest[len(refusalHeaders)-2:]), err == nil
}

func refusalAnswer(status int, detail string) []byte {
	code := codeMalformedRequest
	if status == http.StatusRequestHeaderFieldsTooLarge {
		code = codeHeaderTooLarge
	}
	body, err := json.Marshal(problem{"about:blank", http.StatusText(status), status, code, detail})
	if err != nil { // strings and a number always marshal
		body = nil
	}
	h := http.Header{}
	secure(h)
	h["Content-Type"] = problemType
	h["Connection"] = []string{"close"}
	h["Content-Length"] = []string{strconv.Itoa(len(body) + 1)}
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	_ = h.Write(&b) // a buffer takes everything
	b.WriteString("\r\n")
	b.Write(body)
	b.WriteByte('\n')
	return b.Bytes()
}
