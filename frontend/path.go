package frontend

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"headwater/fdblayer"
)

// kind is what sort of resource a path names.
type kind int

const (
	kindStream kind = iota
	kindSnapshot
	kindRetention
	kindBootstrap
	// kindNone is the name of a subresource without the offset it needs; it
	// has no methods (extensions 1.6: it is no stream either).
	kindNone
	kindBucket
	kindHealth
	kindReady
)

// target is what a request addresses.
type target struct {
	kind kind
	// bucketed tells the surface.
	bucketed bool
	id       fdblayer.StreamID
	// offset is the decoded last segment of a snapshot's or a retention's path.
	offset string
}

// Bounds of identifiers in bytes. That of the bucketed surface, for a stream id
// as for bucket and stream joined by a slash, is extensions 1.1.
const (
	maxBaseID     = 1024
	maxBucketedID = 122
	minBucket     = 4
	maxBucket     = 64
)

const basePrefix = "/v1/stream/"

// parsePath finds out what a path addresses. It takes the path as it was sent,
// so that each segment is decoded once, after splitting.
func parsePath(path string) (target, error) {
	if rest, ok := strings.CutPrefix(path, basePrefix); ok {
		return parseBase(rest)
	}
	rest, ok := strings.CutPrefix(path, "/")
	if !ok || rest == "" {
		return target{}, refuse(codePathNotFound, "nothing is at this path; streams are at /v1/stream/{path} and /{bucket}/{stream}")
	}
	first, after, more := strings.Cut(rest, "/")
	name, err := unescape(first)
	switch {
	case err != nil:
		return target{}, err
	case name == "v1":
		second, below, nested := strings.Cut(after, "/")
		if s, err := unescape(second); err == nil && s == "stream" && nested {
			return parseBase(below)
		}
		if more {
			return target{}, refuse(codePathNotFound, "streams are at /v1/stream/{path}")
		}
	case !more && name == "healthz":
		return target{kind: kindHealth}, nil
	case !more && name == "readyz":
		return target{kind: kindReady}, nil
	}
	if !more {
		return target{kind: kindBucket, bucketed: true, id: fdblayer.StreamID{Bucket: name}}, nil
	}
	return parseBucketed(name, after)
}

// parseBase parses what follows /v1/stream/.
func parseBase(rest string) (target, error) {
	id := rest
	if strings.IndexByte(rest, '%') >= 0 {
		segments := strings.Split(rest, "/")
		for i, s := range segments {
			d, err := unescape(s)
			if err != nil {
				return target{}, err
			}
			if strings.IndexByte(d, '/') >= 0 {
				return target{}, refuse(codeInvalidPath, "a path segment can't hold an encoded slash")
			}
			segments[i] = d
		}
		id = strings.Join(segments, "/")
	}
	t := target{}
	if head, last, ok := cutLast(id); ok {
		if last == "bootstrap" {
			t.kind, id = kindBootstrap, head
		} else if k := subresource(last); k != kindStream {
			t.kind, id = kindNone, head
		} else if stem, name, ok := cutLast(head); ok {
			if k := subresource(name); k != kindStream {
				t.kind, t.offset, id = k, last, stem
			}
		}
	}
	t.id.Stream = id
	return t, checkBaseID(id)
}

// subresource returns the subresource with an offset that is called name, or
// kindStream if there is none.
func subresource(name string) kind {
	switch name {
	case "snapshot":
		return kindSnapshot
	case "retention":
		return kindRetention
	}
	return kindStream
}

