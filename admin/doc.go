// Package admin is the operator's side of a frontend process: metrics, stats,
// profiles and the purge of a bucket, on a listener of its own. It imports
// frontend and fdblayer and neither imports it.
//
//	GET    /metrics            Prometheus, also OpenMetrics and native histograms
//	GET    /stats              the same numbers at a glance, as JSON
//	GET    /debug/pprof/       Go's profiles
//	DELETE /buckets/{bucket}   purges a bucket (extensions 1.2)
//
// # Who may use it
//
// There is no authentication: whoever reaches the listener may purge. It
// belongs on loopback, where the program puts it by default, or on a network of
// the operators' own. On loopback a request must also name the host as an
// address or as localhost. Otherwise a web page whose name was made to resolve
// to 127.0.0.1 could use the browser of someone on this machine to purge.
//
// # Invariants
//
//   - No metric has a label whose values clients choose: streams, buckets and
//     peers are never labels.
//   - Observing a request allocates nothing (see the benchmark).
//   - Handlers end with the context that Serve was given: a purge that is cut
//     off at shutdown is completed by another.
package admin
