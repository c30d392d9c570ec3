// Loaded before each test file. Sends alternate requests to alternate frontends, and on the
// bucketed surface asks for the representation that the suite and the official client expect.
const urls = frontends()
const bucket = process.env.HEADWATER_SURFACE === "bucket"
const home = new URL(urls[0]).origin
const direct = globalThis.fetch
let turn = 0

/** The base URLs under test, without trailing slashes. */
export function frontends() {
  const list = (process.env.HEADWATER_URLS ?? "").split(",").filter(Boolean)
  if (list.length === 0) throw new Error("set HEADWATER_URLS to the base URL of a running server")
  return list.map((u) => u.replace(/\/+$/, ""))
}

/** The path prefix of a stream on the surface under test. */
export const streamRoot = bucket ? "/conf/" : "/v1/stream/"

// The suite calls fetch, and the client resolves fetch when it makes a request, so that both
// pass here. A request to another origin (a webhook receiver) is left alone.
if (urls.length > 1 || bucket) {
  globalThis.fetch = (input, init) => {
    const request = input instanceof Request ? input : undefined
    const url = new URL(request?.url ?? String(input))
    if (url.origin !== home) return direct(input, init)
    if (bucket && url.pathname.startsWith("/v1/")) {
      throw new Error(`the suite was not moved to the bucketed surface: ${url.pathname}`)
    }
    const target = urls[turn++ % urls.length] + url.pathname + url.search
    const headers = new Headers(init?.headers ?? request?.headers)
    headers.set("x-forwarded-host", new URL(home).host)
    if (bucket && !headers.has("accept")) headers.set("accept", "application/json")
    if (request) return direct(new Request(target, request), { ...init, headers })
    return direct(target, { ...init, headers })
  }
}
