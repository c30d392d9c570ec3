package frontend

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"headwater/fdblayer"
	"headwater/keys"
)

// Bounds of header values in bytes.
const (
	maxContentType = 256
	maxProducerID  = 256
	maxStreamSeq   = 256
	// maxSafeInteger is the largest integer JavaScript has exactly
	// (PROTOCOL.md 5.2.1).
	maxSafeInteger = 1<<53 - 1
)

// single returns the one value of a header that must not be repeated.
func single(h http.Header, name string) (value string, present bool, err error) {
	switch v := h[name]; len(v) {
	case 0:
		return "", false, nil
	case 1:
		return v[0], true, nil
	}
	return "", true, refuse(codeInvalidHeader, "%s must not be repeated", name)
}

// precondition reads Stream-Incarnation (extensions 2.4).
func precondition(h http.Header) (fdblayer.Precondition, error) {
	v, ok := h[hIncarnation]
	if !ok {
		return fdblayer.Precondition{}, nil
	}
	if len(v) != 1 {
		return fdblayer.Precondition{}, refuse(codeInvalidToken, "Stream-Incarnation must not be repeated")
	}
	inc, err := keys.ParseIncarnation(v[0])
	if err != nil {
		return fdblayer.Precondition{}, refuse(codeInvalidToken, "Stream-Incarnation is no token this server gives out")
	}
	return fdblayer.Precondition{Incarnation: inc, Set: true}, nil
}

// closes reads Stream-Closed, which counts only if it is "true" in any case
// (PROTOCOL.md 4.1).
func closes(h http.Header) bool {
	v := h[hClosed]
	return len(v) == 1 && strings.EqualFold(v[0], "true")
}

// contentType reads Content-Type, "" for none.
func contentType(h http.Header) (string, error) {
	v, present, err := single(h, "Content-Type")
	switch {
	case err != nil:
		return "", err
	case !present:
		return "", nil
	case len(v) > maxContentType:
		return "", refuse(codeInvalidType, "Content-Type can't be longer than %d bytes", maxContentType)
	case !validContentType(v):
		return "", refuse(codeInvalidType, "Content-Type is not a media type")
	}
	return v, nil
}

// validContentType reports whether v begins with type/subtype and holds nothing
// that can't stand in a header or a MIME part. Parameters are the client's own
// business: the stream echoes them as they are.
func validContentType(v string) bool {
	t, _, _ := strings.Cut(v, ";")
	main, sub, ok := strings.Cut(strings.TrimSpace(t), "/")
	if !ok || !isToken(main) || !isToken(sub) {
		return false
	}
	for i := range len(v) {
		if v[i] < ' ' || v[i] >= 0x7f {
			return false
		}
	}
	return true
}

