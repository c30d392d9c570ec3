// Package bootstrap writes the multipart/mixed body of a /bootstrap response
// (extensions section 3, RFC 2046). It takes plain values and an io.Reader for
// the snapshot, and imports nothing of this module.
//
// # Invariants
//
//   - The first part is the snapshot, or empty if there is none; then come the
//     updates. The only header of a part is its Content-Type.
//   - The bytes of a part are the stored bytes: nothing is encoded or framed
//     again. What keeps content from ending a part is that the boundary holds
//     128 random bits drawn for this response, after its content was written.
//   - A part of a JSON stream is one message with the LF that ends it, so the
//     parts' bytes joined are the stream's bytes from the snapshot on.
//   - Memory does not grow with the snapshot.
package bootstrap
