package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"headwater/fdblayer"
	"headwater/frontend"
)

// Purger removes a bucket for ever, see [fdblayer.Store.PurgeBucket].
type Purger interface {
	PurgeBucket(ctx context.Context, bucket string, progress func(removed int)) error
}

// Progress is one line of the answer to a purge. The last line has Done set,
// or Error; an answer that ends without either was cut off. A purge that did
// not get to Done is completed by another of the same bucket.
type Progress struct {
	Bucket string `json:"bucket"`
	// Removed is how many streams this purge has removed.
	Removed int    `json:"removed"`
	Done    bool   `json:"done,omitempty"`
	Error   string `json:"error,omitempty"`
}

const (
	// maxPurges is how many purges may be under way at a time.
	maxPurges = 4
	// lineTimeout is how long an operator may take to accept a line.
	lineTimeout = 10 * time.Second
)

// purge removes a bucket and tells how far it is (extensions 1.2).
func (p *Plane) purge(w http.ResponseWriter, r *http.Request) {
	bucket := r.PathValue("bucket")
	if bucket == "" {
		fail(w, http.StatusBadRequest, "invalid_bucket_id", "name a bucket: the base surface can't be purged")
		return
	}
	var refused *fdblayer.Error
	if err := frontend.CheckBucketID(bucket); errors.As(err, &refused) {
		fail(w, http.StatusBadRequest, refused.Code, refused.Detail)
		return
	}
	select {
	case p.purges <- struct{}{}:
		defer func() { <-p.purges }()
	default:
		w.Header().Set("Retry-After", "10")
		fail(w, http.StatusServiceUnavailable, fdblayer.CodeOverloaded, "too many purges are under way")
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	out := &lines{w: w, rc: http.NewResponseController(w)}
	log := p.opts.Logger.With("bucket", bucket)
	log.Warn("purging a bucket")
	last := Progress{Bucket: bucket}
	err := p.opts.Purger.PurgeBucket(ctx, bucket, func(removed int) {
		last.Removed = removed
		if err := out.write(last); err != nil {
			// Nobody watches any more: as if it had been interrupted.
			cancel(err)
		}
	})
	if err == nil {
		log.Warn("purged a bucket", "removed", last.Removed)
		last.Done = true
		_ = out.write(last) // the purge is done whether or not this arrives
		return
	}
	log.Error("a purge was cut off; run it again to complete it", "removed", last.Removed, "error", err)
	status, code, detail := describe(ctx, err)
	if !out.begun {
		fail(w, status, code, detail)
		return
	}
	last.Error = detail
	_ = out.write(last) // the end of the answer says the same
}

// describe returns what an operator is told of an error.
func describe(ctx context.Context, err error) (status int, code fdblayer.Code, detail string) {
	var e *fdblayer.Error
	switch {
	case errors.As(err, &e) && e.Code != fdblayer.CodeInternal:
		return http.StatusServiceUnavailable, e.Code, e.Detail
	case ctx.Err() != nil:
		return http.StatusServiceUnavailable, fdblayer.CodeDraining, "the purge was interrupted"
	}
	return http.StatusInternalServerError, fdblayer.CodeInternal, "an internal error; the log has more"
}

// lines is an answer in NDJSON.
type lines struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	begun bool
}

func (l *lines) write(line Progress) error {
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
		l.w.WriteHeader(http.StatusOK)
	}
	// A purge may take longer than any response is given; each line is not. A
	// writer without deadlines, such as a test's recorder, is not slow either.
	_ = l.rc.SetWriteDeadline(time.Now().Add(lineTimeout))
	b, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if _, err := l.w.Write(append(b, '\n')); err != nil {
		return err
	}
	return l.rc.Flush()
}
