// Package fdblayer is what a stream is: every operation of the protocol as one
// FoundationDB transaction recipe over package kv, so that it runs unchanged on
// both engines and on any number of frontends at once.
//
// # Rooms
//
//   - rules.go is the pure core: what a create, an append or a close means is a
//     function from (state, request, now) to (new state, effects, error).
//   - meta.go and record.go are the values behind the keys of package keys.
//   - lane.go gathers writes into batches; batch.go is their transaction.
//   - read.go finds bytes; log.go walks records across the segments of a fork.
//   - fork.go, delete.go, retain.go, snapshot.go are the rarer recipes, one
//     transaction each; blob.go stages bodies too large for one.
//   - follow.go lets those who follow streams from above notice changes.
//   - hub.go and live.go wake readers; touch.go renews sliding TTLs;
//     sweep.go clears what is due, under a lease.
//
// # Invariants
//
//   - Data hang under the incarnation. Whoever changes a stream's existence,
//     closure or retention writes its meta key; whoever appends reads it. So an
//     append and a delete can't both commit unseen by each other, while two
//     appends never conflict.
//   - The tail is never written down: it is the end of the last record, or the
//     fork point, or the retained offset, whichever is last.
//   - Every commit of a batch leaves its witness under batch/frontend/lane, so
//     an unknown outcome is resolved by looking, never by guessing.
//   - All parts of an answer come from one read version.
//
// It imports keys, fdblayer/kv and jsontext; no engine, and nothing of HTTP.
package fdblayer
