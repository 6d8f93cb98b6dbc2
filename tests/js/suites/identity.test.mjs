import assert from "node:assert/strict";
import { test } from "node:test";
import { WebSocket } from "ws";
import { connect } from "../../js/src/identity.js";
import { network, newTopic, until } from "./surroundings.mjs";

test("two talk on a channel, also after a cut", async () => {
  const between = await network();
  const where = between.url.replace("/ws", "/identity");
  const channel = newTopic();
  const got = [];
  const errors = [];
  const states = [];
  const one = connect(where, {
    WebSocket, onMessage: (...message) => got.push(message), onState: (state) => states.push(state), onError: (...error) => errors.push(error),
  });
  one.subscribe(channel);
  one.publish(channel, "a:b\nc");
  await until(() => got.length === 1);
  assert.deepEqual([got[0][0], got[0][1]], ["a:b\nc", channel]);
  assert.match(got[0][2], /^user-[0-9a-f]{8}$/);
  between.cut();
  await until(() => states.length === 3);
  one.publish(channel, "again");
  await until(() => got.length === 2);
  one.publish("other", "x");
  await until(() => errors.length);
  assert.deepEqual(errors, [[401, "Not subscribed"]]);
  assert.deepEqual(states, ["joined", "away", "joined"]);
  one.unsubscribe(channel);
  one.close();
  between.close();
});

test("too many texts without a connection are refused", () => {
  const none = connect("ws://127.0.0.1:1/identity", { WebSocket });
  assert.throws(() => {
    for (let left = 1001; left--; ) none.publish("a", "x");
  }, /wait for a connection/);
  none.close();
});
