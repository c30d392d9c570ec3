package frontend

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strconv"

	"headwater/bootstrap"
	"headwater/fdblayer"
)

// maxBootstrapBytes caps the update parts of one response (extensions 3.2).
const maxBootstrapBytes = 8 << 20

// bootstrap answers with the snapshot and the updates after it (extensions 3).
func (f *Frontend) bootstrap(x *exchange) error {
	if hasParameter(x.r.URL.RawQuery, "live") {
		return refuse(codeInvalidParameter, "bootstrap is one-shot; follow up with a live read")
	}
	pre, err := precondition(x.r.Header)
	if err != nil {
		return err
	}
	b, err := f.store.Bootstrap(x.r.Context(), x.target.id, pre, min(maxBootstrapBytes, f.opts.MaxReadBytes))
	if err != nil {
		return err
	}
	var snap *bootstrap.Snapshot
	if s := b.Snapshot; s != nil {
		defer s.Body.Close()
		snap = &bootstrap.Snapshot{ContentType: s.Snapshot.ContentType, Size: s.Snapshot.Size, Body: s.Body}
	}
	up := &b.Updates
	res, err := bootstrap.New(rand.Reader, snap, bootstrap.Updates{
		ContentType: up.Stream.ContentType, Messages: up.Stream.JSON(), Data: up.Data,
	})
	if err != nil {
		return fmt.Errorf("frontend: bootstrap: %w", err)
	}
	x.describeBootstrap(b)
	h := x.header()
	h["Content-Type"] = []string{res.ContentType()}
	h["Content-Length"] = []string{strconv.FormatInt(res.Len(), 10)}
	x.begin(http.StatusOK)
	if x.r.Method == http.MethodHead {
		return nil
	}
	return x.stream(func() error {
		_, err := res.WriteTo(x)
		return err
	})
}

func (x *exchange) describeBootstrap(b *fdblayer.Bootstrap) {
	h := x.header()
	h[hSnapshotOffset] = []string{"-1"}
	if b.Snapshot != nil {
		h[hSnapshotOffset] = []string{b.Snapshot.Snapshot.Offset.String()}
		h[hSnapshotDigest] = []string{b.Snapshot.Snapshot.Digest}
	}
	h[hNextOffset] = []string{b.Updates.Next.String()}
	h[hIncarnation] = []string{b.Updates.Stream.Incarnation.String()}
	if b.Updates.UpToDate {
		h[hUpToDate] = headerTrue
	}
	if b.Updates.Closed {
		h[hClosed] = headerTrue
	}
}
