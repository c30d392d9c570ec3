package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"headwater/fdblayer/kv"
)

const (
	// groupBytes and groupCommits end a group. A group's orders have 16 bits.
	groupBytes   = 8 << 20
	groupCommits = 1 << 15
	// queueCommits is how many commits may wait for the committer; more wait
	// for a place in the queue.
	queueCommits = 1 << 12
	// commitOverhead is what a queued commit holds besides its bytes.
	commitOverhead = 1 << 10
)

// commit is a transaction on its way to disk. The committer alone touches it
// from the time it took it until done is closed.
type commit struct {
	hasRead     bool // readVersion counts
	readVersion int64
	reads       []span
	writes      []span // conflicts besides those of log
	log         []mutation
	bytes       int

	state atomic.Int32
	// outcome
	version int64
	order   uint16
	err     error
	done    chan struct{}
}

// The states of a commit: the committer takes it, or its transaction takes it
// back, whoever comes first.
const (
	queued int32 = iota
	taken
	withdrawn
)

// Commit implements kv.Tx.
func (t *tx) Commit(ctx context.Context) error {
	a := t.cur.Load()
	c, watches, err := a.startCommit(ctx)
	if err == nil && c != nil {
		err = a.db.submit(ctx, c)
	}
	a.mu.Lock()
	if err == nil && c != nil {
		a.committed, a.stamp = c.version, makeStamp(c.version, c.order)
	}
	a.mu.Unlock()
	if err != nil {
		for _, w := range watches {
			a.db.watches.finish(w, err)
		}
		return err
	}
	a.db.arm(watches)
	return nil
}

// startCommit ends the attempt's use and returns what is to be committed, nil
// for a transaction that wrote nothing.
func (a *attempt) startCommit(ctx context.Context) (*commit, []*watch, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.usable()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx) // nothing was sent
	}
	if err == nil && a.size > kv.MaxTransactionSize {
		err = &kv.Error{Code: kv.CodeTransactionTooLarge}
	}
	if err == nil && len(a.reads) > 0 {
		_, err = a.readVersion()
	}
	if err != nil {
		if a.ended == nil {
			a.ended = errUsedInCommit
		}
		a.release(err)
		return nil, nil, err
	}
	a.ended = errUsedInCommit
	watches := a.watches
	a.watches = nil
	a.release(nil)
	if len(a.log) == 0 && len(a.writes) == 0 {
		return nil, watches, nil
	}
	return &commit{
		hasRead: a.hasVersion, readVersion: a.version,
		reads: a.reads, writes: a.writes, log: a.log, bytes: a.size + commitOverhead,
		done: make(chan struct{}),
	}, watches, nil
}

// submit queues c and waits for its outcome.
func (db *DB) submit(ctx context.Context, c *commit) error {
	if err := db.refusal(); err != nil {
		return err
	}
	if err := db.room.Acquire(ctx, int64(c.bytes)); err != nil {
		return context.Cause(ctx)
	}
	defer db.room.Release(int64(c.bytes))
	select {
	case db.queue <- c:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-db.closing:
		return kv.ErrClosed
	}
	bound := time.NewTimer(db.opts.CommitTimeout)
	defer bound.Stop()
	select {
	case <-c.done:
		return c.err
	case <-db.committerDone:
		select {
		case <-c.done:
			return c.err
		default:
			return kv.ErrClosed // never taken
		}
	case <-bound.C:
		if c.state.CompareAndSwap(queued, withdrawn) {
			return &kv.Error{Code: kv.CodeProcessBehind, Detail: "the commit queue does not move"}
		}
		return &kv.Error{Code: kv.CodeTransactionTimedOut, Detail: "the disk does not answer"}
	}
}

// committer is the goroutine that commits. Its fields are its own.
type committer struct {
	db      *DB
	history *history
	reserve int64
	group   []*commit
	written []span // by the group, with conflicts or not, to wake watches
}

