package frontend

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"headwater/fdblayer"
	"headwater/keys"
)

// liveMode is how a read waits for data.
type liveMode int

const (
	catchUp liveMode = iota
	longPoll
	events
)

// Bounds of timeout_ms (extensions 9.1).
const (
	defaultPoll = 1000 * time.Millisecond
	minPoll     = 1 * time.Millisecond
	maxPoll     = 60_000 * time.Millisecond
)

// readQuery is the query of a read.
type readQuery struct {
	from fdblayer.From
	live liveMode
	// cursor is the client's, 0 for none that counts.
	cursor   uint64
	timeout  time.Duration
	maxBytes int
	// leader asks for a linearizable read, which all are; but then no cache
	// may answer it.
	leader bool
}

// parseQuery reads the query of a GET. maxBytes is the server's cap. Unknown
// parameters are ignored, repeated ones that say what is read are refused.
func parseQuery(raw string, maxBytes int) (readQuery, error) {
	q := readQuery{from: fdblayer.From{AtStart: true}, timeout: defaultPoll, maxBytes: maxBytes}
	var hasOffset, hasLive, hasConsistency bool
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if pair == "" {
			continue
		}
		name, value, err := parsePair(pair)
		if err != nil {
			return q, err
		}
		switch name {
		case "offset":
			if hasOffset {
				return q, refuse(fdblayer.CodeBadOffset, "offset must not be repeated")
			}
			hasOffset = true
			q.from, err = parseOffset(value)
		case "live":
			if hasLive {
				return q, refuse(codeInvalidParameter, "live must not be repeated")
			}
			hasLive = true
			q.live, err = parseLive(value)
		case "consistency":
			if hasConsistency {
				return q, refuse(codeInvalidParameter, "consistency must not be repeated")
			}
			hasConsistency = true
			q.leader, err = parseConsistency(value)
		case "cursor":
			q.cursor = parseCursor(value)
		case "timeout_ms":
			q.timeout = parseTimeout(value)
		case "max_bytes":
			q.maxBytes = parseMaxBytes(value, maxBytes)
		}
		if err != nil {
			return q, err
		}
	}
	switch {
	case hasLive && !hasOffset:
		return q, refuse(codeInvalidParameter, "a live read needs an offset")
	case hasLive && q.leader:
		return q, refuse(codeInvalidParameter, "consistency=leader and live exclude each other")
	}
	return q, nil
}

func parsePair(pair string) (name, value string, err error) {
	name, value, _ = strings.Cut(pair, "=")
	if strings.ContainsAny(pair, "%+") {
		if name, err = url.QueryUnescape(name); err == nil {
			value, err = url.QueryUnescape(value)
		}
		if err != nil {
			return "", "", refuse(codeInvalidParameter, "the query has a malformed percent-encoding")
		}
	}
	return name, value, nil
}

// parseOffset reads an offset or one of its sentinels (PROTOCOL.md 8).
func parseOffset(s string) (fdblayer.From, error) {
	switch s {
	case "-1":
		return fdblayer.From{AtStart: true}, nil
	case "now":
		return fdblayer.From{Now: true}, nil
	}
	o, err := keys.ParseOffset(s)
	if err != nil {
		return fdblayer.From{}, refuse(fdblayer.CodeBadOffset, "the offset is none this server gives out")
	}
	return fdblayer.From{Offset: o}, nil
}

func parseLive(s string) (liveMode, error) {
	switch s {
	case "long-poll":
		return longPoll, nil
	case "sse":
		return events, nil
	}
	return catchUp, refuse(codeInvalidParameter, "live must be long-poll or sse")
}

// parseConsistency reads consistency (extensions 9.2).
func parseConsistency(s string) (leader bool, err error) {
	switch s {
	case "leader":
		return true, nil
	case "local":
		return false, nil
	}
	return false, refuse(codeInvalidParameter, "consistency must be local or leader")
}

// parseTimeout reads timeout_ms: what can't be parsed means the default.
func parseTimeout(s string) time.Duration {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return defaultPoll
	}
	return time.Duration(max(1, min(n, maxPoll.Milliseconds()))) * time.Millisecond
}

// parseMaxBytes reads max_bytes: what is no decimal integer leaves the cap.
func parseMaxBytes(s string, most int) int {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return most
	}
	return int(max(1, min(n, int64(most))))
}

// hasParameter reports whether a query names a parameter.
func hasParameter(raw, name string) bool {
	for pair := range strings.SplitSeq(raw, "&") {
		if n, _, err := parsePair(pair); err == nil && n == name {
			return true
		}
	}
	return false
}
