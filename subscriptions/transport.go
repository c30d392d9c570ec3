package subscriptions

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// errForbidden says a webhook's host is, or resolves to, an address that
// requests must not be sent to.
var errForbidden = errors.New("subscriptions: the address is not allowed")

// checkURL judges a webhook URL by its text (PROTOCOL.md 6.2, 12.8). What its
// host resolves to is judged at every connect, because it may change.
func checkURL(raw string, allowLocalhost bool) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil, len(raw) > maxURL, u.Hostname() == "", u.Opaque != "":
		return errorf(CodeURLRejected, "webhook.url must be an absolute URL of at most %d bytes", maxURL)
	case u.User != nil, u.Fragment != "":
		return errorf(CodeURLRejected, "webhook.url must not carry credentials or a fragment")
	}
	host := hostOf(u)
	if isLocalhost(host) && u.Scheme == "http" {
		if allowLocalhost {
			return nil
		}
		return errorf(CodeURLRejected, "http webhooks to localhost are for development; this server does not allow them")
	}
	if u.Scheme != "https" {
		return errorf(CodeURLRejected, "webhook.url must use https")
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case err == nil && !public(ip):
		return errorf(CodeURLRejected, "webhook.url must not name a private, local or reserved address")
	case err != nil && (localName(host) || numeric(host)):
		return errorf(CodeURLRejected, "webhook.url must name a public host")
	}
	return nil
}

func hostOf(u *url.URL) string {
	return strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
}

// isLocalhost reports whether a host is one that the development switch allows.
func isLocalhost(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Is4() && ip.IsLoopback()
}

func localName(host string) bool {
	for _, suffix := range []string{"localhost", "local", "internal", "localdomain"} {
		if host == suffix || strings.HasSuffix(host, "."+suffix) {
			return true
		}
	}
	return false
}

// numeric reports whether a host is an IPv4 address in a form that only some
// resolvers read: decimal, octal, hexadecimal or short. No public name ends in
// a label that begins with a digit.
func numeric(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	return last != "" && last[0] >= '0' && last[0] <= '9'
}

// reserved are the networks a webhook must not reach, besides those netip
// knows by name.
var reserved = prefixes(
	"0.0.0.0/8",       // this network
	"100.64.0.0/10",   // carrier-grade NAT
	"192.0.0.0/24",    // protocol assignments
	"192.0.2.0/24",    // documentation
	"192.88.99.0/24",  // 6to4 relays
	"198.18.0.0/15",   // benchmarks
	"198.51.100.0/24", // documentation
	"203.0.113.0/24",  // documentation
	"240.0.0.0/4",     // reserved, broadcast
	"::/96",           // unspecified, loopback, IPv4-compatible
	"64:ff9b::/96",    // NAT64: an IPv4 address in disguise
	"64:ff9b:1::/48",  // NAT64, local
	"100::/64",        // discard
	"2001::/23",       // Teredo, ORCHID and other assignments
	"2001:db8::/32",   // documentation
	"2002::/16",       // 6to4: an IPv4 address in disguise
	"3fff::/20",       // documentation
	"5f00::/16",       // segment routing
	"fec0::/10",       // site-local
)

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		out[i] = netip.MustParsePrefix(t)
	}
	return out
}

// public reports whether an address is one of the open internet. The metadata
// services of clouds are link-local, private or unique local, and so not.
func public(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if !ip.IsValid() || !ip.IsGlobalUnicast() || ip.IsPrivate() {
		return false
	}
	for _, p := range reserved {
		if p.Contains(ip) {
			return false
		}
	}
	return true
}

// guard opens the connections of webhooks.
type guard struct {
	resolver       Resolver
	allowLocalhost bool
	dialer         net.Dialer
	// connect is dialer.DialContext, but in tests of what is connected to.
	connect func(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error)
}

func newGuard(r Resolver, allowLocalhost bool) *guard {
	if r == nil {
		r = net.DefaultResolver
	}
	return &guard{
		resolver: r, allowLocalhost: allowLocalhost, dialer: net.Dialer{Timeout: connectTimeout},
		connect: func(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
			return d.DialContext(ctx, network, address)
		},
	}
}

// dial resolves a host, refuses it if any of its addresses is forbidden, and
// connects to the addresses it judged: a second look-up might answer otherwise.
func (g *guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	local := g.allowLocalhost && isLocalhost(strings.ToLower(host))
	addrs, err := g.resolve(ctx, host, local)
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		if !g.allowed(a, local) {
			return nil, fmt.Errorf("%w: %s resolves to %s", errForbidden, host, a)
		}
	}
	d := g.dialer
	// The last wall: what the socket is about to connect to, whatever led here.
	d.Control = func(_, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil || !g.allowed(ap.Addr(), local) {
			return fmt.Errorf("%w: %s", errForbidden, address)
		}
		return nil
	}
	for _, a := range addrs {
		var conn net.Conn
		if conn, err = g.connect(ctx, &d, network, net.JoinHostPort(a.String(), port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

func (g *guard) resolve(ctx context.Context, host string, local bool) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip.Unmap()}, nil
	}
	if local { // "localhost" is not asked of anybody
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	addrs, err := g.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, &net.DNSError{Err: "no addresses", Name: host, IsNotFound: true}
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs, nil
}

func (g *guard) allowed(ip netip.Addr, local bool) bool {
	if local {
		return ip.Unmap().IsLoopback()
	}
	return public(ip)
}

// Bounds of one webhook request.
const (
	connectTimeout    = 10 * time.Second
	maxResponse       = 64 << 10
	maxResponseHeader = 32 << 10
)

// newClient returns the client webhooks are sent with. It follows no redirect
// and uses no proxy: either would reach what was not judged.
func newClient(o Options) *http.Client {
	g := newGuard(o.Resolver, o.AllowLocalhost)
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            g.dial,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    connectTimeout,
			MaxResponseHeaderBytes: maxResponseHeader,
			MaxConnsPerHost:        2 * o.MaxPerHost,
			MaxIdleConnsPerHost:    o.MaxPerHost,
			MaxIdleConns:           4 * o.MaxDeliveries,
			IdleConnTimeout:        30 * time.Second,
			DisableCompression:     true, // so that the bound is on what is sent
			ForceAttemptHTTP2:      true,
		},
	}
}
