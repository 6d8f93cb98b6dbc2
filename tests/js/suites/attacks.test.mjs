// A broker that is an enemy: whatever it sends, the client must not hang, grow, or change anything of the program.
import assert from "node:assert/strict";
import { test } from "node:test";
import { WebSocketServer } from "ws";
import { connect, ConnectionLost, encode } from "../../js/src/index.js";
import { quick, sleep, until } from "./surroundings.mjs";

const [REQ, REP, NOTIF, PUB, PING, PONG] = [1, 2, 3, 5, 8, 9];

/** Return the bytes of a frame; lengths may be wrong. */
function frame(type, id, header, payload = new Uint8Array(), { headerLength, payloadLength } = {}) {
  const encoded = header === undefined ? new Uint8Array() : header instanceof Uint8Array ? header : encode(header);
  const bytes = Buffer.alloc(26 + encoded.length + 8 + payload.length);
  bytes[0] = 1;
  bytes[1] = type;
  bytes.writeUInt32BE(id, 2);
  bytes.writeUInt32BE(headerLength ?? encoded.length, 22);
  bytes.set(encoded, 26);
  bytes.writeBigUInt64BE(BigInt(payloadLength ?? payload.length), 26 + encoded.length);
  bytes.set(payload, 34 + encoded.length);
  return bytes;
}


/** Run a test against a broker that admits the client, answers PINGs, and then does something. */
const against = (name, act, work, options = {}) =>
  test(name, async () => {
    const server = new WebSocketServer({ port: 0, host: "127.0.0.1", perMessageDeflate: false });
    await new Promise((resolve) => server.on("listening", resolve));
    server.on("connection", (socket) => {
      socket.on("message", (data) => {
        for (let at = 0; at < data.length; ) {
          const size = 26 + data.readUInt32BE(at + 22);
          const end = at + size + 8 + Number(data.readBigUInt64BE(at + size));
          if (data[at + 1] === 0) socket.send(frame(REP, 1000, { status: 200 }));
          // The header of a PONG is that of its PING.
          if (data[at + 1] === PING) socket.send(frame(PONG, 1, new Uint8Array(data.subarray(at + 26, at + size))));
          at = end;
        }
      });
      socket.on("error", () => {});
    });
    const mq = await connect(`ws://127.0.0.1:${server.address().port}`, { reconnect: false, ...options });
    try {
      const [socket] = server.clients;
      await work(mq, socket, act?.(socket));
    } finally {
      mq.hangUp();
      for (const each of server.clients) each.terminate();
      server.close();
    }
  });

const ends = async (mq) => assert.ok((await mq.closed()) instanceof ConnectionLost);

for (const [name, bytes] of [
  ["another version", Buffer.from("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")],
  ["an unknown type", frame(77, 1)],
  ["a huge header", frame(PUB, 1, {}, undefined, { headerLength: 0xffffffff })],
  ["a huge payload", frame(PUB, 1, { topic: "a" }, undefined, { payloadLength: 2n ** 63n })],
  ["a payload over the limit", frame(PUB, 1, { topic: "a" }, undefined, { payloadLength: 2 ** 27 })],
  ["a header that is no MessagePack", frame(PUB, 1, new Uint8Array([0xc1]))],
  ["a header that is nested without end", frame(PUB, 1, new Uint8Array(60_000).fill(0x91))],
  ["a header that announces millions of pairs", frame(PUB, 1, new Uint8Array([0xdf, 0xff, 0xff, 0xff, 0xff]))],
]) {
  against(`${name} ends the connection`, (socket) => socket.send(bytes), ends);
}

against("a text ends the connection", (socket) => socket.send("1000000000"), ends);

against("announced bytes take no memory until they come", null, async (mq, socket) => {
  const before = process.memoryUsage();
  socket.send(frame(PUB, 1, { topic: "a" }, undefined, { payloadLength: 2 ** 26 - 1 }));
  await sleep(50);
  const after = process.memoryUsage();
  assert.ok(after.arrayBuffers - before.arrayBuffers < 1 << 20);
  assert.equal(mq.state, "joined");
});

