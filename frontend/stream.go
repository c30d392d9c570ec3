package frontend

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"headwater/fdblayer"
)

// head answers with a stream's metadata (PROTOCOL.md 5.5, extensions 2.4).
func (f *Frontend) head(x *exchange) error {
	pre, err := precondition(x.r.Header)
	if err != nil {
		return err
	}
	st, snap, err := f.store.Head(x.r.Context(), x.target.id, pre)
	if err != nil {
		return err
	}
	h := x.header()
	describe(h, st)
	h[hRetainedOffset] = []string{st.Retained.String()}
	switch {
	case st.Expiry.HasTTL:
		h[hTTL] = []string{strconv.FormatUint(st.Expiry.TTL, 10)}
	case !st.Expiry.At.IsZero():
		h[hExpiresAt] = []string{st.Expiry.AtText}
	}
	if snap != nil {
		h[hSnapshotOffset] = []string{snap.Offset.String()}
		h[hSnapshotDigest] = []string{snap.Digest}
	}
	// No Content-Length: that of a GET is not known, and 0 would be wrong.
	x.begin(http.StatusOK)
	return nil
}

// remove deletes a stream (PROTOCOL.md 5.4).
func (f *Frontend) remove(x *exchange) error {
	pre, err := precondition(x.r.Header)
	if err != nil {
		return err
	}
	if err := f.store.Delete(x.r.Context(), x.target.id, pre); err != nil {
		return err
	}
	x.answer(http.StatusNoContent, nil)
	return nil
}

// retain moves the earliest retained offset (extensions 2.2).
func (f *Frontend) retain(x *exchange) error {
	pre, err := precondition(x.r.Header)
	if err != nil {
		return err
	}
	offset, err := pathOffset(x.target.offset)
	if err != nil {
		return err
	}
	st, err := f.store.Retain(x.r.Context(), x.target.id, pre, offset)
	if err != nil {
		return err
	}
	h := x.header()
	h[hRetainedOffset] = []string{st.Retained.String()}
	h[hNextOffset] = []string{st.Tail.String()}
	h[hIncarnation] = []string{st.Incarnation.String()}
	x.answer(http.StatusNoContent, nil)
	return nil
}

// createBucket validates a bucket id and changes nothing (extensions 1.2).
func (f *Frontend) createBucket(x *exchange) error {
	if x.target.kind == kindBucket {
		if err := checkBucket(x.target.id.Bucket); err != nil {
			return err
		}
	}
	x.header()["Location"] = []string{x.location()}
	x.answer(http.StatusCreated, nil)
	return nil
}

// health says that the process serves.
func (f *Frontend) health(x *exchange) error {
	x.ok()
	return nil
}

// readyTimeout bounds the store's answer to a readiness probe.
const readyTimeout = 2 * time.Second

// ready says whether requests should be sent here.
func (f *Frontend) ready(x *exchange) error {
	if f.draining.Load() {
		return &fdblayer.Error{Code: fdblayer.CodeDraining, Detail: "this frontend is shutting down", RetryAfter: time.Second}
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), readyTimeout)
	defer cancel()
	if err := f.store.Ready(ctx); err != nil {
		return &fdblayer.Error{Code: fdblayer.CodeUnavailable, Detail: "the store does not answer", RetryAfter: time.Second, Err: err}
	}
	x.ok()
	return nil
}

func (x *exchange) ok() {
	x.header()["Content-Type"] = []string{"text/plain; charset=utf-8"}
	x.answer(http.StatusOK, []byte("ok\n"))
}
