package fdblayer

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"time"

	"github.com/google/uuid"
	"lukechampine.com/blake3"

	"headwater/fdblayer/kv"
	"headwater/keys"
)

// snapshotPointer is the value of a snapshot key.
type snapshotPointer struct {
	snapshot Snapshot
	blob     keys.BlobID
	// owner is the incarnation the blob hangs under: this one, or the one a
	// fork has the snapshot from.
	owner keys.Incarnation
	// pinned says that a fork has this snapshot too: its blob then goes with
	// its owner, which forks keep, and not when it is superseded.
	pinned bool
}

func (p *snapshotPointer) public() *Snapshot {
	if p == nil {
		return nil
	}
	s := p.snapshot
	return &s
}

const snapshotFormat = 1

func (p *snapshotPointer) encode() []byte {
	b := append(make([]byte, 0, 160), snapshotFormat)
	b = append(b, p.snapshot.Offset[:]...)
	b = append(b, p.blob[:]...)
	b = append(b, p.owner[:]...)
	if p.pinned {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(p.snapshot.Size))
	b = appendString(b, p.snapshot.ContentType)
	return appendString(b, p.snapshot.Digest)
}

func decodeSnapshot(b []byte) (*snapshotPointer, error) {
	d := decoder{b: b}
	if d.byte() != snapshotFormat {
		return nil, errCorrupt
	}
	p := &snapshotPointer{}
	p.snapshot.Offset = keys.Offset(d.array16())
	p.blob = keys.BlobID(d.array16())
	p.owner = keys.Incarnation(d.array16())
	p.pinned = d.byte() == 1
	p.snapshot.Size = int64(d.uvarint())
	p.snapshot.ContentType = d.string()
	p.snapshot.Digest = d.string()
	return p, d.end()
}

// snapshotPointer reads the pointer to the visible snapshot, nil for none.
func (s *Store) snapshotPointer(ctx context.Context, tx kv.Reader, inc keys.Incarnation) (*snapshotPointer, error) {
	raw, err := tx.Get(s.space.Snapshot(inc)).Wait(ctx)
	if err != nil || raw == nil {
		return nil, err
	}
	return decodeSnapshot(raw)
}

// digest covers content type and body, so that neither can change unnoticed.
type digest struct{ h *blake3.Hasher }

func newDigest(contentType string) digest {
	h := blake3.New(32, nil)
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(contentType)))
	_, _ = h.Write(n[:])
	_, _ = io.WriteString(h, contentType)
	return digest{h}
}

func (d digest) String() string { return hex.EncodeToString(d.h.Sum(nil)) }

// PublishSnapshot stores a snapshot and makes it the visible one (extensions
// 2.2). The body is staged where nobody looks while it arrives; one small
// transaction publishes it. Appends go on meanwhile.
//
// That transaction reads the view, the snapshot pointer and the staging lease,
// and conflicts with changes of them. Witness: the pointer, whose blob id is
// this request's.
func (s *Store) PublishSnapshot(ctx context.Context, req PublishRequest) (Stream, Snapshot, error) {
	if req.ContentType == "" {
		req.ContentType = defaultContentType
	}
	inc, err := s.admitSnapshot(ctx, &req)
	if err != nil {
		return Stream{}, Snapshot{}, err
	}
	up := &upload{store: s, req: &req, incarnation: inc, digest: newDigest(req.ContentType)}
	if err := up.receive(ctx); err != nil {
		up.abandon(ctx)
		return Stream{}, Snapshot{}, err
	}
	st, snap, used, err := s.publish(ctx, &req, up)
	if !used && !isCode(err, CodeUnknownOutcome) {
		up.abandon(ctx)
	}
	return st, snap, err
}

// admitSnapshot refuses a publish before its body is read where that is
// certain, and returns the incarnation to stage it under.
func (s *Store) admitSnapshot(ctx context.Context, req *PublishRequest) (keys.Incarnation, error) {
	var inc keys.Incarnation
	err := s.read(ctx, func(ctx context.Context, tx kv.Tx) error {
		v, err := s.see(ctx, tx, req.ID, s.now())
		if err != nil {
			return err
		}
		cur, err := s.judgeSnapshot(ctx, tx, v, req)
		if err != nil {
			return err
		}
		// Where a snapshot is published at this offset already, only the body
		// tells whether that is a conflict, which then comes first (ext. 2.4).
		known := cur == nil || cur.snapshot.Offset != req.Offset
		if e := v.mismatch(req.Precondition); e != nil && known {
			return e
		}
		inc = v.meta.incarnation
		return nil
	})
	return inc, err
}

