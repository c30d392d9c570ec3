package subscriptions

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"headwater/fdblayer"
	"headwater/fdblayer/kv"
	"headwater/keys"
)

// maxCachedBuckets bounds the buckets whose patterns one frontend remembers.
const maxCachedBuckets = 1024

// bornTimeout bounds how long a creator waits for its stream to be linked.
const bornTimeout = 2 * time.Second

// Index is what the streams of a frontend know of subscriptions: it implements
// [fdblayer.Followers]. It exists before the store, which asks it, and the
// [Service] after both. Safe for concurrent use.
type Index struct {
	service atomic.Pointer[Service]

	mu      sync.Mutex
	buckets map[string]*globs
}

var _ fdblayer.Followers = (*Index)(nil)

// NewIndex returns an Index to open a store with.
func NewIndex() *Index { return &Index{buckets: make(map[string]*globs)} }

// Followed implements [fdblayer.Followers]. It reads the version of the
// bucket's patterns, which every change of them writes, and the links that were
// made by path: so a subscription and a stream can't be created at once without
// one of them seeing the other.
func (x *Index) Followed(tx kv.Tx, space keys.Space, id fdblayer.StreamID) fdblayer.Verdict {
	r := space.FollowerRange(id.Bucket, id.Stream)
	return &verdict{
		index: x, tx: tx, space: space, id: id,
		version: tx.Get(space.SubGlobs(id.Bucket)),
		linked:  tx.GetRange(kv.FirstGreaterOrEqual(r.Begin), kv.FirstGreaterOrEqual(r.End), kv.RangeOptions{Limit: 1}),
	}
}

type verdict struct {
	index   *Index
	tx      kv.Tx
	space   keys.Space
	id      fdblayer.StreamID
	version kv.Value
	linked  kv.Rows
}

// Wait implements [fdblayer.Verdict].
func (v *verdict) Wait(ctx context.Context) (bool, error) {
	rows, _, err := v.linked.Next(ctx)
	if err != nil {
		return false, err
	}
	version, err := v.version.Wait(ctx)
	if err != nil || len(rows) > 0 {
		return len(rows) > 0, err
	}
	g, err := v.index.globs(ctx, v.tx, v.space, v.id.Bucket, version)
	return err == nil && g.matches(v.id.Stream), err
}

// globs returns the patterns of a bucket at a version that tx has read, from
// memory if they are there.
func (x *Index) globs(ctx context.Context, tx kv.Tx, space keys.Space, bucket string, version []byte) (*globs, error) {
	if version == nil {
		return newGlobs(""), nil
	}
	x.mu.Lock()
	g := x.buckets[bucket]
	x.mu.Unlock()
	if g != nil && g.version == string(version) {
		return g, nil
	}
	g, err := loadGlobs(ctx, tx, space, bucket, string(version))
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.buckets) >= maxCachedBuckets {
		for b := range x.buckets {
			delete(x.buckets, b)
			break
		}
	}
	x.buckets[bucket] = g
	return g, nil
}

// loadGlobs reads the patterns of a bucket. By snapshot: the version key, which
// tx has read, stands for all of them.
func loadGlobs(ctx context.Context, tx kv.Tx, space keys.Space, bucket, version string) (*globs, error) {
	g := newGlobs(version)
	err := kv.Each(ctx, tx.Snapshot(), kv.Range(space.SubGlobRange(bucket)), kv.RangeOptions{}, func(row kv.KeyValue) error {
		_, id, err := space.ParseSubGlob(row.Key)
		if err != nil {
			return err
		}
		_, err = g.read(id, row.Value)
		return err
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// Born implements [fdblayer.Followers]: it links a new stream before its
// creator hears of it, so that who creates and then looks finds the link.
func (x *Index) Born(ctx context.Context, id fdblayer.StreamID) {
	s := x.service.Load()
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, bornTimeout)
	defer cancel()
	if err := s.reconcile(ctx, id); err != nil {
		s.log.Debug("linking a new stream failed; its mark remains", "stream", id.Stream, "error", err)
	}
}

// Changed implements [fdblayer.Followers].
func (x *Index) Changed(id fdblayer.StreamID) {
	if s := x.service.Load(); s != nil {
		s.shards[keys.Shard(id.Bucket, id.Stream)].kick()
	}
}

// Purged implements [fdblayer.Followers]: the subscriptions of a purged bucket
// go with it.
func (x *Index) Purged(ctx context.Context, bucket string) error {
	s := x.service.Load()
	if s == nil {
		return nil
	}
	return s.purge(ctx, bucket)
}
