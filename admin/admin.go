package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"time"

	"headwater/fdblayer"
)

// Options are what a Plane serves. Metrics and Purger must be set.
type Options struct {
	// Metrics are what /metrics and /stats show.
	Metrics *Metrics
	// Purger purges buckets; a [*fdblayer.Store] is one.
	Purger Purger
	// Logger receives purges and faults; slog.Default() by default.
	Logger *slog.Logger
}

// Plane is the operator's HTTP interface. Safe for concurrent use.
type Plane struct {
	opts   Options
	http   *http.Server
	purges chan struct{} // a place for each that is under way
	ended  chan error    // the end of a Start
}

// Times nobody needs to choose. Purges and profiles set their own write
// deadlines. There is no read timeout: no request has a body, and net/http would
// take its passing during a purge for the client going away.
const (
	headerTimeout = 10 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
)

// New returns a Plane that serves nothing yet.
func New(opts Options) *Plane {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	p := &Plane{opts: opts, purges: make(chan struct{}, maxPurges), ended: make(chan error, 1)}
	p.http = &http.Server{
		Handler:           p.Handler(),
		ReadHeaderTimeout: headerTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(opts.Logger.Handler(), slog.LevelDebug),
	}
	return p
}

// Handler returns the handler of all paths.
func (p *Plane) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.opts.Metrics.handler(p.opts.Logger))
	mux.HandleFunc("GET /stats", p.stats)
	mux.HandleFunc("DELETE /buckets/{$}", p.purge)
	mux.HandleFunc("DELETE /buckets/{bucket}", p.purge)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /{$}", index)
	return guard(mux)
}

// Start serves on l, which it closes, until Close. Requests end with ctx.
func (p *Plane) Start(ctx context.Context, l net.Listener) {
	p.http.BaseContext = func(net.Listener) context.Context { return ctx }
	go func() {
		err := p.http.Serve(l)
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		} else {
			p.opts.Logger.Error("the admin plane stopped", "error", err)
		}
		p.ended <- err
	}()
}

// Close ends a Plane that was started: it waits for requests until ctx ends,
// and cuts their connections then.
func (p *Plane) Close(ctx context.Context) error {
	err := p.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("admin: requests were cut: %w", err), p.http.Close())
	}
	return errors.Join(err, <-p.ended)
}

// guard refuses requests to a loopback address by another host's name; the
// package comment says why.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && isLoopback(local) && !isAddress(r.Host) {
			fail(w, http.StatusMisdirectedRequest, "host_not_allowed", "name this host by its address or as localhost")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isLoopback(a net.Addr) bool {
	ap, err := netip.ParseAddrPort(a.String())
	return err == nil && ap.Addr().Unmap().IsLoopback()
}

// isAddress reports whether a Host header is an address or localhost.
func isAddress(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}

func index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "Headwater, admin plane\n\nGET    /metrics\nGET    /stats\nGET    /debug/pprof/\nDELETE /buckets/{bucket}   removes a bucket for ever\n")
}

// problem is the body of an error (RFC 9457), as the client surfaces have it.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func fail(w http.ResponseWriter, status int, code fdblayer.Code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	writeJSON(w, status, problem{"about:blank", http.StatusText(status), status, string(code), detail})
}

// writeJSON answers with a value that marshals. On an error of the write the
// client is gone.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, nil
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
