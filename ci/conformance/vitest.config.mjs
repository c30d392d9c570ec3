import { defineConfig } from "vitest/config"

// HEADWATER_URLS: base URLs of the frontends, comma separated.
// HEADWATER_SURFACE: "base" (/v1/stream/{name}) or "bucket" (/conf/{name}).
const surface = process.env.HEADWATER_SURFACE ?? "base"

// The suite hardcodes /v1/stream/ in its URLs, in Stream-Forked-From and in what it
// expects of Location. Its only other surface is the one we make here, while vite loads
// it: every literal moves to a bucket, so that no request, header or check is missed.
const moveToBucket = {
  name: "headwater-bucket-surface",
  transform(code, id) {
    if (surface !== "bucket" || !id.includes("/server-conformance-tests/dist/")) return null
    return { code: code.replaceAll("/v1/stream/", "/conf/"), map: null }
  },
}

export default defineConfig({
  plugins: [moveToBucket],
  test: {
    include: ["*.test.mjs"],
    setupFiles: ["./frontends.mjs"],
    // Vite transforms only what it inlines; the suite's own copy of the client stays outside.
    server: { deps: { inline: [/server-conformance-tests\/dist\//] } },
    // The suite sets its own limits where it waits; stock 5 s is too little for a busy machine.
    testTimeout: 30_000,
    hookTimeout: 30_000,
  },
})
