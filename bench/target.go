package bench

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// target is a server: where to connect to, and how it names streams.
type target struct {
	// address is host:port, host what requests say in their Host field.
	address, host string
	// base is the URL's path without a trailing slash, prefix that of streams
	// with one.
	base, prefix string
}

func parseTarget(ctx context.Context, c Config, rawURL string) (target, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return target{}, fmt.Errorf("the server's URL: %w", err)
	}
	if u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return target{}, fmt.Errorf("the server's URL %q is not of the form http://host:port", rawURL)
	}
	port := u.Port()
	set(&port, "80")
	t := target{address: net.JoinHostPort(u.Hostname(), port), host: u.Host, base: strings.TrimSuffix(u.EscapedPath(), "/")}
	switch c.Layout {
	case LayoutBase:
		t.prefix = t.base + "/v1/stream/"
	case LayoutBucket:
		t.prefix = t.base + "/" + url.PathEscape(c.Bucket) + "/"
	default:
		return target{}, fmt.Errorf("no layout %q: there are %s and %s", c.Layout, LayoutBase, LayoutBucket)
	}
	if !c.AllowRemote {
		// The address that was checked is the one connected to: a name that
		// resolves to something else later can't lead elsewhere.
		t.address, err = loopback(ctx, u.Hostname(), port)
	}
	return t, err
}

func loopback(ctx context.Context, host, port string) (string, error) {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return "", fmt.Errorf("the server's address: %w", err)
	}
	for _, a := range addrs {
		if !a.Unmap().IsLoopback() {
			return "", fmt.Errorf("%s is %v, which is not a loopback address: a benchmark is an attack on a server that is not yours; allow remote targets to run it all the same", host, a)
		}
	}
	// One that resolves to ::1 and to 127.0.0.1 mostly listens on the latter.
	pick := addrs[0]
	for _, a := range addrs {
		if a.Unmap().Is4() {
			pick = a
		}
	}
	return net.JoinHostPort(netip.Addr.String(pick.Unmap()), port), nil
}

// url is the absolute URL of a path of the target.
func (t target) url(path string) string { return "http://" + t.address + path }
