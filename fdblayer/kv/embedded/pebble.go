package embedded

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// pebbleOptions are for appends: values of up to 64 kB under keys that mostly
// grow, read back in order, on a machine of few cores.
func (db *DB) pebbleOptions() *pebble.Options {
	o := &pebble.Options{
		FS:        db.opts.FS,
		CacheSize: db.opts.CacheBytes,
		// Pinned, so that a new Pebble does not make a directory unreadable for
		// the release before.
		FormatMajorVersion: pebble.FormatWALSyncChunks,

		MemTableSize:                db.opts.MemTableBytes,
		MemTableStopWritesThreshold: 4,
		// Large groups reach the disk while they are written, so that the sync
		// that ends them has less to wait for.
		WALBytesPerSync: 512 << 10,

		// Reads are mostly of what is recent: let L0 gather before it is
		// compacted, and never stop writes for it.
		L0CompactionThreshold: 4,
		L0StopWritesThreshold: 1000,
		LBaseMaxBytes:         128 << 20,
		// One compaction, two when it falls behind: the other core commits.
		CompactionConcurrencyRange: func() (lower, upper int) { return 1, 2 },
		// A cleared stream gives its space back though nothing else is written.
		FlushDelayDeleteRange: 10 * time.Second,

		Logger:        &logger{db},
		EventListener: db.listener(),
	}
	for i := range o.Levels {
		l := &o.Levels[i]
		// Records are large, and ranges are read in order.
		l.BlockSize = 32 << 10
		l.IndexBlockSize = 256 << 10
		// Point reads are often of keys that are absent: fences, producers.
		l.FilterPolicy = bloom.FilterPolicy(10)
	}
	return o
}

// slowDisk is how long one operation on a file may take before it is logged.
const slowDisk = 5 * time.Second

// watchedFS is the operating system's file system, with a watch on its speed.
// Pebble would wrap it by itself, but leaks the watch's goroutine where it then
// fails to open.
func watchedFS(log *slog.Logger, dir string) (vfs.FS, io.Closer) {
	return vfs.WithDiskHealthChecks(vfs.Default, slowDisk, nil, func(d vfs.DiskSlowInfo) {
		log.Warn("embedded engine: the disk is slow", "dir", dir, "path", d.Path, "op", d.OpType.String(), "took", d.Duration)
	})
}

// listener passes on what an operator should know.
func (db *DB) listener() *pebble.EventListener {
	log := db.opts.Log.With("dir", db.opts.Dir)
	return &pebble.EventListener{
		BackgroundError: func(err error) { log.Error("embedded engine: background work failed", "err", err) },
		DataCorruption: func(c pebble.DataCorruptionInfo) {
			log.Error("embedded engine: corrupt data", "path", c.Path, "err", c.Details)
		},
		WriteStallBegin: func(i pebble.WriteStallBeginInfo) {
			log.Warn("embedded engine: commits wait for compactions", "reason", i.Reason)
		},
		WriteStallEnd: func() { log.Info("embedded engine: commits go on") },
	}
}

// logger takes Pebble's own messages: its running commentary is of no use here.
type logger struct{ db *DB }

func (l *logger) Infof(string, ...any) {}

func (l *logger) Errorf(format string, args ...any) {
	l.db.opts.Log.Error("pebble", "message", fmt.Sprintf(format, args...), "dir", l.db.opts.Dir)
}

// Fatalf must not return. Where the committer called it, the engine stops and
// goes on answering reads. Where Pebble's background work did, it could not
// write its manifest and cannot go on: the process ends.
func (l *logger) Fatalf(format string, args ...any) {
	var cause error
	for _, a := range args {
		if err, ok := a.(error); ok {
			cause = err
		}
	}
	err := &fatalError{fmt.Sprintf(format, args...), cause}
	l.db.stop(err)
	panic(err)
}

type fatalError struct {
	msg   string
	cause error
}

func (e *fatalError) Error() string { return e.msg }
func (e *fatalError) Unwrap() error { return e.cause }

// closeGrace bounds how long a store that failed may take to close: Pebble may
// have been left with a lock held.
const closeGrace = 5 * time.Second

// closeStore closes what is open, also after an Open that failed half-way.
func (db *DB) closeStore() error {
	var err error
	switch {
	case db.store == nil:
	case db.failure.Load() == nil:
		err = db.store.Close()
	default:
		err = db.closeFailed()
	}
	if db.disk != nil {
		err = errors.Join(err, db.disk.Close())
	}
	return err
}

// closeFailed waits for the close for closeGrace only; a store that hangs keeps
// the goroutine, and the directory, until the process ends.
func (db *DB) closeFailed() error {
	done := make(chan error, 1)
	go func() { done <- guard(db.store.Close) }()
	t := time.NewTimer(closeGrace)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		return errors.New("embedded: the failed store does not close; end the process")
	}
}
