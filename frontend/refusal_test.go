package frontend

import (
	"strings"
	"testing"
)

// What net/http refuses by itself is answered as every error is, with the
// security headers and a problem body, and nothing else is mistaken for it.
func TestRefusalsOfTheServerItselfAreProblems(t *testing.T) {
	s := limited(t, ServerOptions{MaxHeaderBytes: 8 << 10})
	check := s.untouched()
	for request, status := range map[string]int{
		"nonsense\r\n\r\n":                                                                               400,
		"DELETE /v1/stream/victim HTTP/1.1\r\n\r\n":                                                      400, // no Host
		"DELETE /v1/stream/victim HTTP/1.1\r\nHost: x\r\nX y\r\n\r\n":                                    400,
		"POST /v1/stream/victim HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\nx":                 501,
		"DELETE /v1/stream/victim HTTP/9.1\r\nHost: x\r\n\r\n":                                           505,
		"DELETE /v1/stream/victim HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 64<<10) + "\r\n\r\n": 431,
	} {
		res := s.raw(request)
		if res == nil && status == 431 {
			continue // the connection was reset under the rest of the header
		}
		if res == nil {
			t.Errorf("%.40q is not answered", request)
			continue
		}
		res.want(status).wantHeader("Content-Type", "application/problem+json").
			wantHeader("X-Content-Type-Options", "nosniff").wantHeader("Cross-Origin-Resource-Policy", "cross-origin").
			wantHeader("Cache-Control", "no-store")
	}
	check()
}

func TestOnlyRefusalsAreTakenForOne(t *testing.T) {
	for _, p := range []string{
		"", "HTTP/1.1 4", "HTTP/1.1 404 Not Found\r\nContent-Type: application/problem+json\r\n\r\n",
		"HTTP/1.1 200 OK" + refusalHeaders, "HTTP/1.1 400 Bad Request\r\n", "data 400" + refusalHeaders,
		"HTTP/1.1 4xx Bad" + refusalHeaders,
	} {
		if _, _, ok := refusal([]byte(p)); ok {
			t.Errorf("%q was taken for a refusal", p)
		}
	}
	status, detail, ok := refusal([]byte("HTTP/1.1 400 Bad Request: missing required Host header" + refusalHeaders + "400 Bad Request: missing required Host header"))
	if !ok || status != 400 || !strings.Contains(detail, "Host") {
		t.Errorf("%d %q %v", status, detail, ok)
	}
}
