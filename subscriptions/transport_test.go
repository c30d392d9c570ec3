package subscriptions

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestWebhookURLs(t *testing.T) {
	for _, c := range []struct {
		url                 string
		production, develop bool
	}{
		{"https://worker.example/hooks", true, true},
		{"https://worker.example:8443/hooks?x=1", true, true},
		{"https://8.8.8.8/", true, true},
		{"https://[2606:4700:4700::1111]/", true, true},
		{"http://localhost:1234/x", false, true},
		{"http://LOCALHOST/x", false, true},
		{"http://127.0.0.1/x", false, true},
		{"http://127.9.9.9:80/x", false, true},

		{"http://worker.example/hooks", false, false},
		{"https://localhost/", false, false},
		{"https://127.0.0.1/", false, false},
		{"http://[::1]/", false, false},
		{"https://[::1]/", false, false},
		{"http://10.0.0.1/hook", false, false},
		{"https://10.0.0.1/", false, false},
		{"https://172.16.0.1/", false, false},
		{"https://172.31.255.255/", false, false},
		{"https://192.168.1.1/", false, false},
		{"https://169.254.169.254/latest/meta-data/", false, false},
		{"https://100.64.0.1/", false, false},
		{"https://0.0.0.0/", false, false},
		{"https://255.255.255.255/", false, false},
		{"https://224.0.0.1/", false, false},
		{"https://[::ffff:10.0.0.1]/", false, false},
		{"https://[::ffff:a9fe:a9fe]/", false, false},
		{"https://[::10.0.0.1]/", false, false},
		{"https://[64:ff9b::10.0.0.1]/", false, false},
		{"https://[2002:a00:1::]/", false, false},
		{"https://[fd00:ec2::254]/", false, false},
		{"https://[fe80::1]/", false, false},
		{"https://[fe80::1%25eth0]/", false, false},
		{"https://[ff02::1]/", false, false},
		{"https://[::]/", false, false},
		// Spellings that some resolvers take for an address.
		{"https://2130706433/", false, false},
		{"https://0x7f000001/", false, false},
		{"https://0177.0.0.1/", false, false},
		{"https://127.1/", false, false},
		{"https://10.1/", false, false},
		{"https://metadata.google.internal/", false, false},
		{"https://printer.local/", false, false},
		{"https://x.localhost/", false, false},
		{"https://localhost./", false, false},
		{"https://user:pass@worker.example/", false, false},
		{"https://worker.example/#x", false, false},
		{"https://", false, false},
		{"https:///x", false, false},
		{"https:worker.example", false, false},
		{"ftp://worker.example/", false, false},
		{"file:///etc/passwd", false, false},
		{"gopher://127.0.0.1:70/", false, false},
		{"javascript:alert(1)", false, false},
		{"//worker.example/", false, false},
		{"worker.example", false, false},
		{"", false, false},
		{"https://worker.example/\n", false, false},
		{"https://worker.example/" + strings.Repeat("x", maxURL), false, false},
	} {
		for _, develop := range []bool{false, true} {
			want := c.production
			if develop {
				want = c.develop
			}
			err := checkURL(c.url, develop)
			if (err == nil) != want {
				t.Errorf("%q with the development switch %v: %v", c.url, develop, err)
			}
			if err != nil {
				mustFail(t, err, CodeURLRejected)
			}
		}
	}
}

// hostile is a resolver whose answers are the test's.
type hostile func(host string) []netip.Addr

func (h hostile) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	return h(host), nil
}

func addrs(texts ...string) []netip.Addr {
	out := make([]netip.Addr, len(texts))
	for i, t := range texts {
		out[i] = netip.MustParseAddr(t)
	}
	return out
}

// trap is a server on the loopback that must not be reached.
func trap(t *testing.T) (port string, reached *atomic.Int64) {
	t.Helper()
	reached = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, reached
}

