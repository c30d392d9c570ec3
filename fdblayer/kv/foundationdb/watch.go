//go:build foundationdb

package foundationdb

import (
	"context"
	"sync"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"headwater/fdblayer/kv"
)

// Watch implements [kv.Tx].
func (t *tx) Watch(key []byte) kv.Watch {
	w := &watch{db: t.db, done: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended != nil {
		w.finish(t.ended)
		return w
	}
	w.f = t.tr.Watch(fdb.Key(key))
	t.watched = true
	return w
}

// watch is one watch. Its first Wait starts the one goroutine that waits in the
// C client's future for all Waits, since a Wait whose context ends must leave
// the watch as it is; the goroutine ends when the watch fires, fails or is
// cancelled, or the database closes. A watch nobody waits for costs none, and
// one that is forgotten altogether is cancelled by its future's finalizer.
type watch struct {
	db *database
	f  fdb.FutureNil

	// settle is done by whoever decides err: the goroutine, or Cancel where
	// there is none.
	settle sync.Once
	done   chan struct{} // closed once err is set
	err    error
}

var _ kv.Watch = (*watch)(nil)

// Wait implements [kv.Watch].
func (w *watch) Wait(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.settle.Do(w.start)
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *watch) start() {
	w.db.mu.RLock()
	defer w.db.mu.RUnlock()
	if w.db.closed {
		w.err = kv.ErrClosed
		close(w.done)
		return
	}
	w.db.watchers.Go(w.run)
}

func (w *watch) run() {
	defer close(w.done)
	release := onEnd(w.db.closing, w.f.Cancel)
	w.err = engineError(w.f.Get())
	if release() {
		w.err = kv.ErrClosed
	}
}

func (w *watch) finish(err error) {
	w.settle.Do(func() {
		w.err = err
		close(w.done)
	})
}

// Cancel implements [kv.Watch].
func (w *watch) Cancel() {
	if w.f != nil {
		w.f.Cancel()
	}
	w.finish(&kv.Error{Code: kv.CodeOperationCancelled})
	<-w.done
}