func (m *committer) run() {
	defer close(m.db.committerDone)
	for {
		select {
		case c := <-m.db.queue:
			m.gather(c)
		case <-m.db.lowReserve:
			m.group = m.group[:0]
		case <-m.db.closing:
			// What is queued by now is committed; submit tells the rest.
			select {
			case c := <-m.db.queue:
				m.gather(c)
			default:
				return
			}
		}
		m.commit()
		clear(m.group)
		m.group = m.group[:0]
		clear(m.written)
		m.written = m.written[:0]
	}
}

// gather takes c and what waits behind it, up to a group.
func (m *committer) gather(c *commit) {
	bytes := 0
	for {
		if c.state.CompareAndSwap(queued, taken) {
			m.group = append(m.group, c)
			bytes += c.bytes
		}
		if len(m.group) >= groupCommits || bytes >= groupBytes {
			return
		}
		select {
		case c = <-m.db.queue:
		default:
			return
		}
	}
}

// commit carries the group to an outcome for each of its commits.
func (m *committer) commit() {
	if err := m.db.refusal(); err != nil {
		for _, c := range m.group {
			c.finish(err)
		}
		return
	}
	version := m.db.win.startWriting()
	m.history.forget(version - windowVersions)
	batch := m.newBatch()
	accepted := m.group[:0:0]
	for _, c := range m.group {
		if err := m.judge(c, version); err != nil {
			c.finish(err)
			continue
		}
		c.version, c.order = version, uint16(len(accepted))
		if err := m.write(batch, c); err != nil {
			// Half of c is in the batch, and what it read to get there failed.
			m.fail(fmt.Errorf("embedded: read for an atomic operation: %w", err), append(accepted, c))
			return
		}
		accepted = append(accepted, c)
	}
	reserve := m.reserve
	if version > reserve-reserveVersions/2 {
		reserve = version + reserveVersions
		must(batch.Set(reserveKey, binary.BigEndian.AppendUint64(nil, uint64(reserve)), nil))
	}
	if len(accepted) == 0 && batch.Empty() {
		m.db.win.stopWriting()
		must(batch.Close())
		return
	}
	if err := guard(func() error { return m.db.store.Apply(batch, pebble.Sync) }); err != nil {
		m.fail(fmt.Errorf("embedded: write the log: %w", err), accepted)
		return
	}
	m.reserve = reserve
	m.db.win.written(version, reserve)
	for _, c := range accepted {
		c.finish(nil)
	}
	must(batch.Close())
	if m.db.watches.armed.Load() > 0 {
		m.db.wake(m.written)
	}
}

// newBatch returns a batch for the group: an indexed one, which later atomic
// operations and clears can read the group's earlier writes from, only if there
// are any.
func (m *committer) newBatch() *pebble.Batch {
	for _, c := range m.group {
		for i := range c.log {
			if k := c.log[i].kind; k == atomicOp || k == clearRange {
				return m.db.store.NewIndexedBatch()
			}
		}
	}
	return m.db.store.NewBatch()
}

// judge decides whether c may commit at version.
func (m *committer) judge(c *commit, version int64) error {
	if !c.hasRead || len(c.reads) == 0 {
		return nil
	}
	if c.readVersion >= version {
		return &kv.Error{Code: kv.CodeFutureVersion}
	}
	if c.readVersion < m.history.oldest {
		return &kv.Error{Code: kv.CodeTransactionTooOld}
	}
	for _, r := range c.reads {
		if m.history.conflicts(r, c.readVersion) {
			return &kv.Error{Code: kv.CodeNotCommitted}
		}
	}
	return nil
}

