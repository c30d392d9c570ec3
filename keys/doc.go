// Package keys is Headwater's byte format: the FoundationDB key space, stream
// offsets and incarnation tokens. Pure functions, no I/O, no dependency on any
// other package of this module.
//
// # Invariants
//
//   - Every key begins with the deployment prefix, so several deployments can
//     share one cluster.
//   - Data hang under the incarnation, never under the stream's name: a
//     recreated stream cannot reach an old byte.
//   - Integers are big-endian, so byte order is numeric order.
//   - The key of a log record ends in the 16-byte offset of the record's end.
//     Finding the record at an offset is therefore one range read, and finding
//     the tail is one key read that touches no value.
//
// # Layout
//
// After the prefix, one kind byte, then:
//
//	kind      rest of the key                              value
//	meta      bucket 00 stream                             stream metadata
//	log       incarnation(16) offset-of-end(16)            record: kind byte, bytes
//	tail      incarnation(16)                              versionstamp(10): the watched wake key
//	producer  incarnation(16) id                           epoch, last seq, offset after it
//	seq       incarnation(16)                              last Stream-Seq
//	touch     incarnation(16)                              last access, ms, little-endian (MAX)
//	expiry    due-ms(8) bucket 00 stream                   incarnation(16)
//	snap      incarnation(16)                              snapshot pointer
//	blob      incarnation(16) id(16) index(4)              chunk of a staged body
//	fork      incarnation of source(16) child(16)          meta key of the child
//	staged    incarnation(16) offset-of-end(16)            blob id(16) of a record too large for its value
//	fence     bucket                                       purge marker
//	batch     frontend(16) lane(2)                         id of the last batch, its versionstamp
//	gc        due-ms(8) id(16)                             a deferred clear
//	lease     name                                         holder, deadline
//	system    name                                         format version
//
// The keys of subscriptions; uid is 16 random bytes, one life of a subscription:
//
//	sub       bucket 00 name                               configuration
//	substate  uid                                          generation, wake, lease, retries
//	sublink   uid stream                                   link types, incarnation(16), acked offset(16)
//	subpend   uid stream                                   nothing: the stream has pending work
//	follower  bucket 00 stream 00 uid                      nothing: the link's index by stream
//	subglob   bucket 00 uid                                versionstamp(10) of its creation, pattern, 00 wake stream
//	subglobs  bucket                                       versionstamp(10): the version of the bucket's patterns
//	submark   shard(1) bucket 00 stream                    versionstamp(10) of the last change of a followed stream
//	subwake   shard(1)                                     versionstamp(10): the shard's watched wake key
//	subdue    due-ms(8) task(1) uid                        bucket 00 name of the subscription
//	subfill   uid                                          how far existing streams are linked
//	subsecret purpose(1) created-ms(8) id(8)               signing and token keys
//
// The golden files in testdata pin every one of these.
package keys
