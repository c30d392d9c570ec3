package frontend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"headwater/fdblayer"
)

// Codes of requests that never reach the store. Like those of fdblayer they are
// part of the interface.
const (
	codePathNotFound     fdblayer.Code = "path_not_found"
	codeReservedPath     fdblayer.Code = "path_reserved"
	codeInvalidPath      fdblayer.Code = "invalid_path"
	codeInvalidBucket    fdblayer.Code = "invalid_bucket_id"
	codeInvalidStreamID  fdblayer.Code = "invalid_stream_id"
	codeMethod           fdblayer.Code = "method_not_allowed"
	codeInvalidHeader    fdblayer.Code = "invalid_header"
	codeInvalidExpiry    fdblayer.Code = "invalid_expiry"
	codeInvalidProducer  fdblayer.Code = "invalid_producer"
	codeInvalidToken     fdblayer.Code = "invalid_incarnation"
	codeInvalidParameter fdblayer.Code = "invalid_parameter"
	codeMissingType      fdblayer.Code = "content_type_missing"
	codeInvalidType      fdblayer.Code = "invalid_content_type"
	codeContentEncoding  fdblayer.Code = "unsupported_content_encoding"
	codeInvalidJSON      fdblayer.Code = "invalid_json"
	codeEmptyArray       fdblayer.Code = "empty_array"
	codeBodyTimeout      fdblayer.Code = "body_timeout"
	codeTooManyRequests  fdblayer.Code = "too_many_requests"
	codeClientClosed     fdblayer.Code = "client_closed_request"
	// The next two are refused by net/http itself, see refusal.go.
	codeMalformedRequest fdblayer.Code = "malformed_request"
	codeHeaderTooLarge   fdblayer.Code = "header_too_large"
)

// statusClientClosed is what the log says of a request whose client went away.
const statusClientClosed = 499

// statuses is the error table: what status a code is answered with. A code
// without a row is a fault of this program (see the test).
var statuses = map[fdblayer.Code]int{
	codeMalformedRequest:           http.StatusBadRequest,
	codeHeaderTooLarge:             http.StatusRequestHeaderFieldsTooLarge,
	fdblayer.CodeNotFound:          http.StatusNotFound,
	fdblayer.CodeSourceNotFound:    http.StatusNotFound,
	fdblayer.CodeSoftDeleted:       http.StatusGone,
	fdblayer.CodeRetained:          http.StatusGone,
	fdblayer.CodeOffsetBeyondTail:  http.StatusRequestedRangeNotSatisfiable,
	fdblayer.CodeBadOffset:         http.StatusBadRequest,
	fdblayer.CodeExists:            http.StatusConflict,
	fdblayer.CodePathDeleted:       http.StatusConflict,
	fdblayer.CodeSourceDeleted:     http.StatusConflict,
	fdblayer.CodeForkConflict:      http.StatusConflict,
	fdblayer.CodeBadFork:           http.StatusBadRequest,
	fdblayer.CodeClosed:            http.StatusConflict,
	fdblayer.CodeContentType:       http.StatusConflict,
	fdblayer.CodeSequence:          http.StatusConflict,
	fdblayer.CodeStaleEpoch:        http.StatusForbidden,
	fdblayer.CodeEpochStart:        http.StatusBadRequest,
	fdblayer.CodeProducerGap:       http.StatusConflict,
	fdblayer.CodeIncarnation:       http.StatusPreconditionFailed,
	fdblayer.CodeSnapshotNotFound:  http.StatusNotFound,
	fdblayer.CodeSnapshotConflict:  http.StatusConflict,
	fdblayer.CodeRetentionConflict: http.StatusConflict,
	fdblayer.CodeTooLarge:          http.StatusRequestEntityTooLarge,
	fdblayer.CodeEmptyBody:         http.StatusBadRequest,
	fdblayer.CodeBodyRead:          http.StatusBadRequest,
	fdblayer.CodeOverloaded:        http.StatusServiceUnavailable,
	fdblayer.CodeUnavailable:       http.StatusServiceUnavailable,
	fdblayer.CodeUnknownOutcome:    http.StatusServiceUnavailable,
	fdblayer.CodeDraining:          http.StatusServiceUnavailable,
	fdblayer.CodeInternal:          http.StatusInternalServerError,

	codePathNotFound:     http.StatusNotFound,
	codeReservedPath:     http.StatusNotFound,
	codeInvalidPath:      http.StatusBadRequest,
	codeInvalidBucket:    http.StatusBadRequest,
	codeInvalidStreamID:  http.StatusBadRequest,
	codeMethod:           http.StatusMethodNotAllowed,
	codeInvalidHeader:    http.StatusBadRequest,
	codeInvalidExpiry:    http.StatusBadRequest,
	codeInvalidProducer:  http.StatusBadRequest,
	codeInvalidToken:     http.StatusBadRequest,
	codeInvalidParameter: http.StatusBadRequest,
	codeMissingType:      http.StatusBadRequest,
	codeInvalidType:      http.StatusBadRequest,
	codeContentEncoding:  http.StatusUnsupportedMediaType,
	codeInvalidJSON:      http.StatusBadRequest,
	codeEmptyArray:       http.StatusBadRequest,
	codeBodyTimeout:      http.StatusRequestTimeout,
	codeTooManyRequests:  http.StatusServiceUnavailable,
	codeClientClosed:     statusClientClosed,
}

