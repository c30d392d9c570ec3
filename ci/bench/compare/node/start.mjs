// Starts the reference server on a free loopback port and prints its URL.
//   node start.mjs            in memory
//   node start.mjs DIRECTORY  with files
import { DurableStreamTestServer } from "@durable-streams/server";

const [dataDir] = process.argv.slice(2);
const server = new DurableStreamTestServer({ port: 0, host: "127.0.0.1", dataDir });
const url = await server.start();
console.log(url);

for (const signal of ["SIGTERM", "SIGINT"]) {
  process.once(signal, async () => {
    await server.stop();
    process.exit(0);
  });
}
