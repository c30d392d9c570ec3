package fdblayer

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"headwater/fdblayer/kv"
	"headwater/keys"
)

// Options configure a Store. The zero value of each field means its default.
type Options struct {
	// Prefix is the deployment's key prefix; "hw" by default.
	Prefix []byte
	// Lanes is how many batches may be under way at once; 4 by default.
	Lanes int
	// MaxQueuedBytes and MaxQueuedRequests bound what waits in one lane;
	// 64 MiB and 65,536 by default.
	MaxQueuedBytes    int
	MaxQueuedRequests int
	// CommitTimeout bounds how long a write is tried; 10 s by default.
	CommitTimeout time.Duration
	// ReadTimeout bounds how long a read is tried; 10 s by default.
	ReadTimeout time.Duration
	// PredecessorWait is how long an idempotent producer's request that
	// overtook its predecessor waits for it before it is refused; 50 ms by
	// default. Negative refuses at once.
	PredecessorWait time.Duration
	// MaxLiveReaders bounds the live readers of this frontend; 100,000 by default.
	MaxLiveReaders int
	// SnapshotGrace is how long a superseded snapshot stays readable for
	// readers in flight; one hour by default.
	SnapshotGrace time.Duration
	// SweepInterval is the pause between two rounds of background work; one
	// second by default. Negative switches background work off.
	SweepInterval time.Duration
	// Followers is told of changes of the streams it follows; nil for nobody.
	Followers Followers
	// Now is the clock; time.Now by default.
	Now func() time.Time
	// Logger receives what nobody waits for an answer to; slog.Default() by default.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	dur := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	if len(o.Prefix) == 0 {
		o.Prefix = []byte("hw")
	}
	def(&o.Lanes, 4)
	def(&o.MaxQueuedBytes, 64<<20)
	def(&o.MaxQueuedRequests, 1<<16)
	def(&o.MaxLiveReaders, 100_000)
	dur(&o.CommitTimeout, 10*time.Second)
	dur(&o.ReadTimeout, 10*time.Second)
	dur(&o.PredecessorWait, 50*time.Millisecond)
	dur(&o.SnapshotGrace, time.Hour)
	dur(&o.SweepInterval, time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Store is the streams of one deployment, as one frontend serves them. Any
// number of Stores may be open on one database. Safe for concurrent use.
type Store struct {
	db       kv.Database
	opts     Options
	space    keys.Space
	frontend [16]byte
	seed     maphash.Seed
	lanes    []*lane
	hub      *hub
	stats    stats

	// ctx ends the background work; Close cancels it and waits for work.
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// ErrFormat is returned by Open for a deployment written by a newer version.
var ErrFormat = errors.New("fdblayer: the deployment was written by a newer version of Headwater")

// Open returns a Store over db, which stays the caller's and must be closed
// after the Store. It checks, or on first use writes, the deployment's format
// version.
func Open(ctx context.Context, db kv.Database, opts Options) (*Store, error) {
	s := &Store{
		db:       db,
		opts:     opts.withDefaults(),
		frontend: uuid.New(),
		seed:     maphash.MakeSeed(),
	}
	space, err := keys.NewSpace(s.opts.Prefix)
	if err != nil {
		return nil, err
	}
	s.space = space
	if err := s.checkFormat(ctx); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.hub = newHub(s)
	for i := range s.opts.Lanes {
		l := newLane(s, uint16(i))
		s.lanes = append(s.lanes, l)
		s.work.Go(l.run)
	}
	if s.opts.SweepInterval > 0 {
		s.work.Go(s.sweep)
	}
	return s, nil
}

// checkFormat reads the format version, writing it where there is none.
func (s *Store) checkFormat(ctx context.Context) error {
	key := s.space.System("format")
	_, err := kv.Transact(ctx, s.db, func(ctx context.Context, tx kv.Tx, _ kv.Attempt) error {
		v, err := tx.Get(key).Wait(ctx)
		switch {
		case err != nil:
			return err
		case v == nil:
			tx.Set(key, []byte{keys.FormatVersion})
		case len(v) != 1 || v[0] > keys.FormatVersion:
			return ErrFormat
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("fdblayer: open: %w", err)
	}
	return nil
}

// Drain ends every live reader with CodeDraining and refuses new ones. Other
// requests are still served.
func (s *Store) Drain() { s.hub.drain() }

// Close finishes what is queued, ends the background work and releases the
// Store. Requests that come after it fail with CodeDraining.
func (s *Store) Close(ctx context.Context) error {
	s.Drain()
	for _, l := range s.lanes {
		l.close()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, l := range s.lanes {
			<-l.done
		}
		s.cancel()
		s.hub.wait()
		s.work.Wait()
	}()
	select {
	case <-done:
		return s.forget(ctx)
	case <-ctx.Done():
		s.cancel()
		<-done
		return ctx.Err()
	}
}

// forget removes the witnesses of this frontend, which nobody else reads.
func (s *Store) forget(ctx context.Context) error {
	_, err := kv.Transact(ctx, s.db, func(_ context.Context, tx kv.Tx, _ kv.Attempt) error {
		tx.ClearRange(kv.Range(s.space.FrontendBatches(s.frontend)))
		return nil
	})
	return err
}

// Ready reports whether the store answers in time.
func (s *Store) Ready(ctx context.Context) error {
	return kv.Read(ctx, s.db, func(ctx context.Context, tx kv.Tx) error {
		_, err := tx.Get(s.space.System("format")).Wait(ctx)
		return err
	})
}

// lane returns the lane that writes of a stream go through.
func (s *Store) lane(id StreamID) *lane {
	var h maphash.Hash
	h.SetSeed(s.seed)
	h.WriteString(id.Bucket)
	h.WriteByte(0)
	h.WriteString(id.Stream)
	return s.lanes[h.Sum64()%uint64(len(s.lanes))]
}

// read runs fn in a read-only transaction within the read timeout.
func (s *Store) read(ctx context.Context, fn func(ctx context.Context, tx kv.Tx) error) error {
	tctx, cancel := context.WithTimeoutCause(ctx, s.opts.ReadTimeout, errTimeout)
	defer cancel()
	return storeError(ctx.Err(), kv.Read(tctx, s.db, fn), false)
}

// transact runs fn in a transaction of its own within the commit timeout.
func (s *Store) transact(ctx context.Context, fn func(ctx context.Context, tx kv.Tx, at kv.Attempt) error) (kv.Committed, error) {
	tctx, cancel := context.WithTimeoutCause(ctx, s.opts.CommitTimeout, errTimeout)
	defer cancel()
	c, err := kv.Transact(tctx, s.db, fn)
	return c, storeError(ctx.Err(), err, true)
}

var errTimeout = errors.New("fdblayer: the store did not answer in time")

// storeError turns what the engine says into an [*Error]. Errors of this
// package pass through, and so does the end of the caller's own context where
// nothing can have been written: ended is that context's error. wrote tells a
// transaction that may have been committing.
func storeError(ended, err error, wrote bool) error {
	var e *Error
	switch {
	case err == nil, errors.As(err, &e):
		return err
	case wrote && kv.MaybeCommitted(err):
		return &Error{Code: CodeUnknownOutcome, Detail: "the store can't say whether the write was applied", RetryAfter: time.Second, Err: err}
	case ended != nil:
		return fmt.Errorf("fdblayer: %w", ended)
	case kv.Code(err) != 0 && !kv.Retryable(err) && !kv.MaybeCommitted(err):
		return err
	case kv.Code(err) != 0, errors.Is(err, errTimeout), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, context.Canceled), errors.Is(err, kv.ErrClosed):
		return &Error{Code: CodeUnavailable, Detail: "the store does not answer", RetryAfter: time.Second, Err: err}
	}
	return err
}
