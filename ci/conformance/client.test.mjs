// The official TypeScript client, end to end, as an application uses it.
import { describe, expect, test } from "vitest"
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"
import { frontends, streamRoot } from "./frontends.mjs"

const base = frontends()[0]
let serial = 0

/** A URL no other run uses. */
function freshUrl(name) {
  serial += 1
  return `${base}${streamRoot}client-${name}-${Date.now().toString(36)}-${serial}`
}

/** Collects items until enough(items), then stops the session. */
async function takeUntil(response, enough, onError) {
  const items = []
  const { promise, resolve, reject } = Promise.withResolvers?.() ?? deferred()
  const unsubscribe = response.subscribeJson((batch) => {
    items.push(...batch.items)
    if (enough(items)) resolve()
  })
  response.closed.then(resolve, onError ?? reject)
  await promise
  unsubscribe()
  return items
}

function deferred() {
  let resolve, reject
  const promise = new Promise((a, b) => {
    resolve = a
    reject = b
  })
  return { promise, resolve, reject }
}

const events = (from, to) => Array.from({ length: to - from }, (_, i) => ({ n: from + i, text: "häuser 🌊" }))

describe("official client: handle", () => {
  test("create, head, append, delete", async () => {
    const url = freshUrl("handle")
    const handle = await DurableStream.create({ url, contentType: "text/plain" })
    await handle.append("one")
    await handle.append("two")
    const head = await handle.head()
    expect(head.exists).toBe(true)
    expect(head.contentType).toBe("text/plain")
    const got = await stream({ url, offset: "-1", live: false })
    expect(await got.text()).toBe("onetwo")
    expect(got.offset).toBe(head.offset)
    await handle.delete()
    expect(await DurableStream.head({ url })).toEqual({ exists: false })
    await expect(handle.append("x")).rejects.toMatchObject({ status: 404 })
  })

  test("create refuses another configuration", async () => {
    const url = freshUrl("conflict")
    await DurableStream.create({ url, contentType: "text/plain" })
    await expect(DurableStream.create({ url, contentType: "application/json" })).rejects.toMatchObject({ status: 409 })
  })

  test("close ends the stream for writers and readers", async () => {
    const url = freshUrl("close")
    const handle = await DurableStream.create({ url, contentType: "text/plain" })
    await handle.append("a")
    await handle.close({ body: "z" })
    await expect(handle.append("more")).rejects.toThrow()
    const got = await stream({ url, offset: "-1", live: "long-poll" })
    expect(await got.text()).toBe("az")
    expect(got.streamClosed).toBe(true)
  })
})

describe("official client: catch-up", () => {
  test("json() yields what was appended, and the offset resumes", async () => {
    const url = freshUrl("json")
    const handle = await DurableStream.create({ url, contentType: "application/json" })
    for (const e of events(0, 20)) await handle.append(JSON.stringify(e))
    const first = await stream({ url, offset: "-1", live: false })
    expect(await first.json()).toEqual(events(0, 20))
    await handle.append(JSON.stringify(events(20, 21)[0]))
    const rest = await stream({ url, offset: first.offset, live: false })
    expect(await rest.json()).toEqual(events(20, 21))
  })

  test("bytes survive unchanged", async () => {
    const url = freshUrl("bytes")
    const handle = await DurableStream.create({ url, contentType: "application/octet-stream" })
    const bytes = Uint8Array.from({ length: 100_000 }, (_, i) => (i * 31 + (i >> 8)) & 0xff)
    await handle.append(bytes)
    const got = await stream({ url, offset: "-1", live: false })
    expect(Buffer.from(await got.body()).equals(Buffer.from(bytes))).toBe(true)
  })
})

