import assert from "node:assert/strict";
import { test } from "node:test";
import { Answered, connect, ConnectionLost, NotSettled, Overrun, PublishFailed, SubscribeFailed, TimedOut } from "../../js/src/index.js";
import { network, newTopic, quick, until, url } from "./surroundings.mjs";

/** Run a test with clients that end with it. */
const using = (name, work) =>
  test(name, async () => {
    const all = [];
    try {
      await work(async (options, where = url) => {
        const client = await connect(where, options);
        all.push(client);
        return client;
      });
    } finally {
      for (const each of all) each.hangUp();
    }
  });

using("refusals are told by the flush, once", async (joined) => {
  const mq = await joined();
  mq.publish("$sys/mine", 1);
  mq.publish("", 2);
  const error = await mq.flush().catch((raised) => raised);
  assert.ok(error instanceof PublishFailed);
  assert.deepEqual([error.status, ...error.others.map((each) => each.status)], [403, 400]);
  await mq.flush();
  mq.publish("$sys/mine", 1);
  const refused = await mq.subscribe("").catch((raised) => raised);
  assert.ok(refused instanceof SubscribeFailed);
  assert.equal(refused.status, 603);
  await assert.rejects(mq.flush(), { status: 403 });
});

using("a subscription is an iterator, and ends with its loop", async (joined) => {
  const mq = await joined();
  const topic = newTopic();
  const subscription = await mq.subscribe(topic);
  await mq.publishMany(topic, [1, 2, 3]);
  const got = [];
  for await (const message of subscription) {
    got.push(message.value);
    if (message.value === 2) break;
  }
  assert.deepEqual(got, [1, 2]);
  assert.equal(await subscription.closed, undefined);
  assert.equal((await subscription.take()).value, 3);
  assert.equal(await subscription.take(), undefined);
  assert.equal(mq._subscriptions.size, 0);
});

using("a function gets one message after the other, and its errors do not end it", async (joined) => {
  const mq = await joined();
  const topic = newTopic();
  const [got, said] = [[], []];
  const original = console.error;
  console.error = (...words) => said.push(words.join(" "));
  try {
    let running = 0;
    await mq.subscribe(topic, async ({ value }) => {
      assert.equal(++running, 1);
      await new Promise((resolve) => setTimeout(resolve, 2));
      running--;
      got.push(value);
      if (value === 1) throw new Error("never mind");
    });
    await mq.subscribe(topic, () => {
      throw new Error("at once");
    });
    await mq.publishMany(topic, [0, 1, 2]);
    await until(() => got.length === 3);
  } finally {
    console.error = original;
  }
  assert.deepEqual(got, [0, 1, 2]);
  assert.equal(said.filter((each) => each.includes("never mind")).length, 1);
  assert.equal(said.filter((each) => each.includes("at once")).length, 3);
});

using("one with too much to read ends with an error after what it has", async (joined) => {
  const [mq, other] = [await joined({ unread: 3000 }), await joined()];
  const topic = newTopic();
  const subscription = await mq.subscribe(topic);
  await other.publishMany(topic, Array(50).fill("x".repeat(100)));
  assert.ok((await subscription.closed) instanceof Overrun);
  let read = 0;
  await assert.rejects(async () => {
    for await (const _ of subscription) read++;
  }, Overrun);
  assert.ok(read > 5 && read < 50);
});