against("frames in pieces of one byte are understood", null, async (mq, socket) => {
  const subscription = await mq.subscribe("a");
  const bytes = Buffer.concat([frame(PUB, 7, { topic: "a" }, encode("x")), frame(PUB, 7, { topic: "a" }, encode("y".repeat(300)))]);
  for (const byte of bytes) socket.send(Buffer.from([byte]));
  assert.deepEqual([(await subscription.take(30)).value, (await subscription.take(30)).value], ["x", "y".repeat(300)]);
});

against("keys __proto__ pollute nothing", null, async (mq, socket) => {
  const subscription = await mq.subscribe("a");
  const key = [0xa9, ...Buffer.from("__proto__")];
  const evil = new Uint8Array([0x81, ...key, 0x82, 0xa5, ...Buffer.from("topic"), 0xa1, 0x61, 0xa8, ...Buffer.from("polluted"), 1]);
  socket.send(frame(PUB, 7, evil, evil));
  socket.send(frame(NOTIF, 7, evil, evil));
  socket.send(frame(PUB, 7, { topic: "a" }, evil));
  const message = await subscription.take(30);
  assert.equal(message.value.polluted, undefined);
  assert.equal({}.polluted, undefined);
  assert.equal(Object.prototype.topic, undefined);
  assert.equal(subscription.waiting, 0);
});

against("answers of others, and to nothing, are ignored", null, async (mq, socket) => {
  const answer = (id, sender, value) => frame(REP, sender, { routing: [{ client_id: 1000 }], reqrep: { type: "correlation", id } }, encode(value));
  const ids = [];
  socket.on("message", (data) => {
    const found = /[0-9a-z]{12,24}/.exec(data.toString("latin1").split("id").at(-1));
    if (data[1] === REQ) ids.push(mq._replies.keys().next().value);
    if (data[1] === REQ && found) {
      socket.send(answer(ids[0], 3000, "forged"));
      socket.send(answer("other", 2000, "unasked"));
      socket.send(answer("constructor", 2000, "unasked"));
      socket.send(answer(ids[0], 2000, "right"));
    }
  });
  assert.equal(await mq.request(2000, "/p", 1, { timeout: 10 }), "right");
});

against("headers of the wrong types are survived", null, async (mq, socket) => {
  const subscription = await mq.subscribe("a");
  for (const fields of [
    {}, [], 5, { topic: 5 }, { topic: { a: 1 } }, { topic: "a", delivery: 5 }, { delivery: { queue: {}, tag: {} } }, { routing: 5, status: "x" },
    { routing: [null], status: 500 }, { reqrep: 5, status: 400 }, { reqrep: { id: {} } }, { keepalive: 5 }, { keepalive: { timestamp: {} } },
  ]) {
    for (const type of [REQ, REP, NOTIF, 4, PUB, 6, 7, PING, PONG]) {
      for (const sender of [1, 7]) socket.send(frame(type, sender, fields, new Uint8Array([0xc1])));
    }
  }
  socket.send(frame(PUB, 7, { topic: "a" }, encode("still")));
  let message;
  do message = await subscription.take(30);
  while (message.payload[0] === 0xc1);
  assert.equal(message.value, "still");
  assert.equal(mq.state, "joined");
});

against(
  "endless frames are bounded",
  null,
  async (mq, socket) => {
    const subscription = await mq.subscribe("a");
    const notified = mq.notifications();
    const body = new Uint8Array(1000);
    for (let count = 0; count < 3000; count++) {
      socket.send(frame(PUB, 7, { topic: "a" }, body));
      socket.send(frame(PUB, 7, { topic: `b${count}` }, body));
      socket.send(frame(NOTIF, 7, { routing: [{ client_id: 1000, path: "/n" }] }, body));
      socket.send(frame(REP, 1, { status: 400, routing: [{ client_id: 1000, path: "p".repeat(1000) }] }, encode("w".repeat(1000))));
      socket.send(frame(PONG, 1, { keepalive: { timestamp: count + 1e6 } }));
      socket.send(frame(REQ, 7, { routing: [{ client_id: 1000, path: "/none" }], reqrep: { type: "request", id: `r${count}` } }));
    }
    await subscription.closed;
    await notified.closed;
    await until(() => mq._refusals.length >= 1000);
    await sleep(20);
    assert.ok(subscription._size < 200_000 && notified._size < 200_000);
    assert.equal(mq._refusals.length, 1000);
    assert.ok(mq._receivers.size <= 1001);
    assert.equal(mq._unanswered, 0);
  },
  { unread: 100_000 },
);

