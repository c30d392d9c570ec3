package fdblayer

import (
	"context"
	"errors"

	"headwater/keys"
)

var errTODO = errors.New("not written yet")

// Store is the streams of one deployment, as one frontend serves them.
type Store struct{}

// Create makes a stream, or finds an equal one.
func (s *Store) Create(ctx context.Context, req CreateRequest) (CreateResult, error) {
	return CreateResult{}, errTODO
}

// Append adds bytes to a stream, closes it, or both.
func (s *Store) Append(ctx context.Context, req AppendRequest) (AppendResult, error) {
	return AppendResult{}, errTODO
}

// Delete removes a stream; one that forks depend on is only hidden.
func (s *Store) Delete(ctx context.Context, id StreamID, pre Precondition) error { return errTODO }

// Head returns a stream's metadata and its visible snapshot, nil for none. It does not renew a TTL.
func (s *Store) Head(ctx context.Context, id StreamID, pre Precondition) (Stream, *Snapshot, error) {
	return Stream{}, nil, errTODO
}

// Read returns one piece of a stream, empty at the tail. It renews a TTL.
func (s *Store) Read(ctx context.Context, req ReadRequest) (Piece, error) { return Piece{}, errTODO }

// Live opens a live reader and returns the piece there is now, which may be
// empty. The reader is pinned to the incarnation it found. Close it after use.
func (s *Store) Live(ctx context.Context, req ReadRequest) (*LiveReader, Piece, error) {
	return nil, Piece{}, errTODO
}

// LiveReader follows one stream. Not safe for concurrent use.
type LiveReader struct{}

// Next waits for the piece that follows the last one returned. It returns a
// piece with data, or an empty one that is Closed, or ctx's error, or an
// [*Error] that ends the reader: CodeNotFound, CodeSoftDeleted,
// CodeIncarnation (recreated), CodeRetained, CodeDraining, CodeUnavailable.
func (r *LiveReader) Next(ctx context.Context) (*Event, error) { return nil, errTODO }

// Close releases the reader.
func (r *LiveReader) Close() {}

// Event is a piece that all readers of a stream on this frontend may share.
type Event struct {
	Piece
}

// Encoded returns build's result for this event, made once for each key and
// shared by all readers. It must depend on nothing but the piece and the key.
func (e *Event) Encoded(key int, build func(Piece) []byte) []byte { return build(e.Piece) }

// PublishSnapshot stores a snapshot and makes it the visible one.
func (s *Store) PublishSnapshot(ctx context.Context, req PublishRequest) (Stream, Snapshot, error) {
	return Stream{}, Snapshot{}, errTODO
}

// OpenSnapshot opens the visible snapshot if it is at offset.
func (s *Store) OpenSnapshot(ctx context.Context, id StreamID, pre Precondition, offset keys.Offset) (*SnapshotBody, error) {
	return nil, errTODO
}

// Retain drops what lies before offset (extensions 2.2).
func (s *Store) Retain(ctx context.Context, id StreamID, pre Precondition, offset keys.Offset) (Stream, error) {
	return Stream{}, errTODO
}

// Bootstrap returns the snapshot and up to maxBytes of the updates after it,
// for a JSON stream at least one message.
func (s *Store) Bootstrap(ctx context.Context, id StreamID, pre Precondition, maxBytes int) (*Bootstrap, error) {
	return nil, errTODO
}

// Ready reports whether the store answers in time.
func (s *Store) Ready(ctx context.Context) error { return errTODO }
