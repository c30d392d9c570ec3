package frontend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

// ServerOptions bound what a Server accepts. The zero value of each field
// means its default.
type ServerOptions struct {
	// HeaderTimeout is how long a client may take over a request's header;
	// 10 s by default.
	HeaderTimeout time.Duration
	// IdleTimeout is how long a connection may wait for its next request; 2
	// minutes by default.
	IdleTimeout time.Duration
	// MaxHeaderBytes bounds a request's header; 64 KiB by default.
	MaxHeaderBytes int
	// MaxConnections bounds the connections; those beyond it wait to be
	// accepted. 100,000 by default.
	MaxConnections int
	// H2C allows HTTP/2 without TLS, for proxies that speak it.
	H2C bool
	// CertFile and KeyFile, where set, make the server speak TLS.
	CertFile, KeyFile string
	// DrainDelay is how long requests are served on after readiness began to
	// fail, so that load balancers notice; 0 by default.
	DrainDelay time.Duration
	// DrainTimeout is how long requests in flight may take to end; 30 s by
	// default. After it their connections are cut.
	DrainTimeout time.Duration
}

// Server serves a Frontend on a listener.
type Server struct {
	frontend *Frontend
	opts     ServerOptions
	http     *http.Server
}

// NewServer returns a Server for f.
func NewServer(f *Frontend, opts ServerOptions) *Server {
	dur := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	dur(&opts.HeaderTimeout, 10*time.Second)
	dur(&opts.IdleTimeout, 2*time.Minute)
	dur(&opts.DrainTimeout, 30*time.Second)
	if opts.MaxHeaderBytes <= 0 {
		opts.MaxHeaderBytes = 64 << 10
	}
	if opts.MaxConnections <= 0 {
		opts.MaxConnections = 100_000
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(opts.H2C)
	return &Server{frontend: f, opts: opts, http: &http.Server{
		Handler:           f.Handler(),
		ReadHeaderTimeout: opts.HeaderTimeout,
		IdleTimeout:       opts.IdleTimeout,
		MaxHeaderBytes:    opts.MaxHeaderBytes,
		Protocols:         protocols,
		// net/http's own default of 250 would limit a page to fewer tails.
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000, SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		// What it says is about single clients.
		ErrorLog: slog.NewLogLogger(f.opts.Logger.Handler(), slog.LevelDebug),
	}}
}

// Serve serves until ctx ends and then drains: readiness fails, after
// DrainDelay live reads are ended and nothing is accepted any more, and what is
// in flight is waited for. It closes l. The store stays open.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	l = netutil.LimitListener(l, s.opts.MaxConnections)
	ended := make(chan error, 1)
	go func() {
		if s.opts.CertFile != "" {
			ended <- s.http.ServeTLS(l, s.opts.CertFile, s.opts.KeyFile)
			return
		}
		ended <- s.http.Serve(refusing{l})
	}()
	select {
	case err := <-ended:
		return fmt.Errorf("frontend: serve: %w", err)
	case <-ctx.Done():
	}
	err := s.drain(context.WithoutCancel(ctx))
	if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

func (s *Server) drain(ctx context.Context) error {
	s.frontend.notReady()
	if s.opts.DrainDelay > 0 {
		timer := time.NewTimer(s.opts.DrainDelay)
		defer timer.Stop()
		<-timer.C
	}
	s.frontend.Drain()
	ctx, cancel := context.WithTimeout(ctx, s.opts.DrainTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("frontend: requests were cut after %v: %w", s.opts.DrainTimeout, err), s.http.Close())
	}
	return nil
}
