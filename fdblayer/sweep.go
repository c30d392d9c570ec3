package fdblayer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"time"

	"headwater/fdblayer/kv"
	"headwater/keys"
)

// Background work runs on every frontend, under one lease in the database, so
// that one of them does it at a time and a killed one is replaced within a
// lease. Each item is a transaction that looks again before it acts, so a
// lease that is lost in the middle does no harm.
const (
	sweepLease = 10 * time.Second
	// sweepItems is the most items of a kind one round takes on.
	sweepItems = 256
	// witnessAge is how old a frontend's witness must be to be dropped. Far
	// beyond the time a commit's outcome can be in doubt.
	witnessAge      = 24 * time.Hour
	witnessInterval = time.Hour
	// versionsPerSecond is the rate at which versions advance.
	versionsPerSecond = 1_000_000
)

// sweep is the background work of one frontend until the store's context ends.
func (s *Store) sweep() {
	var witnesses time.Time
	for {
		pause := s.opts.SweepInterval
		held, err := s.takeLease(s.ctx, "sweep")
		switch {
		case err != nil:
			s.logSweep("lease", err)
		case !held:
			pause = max(pause, sweepLease/2)
		default:
			s.logSweep("expiry", s.reap(s.ctx))
			s.logSweep("gc", s.collectGarbage(s.ctx))
			if now := s.now(); now.Sub(witnesses) > witnessInterval {
				witnesses = now
				s.logSweep("witnesses", s.dropWitnesses(s.ctx))
			}
		}
		t := time.NewTimer(pause)
		select {
		case <-s.ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

func (s *Store) logSweep(what string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		s.opts.Logger.Warn("background work failed; it will be tried again", "work", what, "error", err)
	}
}

// takeLease takes or renews a lease; held is false while another frontend has it.
func (s *Store) takeLease(ctx context.Context, name string) (held bool, err error) {
	key := s.space.Lease(name)
	_, err = s.transact(ctx, func(ctx context.Context, tx kv.Tx, _ kv.Attempt) error {
		now := s.now()
		raw, err := tx.Get(key).Wait(ctx)
		if err != nil {
			return err
		}
		mine := len(raw) == 24 && [16]byte(raw) == s.frontend
		until := time.Time{}
		if len(raw) == 24 {
			until = time.UnixMilli(int64(binary.BigEndian.Uint64(raw[16:])))
		}
		held = mine || !now.Before(until)
		if held && (!mine || until.Sub(now) < sweepLease/2) {
			v := binary.BigEndian.AppendUint64(append([]byte(nil), s.frontend[:]...), uint64(now.Add(sweepLease).UnixMilli()))
			tx.Set(key, v)
		}
		return nil
	})
	return held, err
}

// due returns up to sweepItems rows of a time-ordered index.
func (s *Store) due(ctx context.Context, r keys.Range) ([]kv.KeyValue, error) {
	var out []kv.KeyValue
	err := s.read(ctx, func(ctx context.Context, tx kv.Tx) error {
		out = out[:0]
		tx.SetPriorityBatch()
		return kv.Each(ctx, tx.Snapshot(), kv.Range(r), kv.RangeOptions{Limit: sweepItems}, func(row kv.KeyValue) error {
			out = append(out, row)
			return nil
		})
	})
	return out, err
}

// reap looks at the streams whose time may have come.
func (s *Store) reap(ctx context.Context) error {
	rows, err := s.due(ctx, s.space.ExpiryUntil(s.now()))
	if err != nil {
		return err
	}
	for _, row := range rows {
		if err := s.reapOne(ctx, row); err != nil {
			return err
		}
	}
	return nil
}

// reapOne removes the stream an index entry names if it has expired, hides it
// if forks depend on it, and moves the entry if it lives on.
//
// Conflict set: the entry, the meta key, the last access, the forks.
func (s *Store) reapOne(ctx context.Context, row kv.KeyValue) error {
	_, bucket, stream, err := s.space.ParseExpiry(row.Key)
	if err != nil {
		return err
	}
	id := StreamID{Bucket: bucket, Stream: stream}
	var gone keys.Incarnation
	_, err = s.transact(ctx, func(ctx context.Context, tx kv.Tx, _ kv.Attempt) error {
		tx.SetPriorityBatch()
		gone = keys.Incarnation{}
		entry, err := tx.Get(row.Key).Wait(ctx)
		if err != nil || entry == nil {
			return err
		}
		tx.Clear(row.Key)
		now := s.now()
		v, err := s.look(ctx, tx, id, now)
		if err != nil {
			return err
		}
		switch {
		case v.meta == nil || v.meta.softDeleted || !bytes.Equal(entry, v.meta.incarnation[:]):
		case !v.expired(now):
			s.indexExpiry(tx, id, v.meta, lastTouch(v.meta, v.touched))
		case v.hasForks:
			gone = v.meta.incarnation
			s.hide(tx, id, v.meta)
		default:
			gone = v.meta.incarnation
			return s.remove(ctx, tx, id, v.meta)
		}
		return nil
	})
	if err == nil {
		s.hub.kick(gone)
	}
	return err
}

// clearLater leaves the sweeper a range to clear at a time.
func (s *Store) clearLater(tx kv.Tx, id [16]byte, r kv.Range, due time.Time) {
	tx.Set(s.space.GC(due, id), encodeClear(r))
}

func encodeClear(r kv.Range) []byte {
	return appendString(appendString(nil, string(r.Begin)), string(r.End))
}

func decodeClear(b []byte) (kv.Range, error) {
	d := decoder{b: b}
	r := kv.Range{Begin: []byte(d.string()), End: []byte(d.string())}
	return r, d.end()
}

// collectGarbage carries out the deferred clears that are due.
func (s *Store) collectGarbage(ctx context.Context) error {
	rows, err := s.due(ctx, s.space.GCUntil(s.now()))
	if err != nil {
		return err
	}
	for _, row := range rows {
		r, err := decodeClear(row.Value)
		if err != nil {
			return err
		}
		_, err = s.transact(ctx, func(ctx context.Context, tx kv.Tx, _ kv.Attempt) error {
			tx.SetPriorityBatch()
			// A staging that renews or ends its lease clears this key.
			held, err := tx.Get(row.Key).Wait(ctx)
			if err != nil || held == nil {
				return err
			}
			tx.ClearRange(r)
			tx.Clear(row.Key)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// dropWitnesses removes the witnesses of frontends that are long gone.
func (s *Store) dropWitnesses(ctx context.Context) error {
	_, err := s.transact(ctx, func(ctx context.Context, tx kv.Tx, _ kv.Attempt) error {
		tx.SetPriorityBatch()
		version, err := tx.ReadVersion(ctx)
		if err != nil {
			return err
		}
		oldest := version - int64(witnessAge/time.Second)*versionsPerSecond
		return kv.Each(ctx, tx, kv.Range(s.space.BatchRange()), kv.RangeOptions{Limit: 10_000}, func(row kv.KeyValue) error {
			if len(row.Value) == witnessLen && int64(binary.BigEndian.Uint64(row.Value[8:])) < oldest {
				tx.Clear(row.Key)
			}
			return nil
		})
	})
	return err
}
