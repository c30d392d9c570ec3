package frontend

import (
	"io"
	"net/http"
	"strconv"

	"headwater/fdblayer"
	"headwater/keys"
)

// pathOffset parses the offset of a subresource's path. The sentinels name no
// position there (extensions 2.1: it came from Stream-Next-Offset).
func pathOffset(s string) (keys.Offset, error) {
	o, err := keys.ParseOffset(s)
	if err != nil {
		return o, refuse(fdblayer.CodeBadOffset, "the offset in the path is none this server gives out")
	}
	return o, nil
}

// publishMemory is what the store holds of a snapshot on its way in, about.
const publishMemory = 4 << 20

// publishSnapshot stores a snapshot (extensions 2.2). Its body goes through to
// the store as it arrives.
func (f *Frontend) publishSnapshot(x *exchange) error {
	h := x.r.Header
	pre, err := precondition(h)
	if err != nil {
		return err
	}
	offset, err := pathOffset(x.target.offset)
	if err != nil {
		return err
	}
	ctype, err := contentType(h)
	if err != nil {
		return err
	}
	if err := x.checkLength(f.opts.MaxSnapshotBytes); err != nil {
		return err
	}
	if err := x.checkEncoding(); err != nil {
		return err
	}
	var body io.Reader = http.NoBody
	if !x.bodyRead {
		body = x.paced()
		if err := x.reserve(publishMemory); err != nil {
			return err
		}
	}
	st, snap, err := f.store.PublishSnapshot(x.r.Context(), fdblayer.PublishRequest{
		ID: x.target.id, Precondition: pre, Offset: offset, ContentType: ctype,
		Body: body, MaxBytes: f.opts.MaxSnapshotBytes,
	})
	if err != nil {
		return err
	}
	out := x.header()
	out[hSnapshotOffset] = []string{snap.Offset.String()}
	out[hSnapshotDigest] = []string{snap.Digest}
	out[hIncarnation] = []string{st.Incarnation.String()}
	x.answer(http.StatusNoContent, nil)
	return nil
}

// readSnapshot answers with a snapshot (extensions 2.5).
func (f *Frontend) readSnapshot(x *exchange) error {
	pre, err := precondition(x.r.Header)
	if err != nil {
		return err
	}
	offset, err := pathOffset(x.target.offset)
	if err != nil {
		return err
	}
	s, err := f.store.OpenSnapshot(x.r.Context(), x.target.id, pre, offset)
	if err != nil {
		return err
	}
	defer s.Body.Close()
	h := x.header()
	h["Content-Type"] = []string{s.Snapshot.ContentType}
	h["Content-Length"] = []string{strconv.FormatInt(s.Snapshot.Size, 10)}
	h[hSnapshotOffset] = []string{s.Snapshot.Offset.String()}
	h[hSnapshotDigest] = []string{s.Snapshot.Digest}
	h[hNextOffset] = []string{s.Snapshot.Offset.String()}
	h[hIncarnation] = []string{s.Stream.Incarnation.String()}
	if s.Snapshot.Offset == s.Stream.Tail {
		h[hUpToDate] = headerTrue
	}
	x.begin(http.StatusOK)
	if x.r.Method == http.MethodHead {
		return nil
	}
	return x.stream(func() error {
		_, err := io.Copy(x, s.Body)
		return err
	})
}

// stream runs what writes a long body. An error cuts the connection, since the
// status has been sent: the client must not take what it got for the whole.
func (x *exchange) stream(write func() error) error {
	if err := write(); err != nil {
		x.tally.code = codeCut
		x.f.opts.Logger.WarnContext(x.r.Context(), "response cut short", "path", x.r.URL.EscapedPath(), "error", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}
