package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/semaphore"

	"headwater/fdblayer/kv"
)

// Options configure an engine. The zero value of each field but Dir is a good
// choice.
type Options struct {
	// Dir is the directory of the store. It is made if it does not exist.
	Dir string
	// InMemory keeps the store in memory: nothing is synced and nothing lasts.
	// Dir is not used.
	InMemory bool
	// CacheBytes bounds the cache of blocks read from disk; 64 MiB by default.
	CacheBytes int64
	// MemTableBytes is the size of a memtable, of which up to 4 exist; 32 MiB by
	// default.
	MemTableBytes uint64
	// QueueBytes bounds the transactions that wait to be committed; 64 MiB by
	// default.
	QueueBytes int64
	// HistoryBytes bounds what is kept to judge conflicts; 256 MiB by default.
	// When it is full, transactions grow too old before they are 5 s old.
	HistoryBytes int
	// MaxWatches bounds the watches that exist at a time; 1,000,000 by default.
	MaxWatches int
	// CommitTimeout bounds the wait for the outcome of a commit; 30 s by default.
	CommitTimeout time.Duration
	// Log takes what an operator should know; slog.Default by default.
	Log *slog.Logger
	// Now is the clock; time.Now by default.
	Now func() time.Time
	// FS is the file system, so that tests can fault it; the operating system's
	// by default.
	FS vfs.FS
}

func (o *Options) setDefaults() error {
	if o.InMemory {
		o.Dir, o.FS = "memory", vfs.NewMem()
	}
	if o.Dir == "" {
		return errors.New("embedded: Dir is empty")
	}
	setDefault(&o.CacheBytes, 64<<20)
	setDefault(&o.MemTableBytes, 32<<20)
	setDefault(&o.QueueBytes, 64<<20)
	setDefault(&o.HistoryBytes, 256<<20)
	setDefault(&o.MaxWatches, 1_000_000)
	setDefault(&o.CommitTimeout, 30*time.Second)
	// One transaction of the greatest size must fit.
	o.QueueBytes = max(o.QueueBytes, kv.MaxTransactionSize+commitOverhead)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return nil
}

func setDefault[T int | int64 | uint64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Errors of Open, to be told apart with errors.Is.
var (
	// ErrLocked says that the directory is open already, here or elsewhere.
	ErrLocked = errors.New("embedded: the directory is in use by another engine")
	// ErrNewerFormat says that a newer release wrote the directory.
	ErrNewerFormat = errors.New("embedded: the directory was written by a newer release")
	// ErrForeign says that the directory holds something else.
	ErrForeign = errors.New("embedded: the path holds no store of this engine")
)

// formatVersion is the layout of the store's own keys and the meaning of user
// keys. Raise it when an older release must not open the directory.
const formatVersion = 1

// firstVersion of a new store leaves room below for versions that are too old.
const firstVersion = 10 * windowVersions

// The engine's own keys, past user space.
var (
	formatKey  = []byte("\xffformat")
	reserveKey = []byte("\xffreserve")
)

// DB is an open engine; it is a kv.Database.
type DB struct {
	opts    Options
	store   *pebble.DB
	win     *window
	watches *registry

	queue chan *commit
	// room bounds the bytes of the commits that are queued or under way.
	room *semaphore.Weighted
	// lowReserve asks the committer to reserve versions though nothing commits.
	lowReserve    chan struct{}
	closing       chan struct{}
	committerDone chan struct{}
	failure       atomic.Pointer[FailedError]

	disk      io.Closer // of a file system that Open made; nil else
	closeOnce sync.Once
	closeErr  error
}

// Open opens the store in opts.Dir, or makes it. The caller closes it.
func Open(ctx context.Context, opts Options) (*DB, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := opts.setDefaults(); err != nil {
		return nil, err
	}
	var disk io.Closer
	if opts.FS == nil {
		opts.FS, disk = watchedFS(opts.Log, opts.Dir)
	}
	db := &DB{
		opts: opts, disk: disk, watches: newRegistry(opts.MaxWatches),
		queue: make(chan *commit, queueCommits), room: semaphore.NewWeighted(opts.QueueBytes),
		lowReserve: make(chan struct{}, 1), closing: make(chan struct{}), committerDone: make(chan struct{}),
	}
	m, err := db.open()
	if err != nil {
		return nil, errors.Join(err, db.closeStore())
	}
	go m.run()
	return db, nil
}

func (db *DB) open() (m *committer, err error) {
	if err := checkDir(db.opts.FS, db.opts.Dir); err != nil {
		return nil, err
	}
	err = guard(func() (err error) {
		db.store, err = pebble.Open(db.opts.Dir, db.pebbleOptions())
		return err
	})
	if err != nil {
		return nil, openError(db.opts.Dir, err)
	}
	err = guard(func() (err error) {
		m, err = db.start()
		return err
	})
	return m, err
}

// checkDir refuses what Pebble would misread or report in its own words.
func checkDir(files vfs.FS, dir string) error {
	st, err := files.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("embedded: open %s: %w", dir, err)
	}
	if !st.IsDir() {
		return fmt.Errorf("%w: %s is a file", ErrForeign, dir)
	}
	return nil
}