// judgeSnapshot refuses an offset a snapshot can't be published at, and
// returns the pointer there is now.
func (s *Store) judgeSnapshot(ctx context.Context, tx kv.Reader, v *seen, req *PublishRequest) (*snapshotPointer, error) {
	cur, err := s.snapshotPointer(ctx, tx, v.meta.incarnation)
	if err != nil {
		return nil, err
	}
	switch {
	case req.Offset.Less(v.meta.retained):
		o := v.refuse(errorf(CodeRetained, "the snapshot offset is before the earliest retained one"))
		o.err.Offset, o.err.HasOffset = v.meta.retained, true
		return cur, o.err
	case v.tail.Less(req.Offset):
		return cur, v.refuse(errorf(CodeSnapshotConflict, "the snapshot offset is beyond the tail")).err
	case cur != nil && req.Offset.Less(cur.snapshot.Offset):
		return cur, v.refuse(errorf(CodeSnapshotConflict, "a newer snapshot is published")).err
	}
	return cur, s.judgeBoundary(ctx, tx, v, req.Offset)
}

// upload is the body of a snapshot on its way in. A short one is kept and
// written by the publishing transaction itself.
type upload struct {
	store       *Store
	req         *PublishRequest
	incarnation keys.Incarnation
	digest      digest
	size        int64
	short       []byte
	staged      *staging
}

// receive reads the body to its end.
func (u *upload) receive(ctx context.Context) error {
	const window = stageChunks * blobChunk
	for {
		// Each window has a buffer of its own: the last ones are being written.
		buf := make([]byte, window)
		n, err := fill(u.req.Body, buf)
		u.size += int64(n)
		if u.size > u.req.MaxBytes {
			return errorf(CodeTooLarge, "a snapshot can't be longer than %d bytes", u.req.MaxBytes)
		}
		_, _ = u.digest.h.Write(buf[:n])
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return &Error{Code: CodeBodyRead, Detail: "the body ended early", Err: err}
		}
		if last && u.staged == nil {
			u.short = buf[:n]
			return nil
		}
		if u.staged == nil {
			if u.staged, err = u.store.stage(ctx, u.incarnation); err != nil {
				return err
			}
		}
		if n > 0 {
			if err := u.staged.write(ctx, buf[:n]); err != nil {
				_ = u.staged.settle()
				return err
			}
		}
		if last {
			return u.staged.settle()
		}
	}
}

// fill reads until buf is full or r ends. Unlike [io.ReadFull] it does not say
// io.ErrUnexpectedEOF where r just ends: that is what a body that was cut says
// of itself, and a cut body must not pass for a whole one.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = r.Read(buf[n:])
		n += m
	}
	return n, err
}

func (u *upload) abandon(ctx context.Context) {
	if u.staged != nil {
		u.staged.abandon(ctx)
	}
}

// publish is the transaction that makes an upload visible. used is false where
// an equal snapshot was there already.
func (s *Store) publish(ctx context.Context, req *PublishRequest, up *upload) (st Stream, snap Snapshot, used bool, err error) {
	ptr := &snapshotPointer{blob: keys.BlobID(uuid.New())}
	if up.staged != nil {
		ptr.blob = up.staged.id
	}
	ptr.snapshot = Snapshot{Offset: req.Offset, ContentType: req.ContentType, Digest: up.digest.String(), Size: up.size}
	_, err = s.transact(ctx, func(ctx context.Context, tx kv.Tx, at kv.Attempt) error {
		used = false
		v, err := s.see(ctx, tx, req.ID, s.now())
		if err != nil {
			return err
		}
		cur, err := s.judgeSnapshot(ctx, tx, v, req)
		if cur != nil && at.Unknown && cur.blob == ptr.blob {
			st, snap, used = v.stream(), cur.snapshot, true
			return nil
		}
		if err != nil {
			return err
		}
		same := cur != nil && cur.snapshot.Offset == req.Offset
		if same && cur.snapshot.Digest != ptr.snapshot.Digest {
			return v.refuse(errorf(CodeSnapshotConflict, "another snapshot is published at this offset")).err
		}
		if e := v.mismatch(req.Precondition); e != nil {
			return e
		}
		st, snap = v.stream(), ptr.snapshot
		if same {
			snap = cur.snapshot
			return nil
		}
		if v.meta.incarnation != up.incarnation {
			return v.refuse(errorf(CodeSnapshotConflict, "the stream was replaced during the upload")).err
		}
		used = true
		return s.writeSnapshot(ctx, tx, v, ptr, cur, up)
	})
	return st, snap, used, err
}

