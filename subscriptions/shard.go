package subscriptions

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"headwater/fdblayer"
	"headwater/fdblayer/kv"
)

const (
	// marksPage is how many marks one look at a shard takes on, and
	// marksAtOnce how many of them at a time.
	marksPage   = 256
	marksAtOnce = 8
	// handOver is how long a frontend leaves a mark to the one that made it,
	// which was told of it directly. So as a rule one frontend does the work,
	// and when that one dies the others are not long behind.
	handOver = 100 * time.Millisecond
	// streamPause is the least time between two looks at one stream: a stream
	// that is appended to all the time wakes nobody more often for it.
	streamPause = 20 * time.Millisecond
	// shardRetry is the pause after a look that failed.
	shardRetry = 200 * time.Millisecond
)

// shard follows the marks of one part of the streams: it waits for the shard's
// wake key to change, and reconciles each stream that is marked. Marks are in
// the store, so one that a frontend doesn't get to is there for the next.
type shard struct {
	service *Service
	index   byte
	local   chan struct{} // capacity 1: this frontend has made a mark

	// looked is when a stream was last reconciled here. Owned by run.
	looked map[fdblayer.StreamID]time.Time
}

func newShard(s *Service, index byte) *shard {
	return &shard{service: s, index: index, local: make(chan struct{}, 1), looked: make(map[fdblayer.StreamID]time.Time)}
}

func (h *shard) kick() {
	select {
	case h.local <- struct{}{}:
	default:
	}
}

// run looks, and waits, and looks, until the service stops.
func (h *shard) run() {
	s := h.service
	for {
		select {
		case <-s.stopping:
			return
		default:
		}
		watch, later, err := h.look(s.ctx)
		switch {
		case err != nil:
			if s.ctx.Err() == nil {
				s.log.Warn("looking for changed streams failed; trying again", "shard", h.index, "error", err)
			}
			h.sleep(nil, shardRetry)
		case watch != nil:
			h.wait(watch)
		case later > 0:
			h.sleep(h.local, later)
		}
	}
}

// wait sleeps until this frontend or another makes a mark in the shard.
func (h *shard) wait(watch kv.Watch) {
	s := h.service
	defer watch.Cancel()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	fired := make(chan error, 1)
	var waiting sync.WaitGroup
	waiting.Go(func() { fired <- watch.Wait(ctx) })
	defer waiting.Wait()
	defer cancel()
	select {
	case <-h.local:
	case <-s.stopping:
	case err := <-fired:
		pause := handOver
		if err != nil {
			pause = shardRetry
		}
		h.sleep(h.local, pause)
	}
}

func (h *shard) sleep(early <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-early:
	case <-h.service.stopping:
	}
}

// look reconciles what is marked. Where nothing is, it returns a watch armed by
// the transaction that found nothing; where all that is was looked at just now,
// when to look again.
func (h *shard) look(ctx context.Context) (kv.Watch, time.Duration, error) {
	s := h.service
	marked, watch, err := h.marks(ctx)
	if err != nil || len(marked) == 0 {
		return watch, 0, err
	}
	now := time.Now()
	for id, at := range h.looked {
		if now.Sub(at) >= streamPause {
			delete(h.looked, id)
		}
	}
	var g errgroup.Group
	g.SetLimit(marksAtOnce)
	later := streamPause
	for _, id := range marked {
		if at, ok := h.looked[id]; ok {
			later = min(later, streamPause-now.Sub(at))
			continue
		}
		g.Go(func() error { return s.reconcile(ctx, id) })
	}
	err = g.Wait()
	for _, id := range marked {
		if _, ok := h.looked[id]; !ok {
			h.looked[id] = time.Now()
		}
	}
	if len(marked) == marksPage {
		later = time.Millisecond // there are more behind these
	}
	return nil, max(later, time.Millisecond), err
}

// marks returns the streams that are marked, and a watch if none is.
func (h *shard) marks(ctx context.Context) (ids []fdblayer.StreamID, watch kv.Watch, err error) {
	s := h.service
	err = s.store.View(ctx, func(ctx context.Context, tx kv.Tx) error {
		ids, watch = ids[:0], nil
		rows, err := readRows(ctx, tx.Snapshot(), s.space.SubMarkRange(h.index), marksPage)
		if err != nil {
			return err
		}
		for _, row := range rows {
			bucket, stream, err := s.space.ParseSubMark(row.Key)
			if err != nil {
				return err
			}
			ids = append(ids, fdblayer.StreamID{Bucket: bucket, Stream: stream})
		}
		if len(rows) == 0 {
			watch = tx.Watch(s.space.SubWake(h.index))
		}
		return nil
	})
	return ids, watch, err
}