func openError(dir string, err error) error {
	// Pebble and its vfs have no typed errors for these.
	switch msg := err.Error(); {
	case strings.Contains(msg, "lock held by current process"),
		strings.Contains(msg, "resource temporarily unavailable"):
		return fmt.Errorf("%w: %s: %w", ErrLocked, dir, err)
	case strings.Contains(msg, "unknown format major version"):
		return fmt.Errorf("%w: %s: %w", ErrNewerFormat, dir, err)
	}
	return fmt.Errorf("embedded: open %s: %w", dir, err)
}

// start checks the format, reserves versions and publishes the first one.
func (db *DB) start() (*committer, error) {
	base, err := db.prepareStore()
	if err != nil {
		return nil, err
	}
	reserve := base + reserveVersions
	err = db.store.Set(reserveKey, binary.BigEndian.AppendUint64(nil, uint64(reserve)), pebble.Sync)
	if err != nil {
		return nil, fmt.Errorf("embedded: reserve versions: %w", err)
	}
	began := db.opts.Now()
	db.win = &window{
		store: db.store, thin: thinVersions, reserve: reserve,
		now:   func() int64 { return base + db.opts.Now().Sub(began).Microseconds() },
		nudge: db.askReserve, failed: db.refusal,
	}
	db.win.publish(base, db.store.NewSnapshot())
	return &committer{db: db, history: newHistory(base, db.opts.HistoryBytes), reserve: reserve}, nil
}

// thinVersions is window.thin: about a version each 0.3 ms over 5 s.
const thinVersions = 1 << 14

func (db *DB) askReserve() {
	select {
	case db.lowReserve <- struct{}{}:
	default:
	}
}

// prepareStore checks that the store is ours, makes it so if it is new, and
// returns the first version that was never handed out.
func (db *DB) prepareStore() (int64, error) {
	format, err := getCopy(db.store, formatKey)
	if err != nil {
		return 0, fmt.Errorf("embedded: read the format: %w", err)
	}
	if format == nil {
		return firstVersion, db.initStore()
	}
	if len(format) != 4 {
		return 0, fmt.Errorf("%w: %s has a malformed format key", ErrForeign, db.opts.Dir)
	}
	if v := binary.BigEndian.Uint32(format); v > formatVersion {
		return 0, fmt.Errorf("%w: %s has format %d, this release knows %d", ErrNewerFormat, db.opts.Dir, v, formatVersion)
	}
	reserve, err := getCopy(db.store, reserveKey)
	if err != nil {
		return 0, fmt.Errorf("embedded: read the reserved versions: %w", err)
	}
	if reserve == nil {
		return firstVersion, nil // the first start ended between its two writes
	}
	if len(reserve) != 8 {
		return 0, fmt.Errorf("%w: %s has a malformed reserve key", ErrForeign, db.opts.Dir)
	}
	return int64(binary.BigEndian.Uint64(reserve)) + 1, nil
}

func (db *DB) initStore() error {
	iter, err := db.store.NewIter(nil)
	if err != nil {
		return fmt.Errorf("embedded: look into the store: %w", err)
	}
	foreign := iter.First()
	if err := errors.Join(iter.Error(), iter.Close()); err != nil {
		return fmt.Errorf("embedded: look into the store: %w", err)
	}
	if foreign {
		return fmt.Errorf("%w: %s is another Pebble store", ErrForeign, db.opts.Dir)
	}
	err = db.store.Set(formatKey, binary.BigEndian.AppendUint32(nil, formatVersion), pebble.Sync)
	if err != nil {
		return fmt.Errorf("embedded: write the format: %w", err)
	}
	return nil
}

// Close commits what was submitted, ends the watches and closes the store. It
// may be called more than once.
func (db *DB) Close() error {
	db.closeOnce.Do(func() {
		close(db.closing)
		<-db.committerDone
		db.watches.close()
		db.win.close()
		db.closeErr = db.closeStore()
	})
	return db.closeErr
}
