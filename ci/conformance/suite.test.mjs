// The public conformance suite. Its packaged command finds no tests once it is installed,
// since vitest looks for none under node_modules.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"
import { frontends } from "./frontends.mjs"

runConformanceTests({
  baseUrl: frontends()[0],
  // Only the limit of the suite's own waits; Headwater answers a long-poll within 1 s by default.
  longPollTimeoutMs: Number(process.env.HEADWATER_LONG_POLL_MS ?? 5_000),
  // Subscriptions live below /v1/stream/ and have no place in a bucket.
  subscriptions: process.env.HEADWATER_SURFACE !== "bucket",
})
