// Package subscriptions is durable cursors that wake workers when streams have
// pending events (PROTOCOL.md 6 and 7), by webhook or by pull-wake, kept in the
// store and served by every frontend. It speaks no HTTP but that of the webhooks
// it sends. It imports fdblayer, kv and keys.
//
// # Rooms
//
//   - state.go is the pure core: what a wake, a lease, a failure means is a
//     method of state, with no I/O and no clock. glob.go matches patterns,
//     link.go and config.go are values.
//   - index.go answers the streams (fdblayer.Followers): is this one followed?
//   - shard.go waits for marks of changed streams, reconcile.go deals with them.
//   - schedule.go takes on what is due: wakes, ends of leases, retries, tasks.
//   - wake.go begins wakes; deliver.go and announce.go carry them out over
//     transport.go, which decides where requests may go.
//   - session.go is what holders of a wake say; manage.go the life of a
//     subscription; task.go what takes many transactions.
//   - secret.go and token.go are keys, signatures and tokens.
//
// # How an append wakes a subscriber
//
// A stream that is followed has a flag in its metadata. Its appends leave a
// mark and move a wake key, two blind writes, however many follow it; others
// leave nothing. A frontend that watches the wake key takes the mark, finds the
// followers by an index of the stream's name, and writes for each a pending
// entry and, if it is idle, an entry in the schedule. The scheduler begins the
// wake: a transaction that counts the generation up, names the wake, sets the
// lease, and reads the streams with work. Only then anything leaves the house.
//
// # Invariants
//
//   - Everything that must last is in the store. A frontend that dies at any
//     point leaves a mark, an entry in the schedule or a lease, and each of them
//     is a reason for another to go on.
//   - Everything of a subscription hangs under its random uid. Deleting one is
//     one transaction; tokens, links and wakes of a former life reach nothing.
//   - Every change of a subscription's state is a transaction that reads the
//     state. What a holder says counts only with the current generation, wake id
//     and an unexpired lease; so no two hold one generation, though clocks differ.
//   - Every attempt to deliver a webhook is a wake of its own, with a generation
//     of its own. Sending the same wake again lost: behind a load balancer it
//     gives one generation to two receivers.
//   - Cursors only move forward, and only to where the stream has come.
//   - No wake is lost: see reconcile.go for how marks, pending entries and the
//     end of a wake meet.
//
// # Where cursors start
//
// Offsets are versionstamps, and a pattern is stored with the versionstamp of
// its subscription's creation. A stream that matches is linked at the end of
// its last record before that versionstamp: for one that existed, its tail at
// that moment; for one that came later, its birth. The rule gives the same
// answer whenever it is asked, so links are made after the fact, in pages, by
// whoever comes first, and a creation in a bucket with ten thousand matching
// patterns is as small as any. The other way, writing all links in the
// transaction that creates the stream, lost: its size is the number of matches.
// A fork is linked at the fork point: what it inherited is history.
//
// An explicit link is to a path. It starts at the tail of the stream there, and
// stays when that stream is deleted; one that is created there later is
// followed from its birth. A glob link goes with its stream.
//
// A subscription never follows its own wake stream, whatever its pattern: it
// would wake itself for ever.
//
// # Clocks
//
// Leases and retries go by the wall clocks of frontends. Where these disagree,
// a lease ends early or late by as much; the generation still decides who holds
// what.
//
// # Bounds
//
// One wake names at most 1000 streams with work, the next names the next. For a
// subscription of at most 100 links it also names those without work, as the
// protocol's reference server does; reading all links of a large one at each
// wake would cost what the subscription is large.
package subscriptions
