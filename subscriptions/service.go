package subscriptions

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	mrand "math/rand/v2"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"headwater/fdblayer"
	"headwater/fdblayer/kv"
	"headwater/keys"
)

// Resolver looks names up; [net.Resolver] is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Options configure a Service. The zero value of each field means its default.
type Options struct {
	// CallbackURL returns the absolute URL at which receivers call a
	// subscription's wake back. origin is the scheme and host that the
	// subscription was created at.
	CallbackURL func(origin string, id ID) string
	// AllowLocalhost is the development switch: webhooks may go to
	// http://localhost and http://127.0.0.x.
	AllowLocalhost bool
	// DeliveryTimeout bounds one webhook request, together with the lease; 30 s
	// by default.
	DeliveryTimeout time.Duration
	// MaxDeliveries and MaxPerHost bound the webhook requests under way on this
	// frontend; 64 and 8 by default.
	MaxDeliveries, MaxPerHost int
	// RotateKeys is how old a signing key becomes; 90 days by default.
	RotateKeys time.Duration
	// ScanInterval is how long a due item of another frontend may wait to be
	// noticed; one second by default.
	ScanInterval time.Duration
	// Resolver resolves the hosts of webhooks; net.DefaultResolver by default.
	Resolver Resolver
	// Now is the clock; time.Now by default.
	Now func() time.Time
	// Logger receives what nobody waits for an answer to; slog.Default() by default.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	dur := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	num := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	dur(&o.DeliveryTimeout, 30*time.Second)
	dur(&o.RotateKeys, 90*24*time.Hour)
	dur(&o.ScanInterval, time.Second)
	num(&o.MaxDeliveries, 64)
	num(&o.MaxPerHost, 8)
	if o.CallbackURL == nil {
		o.CallbackURL = func(origin string, id ID) string { return origin + "/" + id.Bucket + "/" + id.Name }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Service is the subscriptions of a deployment, as one frontend serves and
// delivers them. Any number of Services may work on one store. Safe for
// concurrent use.
type Service struct {
	store  *fdblayer.Store
	space  keys.Space
	index  *Index
	opts   Options
	log    *slog.Logger
	client *http.Client
	ring   keyring
	counts counters

	shards [keys.Shards]*shard
	sched  scheduler

	// jitter returns a number within [-1, 1].
	jitter func() float64

	// ctx ends the background work; Close cancels it and waits for work.
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	// stopping tells the loops to take on nothing new.
	stopping chan struct{}
	stop     sync.Once
	started  atomic.Bool
}

// New returns a Service over a store that was opened with index. Until Start it
// answers requests and delivers nothing.
func New(store *fdblayer.Store, index *Index, opts Options) *Service {
	s := &Service{
		store: store, space: store.Space(), index: index, opts: opts.withDefaults(),
		stopping: make(chan struct{}),
		jitter:   func() float64 { return mrand.Float64()*2 - 1 },
	}
	s.log = s.opts.Logger
	s.client = newClient(s.opts)
	for i := range s.shards {
		s.shards[i] = newShard(s, byte(i))
	}
	s.sched.init(s)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	index.service.Store(s)
	return s
}

// Start begins the background work. It must be called at most once.
func (s *Service) Start() {
	if s.started.Swap(true) {
		return
	}
	for _, sh := range s.shards {
		s.work.Go(sh.run)
	}
	s.work.Go(s.sched.run)
}

// Close takes on nothing new, waits for the deliveries under way until ctx
// ends, and then cuts them off; the leases of those end by themselves and other
// frontends take over. It must come before the store's Close.
func (s *Service) Close(ctx context.Context) error {
	s.stop.Do(func() { close(s.stopping) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.work.Wait()
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.cancel()
	<-done
	s.index.service.CompareAndSwap(s, nil)
	s.client.CloseIdleConnections()
	return err
}

// now is the time the rules see. Milliseconds, as everything stored is.
func (s *Service) now() time.Time { return time.UnixMilli(s.opts.Now().UnixMilli()) }

// sub is a subscription as a transaction sees it.
type sub struct {
	id ID
	record
	state
	found state // as it was read
}

func (u *sub) streamID(path string) fdblayer.StreamID {
	return fdblayer.StreamID{Bucket: u.id.Bucket, Stream: path}
}

// matches reports whether the pattern links a stream.
func (u *sub) matches(path string) bool {
	return u.Pattern != "" && path != u.WakeStream && globMatch(u.Pattern, path)
}

var errNotFound = errorf(CodeNotFound, "no subscription of this id")

// load reads a subscription; nil for none.
func (s *Service) load(ctx context.Context, tx kv.Reader, id ID) (*sub, error) {
	raw, err := tx.Get(s.space.Subscription(id.Bucket, id.Name)).Wait(ctx)
	if err != nil || raw == nil {
		return nil, err
	}
	u := &sub{id: id}
	if u.record, err = decodeRecord(raw); err != nil {
		return nil, err
	}
	if raw, err = tx.Get(s.space.SubState(u.uid)).Wait(ctx); err != nil {
		return nil, err
	}
	u.state, err = decodeState(raw)
	u.found = u.state
	return u, err
}

// save writes what changed of a subscription's state, and moves its entry in
// the schedule.
func (s *Service) save(tx kv.Tx, u *sub) {
	if u.state == u.found {
		return
	}
	tx.Set(s.space.SubState(u.uid), u.state.encode())
	s.moveDue(tx, u.id, u.uid, u.found.Due, u.state.Due)
}

func (s *Service) moveDue(tx kv.Tx, id ID, uid keys.SubscriptionID, from, to int64) {
	if from == to {
		return
	}
	if from != 0 {
		tx.Clear(s.space.SubDue(time.UnixMilli(from), keys.SubTaskDeliver, uid))
	}
	if to != 0 {
		tx.Set(s.space.SubDue(time.UnixMilli(to), keys.SubTaskDeliver, uid), dueValue(id))
	}
}

// change runs fn on a subscription in a transaction and saves what it made of
// its state.
//
// Reads: the configuration and the state; so of two changes of one state at
// most one commits. Witness: every change of the state carries the operation's
// number, so an attempt whose outcome is unknown is found by it. What fn stored
// in captured variables is then that attempt's, and stands.
func (s *Service) change(ctx context.Context, id ID, fn func(ctx context.Context, tx kv.Tx, u *sub) error) error {
	op := randomHex(8)
	var due int64
	_, err := s.store.Update(ctx, func(ctx context.Context, tx kv.Tx, at kv.Attempt) error {
		u, err := s.load(ctx, tx, id)
		if err != nil {
			return err
		}
		if u == nil {
			return errNotFound
		}
		if at.Unknown && u.Op == op {
			return nil
		}
		if err := fn(ctx, tx, u); err != nil {
			return err
		}
		if u.state != u.found {
			u.Op = op
		}
		due = u.Due
		s.save(tx, u)
		return nil
	})
	if err == nil {
		s.sched.nudge(due)
	}
	return err
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func dueValue(id ID) []byte {
	return append(append([]byte(id.Bucket), 0), id.Name...)
}