// isToken reports whether s is a token of RFC 9110 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// decimal parses a non-negative integer without sign, leading zeros or
// anything else, the grammar of every integer of the protocol.
func decimal(s string, most uint64) (uint64, bool) {
	if s == "" || len(s) > 1 && s[0] == '0' || s[0] == '+' {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > most {
		return 0, false
	}
	return n, true
}

// maxTTL is the longest TTL, in seconds; more would not be a date any more.
const maxTTL = 1 << 40

// expiry reads Stream-TTL and Stream-Expires-At (PROTOCOL.md 5.1).
func expiry(h http.Header) (fdblayer.Expiry, error) {
	ttl, hasTTL, err := single(h, hTTL)
	if err != nil {
		return fdblayer.Expiry{}, err
	}
	at, hasAt, err := single(h, hExpiresAt)
	switch {
	case err != nil:
		return fdblayer.Expiry{}, err
	case hasTTL && hasAt:
		return fdblayer.Expiry{}, refuse(codeInvalidExpiry, "Stream-TTL and Stream-Expires-At exclude each other")
	case hasTTL:
		n, ok := decimal(ttl, maxTTL)
		if !ok {
			return fdblayer.Expiry{}, refuse(codeInvalidExpiry, "Stream-TTL must be a number of seconds without sign, leading zeros or fraction")
		}
		return fdblayer.Expiry{HasTTL: true, TTL: n}, nil
	case hasAt:
		var t time.Time
		// UnmarshalText keeps to RFC 3339 better than Parse does, but both take
		// an hour of one digit and a comma before the fraction.
		if err := t.UnmarshalText([]byte(at)); err != nil || at[13] != ':' || strings.Contains(at, ",") {
			return fdblayer.Expiry{}, refuse(codeInvalidExpiry, "Stream-Expires-At must be an RFC 3339 timestamp")
		}
		return fdblayer.Expiry{At: t, AtText: at}, nil
	}
	return fdblayer.Expiry{}, nil
}

// producer reads the headers of an idempotent producer (PROTOCOL.md 5.2.1).
func producer(h http.Header) (*fdblayer.Producer, error) {
	id, hasID, err := single(h, hProducerID)
	if err != nil {
		return nil, err
	}
	epoch, hasEpoch, err := single(h, hProducerEpoch)
	if err != nil {
		return nil, err
	}
	seq, hasSeq, err := single(h, hProducerSeq)
	if err != nil {
		return nil, err
	}
	if !hasID && !hasEpoch && !hasSeq {
		return nil, nil
	}
	p := &fdblayer.Producer{ID: id}
	var okEpoch, okSeq bool
	p.Epoch, okEpoch = decimal(epoch, maxSafeInteger)
	p.Seq, okSeq = decimal(seq, maxSafeInteger)
	switch {
	case !hasID || !hasEpoch || !hasSeq:
		return nil, refuse(codeInvalidProducer, "Producer-Id, Producer-Epoch and Producer-Seq go together")
	case id == "":
		return nil, refuse(codeInvalidProducer, "Producer-Id is empty")
	case len(id) > maxProducerID:
		return nil, refuse(codeInvalidProducer, "Producer-Id can't be longer than %d bytes", maxProducerID)
	case !okEpoch:
		return nil, refuse(codeInvalidProducer, "Producer-Epoch must be an integer from 0 to 2^53-1")
	case !okSeq:
		return nil, refuse(codeInvalidProducer, "Producer-Seq must be an integer from 0 to 2^53-1")
	}
	return p, nil
}

// streamSeq reads Stream-Seq (PROTOCOL.md 5.2).
func streamSeq(h http.Header) (*string, error) {
	v, present, err := single(h, hSeq)
	switch {
	case err != nil || !present:
		return nil, err
	case v == "" || len(v) > maxStreamSeq:
		return nil, refuse(codeInvalidHeader, "Stream-Seq has 1 to %d bytes", maxStreamSeq)
	}
	return &v, nil
}

// fork reads the headers of a fork (PROTOCOL.md 4.2); nil if it is none.
func (x *exchange) fork() (*fdblayer.Fork, error) {
	h := x.r.Header
	from, forked, err := single(h, hForkedFrom)
	if err != nil {
		return nil, err
	}
	offset, hasOffset, err := single(h, hForkOffset)
	if err != nil {
		return nil, err
	}
	sub, hasSub, err := single(h, hForkSubOffset)
	switch {
	case err != nil:
		return nil, err
	case !forked && (hasOffset || hasSub):
		return nil, refuse(fdblayer.CodeBadFork, "Stream-Fork-Offset and Stream-Fork-Sub-Offset need Stream-Forked-From")
	case !forked:
		return nil, nil
	}
	f := &fdblayer.Fork{}
	if f.Source, err = x.forkSource(from); err != nil {
		return nil, err
	}
	if hasOffset {
		o, err := parseOffset(offset)
		switch {
		case err != nil:
			return nil, err
		case o.Now:
			// The default is the tail already.
		default:
			f.Offset = &o.Offset
		}
	}
	if hasSub {
		n, ok := decimal(sub, maxSafeInteger)
		if !ok {
			return nil, refuse(fdblayer.CodeBadFork, "Stream-Fork-Sub-Offset must be a non-negative integer")
		}
		f.SubOffset = n
	}
	return f, nil
}

// forkSource parses the path of a fork's source, which must be a stream of the
// same bucket, or of the base surface as the fork is.
func (x *exchange) forkSource(path string) (fdblayer.StreamID, error) {
	src, err := parsePath(path)
	switch {
	case err != nil || src.kind != kindStream:
		return fdblayer.StreamID{}, refuse(fdblayer.CodeBadFork, "Stream-Forked-From is not the path of a stream")
	case src.bucketed != x.target.bucketed || src.id.Bucket != x.target.id.Bucket:
		return fdblayer.StreamID{}, refuse(fdblayer.CodeBadFork, "a fork and its source must be on one surface and in one bucket")
	}
	return src.id, nil
}
