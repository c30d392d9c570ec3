package subscriptions

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"headwater/keys"
)

// Type is how a subscription is delivered.
type Type string

// The types of subscriptions.
const (
	Webhook  Type = "webhook"
	PullWake Type = "pull-wake"
)

// Bounds of a request.
const (
	MinLease     = time.Second
	MaxLease     = 10 * time.Minute
	DefaultLease = 30 * time.Second
	// MaxStreams is the most streams, and the most acks, one request names.
	MaxStreams  = 1000
	maxName     = 256
	maxPath     = 1024
	maxSegments = 64
	maxURL      = 2048
	maxText     = 1024
)

// Config is what a client asks for (PROTOCOL.md 6.2). Paths are relative to
// the bucket.
type Config struct {
	Type        Type
	Pattern     string
	Streams     []string
	URL         string
	WakeStream  string
	Lease       time.Duration
	Description string
}

// ID names a subscription: those of each bucket are their own.
type ID struct {
	Bucket, Name string
}

// normalize brings a configuration to the form that is stored and compared, or
// says what is wrong with it.
func (c Config) normalize(bucket string) (Config, error) {
	if c.Type != Webhook && c.Type != PullWake {
		return c, errorf(CodeInvalidRequest, `type must be "webhook" or "pull-wake"`)
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.Lease < MinLease || c.Lease > MaxLease || c.Lease%time.Millisecond != 0 {
		return c, errorf(CodeInvalidRequest, "lease_ttl_ms must be a whole number from %d to %d", MinLease.Milliseconds(), MaxLease.Milliseconds())
	}
	if len(c.Description) > maxText || !utf8.ValidString(c.Description) {
		return c, errorf(CodeInvalidRequest, "description must be text of at most %d bytes", maxText)
	}
	c.Pattern = strings.Trim(c.Pattern, "/")
	if c.Pattern == "" && len(c.Streams) == 0 {
		return c, errorf(CodeInvalidRequest, "at least one of pattern and streams is required")
	}
	if c.Pattern != "" {
		if err := checkText("pattern", c.Pattern); err != nil {
			return c, err
		}
	}
	var err error
	if c.Streams, err = normalizePaths(bucket, c.Streams); err != nil {
		return c, err
	}
	switch {
	case c.Type == Webhook && c.URL == "":
		return c, errorf(CodeInvalidRequest, "a webhook subscription needs webhook.url")
	case c.Type == PullWake && c.WakeStream == "":
		return c, errorf(CodeInvalidRequest, "a pull-wake subscription needs wake_stream")
	case c.Type == Webhook:
		c.WakeStream = ""
	default:
		c.URL = ""
		if c.WakeStream, err = normalizePath(bucket, c.WakeStream); err == nil && slices.Contains(c.Streams, c.WakeStream) {
			err = errOwnWakeStream
		}
	}
	return c, err
}

// A subscription that follows the stream it writes to would wake itself for
// ever. By a pattern it just doesn't.
var errOwnWakeStream = errorf(CodeInvalidRequest, "a subscription can't follow its own wake stream")

// normalizePaths sorts and deduplicates paths, so that the same set always has
// the same hash.
func normalizePaths(bucket string, paths []string) ([]string, error) {
	if len(paths) > MaxStreams {
		return nil, errorf(CodeInvalidRequest, "a request can name at most %d streams", MaxStreams)
	}
	out := make([]string, 0, len(paths))
	for _, p := range paths {
		n, err := normalizePath(bucket, p)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func normalizePath(bucket, path string) (string, error) {
	p := strings.Trim(path, "/")
	if err := checkText("stream path", p); err != nil {
		return "", err
	}
	switch {
	case bucket == "" && (p == "__ds" || strings.HasPrefix(p, "__ds/")):
		return "", errorf(CodeInvalidRequest, "paths under __ds are reserved")
	case bucket != "" && (strings.Contains(p, "/") || p[0] == '$'):
		return "", errorf(CodeInvalidRequest, "a stream of a bucket has a path of one segment that does not begin with $")
	}
	return p, nil
}

func checkText(what, p string) error {
	if p == "" || len(p) > maxPath || strings.IndexByte(p, 0) >= 0 || !utf8.ValidString(p) ||
		strings.Count(p, "/") >= maxSegments {
		return errorf(CodeInvalidRequest, "a %s is 1 to %d bytes of UTF-8 without NUL, in at most %d segments", what, maxPath, maxSegments)
	}
	return nil
}

func (id ID) check() error {
	n := id.Name
	if n == "" || len(n) > maxName || strings.ContainsAny(n, "\x00/") || !utf8.ValidString(n) {
		return errorf(CodeInvalidRequest, "a subscription id is 1 to %d bytes of UTF-8 without NUL and slash", maxName)
	}
	return nil
}

// hash identifies a normalized configuration for re-confirmation.
func (c Config) hash() string {
	b, err := json.Marshal([]any{c.Type, c.Pattern, c.Streams, c.URL, c.WakeStream, c.Lease.Milliseconds(), c.Description})
	if err != nil {
		panic(err) // strings and numbers
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// record is the value of a subscription's key.
type record struct {
	UID         string `json:"uid"`
	Hash        string `json:"hash"`
	Type        Type   `json:"type"`
	Pattern     string `json:"pattern,omitempty"`
	URL         string `json:"url,omitempty"`
	WakeStream  string `json:"wake_stream,omitempty"`
	LeaseMS     int64  `json:"lease_ttl_ms"`
	Description string `json:"description,omitempty"`
	CreatedMS   int64  `json:"created"`
	// Origin is the scheme and host the creator reached the server at.
	Origin string `json:"origin,omitempty"`

	uid keys.SubscriptionID
}

func newRecord(c Config, uid keys.SubscriptionID, origin string, now time.Time) record {
	return record{
		UID: hex.EncodeToString(uid[:]), Hash: c.hash(), Type: c.Type, Pattern: c.Pattern, URL: c.URL,
		WakeStream: c.WakeStream, LeaseMS: c.Lease.Milliseconds(), Description: c.Description,
		CreatedMS: ms(now), Origin: origin, uid: uid,
	}
}

func (r record) lease() time.Duration { return time.Duration(r.LeaseMS) * time.Millisecond }

func (r record) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return b
}

func decodeRecord(b []byte) (record, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("subscriptions: corrupt record: %w", err)
	}
	uid, err := hex.DecodeString(r.UID)
	if err != nil || len(uid) != len(r.uid) {
		return r, errCorrupt
	}
	r.uid = keys.SubscriptionID(uid)
	return r, nil
}