func cutLast(path string) (head, last string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

func checkBaseID(id string) error {
	switch {
	case id == "":
		return refuse(codePathNotFound, "the path names no stream")
	case len(id) > maxBaseID:
		return refuse(codeInvalidPath, "a stream's path can't be longer than %d bytes", maxBaseID)
	case !utf8.ValidString(id):
		return refuse(codeInvalidPath, "the path is not UTF-8")
	case strings.IndexByte(id, 0) >= 0:
		return refuse(codeInvalidPath, "the path holds a NUL")
	}
	first := true
	for s := range strings.SplitSeq(id, "/") {
		switch {
		case s == "":
			return refuse(codeInvalidPath, "the path has an empty segment")
		case s == "." || s == "..":
			return refuse(codeInvalidPath, "the path has a segment %q", s)
		case first && s == reservedRoot:
			return errReservedRoot()
		}
		first = false
	}
	return nil
}

// reservedRoot is where subscriptions live (PROTOCOL.md 6).
const reservedRoot = "__ds"

func errReservedRoot() error {
	return refuse(codeReservedPath, "%s is reserved for subscriptions", reservedRoot)
}

// parseBucketed parses what follows /{bucket}/.
func parseBucketed(bucket, rest string) (target, error) {
	stream, rest, sub := strings.Cut(rest, "/")
	t := target{bucketed: true}
	if sub {
		name, offset, deeper := strings.Cut(rest, "/")
		name, err := unescape(name)
		k := subresource(name)
		switch {
		case err != nil:
			return target{}, err
		case name == "bootstrap" && !deeper:
			t.kind = kindBootstrap
		case k != kindStream && !deeper:
			t.kind = kindNone
		case k != kindStream && strings.IndexByte(offset, '/') < 0:
			t.kind = k
			if t.offset, err = unescape(offset); err != nil {
				return target{}, err
			}
		default:
			return target{}, refuse(codePathNotFound, "a stream has no such subresource")
		}
	}
	id, err := unescape(stream)
	if err != nil {
		return target{}, err
	}
	t.id = fdblayer.StreamID{Bucket: bucket, Stream: id}
	if err := checkBucket(bucket); err != nil {
		return target{}, err
	}
	return t, checkBucketedID(bucket, id)
}

// CheckBucketID returns why a bucket id can't be one, for who takes ids by
// other ways than the path of a request; its error is an [*fdblayer.Error].
func CheckBucketID(bucket string) error { return checkBucket(bucket) }

// checkBucket applies the rule for bucket ids of extensions 1.1.
func checkBucket(bucket string) error {
	if len(bucket) < minBucket || len(bucket) > maxBucket {
		return refuse(codeInvalidBucket, "a bucket id has %d to %d characters", minBucket, maxBucket)
	}
	for i := range len(bucket) {
		switch c := bucket[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return refuse(codeInvalidBucket, "a bucket id consists of a-z, 0-9, _ and -")
		}
	}
	return nil
}

// checkBucketedID applies the rules for stream ids of extensions 1.1.
func checkBucketedID(bucket, id string) error {
	switch {
	case id == "":
		return refuse(codeInvalidStreamID, "the stream id is empty")
	case len(bucket)+1+len(id) > maxBucketedID:
		return refuse(codeInvalidStreamID, "bucket and stream id can't be longer than %d bytes together", maxBucketedID)
	case !utf8.ValidString(id):
		return refuse(codeInvalidStreamID, "the stream id is not UTF-8")
	case strings.ContainsAny(id, "/\x00"):
		return refuse(codeInvalidStreamID, "a stream id can't hold a slash or a NUL")
	case strings.Contains(id, ".."):
		return refuse(codeInvalidStreamID, "a stream id can't hold two dots in a row")
	case id == "streams" || id[0] == '$':
		return refuse(codeInvalidStreamID, "the stream id is reserved")
	case id == reservedRoot:
		return errReservedRoot()
	}
	return nil
}

// unescape decodes a path segment. Unlike in a query, + is a plus.
func unescape(s string) (string, error) {
	if strings.IndexByte(s, '%') < 0 {
		return s, nil
	}
	d, err := url.PathUnescape(s)
	if err != nil {
		return "", refuse(codeInvalidPath, "the path has a malformed percent-encoding")
	}
	return d, nil
}
