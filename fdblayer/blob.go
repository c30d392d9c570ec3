package fdblayer

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"headwater/fdblayer/kv"
	"headwater/keys"
)

// A body too large for one transaction is staged: its chunks are written by
// several transactions where nobody looks, and one small transaction makes it
// visible. While it is staged a lease keeps it: a gc entry that would clear it
// later. Each staging transaction reads the lease, so that what the sweeper
// has collected can't be written to; the publishing one removes it.
const (
	blobChunk = 64 << 10
	// stageChunks is how many chunks one transaction writes: near 1 MB.
	stageChunks = 14
	// stageWindow is how many staging transactions are in flight at once.
	stageWindow = 4
	// stageLease is how long an upload may go without progress.
	stageLease = 10 * time.Minute
)

// staging is a body being staged. Not safe for concurrent use.
type staging struct {
	store       *Store
	incarnation keys.Incarnation
	id          keys.BlobID
	lease       []byte
	leased      time.Time
	index       uint32
	// group is the staging transactions in flight, renewed whenever they have
	// been waited for.
	group *errgroup.Group
}

// stage begins to stage a body under an incarnation. Call commit or abandon.
func (s *Store) stage(ctx context.Context, inc keys.Incarnation) (*staging, error) {
	g := &staging{store: s, incarnation: inc, id: keys.BlobID(uuid.New())}
	g.open()
	err := g.renew(ctx)
	return g, err
}

func (g *staging) open() {
	g.group = new(errgroup.Group)
	g.group.SetLimit(stageWindow)
}

// renew moves the lease ahead. The staging has no transaction in flight.
func (g *staging) renew(ctx context.Context) error {
	now := g.store.now()
	next := g.store.space.GC(now.Add(stageLease), [16]byte(g.id))
	task := encodeClear(kv.Range(g.store.space.BlobRange(g.incarnation, g.id)))
	_, err := g.store.transact(ctx, func(ctx context.Context, tx kv.Tx, _ kv.Attempt) error {
		if g.lease != nil {
			if err := g.hold(ctx, tx, next); err != nil {
				return err
			}
			tx.Clear(g.lease)
		}
		tx.Set(next, task)
		return nil
	})
	if err == nil {
		g.lease, g.leased = next, now
	}
	return err
}

// hold fails unless the lease is still there; one that an attempt with an
// unknown outcome has moved to next counts.
func (g *staging) hold(ctx context.Context, tx kv.Tx, next []byte) error {
	held, err := tx.Get(g.lease).Wait(ctx)
	if err != nil || held != nil {
		return err
	}
	if next != nil {
		if held, err = tx.Get(next).Wait(ctx); err != nil || held != nil {
			return err
		}
	}
	return &Error{Code: CodeUnavailable, Detail: "the upload was too slow and has been collected", RetryAfter: time.Second}
}

// write stages the next bytes, len(p) being a multiple of the chunk size but
// at the end. p is in use until commit, abandon or a later renewal.
func (g *staging) write(ctx context.Context, p []byte) error {
	if g.store.now().Sub(g.leased) > stageLease/3 {
		// Transactions in flight hold the old lease: let them end first.
		if err := g.settle(); err != nil {
			return err
		}
		if err := g.renew(ctx); err != nil {
			return err
		}
	}
	first := g.index
	g.index += uint32((len(p) + blobChunk - 1) / blobChunk)
	g.group.Go(func() error {
		_, err := g.store.transact(ctx, func(ctx context.Context, tx kv.Tx, _ kv.Attempt) error {
			tx.SetPriorityBatch()
			if err := g.hold(ctx, tx, nil); err != nil {
				return err
			}
			for i, rest := first, p; len(rest) > 0; i++ {
				n := min(len(rest), blobChunk)
				tx.Set(g.store.space.Blob(g.incarnation, g.id, i), rest[:n])
				rest = rest[n:]
			}
			return nil
		})
		return err
	})
	return ctx.Err()
}

// settle waits for the transactions in flight.
func (g *staging) settle() error {
	err := g.group.Wait()
	g.open()
	return err
}

// abandon gives the staged chunks up. What fails here the sweeper does later.
func (g *staging) abandon(ctx context.Context) {
	_ = g.group.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.store.opts.CommitTimeout)
	defer cancel()
	_, _ = g.store.transact(ctx, func(_ context.Context, tx kv.Tx, _ kv.Attempt) error {
		tx.ClearRange(kv.Range(g.store.space.BlobRange(g.incarnation, g.id)))
		tx.Clear(g.lease)
		return nil
	})
}

// stageBytes stages a body that is in memory.
func (s *Store) stageBytes(ctx context.Context, inc keys.Incarnation, body []byte) (*staging, error) {
	g, err := s.stage(ctx, inc)
	if err != nil {
		return nil, err
	}
	for rest := body; len(rest) > 0 && err == nil; {
		n := min(len(rest), stageChunks*blobChunk)
		err = g.write(ctx, rest[:n])
		rest = rest[n:]
	}
	if werr := g.settle(); werr != nil {
		err = werr
	}
	if err != nil {
		g.abandon(ctx)
		return nil, err
	}
	return g, nil
}

