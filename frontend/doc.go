// Package frontend speaks HTTP: it turns requests into calls of a
// [fdblayer.Store] and what comes back into responses. Nothing that must last
// lives here. It imports gin, fdblayer, jsontext, sse and bootstrap; it never
// sees a key or a transaction.
//
// # Rooms
//
//   - path.go names what a request addresses; dispatch.go finds its handler.
//   - decode.go, query.go and body.go make a typed request of it, all three
//     strict: what is not understood is refused, never guessed.
//   - create.go, append.go, stream.go, read.go, longpoll.go, events.go,
//     snapshot.go and bootstrap.go are the handlers, which return an error or
//     have answered.
//   - problem.go is the only place where an error becomes a status.
//   - accept.go, etag.go, cursor.go and caching.go are the rules of a read's
//     response, as pure functions.
//   - server.go is the listener's side: limits, timeouts, drain.
//
// # Paths
//
// Two surfaces, which cannot meet because "v1" is too short for a bucket id:
//
//	/v1/stream/{path...}                the base surface: the id is the whole path
//	/{bucket_id}/{stream_id}            the bucketed surface (extensions 1)
//	.../snapshot/{offset}  .../bootstrap  .../retention/{offset}
//
// Each segment is percent-decoded exactly once, after the path was split. So an
// encoded slash is never a separator: on the bucketed surface it is refused by
// the rule for stream ids, and on the base surface it is refused too, because
// the ids "a/b" and "a%2Fb" would otherwise be told apart here and mixed up by
// every proxy and log on the way. Base ids are at most 1024 bytes of UTF-8
// without NUL, empty segments, "." and "..".
//
// The subresources have the same names on both surfaces. On the base surface,
// where ids nest, this reserves the end of a path: after at least one other
// segment, a last segment "bootstrap", "snapshot" or "retention", or a last but
// one "snapshot" or "retention", names a subresource of what is before it, for
// every method. Giving only the methods a subresource has to it, and the others
// to a stream of that name, lost: such a stream could be made but not read.
//
// "__ds" as the first segment below either stream root is reserved for
// subscriptions (PROTOCOL.md 6), which answer 404 where there are none. In a
// bucket they live at "$ds": subscriptions.go.
//
// # Caching
//
// PROTOCOL.md 10.1 recommends "max-age=60, stale-while-revalidate=300" on
// catch-up reads. A response that reached the tail, or began at the start of
// the stream, does not get it here: the first would let a shared cache hide
// appends, the second would let it serve a deleted stream's bytes as those of
// the one recreated at its URL. Those are "no-cache": kept, and revalidated by
// ETag. A range between two real offsets gets it, since an offset is never
// given out twice, so its bytes are that incarnation's for ever. Errors, HEAD,
// offset=now, writes and empty long-polls are "no-store".
//
// # Invariants
//
//   - Every response has the security and CORS headers, errors included. Only
//     what is no HTTP request at all is answered by net/http itself (400, 431).
//   - A body is decoded, bounded and validated as a whole before the store sees
//     it; a snapshot's body alone is streamed.
//   - What waits for a client (a body, a slow reader) has a deadline; what waits
//     for others (live reads) gives up its place among the running requests.
package frontend
