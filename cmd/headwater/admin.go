package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"syscall"

	"headwater/admin"
)

// defaultAdmin is where the admin plane is unless something else is said.
const defaultAdmin = "127.0.0.1:4438"

// adminFlags are the options of "serve" that are about the admin plane.
type adminFlags struct {
	// AdminListen is nil where nothing was said: then the default address is
	// taken if it is free.
	AdminListen *string `help:"Address of the admin plane: metrics, profiles, purge. It has no authentication, so keep it on loopback or a network of your own. Empty switches it off. By default 127.0.0.1:4438, and off if another process has that." placeholder:"ADDRESS" group:"Network"`
}

// listenAdmin returns the admin plane's listener, nil for none.
func (f *adminFlags) listenAdmin(ctx context.Context, log *slog.Logger) (net.Listener, error) {
	address := defaultAdmin
	if f.AdminListen != nil {
		address = *f.AdminListen
	}
	if address == "" {
		return nil, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	switch {
	case err == nil:
	case f.AdminListen == nil && errors.Is(err, syscall.EADDRINUSE):
		// A second server on one machine must not fail for want of metrics
		// nobody asked for.
		log.Warn("the admin plane is off: its default address is in use; choose another with --admin-listen", "address", address)
		return nil, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, usageError{fmt.Errorf("%s is in use by another process; choose another address with --admin-listen, or none with --admin-listen=", address)}
	default:
		return nil, usageError{fmt.Errorf("can't listen on %s: %w", address, err)}
	}
	if ap, err := netip.ParseAddrPort(l.Addr().String()); err != nil || !ap.Addr().IsLoopback() {
		log.Warn("the admin plane has no authentication and is not on loopback: whoever reaches it can purge buckets", "address", l.Addr().String())
	}
	return l, nil
}

// metrics returns what the admin plane shows of a server.
func (c *serveCmd) metrics() *admin.Metrics {
	return admin.NewMetrics(admin.Build{Version: version, Revision: vcsRevision(), GoVersion: runtime.Version(), Engine: c.Store})
}