func (g *staging) body(size int) *stagedBody {
	return &stagedBody{ref: blobRef{g.id, uint32(size)}, incarnation: g.incarnation, lease: g.lease}
}

// appendLarge stages a body and appends it by one small record. Where the
// stream is replaced meanwhile it starts over.
func (s *Store) appendLarge(ctx context.Context, req AppendRequest) (AppendResult, error) {
	for range restages {
		st, _, err := s.Head(ctx, req.ID, Precondition{})
		if err != nil {
			return AppendResult{}, err
		}
		g, err := s.stageBytes(ctx, st.Incarnation, req.Body)
		if err != nil {
			return AppendResult{}, err
		}
		light := req
		light.Body = nil
		p := &pending{id: req.ID, append: &light, staged: g.body(len(req.Body))}
		err = s.lane(req.ID).submit(ctx, p)
		if err == nil && !p.out.append.Duplicate {
			return p.out.append, nil
		}
		if !isCode(err, CodeUnknownOutcome) {
			g.abandon(ctx)
		}
		if !isCode(err, codeRestage) {
			return p.out.append, err
		}
	}
	return AppendResult{}, errRestaged
}

// createLarge is the same for a first body. Its incarnation is known before it
// exists.
func (s *Store) createLarge(ctx context.Context, req CreateRequest) (CreateResult, error) {
	for range restages {
		fresh := s.freshMeta(&req)
		g, err := s.stageBytes(ctx, fresh.incarnation, req.Body)
		if err != nil {
			return CreateResult{}, err
		}
		light := req
		light.Body = nil
		p := &pending{id: req.ID, create: &light, fresh: fresh, staged: g.body(len(req.Body))}
		err = s.lane(req.ID).submit(ctx, p)
		if err == nil && p.out.create.Created {
			return p.out.create, nil
		}
		if !isCode(err, CodeUnknownOutcome) {
			g.abandon(ctx)
		}
		if !isCode(err, codeRestage) {
			return p.out.create, err
		}
	}
	return CreateResult{}, errRestaged
}

// restages bounds how often a staged body is written anew.
const restages = 3

var errRestaged = &Error{Code: CodeUnavailable, Detail: "the stream was replaced again and again", RetryAfter: time.Second}

func isCode(err error, code Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}

// blobBytes returns the bytes from lo to hi of a staged body, its chunks read
// at once.
func (s *Store) blobBytes(ctx context.Context, tx kv.Reader, inc keys.Incarnation, id keys.BlobID, lo, hi uint32) ([]byte, error) {
	first, last := lo/blobChunk, (hi-1)/blobChunk
	reads := make([]kv.Value, 0, last-first+1)
	for i := first; i <= last; i++ {
		reads = append(reads, tx.Get(s.space.Blob(inc, id, i)))
	}
	out := make([]byte, 0, hi-lo)
	for i, r := range reads {
		chunk, err := r.Wait(ctx)
		if err != nil {
			return nil, err
		}
		at := (first + uint32(i)) * blobChunk
		a, b := max(lo, at)-at, min(hi-at, blobChunk)
		if uint32(len(chunk)) < b {
			return nil, errCorrupt
		}
		out = append(out, chunk[a:b]...)
	}
	return out, nil
}

// blobReader streams a staged body, one transaction a window of chunks. The
// chunks never change, and outlive the pointer to them by a grace period, so
// no single read version needs to last.
type blobReader struct {
	ctx         context.Context //nolint:containedctx // io.Reader has no room for it
	store       *Store
	incarnation keys.Incarnation
	id          keys.BlobID
	size, at    int64
	buf         []byte
}

// errSnapshotGone ends the body of a snapshot that was collected while it was read.
var errSnapshotGone = errors.New("fdblayer: the snapshot was collected while it was read")

func (r *blobReader) Read(p []byte) (int, error) {
	if len(r.buf) == 0 {
		if r.at >= r.size {
			return 0, io.EOF
		}
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

func (r *blobReader) fill() error {
	lo := uint32(r.at)
	hi := uint32(min(r.size, r.at+stageChunks*blobChunk))
	err := r.store.read(r.ctx, func(ctx context.Context, tx kv.Tx) error {
		var err error
		r.buf, err = r.store.blobBytes(ctx, tx, r.incarnation, r.id, lo, hi)
		return err
	})
	if errors.Is(err, errCorrupt) {
		return errSnapshotGone
	}
	r.at = int64(hi)
	return err
}

func (r *blobReader) Close() error {
	r.buf, r.at = nil, r.size
	return nil
}

var _ io.ReadCloser = (*blobReader)(nil)
