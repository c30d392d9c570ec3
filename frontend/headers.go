package frontend

import (
	"net/http"
	"strings"

	"headwater/fdblayer"
)

// Header names in the canonical form that keys of http.Header have.
const (
	hTTL             = "Stream-Ttl"
	hExpiresAt       = "Stream-Expires-At"
	hSeq             = "Stream-Seq"
	hClosed          = "Stream-Closed"
	hCursor          = "Stream-Cursor"
	hNextOffset      = "Stream-Next-Offset"
	hUpToDate        = "Stream-Up-To-Date"
	hIncarnation     = "Stream-Incarnation"
	hForkedFrom      = "Stream-Forked-From"
	hForkOffset      = "Stream-Fork-Offset"
	hForkSubOffset   = "Stream-Fork-Sub-Offset"
	hSnapshotOffset  = "Stream-Snapshot-Offset"
	hSnapshotDigest  = "Stream-Snapshot-Digest"
	hRetainedOffset  = "Stream-Retained-Offset"
	hSSEEncoding     = "Stream-Sse-Data-Encoding"
	hDataContentType = "Stream-Data-Content-Type"

	hProducerID       = "Producer-Id"
	hProducerEpoch    = "Producer-Epoch"
	hProducerSeq      = "Producer-Seq"
	hProducerExpected = "Producer-Expected-Seq"
	hProducerReceived = "Producer-Received-Seq"
)

const (
	typeJSON   = "application/json"
	typeNDJSON = "application/x-ndjson"
)

// Values that many responses share. net/http only reads them.
var (
	headerTrue  = []string{"true"}
	noStore     = []string{"no-store"}
	problemType = []string{"application/problem+json"}
	varyAccept  = []string{"Accept"}
	base64Value = []string{"base64"}
	ndjsonType  = []string{typeNDJSON}
	nosniff     = []string{"nosniff"}
	crossOrigin = []string{"cross-origin"}
	anyOrigin   = []string{"*"}
	maxAge      = []string{"86400"}

	exposedHeaders = []string{strings.Join([]string{
		"ETag", "Location", "Retry-After", "Vary", "Allow",
		hNextOffset, hUpToDate, hClosed, hCursor, "Stream-TTL", hExpiresAt,
		hIncarnation, hSnapshotOffset, hSnapshotDigest, hRetainedOffset,
		hSSEEncoding, hDataContentType,
		hProducerEpoch, hProducerSeq, hProducerExpected, hProducerReceived,
	}, ", ")}
	// The asterisk admits what applications add; it does not stand for
	// Authorization (Fetch standard), and old browsers do not know it.
	allowedHeaders = []string{strings.Join([]string{
		"Content-Type", "Accept", "Authorization", "Cache-Control", "If-None-Match", "Last-Event-ID",
		hSeq, "Stream-TTL", hExpiresAt, hClosed, hIncarnation,
		hForkedFrom, hForkOffset, hForkSubOffset,
		hProducerID, hProducerEpoch, hProducerSeq, "*",
	}, ", ")}
)

// secure sets what every response carries (PROTOCOL.md 12.7). Not to be stored
// is the default that handlers of cacheable reads overrule.
func secure(h http.Header) {
	h["X-Content-Type-Options"] = nosniff
	h["Cross-Origin-Resource-Policy"] = crossOrigin
	h["Access-Control-Allow-Origin"] = anyOrigin
	h["Access-Control-Expose-Headers"] = exposedHeaders
	h["Cache-Control"] = noStore
}

// describe sets the metadata of a stream that HEAD answers with.
func describe(h http.Header, st fdblayer.Stream) {
	h["Content-Type"] = []string{st.ContentType}
	h[hNextOffset] = []string{st.Tail.String()}
	h[hIncarnation] = []string{st.Incarnation.String()}
	if st.Closed {
		h[hClosed] = headerTrue
	}
}
