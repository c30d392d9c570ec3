package frontend

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"headwater/fdblayer"
)

// create makes a stream (PROTOCOL.md 5.1).
func (f *Frontend) create(x *exchange) error {
	req, err := x.decodeCreate()
	if err != nil {
		return err
	}
	if err := x.admit(); err != nil {
		return err
	}
	res, err := f.store.Create(x.r.Context(), req)
	if err != nil {
		return err
	}
	h := x.header()
	describe(h, res.Stream)
	status := http.StatusOK
	if res.Created {
		status = http.StatusCreated
		h["Location"] = []string{x.location()}
	}
	x.answer(status, nil)
	return nil
}

func (x *exchange) decodeCreate() (fdblayer.CreateRequest, error) {
	h := x.r.Header
	req := fdblayer.CreateRequest{ID: x.target.id, Closed: closes(h)}
	var err error
	if req.Precondition, err = precondition(h); err != nil {
		return req, err
	}
	if req.ContentType, err = contentType(h); err != nil {
		return req, err
	}
	if req.Expiry, err = expiry(h); err != nil {
		return req, err
	}
	if req.Fork, err = x.fork(); err != nil {
		return req, err
	}
	body, err := x.body()
	if err != nil {
		return req, err
	}
	if req.Fork != nil && req.ContentType == "" && len(body) > 0 {
		if req.ContentType, err = x.inheritedType(req); err != nil {
			return req, err
		}
	}
	req.Body, _, err = x.store(req.ContentType, body)
	return req, err
}

// inheritedType returns the content type a fork without one of its own will
// have, since what is stored of its body depends on it. It becomes part of the
// request, so the store refuses the fork if the source changes meanwhile.
//
// Where the source is gone, only a repeat of a create that succeeded before can
// still succeed; the fork itself knows its type then.
func (x *exchange) inheritedType(req fdblayer.CreateRequest) (string, error) {
	ctx := x.r.Context()
	source, err := x.typeOf(ctx, req.Fork.Source)
	if err == nil {
		return source, nil
	}
	target, targetErr := x.typeOf(ctx, req.ID)
	switch {
	case targetErr == nil:
		return target, nil
	case !hasCode(targetErr, fdblayer.CodeNotFound) && !hasCode(targetErr, fdblayer.CodeSoftDeleted):
		return "", targetErr
	case hasCode(targetErr, fdblayer.CodeSoftDeleted):
		return "", refuse(fdblayer.CodePathDeleted, "the path is held by a deleted stream that forks still need")
	case hasCode(err, fdblayer.CodeNotFound):
		return "", refuse(fdblayer.CodeSourceNotFound, "the fork's source does not exist")
	case hasCode(err, fdblayer.CodeSoftDeleted):
		return "", refuse(fdblayer.CodeSourceDeleted, "the fork's source was deleted")
	}
	return "", err
}

func (x *exchange) typeOf(ctx context.Context, id fdblayer.StreamID) (string, error) {
	st, _, err := x.f.store.Head(ctx, id, fdblayer.Precondition{})
	return st.ContentType, err
}

// location is the absolute URL of the request's path.
func (x *exchange) location() string { return x.origin() + x.r.URL.EscapedPath() }

// origin is the scheme and host that the client reached the server at.
func (x *exchange) origin() string {
	scheme, host := "http", x.r.Host
	if x.r.TLS != nil {
		scheme = "https"
	}
	if x.trusted() {
		if s := forwarded(x.r.Header["X-Forwarded-Proto"]); s == "http" || s == "https" {
			scheme = s
		}
		if s := forwarded(x.r.Header["X-Forwarded-Host"]); validHost(s) {
			host = s
		}
	}
	if host == "" { // HTTP/1.0
		if addr, ok := x.r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			host = addr.String()
		}
	}
	return scheme + "://" + host
}

// trusted reports whether the peer is a proxy whose word counts.
func (x *exchange) trusted() bool {
	if len(x.f.opts.TrustedProxies) == 0 {
		return false
	}
	peer, err := netip.ParseAddrPort(x.r.RemoteAddr)
	if err != nil {
		return false
	}
	addr := peer.Addr().Unmap().WithZone("")
	for _, p := range x.f.opts.TrustedProxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// forwarded returns what the first proxy, the one the client spoke to, said.
func forwarded(values []string) string {
	if len(values) == 0 {
		return ""
	}
	first, _, _ := strings.Cut(values[0], ",")
	return strings.TrimSpace(first)
}

// validHost reports whether s can stand as the host of a URL.
func validHost(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._:[]", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