// Whatever a name resolves to, and however often it changes its mind, nothing
// inside is connected to.
func TestHostileDNS(t *testing.T) {
	port, reached := trap(t)
	for name, answers := range map[string][][]netip.Addr{
		"loopback":            {addrs("127.0.0.1")},
		"loopback, v6":        {addrs("::1")},
		"mapped":              {addrs("::ffff:127.0.0.1")},
		"private":             {addrs("10.0.0.1")},
		"metadata":            {addrs("169.254.169.254")},
		"carrier-grade NAT":   {addrs("100.64.1.1")},
		"unique local":        {addrs("fd00:ec2::254")},
		"unspecified":         {addrs("0.0.0.0")},
		"unspecified, v6":     {addrs("::")},
		"one of several":      {addrs("93.184.216.34", "127.0.0.1")},
		"the second time":     {addrs("127.0.0.1"), addrs("127.0.0.1")},
		"zone":                {addrs("fe80::1%lo")},
		"nothing":             {nil},
		"NAT64 of a loopback": {addrs("64:ff9b::7f00:1")},
	} {
		for _, develop := range []bool{false, true} {
			n := 0
			o := Options{AllowLocalhost: develop, Resolver: hostile(func(string) []netip.Addr {
				a := answers[min(n, len(answers)-1)]
				n++
				return a
			})}.withDefaults()
			client := newClient(o)
			client.Timeout = 5 * time.Second
			resp, err := client.Post("http://rebind.example:"+port+"/", "application/json", nil)
			if err == nil {
				resp.Body.Close()
				t.Errorf("%s: connected", name)
			} else if !errors.Is(err, errForbidden) && name != "nothing" {
				t.Errorf("%s: %v", name, err)
			}
			client.CloseIdleConnections()
		}
	}
	if n := reached.Load(); n != 0 {
		t.Fatalf("the inside was reached %d times", n)
	}
}

// A name that first resolves to the outside and then to the inside is resolved
// once for each connection, and the address that was judged is the one that is
// connected to.
func TestRebindingBetweenCheckAndConnect(t *testing.T) {
	lookups := 0
	g := newGuard(hostile(func(string) []netip.Addr {
		lookups++
		if lookups == 1 {
			return addrs("93.184.216.34", "2606:4700::1")
		}
		return addrs("127.0.0.1")
	}), true)
	var connected []string
	refused := errors.New("refused")
	g.connect = func(_ context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
		connected = append(connected, address)
		if err := d.Control(network, address, nil); err != nil {
			t.Errorf("%s is not let through: %v", address, err)
		}
		// Had something between here and the socket changed the address:
		for _, inside := range []string{"127.0.0.1:80", "[::1]:80", "10.0.0.1:80", "[::ffff:169.254.169.254]:80", "nonsense"} {
			if err := d.Control(network, inside, nil); !errors.Is(err, errForbidden) {
				t.Errorf("%s would be connected to: %v", inside, err)
			}
		}
		return nil, refused
	}
	if _, err := g.dial(t.Context(), "tcp", "rebind.example:443"); !errors.Is(err, refused) {
		t.Fatal(err)
	}
	if want := []string{"93.184.216.34:443", "[2606:4700::1]:443"}; lookups != 1 || !slices.Equal(connected, want) {
		t.Fatalf("%d look-ups, connected to %v", lookups, connected)
	}
	if _, err := g.dial(t.Context(), "tcp", "rebind.example:443"); !errors.Is(err, errForbidden) {
		t.Fatal(err)
	}
}

// A literal address asks no resolver and is judged all the same.
func TestLiteralAddresses(t *testing.T) {
	port, reached := trap(t)
	g := newGuard(hostile(func(string) []netip.Addr { return nil }), false)
	for _, host := range []string{"127.0.0.1", "::1", "::ffff:127.0.0.1", "localhost"} {
		if conn, err := g.dial(t.Context(), "tcp", net.JoinHostPort(host, port)); err == nil {
			conn.Close()
			t.Errorf("connected to %s", host)
		}
	}
	if reached.Load() != 0 {
		t.Error("the inside was reached")
	}
}

// The development switch opens the loopback to its names and nothing else.
func TestTheDevelopmentSwitch(t *testing.T) {
	port, reached := trap(t)
	g := newGuard(hostile(func(string) []netip.Addr { return addrs("10.0.0.1") }), true)
	for _, host := range []string{"localhost", "127.0.0.1"} {
		conn, err := g.dial(t.Context(), "tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		conn.Close()
	}
	for _, host := range []string{"evil.example", "10.0.0.1", "169.254.169.254", "::1"} {
		if conn, err := g.dial(t.Context(), "tcp", net.JoinHostPort(host, port)); err == nil {
			conn.Close()
			t.Errorf("connected to %s", host)
		} else if !errors.Is(err, errForbidden) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if reached.Load() != 0 {
		t.Error("a request was sent")
	}
}

func FuzzCheckURL(f *testing.F) {
	for _, s := range []string{"https://a.example/", "http://127.0.0.1", "https://[::1]", "https://0x7f.1/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if checkURL(raw, false) != nil {
			return
		}
		// What passes names no address of the inside, in any spelling that the
		// standard library reads.
		req, err := http.NewRequest(http.MethodPost, raw, nil)
		if err != nil {
			return
		}
		if ip, err := netip.ParseAddr(req.URL.Hostname()); err == nil && !public(ip) {
			t.Fatalf("%q was accepted", raw)
		}
		if req.URL.Scheme != "https" {
			t.Fatalf("%q was accepted", raw)
		}
	})
}
