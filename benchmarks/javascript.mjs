// One measurement: node javascript.mjs fleximq|nats URL publish|receive|feed COUNT. It prints messages for each second.
import { spawn } from "node:child_process";

const [, program, kind, url, scene, words] = process.argv;
const count = Number(words);
const SIZE = 100;
const TOGETHER = 512;
const payload = new Uint8Array(SIZE).fill(120);

/** The same few calls for both clients. */
const clients = {
  async fleximq() {
    const { connect } = await import("fleximq");
    const mq = await connect(url);
    return {
      publish: (topic) => mq.publish(topic, payload),
      flush: () => mq.flush({ timeout: 300 }),
      subscribe: (topic, call) => mq.subscribe(topic, (message) => call(message.payload)),
      close: () => mq.close(),
    };
  },
  async nats() {
    const { connect } = await import("nats.ws");
    const { WebSocket } = await import("ws");
    globalThis.WebSocket ??= WebSocket;
    const nc = await connect({ servers: url });
    return {
      publish: (topic) => nc.publish(topic, payload),
      flush: () => nc.flush(),
      subscribe: (topic, call) => nc.subscribe(topic, { callback: (_, message) => call(message.data) }),
      close: () => nc.close(),
    };
  },
};

const client = await clients[kind]();

/** Publish all, with a turn of the event loop now and then, and wait until the broker has them. */
async function publish(topic) {
  for (let left = count; left > 0; left -= TOGETHER) {
    let sent;
    for (let some = Math.min(left, TOGETHER); some--; ) sent = client.publish(topic);
    await sent;
    if (left % (16 * TOGETHER) < TOGETHER) await new Promise(setImmediate);
  }
  await client.flush();
}

if (scene === "feed") {
  await publish("bench");
  await client.close();
} else if (scene === "publish") {
  await publish("warm");
  const begun = performance.now();
  await publish("nobody");
  console.log(Math.round((1000 * count) / (performance.now() - begun)));
  await client.close();
} else {
  let got = 0;
  let begun = 0;
  let over;
  const all = new Promise((resolve) => (over = resolve));
  await client.subscribe("bench", (bytes) => {
    if (bytes.length < SIZE) throw new Error("a payload is too short");
    if (!got++) begun = performance.now();
    if (got === count) over();
  });
  await client.flush();
  const feeding = spawn(process.execPath, [program, kind, url, "feed", words], { stdio: "inherit" });
  await all;
  console.log(Math.round((1000 * count) / (performance.now() - begun)));
  await new Promise((resolve) => feeding.on("exit", resolve));
  await client.close();
}
process.exit();