// A session's closed resolves when the transport is done, which may be before its subscriber
// was given the last batch: what arrived is therefore polled.
describe.each(["long-poll", "sse"])("official client: live %s", (live) => {
  test("JSON items: history, then what is appended while reading", async () => {
    const url = freshUrl(`live-${live}`)
    const handle = await DurableStream.create({ url, contentType: "application/json" })
    for (const e of events(0, 5)) await handle.append(JSON.stringify(e))
    const abort = new AbortController()
    const response = await stream({ url, offset: "-1", live, signal: abort.signal })
    const reading = takeUntil(response, (items) => items.length >= 15, () => {})
    for (const e of events(5, 15)) await handle.append(JSON.stringify(e))
    expect(await reading).toEqual(events(0, 15))
    abort.abort()
  })

  test("the append that closes the stream is delivered, then the session ends", async () => {
    const url = freshUrl(`closing-${live}`)
    const handle = await DurableStream.create({ url, contentType: "application/json" })
    await handle.append(JSON.stringify({ n: 0 }))
    const response = await stream({ url, offset: "-1", live })
    const items = []
    response.subscribeJson((batch) => void items.push(...batch.items))
    await handle.append(JSON.stringify({ n: 1 }))
    await handle.close({ body: JSON.stringify({ n: 2 }) })
    await response.closed
    await expect.poll(() => items).toEqual([{ n: 0 }, { n: 1 }, { n: 2 }])
    expect(response.streamClosed).toBe(true)
  })

  test("text keeps its characters", async () => {
    const url = freshUrl(`text-${live}`)
    const handle = await DurableStream.create({ url, contentType: "text/plain; charset=utf-8" })
    await handle.append("zeile 1\nümläut 🌊\n")
    const response = await stream({ url, offset: "-1", live })
    let text = ""
    response.subscribeText((chunk) => void (text += chunk.text))
    await handle.append("\nlast")
    await handle.close()
    await response.closed
    await expect.poll(() => text).toBe("zeile 1\nümläut 🌊\n\nlast")
  })

  test("bytes, through base64 where the transport needs it", async () => {
    const url = freshUrl(`binary-${live}`)
    const handle = await DurableStream.create({ url, contentType: "application/octet-stream" })
    const bytes = Uint8Array.from({ length: 5000 }, (_, i) => (i * 7) & 0xff)
    await handle.append(bytes.subarray(0, 1234))
    const response = await stream({ url, offset: "-1", live })
    const chunks = []
    response.subscribeBytes((chunk) => void chunks.push(Buffer.from(chunk.data)))
    await handle.append(bytes.subarray(1234))
    await handle.close()
    await response.closed
    await expect.poll(() => Buffer.concat(chunks).equals(Buffer.from(bytes))).toBe(true)
  })

  test("offset=now skips history", async () => {
    const url = freshUrl(`now-${live}`)
    const handle = await DurableStream.create({ url, contentType: "application/json" })
    await handle.append(JSON.stringify({ old: true }))
    const response = await stream({ url, offset: "now", live })
    const items = []
    response.subscribeJson((batch) => void items.push(...batch.items))
    await handle.append(JSON.stringify({ old: false }))
    await handle.close()
    await response.closed
    await expect.poll(() => items).toEqual([{ old: false }])
  })
})

describe("official client: iterators", () => {
  test("jsonStream() yields items until the stream closes", async () => {
    const url = freshUrl("json-stream")
    const handle = await DurableStream.create({ url, contentType: "application/json" })
    for (const e of events(0, 3)) await handle.append(JSON.stringify(e))
    const response = await stream({ url, offset: "-1", live: true })
    const writing = (async () => {
      for (const e of events(3, 6)) await handle.append(JSON.stringify(e))
      await handle.close()
    })()
    const items = []
    for await (const item of response.jsonStream()) items.push(item)
    await writing
    expect(items).toEqual(events(0, 6))
  })

  test("bodyStream() yields every byte until the stream closes", async () => {
    const url = freshUrl("body-stream")
    const handle = await DurableStream.create({ url, contentType: "application/octet-stream" })
    await handle.append(new Uint8Array([1, 2, 3]))
    const response = await stream({ url, offset: "-1", live: true })
    const writing = (async () => {
      await handle.append(new Uint8Array([4, 5]))
      await handle.close()
    })()
    const got = []
    for await (const chunk of response.bodyStream()) got.push(...chunk)
    await writing
    expect(got).toEqual([1, 2, 3, 4, 5])
  })
})

describe("official client: IdempotentProducer", () => {
  test("pipelined batches arrive once and in order", async () => {
    const url = freshUrl("producer")
    const handle = await DurableStream.create({ url, contentType: "application/json" })
    const errors = []
    const producer = new IdempotentProducer(handle, "client-test", {
      autoClaim: true,
      lingerMs: 1,
      maxBatchBytes: 512,
      maxInFlight: 5,
      onError: (e) => errors.push(e),
    })
    for (const e of events(0, 300)) producer.append(JSON.stringify(e))
    await producer.flush()
    await producer.close()
    expect(errors).toEqual([])
    const got = await stream({ url, offset: "-1", live: false })
    expect(await got.json()).toEqual(events(0, 300))
    expect((await handle.head()).streamClosed).toBe(true)
  })

  test("a restarted producer claims the next epoch and fences the old one", async () => {
    const url = freshUrl("fence")
    const handle = await DurableStream.create({ url, contentType: "application/json" })
    const failures = []
    const old = new IdempotentProducer(handle, "worker", { epoch: 0, lingerMs: 0, onError: (e) => failures.push(e) })
    old.append(JSON.stringify({ from: "old" }))
    await old.flush()
    const fresh = new IdempotentProducer(handle, "worker", { epoch: 1, lingerMs: 0 })
    fresh.append(JSON.stringify({ from: "new" }))
    await fresh.flush()
    old.append(JSON.stringify({ from: "zombie" }))
    await old.flush().catch((e) => failures.push(e))
    expect(failures.length).toBeGreaterThan(0)
    const got = await stream({ url, offset: "-1", live: false })
    expect(await got.json()).toEqual([{ from: "old" }, { from: "new" }])
  })
})
