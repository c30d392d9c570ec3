package fdblayer

import (
	"io"
	"strings"
	"time"

	"headwater/keys"
)

// StreamID names a stream. The base surface is the bucket "", whose stream ids
// are whole paths; neither part holds a zero byte.
type StreamID struct {
	Bucket, Stream string
}

// Precondition is the Stream-Incarnation a request was made for (extensions
// 2.4). The zero value is a request without one.
type Precondition struct {
	Incarnation keys.Incarnation
	Set         bool
}

// Expiry says when a stream ends by itself. At most one of TTL and At is set;
// the zero value never expires.
type Expiry struct {
	// HasTTL tells a sliding window of TTL seconds, which may be 0.
	HasTTL bool
	TTL    uint64
	// At is an absolute deadline, AtText the way the client wrote it.
	At     time.Time
	AtText string
}

// Stream is what one transaction saw of a stream; all its parts are of one
// read version.
type Stream struct {
	ID          StreamID
	Incarnation keys.Incarnation
	// ContentType is as the creator wrote it.
	ContentType string
	Expiry      Expiry
	Closed      bool
	// Tail is the offset after the last byte, Retained the earliest one that
	// can be read.
	Tail, Retained keys.Offset
}

// JSON reports whether the stream holds JSON messages, each stored as its text
// and one LF.
func (s Stream) JSON() bool { return MediaType(s.ContentType) == "application/json" }

// Text reports whether the stream holds text, which SSE carries as it is.
func (s Stream) Text() bool {
	return s.JSON() || strings.HasPrefix(MediaType(s.ContentType), "text/")
}

// Snapshot is the pointer to a stream's visible snapshot (extensions 2).
type Snapshot struct {
	Offset      keys.Offset
	ContentType string
	// Digest covers content type and body.
	Digest string
	Size   int64
}

// CreateRequest asks for a stream (PROTOCOL.md 5.1).
type CreateRequest struct {
	ID           StreamID
	Precondition Precondition
	// ContentType is what the client sent, "" for none: a fork then has its
	// source's, any other stream application/octet-stream.
	ContentType string
	Expiry      Expiry
	Closed      bool
	// Body is the first content in stored form; for JSON, what package
	// jsontext made of it.
	Body []byte
	// Fork is nil for an ordinary stream.
	Fork *Fork
}

// Fork is the source of a fork (PROTOCOL.md 4.2).
type Fork struct {
	Source StreamID
	// Offset is the anchor; nil means the source's tail.
	Offset *keys.Offset
	// SubOffset counts JSON messages, or else bytes, past the anchor.
	SubOffset uint64
}

// CreateResult is the outcome of a Create.
type CreateResult struct {
	Stream Stream
	// Created is false where an equal stream existed already.
	Created bool
	// followed tells that followers have to hear of it.
	followed bool
}

// Producer is the tuple of an idempotent producer (PROTOCOL.md 5.2.1).
type Producer struct {
	ID         string
	Epoch, Seq uint64
}

// AppendRequest asks to append, to close, or both in one step (5.2, 5.3).
type AppendRequest struct {
	ID           StreamID
	Precondition Precondition
	// ContentType must match the stream's where Body is not empty.
	ContentType string
	// Body is in stored form. It may be empty only with Close.
	Body     []byte
	Close    bool
	Producer *Producer
	// Seq is Stream-Seq; nil for none. Its scope is the stream.
	Seq *string
}

// AppendResult is the outcome of an Append.
type AppendResult struct {
	Incarnation keys.Incarnation
	// Next is the offset after the appended bytes; for a close alone and for a
	// duplicate, the offset after what the stream or that producer last wrote.
	Next   keys.Offset
	Closed bool
	// Duplicate is set where the producer's sequence number had been applied
	// before; ProducerSeq is then the highest one applied.
	Duplicate   bool
	ProducerSeq uint64
}

// From is where a read starts. The zero value is the start of the stream.
type From struct {
	Offset keys.Offset
	// Now starts at the tail.
	Now bool
	// AtStart tells the start of the stream asked for by -1 or by no offset.
	AtStart bool
}

// ReadRequest asks for one bounded piece of a stream (5.6, extensions 9).
type ReadRequest struct {
	ID           StreamID
	Precondition Precondition
	From         From
	// MaxBytes bounds the piece; it must be positive.
	MaxBytes int
	// WholeMessages cuts the piece of a JSON stream at the end of a message,
	// so that it holds at least one unless it is empty, whatever MaxBytes
	// says. A start inside a message is then refused.
	WholeMessages bool
	// WholeRunes cuts the piece of a stream of text so that it does not end
	// inside a UTF-8 character: before the cut unless the stream is closed
	// there. MaxBytes is then taken to be 4 at least.
	WholeRunes bool
}

// Piece is a contiguous part of a stream.
type Piece struct {
	Stream Stream
	// Start and Next are the offsets before and after Data.
	Start, Next keys.Offset
	// Data must not be modified: readers share it.
	Data []byte
	// UpToDate says Next was the tail; Closed, that it will stay so.
	UpToDate, Closed bool
}

// PublishRequest asks to publish a snapshot (extensions 2.2). The body is
// read while the request runs and is never held in memory as a whole.
type PublishRequest struct {
	ID           StreamID
	Precondition Precondition
	Offset       keys.Offset
	ContentType  string
	Body         io.Reader
	// MaxBytes bounds the body; a longer one is ErrTooLarge.
	MaxBytes int64
}

// SnapshotBody is an open snapshot (extensions 2.5).
type SnapshotBody struct {
	Stream   Stream
	Snapshot Snapshot
	// Body yields Snapshot.Size bytes. It reads ahead a bounded amount and
	// stays readable for a grace period after the snapshot is superseded.
	Body io.ReadCloser
}

// Bootstrap is what /bootstrap answers (extensions 3): metadata of one read
// version, the snapshot if there is one, and the updates after it.
type Bootstrap struct {
	// Snapshot is nil where none is visible.
	Snapshot *SnapshotBody
	// Updates begin at the snapshot point. A JSON piece ends on a message
	// boundary.
	Updates Piece
}
