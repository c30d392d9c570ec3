package frontend

import (
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/semaphore"

	"headwater/fdblayer"
	"headwater/subscriptions"
)

// Options bound and shape a Frontend. The zero value of each field means its
// default.
type Options struct {
	// MaxBodyBytes bounds the body of a create or an append; 32 MiB by default.
	MaxBodyBytes int64
	// MaxSnapshotBytes bounds the body of a snapshot; 1 GiB by default.
	MaxSnapshotBytes int64
	// MaxReadBytes bounds the stream bytes of one response or event
	// (extensions 9.3); 8 MiB by default.
	MaxReadBytes int
	// MaxBodiesInFlight bounds the memory of all bodies being received or
	// written, in bytes; 256 MiB by default. Beyond it requests get 503.
	MaxBodiesInFlight int64
	// MaxResponsesInFlight bounds the memory of all responses that clients have
	// not taken yet, in bytes; 512 MiB by default. Beyond it reads get 503.
	MaxResponsesInFlight int64
	// MaxRequests bounds the requests being served, those whose body is still
	// arriving and live reads that wait not counted; 10,000 by default. Beyond
	// it requests get 503.
	MaxRequests int
	// BodyTimeout is how long a client may take over each 64 KiB of a body;
	// 10 s by default.
	BodyTimeout time.Duration
	// WriteTimeout is how long a client may take to accept each 256 KiB of a
	// response, or an event; 10 s by default.
	WriteTimeout time.Duration
	// EventsMaxAge is how long an SSE response lasts, give or take a tenth
	// (PROTOCOL.md 10.2); 60 s by default.
	EventsMaxAge time.Duration
	// EventsKeepAlive is how long an SSE response may be silent before a
	// comment is sent; 15 s by default.
	EventsKeepAlive time.Duration
	// PrivateCaching marks cacheable reads private instead of public, for
	// streams that are not the same to everyone (PROTOCOL.md 10.1).
	PrivateCaching bool
	// TrustedProxies are the peers whose X-Forwarded-Proto and
	// X-Forwarded-Host are believed; none by default.
	TrustedProxies []netip.Prefix
	// Subscriptions serves the reserved paths of PROTOCOL.md 6; nil for none,
	// and they answer 404.
	Subscriptions *subscriptions.Service
	// CallbackOrigin is the scheme and host at which webhook receivers reach
	// the server; by default those its clients used.
	CallbackOrigin string
	// Observer is told of every request; nil for nobody.
	Observer Observer
	// Logger receives faults, and at debug level every request; slog.Default()
	// by default.
	Logger *slog.Logger
	// Now is the clock; time.Now by default.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	size := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	dur := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	size(&o.MaxBodyBytes, 32<<20)
	size(&o.MaxSnapshotBytes, 1<<30)
	size(&o.MaxBodiesInFlight, 256<<20)
	size(&o.MaxResponsesInFlight, 512<<20)
	if o.MaxReadBytes <= 0 {
		o.MaxReadBytes = 8 << 20
	}
	if o.MaxRequests <= 0 {
		o.MaxRequests = 10_000
	}
	dur(&o.BodyTimeout, 10*time.Second)
	dur(&o.WriteTimeout, 10*time.Second)
	dur(&o.EventsMaxAge, time.Minute)
	dur(&o.EventsKeepAlive, 15*time.Second)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Frontend answers requests from a store. Safe for concurrent use.
type Frontend struct {
	store *fdblayer.Store
	opts  Options
	// bodies and responses are the memory that each take, see Options.
	bodies, responses *semaphore.Weighted

	running  atomic.Int64
	draining atomic.Bool
	// For Stats alone: a semaphore can't be asked what is taken of it.
	open, bodyBytes, responseBytes atomic.Int64

	engine *gin.Engine
}

// New returns a Frontend for store, which stays the caller's.
func New(store *fdblayer.Store, opts Options) *Frontend {
	f := &Frontend{store: store, opts: opts.withDefaults()}
	f.bodies = semaphore.NewWeighted(f.opts.MaxBodiesInFlight)
	f.responses = semaphore.NewWeighted(f.opts.MaxResponsesInFlight)
	// Otherwise gin prints to standard output. The mode is gin's own and
	// process-wide; nobody else here uses gin.
	gin.SetMode(gin.ReleaseMode)
	f.engine = gin.New()
	// gin's tree matches decoded paths and redirects "wrong" ones; ours are
	// parsed by parsePath, so gin is left without routes.
	f.engine.RedirectTrailingSlash = false
	f.engine.RedirectFixedPath = false
	if err := f.engine.SetTrustedProxies(nil); err != nil { // nil always parses
		panic(err)
	}
	f.engine.Use(f.observe)
	f.engine.NoRoute(f.dispatch)
	return f
}

// Handler returns the handler of all paths.
func (f *Frontend) Handler() http.Handler { return f.engine }

// Drain makes /readyz fail and ends the store's live readers: long-polls are
// answered, SSE responses end with a control event. Other requests are still
// served. The store is drained too.
func (f *Frontend) Drain() {
	f.notReady()
	f.store.Drain()
}

func (f *Frontend) notReady() { f.draining.Store(true) }

// jitter returns d give or take a tenth.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}