func (s *Store) writeSnapshot(ctx context.Context, tx kv.Tx, v *seen, ptr, old *snapshotPointer, up *upload) error {
	inc := v.meta.incarnation
	if up.staged != nil {
		if err := up.staged.hold(ctx, tx, nil); err != nil {
			return err
		}
		tx.Clear(up.staged.lease)
	}
	for i, rest := uint32(0), up.short; len(rest) > 0; i++ {
		n := min(len(rest), blobChunk)
		tx.Set(s.space.Blob(inc, ptr.blob, i), rest[:n])
		rest = rest[n:]
	}
	ptr.owner = inc
	tx.Set(s.space.Snapshot(inc), ptr.encode())
	if old != nil && old.owner == inc && !old.pinned {
		s.clearLater(tx, [16]byte(old.blob), kv.Range(s.space.BlobRange(inc, old.blob)), s.now().Add(s.opts.SnapshotGrace))
	}
	return nil
}

// OpenSnapshot opens the visible snapshot if it is at offset (extensions 2.5).
// It renews a sliding TTL.
func (s *Store) OpenSnapshot(ctx context.Context, id StreamID, pre Precondition, offset keys.Offset) (*SnapshotBody, error) {
	var body *SnapshotBody
	caller := ctx // the transaction's own context ends with it
	err := s.visit(ctx, id, func(ctx context.Context, tx kv.Tx, now time.Time) (*view, error) {
		v, err := s.see(ctx, tx, id, now)
		if err != nil {
			return nil, err
		}
		p, err := s.snapshotPointer(ctx, tx, v.meta.incarnation)
		if err != nil {
			return nil, err
		}
		if p == nil || p.snapshot.Offset != offset {
			return nil, v.refuse(errorf(CodeSnapshotNotFound, "no snapshot is visible at this offset")).err
		}
		if e := v.mismatch(pre); e != nil {
			return nil, e
		}
		body = &SnapshotBody{Stream: v.stream(), Snapshot: p.snapshot}
		body.Body = s.openBlob(caller, p)
		return v.view, nil
	})
	return body, err
}

// openBlob returns a reader of a snapshot's body for as long as ctx lasts.
func (s *Store) openBlob(ctx context.Context, p *snapshotPointer) *blobReader {
	return &blobReader{ctx: ctx, store: s, incarnation: p.owner, id: p.blob, size: p.snapshot.Size}
}

// Bootstrap returns the snapshot and up to maxBytes of the updates after it,
// for a JSON stream whole messages and at least one (extensions 3). All of its
// metadata come from one read version. It renews a sliding TTL.
func (s *Store) Bootstrap(ctx context.Context, id StreamID, pre Precondition, maxBytes int) (*Bootstrap, error) {
	var out *Bootstrap
	caller := ctx
	err := s.visit(ctx, id, func(ctx context.Context, tx kv.Tx, now time.Time) (*view, error) {
		v, err := s.see(ctx, tx, id, now)
		if err != nil {
			return nil, err
		}
		if e := v.mismatch(pre); e != nil {
			return nil, e
		}
		p, err := s.snapshotPointer(ctx, tx, v.meta.incarnation)
		if err != nil {
			return nil, err
		}
		b := &Bootstrap{}
		req := ReadRequest{ID: id, From: From{Offset: v.meta.retained}, MaxBytes: maxBytes, WholeMessages: true}
		if p != nil {
			req.From.Offset = p.snapshot.Offset
			b.Snapshot = &SnapshotBody{Stream: v.stream(), Snapshot: p.snapshot, Body: s.openBlob(caller, p)}
		}
		b.Updates, err = s.piece(ctx, tx, v, req)
		out = b
		return v.view, err
	})
	return out, err
}