against("jobs that were not asked for are dropped, and too many of them end the consumer", null, async (mq, socket) => {
  const job = (queue, tag) => frame(PUB, 7, { topic: "q", delivery: { queue, tag, attempt: 1 } }, new Uint8Array(1000));
  const jobs = await mq.consume("q");
  socket.send(job("other", 1));
  for (let tag = 0; tag < 1000; tag++) socket.send(job("q", tag));
  await jobs.closed;
  assert.ok(jobs._size < 200_000);
}, { unread: 100_000 });

test("a broker that never answers the JOIN ends in time, and one that floods at once", async () => {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  await new Promise((resolve) => server.on("listening", resolve));
  const where = `ws://127.0.0.1:${server.address().port}`;
  await assert.rejects(connect(where, { timeout: 0.05 }), { name: "TimedOut" });
  server.on("connection", (socket) => {
    socket.on("error", () => {});
    for (let count = 0; count < 40; count++) socket.send(frame(PUB, 7, { topic: "a" }, new Uint8Array(60_000)));
  });
  await assert.rejects(connect(where), ConnectionLost);
  for (const each of server.clients) each.terminate();
  server.close();
});

test("a token is renewed before it expires, and nothing is lost", async () => {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", perMessageDeflate: false });
  await new Promise((resolve) => server.on("listening", resolve));
  const joins = [];
  let id = 1000;
  server.on("connection", (socket) =>
    socket.on("message", (data) => {
      for (let at = 0; at < data.length; ) {
        const size = 26 + data.readUInt32BE(at + 22);
        if (data[at + 1] === 0) {
          joins.push(data.subarray(at, at + size).toString("latin1"));
          socket.send(frame(REP, ++id, { status: 200 }));
        }
        if (data[at + 1] === PING) socket.send(frame(PONG, 1, new Uint8Array(data.subarray(at + 26, at + size))));
        at += size + 8 + Number(data.readBigUInt64BE(at + size));
      }
    }),
  );
  let made = 0;
  const token = async () => `h.${btoa(JSON.stringify({ exp: Date.now() / 1000 + (made++ ? 3600 : 0.2) }))}.s`;
  const mq = await connect(`ws://127.0.0.1:${server.address().port}`, { token, reconnect: quick });
  mq.publish("a", 1);
  await until(() => joins.length === 2 && mq.state === "joined");
  assert.equal(made, 2);
  assert.notEqual(joins[0], joins[1]);
  await mq.flush();
  await mq.close();
  for (const each of server.clients) each.terminate();
  server.close();
});

test("each connection confirms a part of what is repeated, although none lasts until its end", async () => {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", perMessageDeflate: false });
  await new Promise((resolve) => server.on("listening", resolve));
  let connections = 0;
  server.on("connection", (socket) => {
    let left = 300;
    connections++;
    socket.on("message", (data) => {
      for (let at = 0; at < data.length && left; ) {
        const size = 26 + data.readUInt32BE(at + 22);
        if (data[at + 1] === 0) socket.send(frame(REP, 1000, { status: 200 }));
        if (data[at + 1] === PING) socket.send(frame(PONG, 1, new Uint8Array(data.subarray(at + 26, at + size))));
        // What was answered arrives before the end.
        if (data[at + 1] === PUB && !--left) socket.close();
        at += size + 8 + Number(data.readBigUInt64BE(at + size));
      }
    });
    socket.on("error", () => {});
  });
  const mq = await connect(`ws://127.0.0.1:${server.address().port}`, { reconnect: quick, repeat: true });
  let isConfirmed = false;
  try {
    await mq.publishMany("a", Array(1000).keys());
    mq.flush().then(() => (isConfirmed = true), () => {});
    await until(() => isConfirmed || connections > 20);
    assert.ok(isConfirmed, `not after ${connections} connections`);
  } finally {
    mq.hangUp();
    for (const each of server.clients) each.terminate();
    server.close();
  }
});
