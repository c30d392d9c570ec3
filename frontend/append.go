package frontend

import (
	"net/http"
	"strconv"

	"headwater/fdblayer"
)

// append adds to a stream, closes it, or both (PROTOCOL.md 5.2, 5.3).
func (f *Frontend) append(x *exchange) error {
	req, err := x.decodeAppend()
	if err != nil {
		return err
	}
	if err := x.admit(); err != nil {
		return err
	}
	res, err := f.store.Append(x.r.Context(), req)
	if err != nil {
		return err
	}
	h := x.header()
	h[hNextOffset] = []string{res.Next.String()}
	h[hIncarnation] = []string{res.Incarnation.String()}
	if res.Closed {
		h[hClosed] = headerTrue
	}
	status := http.StatusNoContent
	if p := req.Producer; p != nil {
		h[hProducerEpoch] = []string{strconv.FormatUint(p.Epoch, 10)}
		h[hProducerSeq] = []string{strconv.FormatUint(res.ProducerSeq, 10)}
		if len(req.Body) > 0 && !res.Duplicate {
			status = http.StatusOK // 5.2.1: new data, where 204 means a duplicate
		}
	}
	x.answer(status, nil)
	return nil
}

func (x *exchange) decodeAppend() (fdblayer.AppendRequest, error) {
	h := x.r.Header
	req := fdblayer.AppendRequest{ID: x.target.id, Close: closes(h)}
	var err error
	if req.Precondition, err = precondition(h); err != nil {
		return req, err
	}
	if req.Producer, err = producer(h); err != nil {
		return req, err
	}
	if req.Seq, err = streamSeq(h); err != nil {
		return req, err
	}
	body, err := x.body()
	if err != nil {
		return req, err
	}
	if len(body) == 0 {
		// Content-Type is then not looked at: libraries add one by themselves.
		if !req.Close {
			return req, refuse(fdblayer.CodeEmptyBody, "an append needs a body, or Stream-Closed: true")
		}
		return req, nil
	}
	req.ContentType, err = contentType(h)
	switch {
	case err != nil:
		return req, err
	case req.ContentType == "":
		return req, refuse(codeMissingType, "an append needs a Content-Type")
	}
	var messages int
	if req.Body, messages, err = x.store(req.ContentType, body); err != nil {
		return req, err
	}
	if messages == 0 && fdblayer.MediaType(req.ContentType) == typeJSON {
		return req, refuse(codeEmptyArray, "an empty array holds no message")
	}
	return req, nil
}
