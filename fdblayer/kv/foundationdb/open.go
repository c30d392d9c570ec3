//go:build foundationdb

package foundationdb

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"headwater/fdblayer/kv"
)

// apiVersion is the API version of FoundationDB 7.3. It is not raised before
// every cluster that is served runs a newer version.
const apiVersion = 730

// client mirrors what libfdb_c and the binding keep once per process. The
// binding's own map of open databases has no lock, so every open and close in
// this process goes through this one.
var client struct {
	mu      sync.Mutex
	handles map[string]*handle
}

// handle is one C database, shared by the Opens of one cluster file. Watches of
// equal keys are shared inside it, and its watch limit is one for all of them.
type handle struct {
	path string
	fdb  fdb.Database
	refs int // guarded by client.mu

	// idle holds reset C transactions. A watch keeps the C transaction it was
	// armed in for as long as it lives; one for each would cost 7 kB a watch.
	// It also saves making one, with its finalizer, for each tx.
	idle sync.Pool
}

// Open returns the engine on a cluster. It does not wait for the cluster: while
// none answers, reads and commits wait until their context ends.
//
// The options of the handle itself (identity, watch limit) are those of the
// latest Open of the same cluster file.
func Open(opts Options) (kv.Database, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	h, err := acquire(opts)
	if err != nil {
		return nil, fmt.Errorf("foundationdb: open cluster %q: %w", opts.ClusterFile, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	return &database{handle: h, commitTimeout: opts.CommitTimeout, closing: ctx, stop: stop}, nil
}

func acquire(opts Options) (*handle, error) {
	path := opts.ClusterFile
	if path != "" {
		var err error
		if path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
		// The client opens a missing file without a word and then waits for ever.
		if _, err = os.Stat(path); err != nil {
			return nil, err
		}
	}

	client.mu.Lock()
	defer client.mu.Unlock()
	h := client.handles[path]
	if h == nil {
		if err := fdb.APIVersion(apiVersion); err != nil {
			return nil, err
		}
		db, err := fdb.OpenDatabase(path)
		if err != nil {
			return nil, err
		}
		h = &handle{path: path, fdb: db}
		if client.handles == nil {
			client.handles = make(map[string]*handle)
		}
		client.handles[path] = h
	}
	h.refs++
	if err := h.configure(opts); err != nil {
		h.unrefLocked()
		return nil, err
	}
	return h, nil
}

// configure sets what holds for every transaction. A transaction timeout is
// missing on purpose, see the package comment.
func (h *handle) configure(opts Options) error {
	o := h.fdb.Options()
	if err := o.SetMaxWatches(int64(opts.MaxWatches)); err != nil {
		return fmt.Errorf("set the limit of watches: %w", err)
	}
	// The client's default, made independent of its knobs: both engines keep
	// the same limit.
	if err := o.SetTransactionSizeLimit(kv.MaxTransactionSize); err != nil {
		return fmt.Errorf("set the transaction size limit: %w", err)
	}
	if opts.MachineID != "" {
		if err := o.SetMachineId(opts.MachineID); err != nil {
			return fmt.Errorf("set the machine id: %w", err)
		}
	}
	if opts.DatacenterID != "" {
		if err := o.SetDatacenterId(opts.DatacenterID); err != nil {
			return fmt.Errorf("set the data center id: %w", err)
		}
	}
	return nil
}

func (h *handle) release() {
	client.mu.Lock()
	defer client.mu.Unlock()
	h.unrefLocked()
}

func (h *handle) unrefLocked() {
	if h.refs--; h.refs == 0 {
		delete(client.handles, h.path)
		h.fdb.Close()
	}
}

// database is one Open of a cluster.
type database struct {
	handle        *handle
	commitTimeout time.Duration

	// closing ends when Close begins; it ends the goroutines of watches, which
	// watchers counts.
	closing  context.Context
	stop     context.CancelFunc
	watchers sync.WaitGroup

	// mu orders Begin and the start of a watch's goroutine before or after
	// Close, which takes it for writing.
	mu     sync.RWMutex
	closed bool
}

var _ kv.Database = (*database)(nil)

// Begin implements [kv.Database].
func (d *database) Begin() kv.Tx {
	t := &tx{db: d, version: -1}
	t.holdLocked() // nobody else has t yet
	return t
}

// transaction returns a C transaction as fresh as a new one.
func (d *database) transaction() (fdb.Transaction, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.closed {
		return fdb.Transaction{}, kv.ErrClosed
	}
	if tr, ok := d.handle.idle.Get().(fdb.Transaction); ok {
		return tr, nil
	}
	tr, err := d.handle.fdb.CreateTransaction()
	return tr, engineError(err)
}

// Close implements [kv.Database].
func (d *database) Close() error {
	d.mu.Lock()
	closed := d.closed
	d.closed = true
	d.mu.Unlock()
	if closed {
		return nil
	}
	d.stop()
	d.watchers.Wait()
	d.handle.release()
	return nil
}