// refuse is an error of this package, in the type the store's errors have.
func refuse(code fdblayer.Code, format string, args ...any) *fdblayer.Error {
	return &fdblayer.Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

func hasCode(err error, code fdblayer.Code) bool {
	var e *fdblayer.Error
	return errors.As(err, &e) && e.Code == code
}

// classify makes an answerable error of any error. ctx is the request's.
func classify(ctx context.Context, err error) *fdblayer.Error {
	var e *fdblayer.Error
	switch {
	case errors.As(err, &e) && e.Code == fdblayer.CodeBodyRead && errors.Is(err, os.ErrDeadlineExceeded):
		return &fdblayer.Error{Code: codeBodyTimeout, Detail: "the body arrived too slowly", Err: err}
	case errors.As(err, &e):
		return e
	case ctx.Err() != nil:
		return &fdblayer.Error{Code: codeClientClosed, Detail: "the client went away", Err: err}
	}
	return &fdblayer.Error{Code: fdblayer.CodeInternal, Detail: "an internal error; the log has more", Err: err}
}

// problem is the body of an error (RFC 9457). Its type is left at about:blank,
// whose title is the status's own; code is what programs look at.
type problem struct {
	Type   string        `json:"type"`
	Title  string        `json:"title"`
	Status int           `json:"status"`
	Code   fdblayer.Code `json:"code"`
	Detail string        `json:"detail"`
}

// fail answers with an error, unless the response has begun.
func (x *exchange) fail(e *fdblayer.Error) {
	if x.started() {
		return
	}
	status, known := statuses[e.Code]
	if !known {
		status = http.StatusInternalServerError
	}
	h := x.header()
	for _, name := range representationHeaders {
		delete(h, name)
	}
	h["Cache-Control"] = noStore
	setErrorHeaders(h, e)
	x.abandonBody()

	body, err := json.Marshal(problem{"about:blank", title(status), status, e.Code, e.Detail})
	if err != nil { // strings and a number always marshal
		body = nil
	}
	h["Content-Type"] = problemType
	x.answer(status, append(body, '\n'))
}

func title(status int) string {
	if status == statusClientClosed {
		return "Client Closed Request"
	}
	return http.StatusText(status)
}

// representationHeaders are those a handler may have set before it failed that
// would be lies on an error.
var representationHeaders = []string{"Etag", "Location", "Content-Length", "Content-Encoding", hSSEEncoding, hDataContentType, hUpToDate, hCursor}

// setErrorHeaders sets the headers that go with a code.
func setErrorHeaders(h http.Header, e *fdblayer.Error) {
	if !e.Incarnation.IsZero() {
		h[hIncarnation] = []string{e.Incarnation.String()}
	}
	if e.HasOffset {
		h[hNextOffset] = []string{e.Offset.String()}
	}
	switch e.Code {
	case fdblayer.CodeClosed:
		h[hClosed] = headerTrue
	case fdblayer.CodeRetained:
		if e.HasOffset {
			h[hRetainedOffset] = h[hNextOffset]
		}
	case fdblayer.CodeStaleEpoch:
		h[hProducerEpoch] = []string{strconv.FormatUint(e.Epoch, 10)}
	case fdblayer.CodeProducerGap:
		h[hProducerExpected] = []string{strconv.FormatUint(e.Expected, 10)}
		h[hProducerReceived] = []string{strconv.FormatUint(e.Received, 10)}
	}
	if e.RetryAfter > 0 {
		seconds := (e.RetryAfter + time.Second - 1) / time.Second
		h["Retry-After"] = []string{strconv.FormatInt(int64(seconds), 10)}
	}
}
