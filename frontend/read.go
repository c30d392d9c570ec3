package frontend

import (
	"net/http"

	"headwater/fdblayer"
	"headwater/jsontext"
)

// read answers a GET: catch-up, long-poll or SSE (PROTOCOL.md 5.6 to 5.8).
func (f *Frontend) read(x *exchange) error {
	q, err := parseQuery(x.r.URL.RawQuery, f.opts.MaxReadBytes)
	if err != nil {
		return err
	}
	pre, err := precondition(x.r.Header)
	if err != nil {
		return err
	}
	usual := asArray
	if x.target.bucketed {
		usual = asStored
	}
	wanted := negotiate(x.r.Header["Accept"], usual)
	req := fdblayer.ReadRequest{
		ID: x.target.id, Precondition: pre, From: q.from, MaxBytes: q.maxBytes,
		WholeMessages: wanted == asArray,
	}
	switch q.live {
	case longPoll:
		return f.longPoll(x, &q, req, wanted)
	case events:
		req.WholeRunes = true
		req.MaxBytes = min(req.MaxBytes, maxEventBytes)
		return f.events(x, &q, req, wanted)
	}
	p, err := f.store.Read(x.r.Context(), req)
	if err != nil {
		return err
	}
	x.describePiece(&p, wanted)
	return x.answerPiece(&q, &p, wanted)
}

// answerPiece answers with a piece that describePiece has described, or tells
// the client that it has it already. What "now" is changes all the time, so
// such a response has no tag and is not kept (PROTOCOL.md 8, 10.1).
func (x *exchange) answerPiece(q *readQuery, p *fdblayer.Piece, wanted form) error {
	if !q.from.Now {
		h := x.header()
		tag := etag(p, formOf(p, wanted))
		h["Etag"] = []string{tag}
		h["Cache-Control"] = []string{x.f.cacheControl(q, p)}
		if matches(x.r.Header["If-None-Match"], tag) {
			x.answer(http.StatusNotModified, nil)
			return nil
		}
	}
	size := int64(len(p.Data))
	if formOf(p, wanted) == asArray {
		size *= 2 // the text is copied
	}
	done, err := x.hold(size)
	if err != nil {
		return err
	}
	defer done()
	x.answer(http.StatusOK, encodePiece(p, wanted))
	return nil
}

// formOf returns the form that a piece will have: only JSON comes in two.
func formOf(p *fdblayer.Piece, wanted form) form {
	if !p.Stream.JSON() {
		return asStored
	}
	return wanted
}

// describePiece sets the headers of a response that carries a piece.
func (x *exchange) describePiece(p *fdblayer.Piece, wanted form) {
	h := x.header()
	x.setType(h, p, wanted)
	h[hNextOffset] = []string{p.Next.String()}
	h[hIncarnation] = []string{p.Stream.Incarnation.String()}
	if p.UpToDate {
		h[hUpToDate] = headerTrue
	}
	if p.Closed {
		h[hClosed] = headerTrue
	}
}

// setType sets Content-Type, and Vary where it could have been another.
func (x *exchange) setType(h http.Header, p *fdblayer.Piece, wanted form) {
	if !p.Stream.JSON() {
		h["Content-Type"] = []string{p.Stream.ContentType}
		return
	}
	h["Vary"] = varyAccept
	if wanted == asStored {
		h["Content-Type"] = ndjsonType
		return
	}
	h["Content-Type"] = []string{p.Stream.ContentType}
}

// encodePiece returns the body of a response that carries a piece.
func encodePiece(p *fdblayer.Piece, wanted form) []byte {
	if formOf(p, wanted) == asStored {
		return p.Data
	}
	return jsontext.AppendArray(make([]byte, 0, len(p.Data)+2), p.Data)
}
