package frontend

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// limited starts a service on a Server of its own.
func limited(t *testing.T, opts ServerOptions) *service {
	t.Helper()
	s := &service{T: t}
	s.open()
	s.listen(opts)
	return s
}

func TestHeadersMayNotTakeForEver(t *testing.T) {
	s := limited(t, ServerOptions{HeaderTimeout: 100 * time.Millisecond})
	conn := s.dial()
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); err != nil || strings.Contains(string(b), " 200 ") {
		t.Errorf("%q, %v: want the connection closed", b, err)
	}
	// A connection that waits for its next request is not a slow one.
	conn = s.dial()
	for i := range 3 {
		time.Sleep(time.Duration(i) * 200 * time.Millisecond)
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("%+v, %v", res, err)
		}
		_ = res.Body.Close()
	}
}

func TestHeadersMayNotBeHuge(t *testing.T) {
	s := limited(t, ServerOptions{MaxHeaderBytes: 8 << 10})
	check := s.untouched()
	for _, request := range []string{
		"DELETE /v1/stream/victim HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 64<<10) + "\r\n\r\n",
		"DELETE /v1/stream/victim HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: y\r\n", 10_000) + "\r\n",
		"DELETE /v1/stream/victim?" + strings.Repeat("y", 64<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		if res := s.raw(request); res != nil && res.status != 431 {
			t.Errorf("%v, want 431", res)
		}
	}
	check()
}

func TestConnectionsAreBounded(t *testing.T) {
	s := limited(t, ServerOptions{MaxConnections: 2})
	first, second, third := s.dial(), s.dial(), s.dial()
	ask := func(c net.Conn) {
		t.Helper()
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	answered := func(c net.Conn, within time.Duration) bool {
		t.Helper()
		if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
			t.Fatal(err)
		}
		_, err := c.Read(make([]byte, 1))
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		return err == nil
	}
	for _, c := range []net.Conn{first, second} {
		ask(c)
		if !answered(c, patience) {
			t.Fatal("one of the first two is not answered")
		}
	}
	ask(third)
	if answered(third, 100*time.Millisecond) {
		t.Fatal("the third is answered")
	}
	_ = first.Close()
	if !answered(third, patience) {
		t.Fatal("the third is not answered although another went")
	}
}

func TestOldClients(t *testing.T) {
	s := limited(t, ServerOptions{})
	addr := strings.TrimPrefix(s.url, "http://")
	s.raw("PUT /v1/stream/s HTTP/1.0\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\nx").want(201).wantHeader("Location", "http://"+addr+"/v1/stream/s")
	s.get("/v1/stream/s").want(200).wantBody("x")
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	pool := selfSigned(t, certFile, keyFile)
	s := &service{T: t}
	s.open()
	s.listen(ServerOptions{CertFile: certFile, KeyFile: keyFile})
	s.url = strings.Replace(s.url, "http://", "https://", 1)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	s.client = &http.Client{Transport: transport}
	s.do("PUT", "/v1/stream/s", "x", "Content-Type", "text/plain").want(201).wantHeader("Location", s.url+"/v1/stream/s")
	e := s.sse("/v1/stream/s?offset=-1&live=sse")
	if e.res.ProtoMajor != 2 || e.want("data") != "x" {
		t.Errorf("protocol %s", e.res.Proto)
	}
}

func selfSigned(t *testing.T, certFile, keyFile string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	write := func(file string, b []byte) {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(certFile, certPEM)
	write(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return pool
}