// write puts c's writes into the batch and the history.
func (m *committer) write(batch *pebble.Batch, c *commit) error {
	stamp := makeStamp(c.version, c.order)
	for _, w := range c.log {
		s := pointSpan(w.key)
		var err error
		switch w.kind {
		case set:
			err = batch.Set(w.key, w.param, nil)
		case clearKey:
			err = batch.Delete(w.key, nil)
		case clearRange:
			s = span{w.key, w.param}
			if string(w.key) < string(w.param) {
				err = clearKeys(batch, w.key, w.param)
			}
		case stampedKey:
			s.begin = putStamp(w.key, stamp)
			err = batch.Set(s.begin, w.param, nil)
		case stampedValue:
			err = batch.Set(w.key, putStamp(w.param, stamp), nil)
		case atomicOp:
			err = modify(batch, w)
		}
		if err != nil {
			return err
		}
		m.written = append(m.written, s)
		if !w.quiet {
			m.history.add(s, c.version)
		}
	}
	for _, s := range c.writes {
		m.history.add(s, c.version)
	}
	return nil
}

// modify applies a read-modify-write to what the batch and the store hold. A
// Pebble merge operand, which needs no read, lost: the operations do not
// commute, so operands would pile up, and a reader would pay.
func modify(batch *pebble.Batch, w mutation) error {
	old, err := getCopy(batch, w.key)
	if err != nil {
		return err
	}
	value := applyAtomic(w.op, old, w.param)
	if value == nil {
		if old == nil {
			return nil
		}
		return batch.Delete(w.key, nil)
	}
	return batch.Set(w.key, value, nil)
}

// clearFew is the most keys of a range that are cleared one by one.
const clearFew = 128

// clearKeys clears the keys from begin to end. Few of them, the usual case of
// a small stream's ranges, are deleted one by one: the first read after a
// range deletion pays for every one that is still in the memtable, so that
// thousands of deleted streams made every read slow.
func clearKeys(batch *pebble.Batch, begin, end []byte) (err error) {
	iter, err := batch.NewIter(&pebble.IterOptions{LowerBound: begin, UpperBound: end})
	if err != nil {
		return err
	}
	var found [][]byte
	for ok := iter.First(); ok && len(found) <= clearFew; ok = iter.Next() {
		found = append(found, bytes.Clone(iter.Key()))
	}
	if err := iter.Close(); err != nil {
		return err
	}
	if len(found) > clearFew {
		return batch.DeleteRange(begin, end, nil)
	}
	for _, k := range found {
		if err := batch.Delete(k, nil); err != nil {
			return err
		}
	}
	return nil
}

func (c *commit) finish(err error) {
	c.err = err
	close(c.done)
}

// fail stops the engine. The outcome of what was in the batch is unknown: a log
// that failed to sync may have been written.
func (m *committer) fail(cause error, inDoubt []*commit) {
	m.db.stop(cause)
	unknown := fmt.Errorf("%w: %w", &kv.Error{Code: kv.CodeCommitUnknownResult}, cause)
	for _, c := range inDoubt {
		c.finish(unknown)
	}
	refused := m.db.refusal()
	for _, c := range m.group {
		select {
		case <-c.done:
		default:
			c.finish(refused)
		}
	}
}

// guard runs what writes to the store. Pebble reports a log that fails through
// its logger's Fatalf, which must not return, or by a panic of its own; both
// become an error here.
func guard(fn func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case error:
			err = r
		default:
			err = fmt.Errorf("%v", r)
		}
	}()
	return fn()
}

// must stands where an error is impossible: Pebble's batches fail only when
// they are used after they were closed.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// refusal returns why no commit can be taken, nil if one can.
func (db *DB) refusal() error {
	if e := db.failure.Load(); e != nil {
		return e
	}
	return nil
}

func (db *DB) stop(cause error) {
	if db.failure.CompareAndSwap(nil, &FailedError{cause}) {
		db.opts.Log.Error("embedded engine stopped", "dir", db.opts.Dir, "err", cause)
	}
}

// FailedError is what every commit and read gets after the engine stopped
// because its log could not be written. Open the directory anew once the cause
// is gone.
type FailedError struct{ Cause error }

func (e *FailedError) Error() string {
	return "embedded: the engine has stopped: " + e.Cause.Error()
}

// Unwrap gives it FoundationDB's code for the condition, io_error.
func (e *FailedError) Unwrap() []error { return []error{&kv.Error{Code: kv.CodeIOError}, e.Cause} }
