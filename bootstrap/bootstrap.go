package bootstrap

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// Snapshot is a snapshot's body.
type Snapshot struct {
	// ContentType is the one it was published with.
	ContentType string
	// Size is how many bytes Body holds.
	Size int64
	Body io.Reader
}

// Updates is the retained bytes after the snapshot point.
type Updates struct {
	// ContentType is the stream's.
	ContentType string
	// Messages says that Data is LF-terminated messages, as those of a JSON
	// stream, and that each is a part of its own. Otherwise Data is one part.
	Messages bool
	// Data may be empty; there are no update parts then. With Messages, it
	// must end on a message boundary.
	Data []byte
}

// Response is the body of one response. Make it with [New]; it can be written
// once, since writing consumes the snapshot.
type Response struct {
	boundary string
	snapshot Snapshot
	updates  Updates
}

// ErrContentType is returned for a content type that can't stand in a header
// line.
var ErrContentType = errors.New("bootstrap: content type holds a control character")

// ErrMidMessage is returned for updates that end inside a message.
var ErrMidMessage = errors.New("bootstrap: updates end inside a message")

// noSnapshotType is the type of the empty first part of a stream that has no
// snapshot (extensions 3.2).
const noSnapshotType = "application/octet-stream"

// boundaryLen is the length of a boundary; RFC 2046 allows up to 70.
const boundaryLen = len(boundaryPrefix) + 2*boundaryBytes

const (
	boundaryPrefix = "headwater-"
	boundaryBytes  = 16
)

// New prepares the response for a snapshot, nil if there is none, and the
// updates after it. random is where the boundary comes from, crypto/rand.Reader
// outside of tests: a client who can predict it can forge parts.
func New(random io.Reader, snapshot *Snapshot, updates Updates) (*Response, error) {
	r := &Response{snapshot: Snapshot{ContentType: noSnapshotType}, updates: updates}
	if snapshot != nil {
		r.snapshot = *snapshot
	}
	if !headerSafe(r.snapshot.ContentType) || !headerSafe(updates.ContentType) {
		return nil, ErrContentType
	}
	if n := len(updates.Data); updates.Messages && n > 0 && updates.Data[n-1] != '\n' {
		return nil, ErrMidMessage
	}
	var b [boundaryBytes]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return nil, fmt.Errorf("bootstrap: boundary: %w", err)
	}
	r.boundary = boundaryPrefix + hex.EncodeToString(b[:])
	return r, nil
}

// headerSafe reports whether s can be a header's value: anything but the
// control characters, of which CR and LF would end the line.
func headerSafe(s string) bool {
	for i := range len(s) {
		if b := s[i]; b < ' ' && b != '\t' || b == 0x7f {
			return false
		}
	}
	return true
}

// ContentType is the value of the response's Content-Type header.
func (r *Response) ContentType() string { return "multipart/mixed; boundary=" + r.boundary }

// Len is the exact number of bytes that WriteTo writes: the Content-Length.
func (r *Response) Len() int64 {
	n := partLen(r.snapshot.ContentType) + r.snapshot.Size + partLen(r.updates.ContentType)*int64(r.parts())
	return n + int64(len(r.updates.Data)) + int64(len(closing(nil, r.boundary)))
}

// partLen is what a part of that type costs beyond its bytes.
func partLen(contentType string) int64 {
	const fixed = len("--") + boundaryLen + len("\r\nContent-Type: ") + len("\r\n\r\n") + len("\r\n")
	return int64(fixed + len(contentType))
}

func (r *Response) parts() int {
	switch {
	case len(r.updates.Data) == 0:
		return 0
	case r.updates.Messages:
		return bytes.Count(r.updates.Data, []byte{'\n'})
	}
	return 1
}

func opening(dst []byte, boundary, contentType string) []byte {
	dst = append(append(dst, "--"...), boundary...)
	dst = append(append(dst, "\r\nContent-Type: "...), contentType...)
	return append(dst, "\r\n\r\n"...)
}

func closing(dst []byte, boundary string) []byte {
	return append(append(append(dst, "--"...), boundary...), "--\r\n"...)
}
