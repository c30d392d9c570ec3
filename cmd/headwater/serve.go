package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"headwater/admin"
	"headwater/fdblayer"
	"headwater/fdblayer/kv"
	"headwater/fdblayer/kv/embedded"
	"headwater/fdblayer/kv/foundationdb"
	"headwater/frontend"
	"headwater/subscriptions"
)

// serveCmd is the options of "headwater serve".
type serveCmd struct {
	Config kong.ConfigFlag `help:"YAML file of options; its keys are the names of these flags." type:"path" placeholder:"FILE"`

	Listen  string `help:"Address to serve on." default:"127.0.0.1:4437"`
	TLSCert string `help:"Certificate file; makes the server speak TLS." type:"path" placeholder:"FILE" and:"tls" group:"Network"`
	TLSKey  string `help:"Key file of the certificate." type:"path" placeholder:"FILE" and:"tls" group:"Network"`
	H2C     bool   `name:"h2c" env:"HEADWATER_H2C" help:"Also accept HTTP/2 without TLS, from proxies that speak it." group:"Network"`

	Store       string `help:"Where streams are kept: ${enum}. embedded is one machine's disk; memory lasts as long as the process." enum:"embedded,memory,fdb" default:"embedded" group:"Store"`
	DataDir     string `help:"Directory of the embedded store." default:"./data" type:"path" group:"Store"`
	ClusterFile string `help:"FoundationDB's cluster file; the client library's default if empty." type:"path" placeholder:"FILE" group:"Store"`
	KeyPrefix   string `help:"Prefix of all keys, so that several deployments can share a cluster." default:"hw" group:"Store"`
	Lanes       int    `help:"Write batches that may be under way at once." default:"4" group:"Store"`

	CommitTimeout time.Duration `help:"How long a write is tried." default:"10s" group:"Store"`
	ReadTimeout   time.Duration `help:"How long a read is tried." default:"10s" group:"Store"`
	SnapshotGrace time.Duration `help:"How long a superseded snapshot stays readable for readers in flight." default:"1h" group:"Store"`

	MaxBody              byteSize `help:"Longest body of a create or an append." default:"32MiB" group:"Limits"`
	MaxSnapshot          byteSize `help:"Longest snapshot." default:"1GiB" group:"Limits"`
	MaxRead              byteSize `help:"Most stream bytes in one response or event." default:"8MiB" group:"Limits"`
	MaxBodiesInFlight    byteSize `help:"Memory for all bodies being received; beyond it requests get 503." default:"256MiB" group:"Limits"`
	MaxResponsesInFlight byteSize `help:"Memory for all responses that clients have not taken yet; beyond it reads get 503." default:"512MiB" group:"Limits"`
	MaxHeader            byteSize `help:"Longest request header." default:"64KiB" group:"Limits"`
	MaxConnections       int      `help:"Most connections; more wait to be accepted." default:"100000" group:"Limits"`
	MaxRequests          int      `help:"Most requests being served, waiting live reads not counted; beyond it requests get 503." default:"10000" group:"Limits"`
	MaxLiveReaders       int      `help:"Most long-polls and SSE responses at a time; beyond it they get 503." default:"100000" group:"Limits"`

	HeaderTimeout time.Duration `help:"How long a client may take over a request's header." default:"10s" group:"Timeouts"`
	BodyTimeout   time.Duration `help:"How long a client may take over each 64 KiB of a body." default:"10s" group:"Timeouts"`
	WriteTimeout  time.Duration `help:"How long a client may take to accept each 256 KiB of a response." default:"10s" group:"Timeouts"`
	IdleTimeout   time.Duration `help:"How long a connection may wait for its next request." default:"2m" group:"Timeouts"`
	SSEMaxAge     time.Duration `name:"sse-max-age" help:"How long an SSE response lasts, give or take a tenth." default:"60s" group:"Timeouts"`
	SSEKeepAlive  time.Duration `name:"sse-keep-alive" help:"How long an SSE response may be silent before a comment is sent." default:"15s" group:"Timeouts"`
	DrainDelay    time.Duration `help:"How long to serve on after /readyz began to fail, so that load balancers notice." default:"0s" group:"Timeouts"`
	DrainTimeout  time.Duration `help:"How long requests in flight may take to end." default:"30s" group:"Timeouts"`

	TrustedProxies []network `help:"Networks of proxies whose X-Forwarded-Proto and X-Forwarded-Host are believed." placeholder:"CIDR,..." group:"Network"`
	adminFlags
	subscriptionFlags

	PrivateCaching bool `help:"Mark reads as cacheable by clients only, for streams that are not the same to everyone." group:"Network"`

	logFlags
}

// setGCPercent lets the heap grow further between collections than Go does by
// itself: it is small here, and collecting it all the time cost a tenth of the
// write path's CPU. GOGC in the environment is obeyed, and so is GOMEMLIMIT.
func setGCPercent() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

const gcPercent = 300

// Times that are nobody's to choose.
const (
	// openTimeout bounds the store's first answer.
	openTimeout = time.Minute
	// closeTimeout bounds what the store has left to do after the drain.
	closeTimeout = 15 * time.Second
	// adminTimeout bounds what an operator's request has left to do.
	adminTimeout = 5 * time.Second
)

