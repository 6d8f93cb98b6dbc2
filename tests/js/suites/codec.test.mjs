import assert from "node:assert/strict";
import { test } from "node:test";
import { decode, encode } from "../../js/src/index.js";

const hex = (bytes) => Buffer.from(bytes).toString("hex");
const bytes = (text) => new Uint8Array(Buffer.from(text, "hex"));

test("values there and back", () => {
  const numbers = [0, 127, 128, 255, 256, 65535, 65536, 2 ** 32 - 1, 2 ** 32, 2 ** 53 - 1, 0.5, 1e300, Infinity];
  const texts = ["", "a", "ü€😀", "x".repeat(31), "x".repeat(32), "x".repeat(47), "ü".repeat(47), "x".repeat(48), "x".repeat(256), "x".repeat(70000)];
  const lists = [[], [[1], [2, [3]]], Array(15).fill(1), Array(16).fill("a"), Array(70000).fill(null)];
  const binaries = [0, 255, 256, 70000].map((size) => new Uint8Array(size).fill(7));
  const negative = numbers.map((number) => (number ? -number : -1)).concat(-32, -33, -129, -32769, -(2 ** 31) - 1);
  const large = Object.fromEntries(Array.from({ length: 20 }, (_, place) => [`key${place}`, place]));
  const wide = [2n ** 64n - 1n, -(2n ** 63n)];
  const dates = [0, 1, -1500, 1_700_000_000_123, 2 ** 35 * 1000].map((time) => new Date(time));
  for (const value of [null, true, false, ...numbers, ...negative, ...texts, ...lists, ...binaries, large, {}, ...wide, ...dates]) {
    assert.deepEqual(decode(encode(value)), value);
  }
});

test("values have the shortest form", () => {
  for (const [value, expected] of [
    [1, "01"], [-1, "ff"], [200, "ccc8"], [-200, "d1ff38"], [1.5, "cb3ff8000000000000"], ["a", "a161"],
    [new Uint8Array([1]), "c40101"], [[1], "9101"], [{ a: undefined, b: 1 }, "81a16201"], [new Map([[1, 2]]), "810102"],
    [new Uint8Array([1]).buffer, "c40101"], [5n, "cf0000000000000005"],
  ]) assert.equal(hex(encode(value)), expected);
});

test("timestamps of all three sizes are dates", () => {
  for (const [text, time] of [
    ["d6ff00000001", 1000], ["d7ff7735940000000001", 1500], ["c70cff1dcd6500ffffffffffffffff", -500],
  ]) assert.deepEqual(decode(bytes(text)), new Date(time));
});

test("what is no value is an error", () => {
  for (const text of ["c1", "91", "a261", "c4ff00", "0101", "81a161", "cb00", "d40102", "dfffffffff", "ddffffffff", "c6ffffffff", "dbffffffff", "a1ff"]) {
    assert.throws(() => decode(bytes(text)), Error, text);
  }
  assert.equal(decode(new Uint8Array()), undefined);
  for (const value of [() => 1, Symbol("a"), 2n ** 64n, -(2n ** 63n) - 1n]) assert.throws(() => encode(value), RangeError);
});

test("nesting without end is an error", () => {
  assert.throws(() => decode(new Uint8Array(1_000_000).fill(0x91)), RangeError);
  assert.throws(() => decode(new Uint8Array(1_000_000).fill(0x81)), Error);
  const own = [];
  own.push(own);
  assert.throws(() => encode(own), RangeError);
  assert.deepEqual(decode(encode([1])), [1]);
});

test("a key __proto__ changes no prototype", () => {
  const found = decode(bytes(`81a9${Buffer.from("__proto__").toString("hex")}81a861646d696e697374c3`));
  assert.equal(Object.getPrototypeOf(found), Object.prototype);
  assert.ok(Object.hasOwn(found, "__proto__"));
  assert.equal({}.administ, undefined);
  assert.equal(found.administ, undefined);
  assert.equal(hex(encode(found)), `81a9${Buffer.from("__proto__").toString("hex")}81a861646d696e697374c3`);
});