using("a slow reader of a durable topic misses nothing", async (joined) => {
  const [mq, other] = [await joined({ unread: 20_000 }), await joined()];
  const topic = newTopic();
  await other.publishMany(topic, Array.from({ length: 2000 }, (_, number) => number));
  await other.flush();
  const subscription = await mq.subscribe(topic, { from: "first" });
  const got = [];
  for await (const message of subscription) {
    got.push(message.value);
    if (message.value % 100 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    if (message.value === 1999) break;
  }
  assert.deepEqual(got, Array.from({ length: 2000 }, (_, number) => number));
});

using("subscriptions with starts must not overlap", async (joined) => {
  const mq = await joined();
  const topic = newTopic();
  await mq.subscribe(`${topic}.*.b`, { from: "first" });
  for (const other of [`${topic}.a.*`, `${topic}.#`, `${topic}.*.b`, `${topic}.x.b`]) {
    await assert.rejects(mq.subscribe(other, { from: "first" }), TypeError);
  }
  await mq.subscribe(`${topic}.a.c`, { from: "first" });
  await mq.subscribe(`${topic}.#`);
});

using("patterns match as the broker's", async (joined) => {
  const mq = await joined();
  const topic = newTopic();
  const got = {};
  for (const rest of [".a", ".*", ".#", "/*/c", ".b.*", ""]) await mq.subscribe(topic + rest, (m) => (got[rest] ??= []).push(m.topic.slice(topic.length)));
  for (const rest of ["", ".a", "/a", ".b.c", ".b.c.d", "x"]) mq.publish(topic + rest, 1);
  await mq.flush();
  assert.deepEqual(got, {
    ".a": [".a"], ".*": [".a", "/a"], ".#": ["", ".a", "/a", ".b.c", ".b.c.d"], "/*/c": [".b.c"], ".b.*": [".b.c"], "": [""],
  });
});

using("a service answers by name and id, and with statuses", async (joined) => {
  const name = newTopic();
  const [mq, other] = [await joined({ name }), await joined()];
  mq.serve("/square", ({ value }) => value ** 2);
  mq.serve("/refuse", () => {
    throw new Answered(409, "it is taken");
  });
  assert.equal(await other.request(name, "/square", 7), 49);
  assert.equal(await other.request(mq.id, "/square", 8), 64);
  await assert.rejects(other.request(name, "/refuse"), { name: "RequestFailed", status: 409, words: "it is taken", path: "/refuse" });
  await assert.rejects(other.request(name, "/none"), { status: 404 });
  mq.serve("/never", () => new Promise(() => {}));
  await assert.rejects(other.request(name, "/never", 1, { timeout: 0.05 }), TimedOut);
});

using("a function works on jobs, several at once", async (joined) => {
  const [mq, other] = [await joined(), await joined()];
  const queue = newTopic();
  const seen = [];
  let most = 0;
  let running = 0;
  const report = console.error;
  console.error = () => {};
  const jobs = await mq.consume(queue, { prefetch: 3 }, async (job) => {
    most = Math.max(most, ++running);
    await new Promise((resolve) => setTimeout(resolve, 5));
    running--;
    seen.push([job.value, job.attempt]);
    if (job.value === "bad") job.reject("never");
    if (job.value === "flaky" && job.attempt === 1) throw new Error("again");
  });
  for (const value of ["a", "bad", "flaky", "b"]) other.enqueue(queue, value);
  await other.flush();
  await until(() => seen.length === 5);
  await mq.flush();
  console.error = report;
  assert.equal(most, 3);
  assert.deepEqual(seen.map(([value, attempt]) => `${value} ${attempt}`).sort(), ["a 1", "b 1", "bad 1", "flaky 1", "flaky 2"]);
  const dead = await (await other.consume(`$dead/${queue}`)).take(30);
  assert.deepEqual([dead.value, dead.message.header.death.words], ["bad", "never"]);
  jobs.close();
});

using("jobs have their options, and are settled once", async (joined) => {
  const mq = await joined();
  const queue = newTopic();
  await mq.enqueue(queue, "late", { delay: 0.02, key: "k", messageId: "m1" });
  await mq.enqueue(queue, "first", { priority: 9 });
  const jobs = await mq.consume(queue, { prefetch: 2 });
  const [one, two] = [await jobs.take(), await jobs.take(30)];
  assert.deepEqual([one.value, two.value, two.message.header.key, two.message.header.message_id], ["first", "late", "k", "m1"]);
  one.extend(60);
  one.ack();
  assert.throws(() => one.retry(), NotSettled);
  two.retry(0);
  const again = await jobs.take();
  assert.deepEqual([again.value, again.attempt], ["late", 2]);
  again.reject("words");
  await mq.flush();
});

using("presence tells who is there, who comes and who goes", async (joined) => {
  const mq = await joined();
  let seen = [];
  const subscription = await mq.presence((clients) => (seen = clients.map((each) => each.client_id)));
  await until(() => seen.includes(mq.id));
  const other = await joined();
  await until(() => seen.includes(other.id));
  const id = other.id;
  await other.close();
  await until(() => !seen.includes(id));
  subscription.close();
});

using("a message id is stored once, however often it is published", async (joined) => {
  const mq = await joined();
  const topic = newTopic();
  await mq.publish(topic, 1, { messageId: "same" });
  await mq.publish(topic, 1, { messageId: "same" });
  await mq.publish(topic, 2, { messageId: true });
  await mq.flush();
  const subscription = await mq.subscribe(topic, { from: "first" });
  assert.deepEqual([(await subscription.take()).value, (await subscription.take()).value], [1, 2]);
  assert.equal(mq._held.length, 0);
});

using("an outage is told, shown as a gap, and repeated publications arrive once", async (joined) => {
  const between = await network();
  const [mq, other] = [await joined({ reconnect: quick }, between.url), await joined()];
  const topic = newTopic();
  const plain = await mq.subscribe(`${topic}.plain`, { gaps: true });
  const next = await mq.subscribe(topic, { from: "next" });
  const states = [];
  mq.status((status) => states.push(status));
  between.isDown = true;
  between.cut();
  await until(() => mq.state === "away");
  other.publish(`${topic}.plain`, "missed");
  await other.publish(topic, "stored");
  await other.flush();
  mq.publish(topic, "held", { messageId: true });
  await assert.rejects(mq.flush({ timeout: 0.05 }), TimedOut);
  between.isDown = false;
  await mq.flush();
  await other.publish(`${topic}.plain`, "new");
  const gap = await plain.take();
  assert.deepEqual([gap.isGap, gap.topic, (await plain.take()).value], [true, `${topic}.plain`, "new"]);
  assert.deepEqual([(await next.take()).value, (await next.take()).value], ["stored", "held"]);
  assert.deepEqual(states.map((each) => each.state), ["away", "joined"]);
  assert.deepEqual(states[0].missing, [`${topic}.plain`]);
  assert.ok(states[0].error instanceof ConnectionLost);
  between.close();
});

using("what waits for a connection is bounded", async (joined) => {
  const between = await network();
  const mq = await joined({ reconnect: quick, buffer: 10_000 }, between.url);
  between.isDown = true;
  between.cut();
  await until(() => mq.state === "away");
  assert.throws(() => {
    for (;;) mq.publish("a", "x".repeat(1000));
  }, { name: "BufferFull" });
  between.close();
  mq.hangUp();
  assert.throws(() => mq.publish("a", 1), ConnectionLost);
  assert.equal(await mq.closed(), undefined);
});

using("a page that is seen again reconnects at once", async (joined) => {
  const between = await network();
  const target = new EventTarget();
  globalThis.addEventListener = target.addEventListener.bind(target);
  try {
    const mq = await joined({ reconnect: { first: 1000, most: 1000, jitter: 0 } }, between.url);
    between.cut();
    await until(() => mq.state === "away");
    target.dispatchEvent(new Event("online"));
    await until(() => mq.state === "joined");
    await mq.flush();
  } finally {
    delete globalThis.addEventListener;
    between.close();
  }
});

using("draining lets calls end, and closes", async (joined) => {
  const [mq, other] = [await joined(), await joined()];
  const topic = newTopic();
  const got = [];
  await mq.subscribe(topic, async ({ value }) => {
    await new Promise((resolve) => setTimeout(resolve, 3));
    got.push(value);
  });
  await other.publishMany(topic, [1, 2, 3]);
  await other.flush();
  await until(() => got.length);
  await mq.drain();
  assert.deepEqual(got, [1, 2, 3]);
  assert.equal(mq.state, "closed");
  assert.equal(await mq.closed(), undefined);
});