// Run serves until ctx ends, then drains: first requests, then the store, then
// the engine.
func (c *serveCmd) Run(ctx context.Context, out output) (err error) {
	log := c.logger(out.stderr)
	setGCPercent()
	l, err := c.listen(ctx)
	if err != nil {
		return err
	}
	defer l.Close() //nolint:errcheck // Serve closes it; this is for the ways out before
	al, err := c.listenAdmin(ctx, log)
	if err != nil {
		return err
	}
	if al != nil {
		defer al.Close() //nolint:errcheck // as above
	}
	db, err := c.openEngine(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	index := subscriptions.NewIndex()
	store, err := c.openStore(ctx, db, index, log)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, store.Close(ctx))
	}()

	subs := c.startSubscriptions(store, index, log)
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, subs.Close(ctx))
	}()

	options := c.frontendOptions(log)
	options.Subscriptions, options.CallbackOrigin = subs, c.WebhookOrigin
	var metrics *admin.Metrics
	if al != nil {
		metrics = c.metrics()
		options.Observer = metrics
	}
	front := frontend.New(store, options)
	if al != nil {
		metrics.Read(admin.Sources{Store: store.Stats, Frontend: front.Stats, Subscriptions: subs.Stats})
		plane := admin.New(admin.Options{Metrics: metrics, Purger: store, Logger: log})
		plane.Start(ctx, al)
		log.Info("the admin plane is up", "url", "http://"+dialable(al.Addr()))
		// It is up while requests drain, so that the end can be watched.
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), adminTimeout)
			defer cancel()
			err = errors.Join(err, plane.Close(ctx))
		}()
	}
	server := frontend.NewServer(front, c.serverOptions())
	c.greet(out, l.Addr(), log)
	err = server.Serve(ctx, l)
	log.Info("stopped")
	return err
}

func (c *serveCmd) listen(ctx context.Context) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}}
	l, err := lc.Listen(ctx, "tcp", c.Listen)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, usageError{fmt.Errorf("%s is in use by another process; choose another address with --listen", c.Listen)}
	case err != nil:
		return nil, usageError{fmt.Errorf("can't listen on %s: %w", c.Listen, err)}
	}
	return l, nil
}

func (c *serveCmd) openEngine(ctx context.Context, log *slog.Logger) (kv.Database, error) {
	switch c.Store {
	case "fdb":
		return foundationdb.Open(foundationdb.Options{ClusterFile: c.ClusterFile})
	case "memory":
		return embedded.Open(ctx, embedded.Options{InMemory: true, Log: log})
	}
	db, err := embedded.Open(ctx, embedded.Options{Dir: c.DataDir, Log: log})
	switch {
	case errors.Is(err, embedded.ErrLocked):
		return nil, usageError{fmt.Errorf("the data directory %s is in use by another headwater; stop it or choose another with --data-dir", c.DataDir)}
	case errors.Is(err, embedded.ErrNewerFormat), errors.Is(err, embedded.ErrForeign):
		return nil, usageError{fmt.Errorf("data directory %s: %w", c.DataDir, err)}
	case err != nil:
		return nil, fmt.Errorf("opening the data directory %s: %w", c.DataDir, err)
	}
	return db, nil
}

func (c *serveCmd) openStore(ctx context.Context, db kv.Database, index *subscriptions.Index, log *slog.Logger) (*fdblayer.Store, error) {
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	store, err := fdblayer.Open(opening, db, fdblayer.Options{
		Prefix: []byte(c.KeyPrefix), Lanes: c.Lanes,
		CommitTimeout: c.CommitTimeout, ReadTimeout: c.ReadTimeout,
		MaxLiveReaders: c.MaxLiveReaders, SnapshotGrace: c.SnapshotGrace, Followers: index, Logger: log,
	})
	if err != nil && opening.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("the store did not answer within %v: %w", openTimeout, err)
	}
	return store, err
}

func (c *serveCmd) frontendOptions(log *slog.Logger) frontend.Options {
	var trusted []netip.Prefix
	for _, n := range c.TrustedProxies {
		trusted = append(trusted, n.Prefix)
	}
	return frontend.Options{
		MaxBodyBytes: int64(c.MaxBody), MaxSnapshotBytes: int64(c.MaxSnapshot), MaxReadBytes: int(c.MaxRead),
		MaxBodiesInFlight: int64(c.MaxBodiesInFlight), MaxResponsesInFlight: int64(c.MaxResponsesInFlight), MaxRequests: c.MaxRequests,
		BodyTimeout: c.BodyTimeout, WriteTimeout: c.WriteTimeout,
		EventsMaxAge: c.SSEMaxAge, EventsKeepAlive: c.SSEKeepAlive,
		PrivateCaching: c.PrivateCaching, TrustedProxies: trusted, Logger: log,
	}
}

func (c *serveCmd) serverOptions() frontend.ServerOptions {
	return frontend.ServerOptions{
		HeaderTimeout: c.HeaderTimeout, IdleTimeout: c.IdleTimeout, MaxHeaderBytes: int(c.MaxHeader),
		MaxConnections: c.MaxConnections, H2C: c.H2C, CertFile: c.TLSCert, KeyFile: c.TLSKey,
		DrainDelay: c.DrainDelay, DrainTimeout: c.DrainTimeout,
	}
}

// greet says where the server is, and to a person what to do with it.
func (c *serveCmd) greet(out output, addr net.Addr, log *slog.Logger) {
	scheme := "http"
	if c.TLSCert != "" {
		scheme = "https"
	}
	url := scheme + "://" + dialable(addr)
	if c.LogFormat == "json" {
		log.Info("serving", "url", url, "store", c.Store, "version", version)
		return
	}
	where := map[string]string{"embedded": "streams are in " + c.DataDir, "memory": "streams are in memory and will be lost", "fdb": "streams are in FoundationDB"}
	fmt.Fprintf(out.stderr, `Headwater %s serves %s (%s). Try:
  curl -X PUT -H 'Content-Type: text/plain' -d 'hello' %s/v1/stream/greeting
  curl -N '%s/v1/stream/greeting?offset=-1&live=sse'
`, version, url, where[c.Store], url, url)
}

// dialable is an address a client on this machine can use.
func dialable(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + port
}
