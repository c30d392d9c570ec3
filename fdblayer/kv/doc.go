// Package kv is FoundationDB's transaction model as a small Go interface, and
// the retry loop above it. It owns no storage: the engines are in
// kv/foundationdb (the official binding) and kv/embedded (Pebble, one process).
//
// The model is FoundationDB's own, not a common denominator: strictly
// serializable transactions that read at one version and conflict exactly when
// a range they read was written after that version, atomic operations,
// versionstamps assigned at commit, watches, and FoundationDB's limits. What a
// caller may rely on is written down as the contract suite in kv/kvtest, which
// every engine passes.
package kv
