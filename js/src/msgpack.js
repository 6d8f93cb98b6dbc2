/**
 * MessagePack, as FlexiMQ's payloads and headers use it. Memory is bounded by the bytes that are there, not by announced
 * lengths, and depth by the engine's stack, whose end is an ordinary error.
 *
 * @module
 */

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const TWO_32 = 2 ** 32;
/** Shorter texts are copied in a loop, which is faster than a call of the platform's coder. */
const SHORT = 48;

const wrong = () => new RangeError("not MessagePack");

/** @param {ArrayBufferView} view */
const viewOf = (view) => new DataView(view.buffer, view.byteOffset, view.byteLength);

/** Kinds of numbers, in the order of their markers from 0xca on. */
const NUMBERS = ["Float32", "Float64", "Uint8", "Uint16", "Uint32", "BigUint64", "Int8", "Int16", "Int32", "BigInt64"];
const GETTERS = NUMBERS.map((kind) => `get${kind}`);
const SETTERS = NUMBERS.map((kind) => `set${kind}`);

/** @param {number} kind */
const sizeOf = (kind) => 1 << ((kind + 2) & 3);

/** Bytes that are written one after the other into a buffer that grows. */
export class Writer {
  /** @internal */
  _bytes = new Uint8Array(4096);
  /** @internal */
  _view = viewOf(this._bytes);
  /** The number of written bytes. @internal */
  _at = 0;

  /** Make room for so many further bytes. @internal @param {number} count */
  _room(count) {
    const bytes = this._bytes;
    if (this._at + count > bytes.length) {
      this._bytes = new Uint8Array(bytes.length * 2 + count);
      this._bytes.set(bytes);
      this._view = viewOf(this._bytes);
    }
  }

  /** @internal @param {number} byte */
  _byte(byte) {
    this._room(1);
    this._bytes[this._at++] = byte;
  }

  /** @internal @param {Uint8Array} bytes */
  _raw(bytes) {
    this._room(bytes.length);
    this._bytes.set(bytes, this._at);
    this._at += bytes.length;
  }

  /** Write a marker, and a number of one of the kinds of `NUMBERS`. @internal @param {number | undefined} mark @param {number} kind @param {number | bigint} number */
  _number(mark, kind, number) {
    if (mark !== undefined) this._byte(mark);
    this._room(8);
    // @ts-ignore: the kind fits the number
    this._view[SETTERS[kind]](this._at, kind % 4 === 1 && kind > 1 ? BigInt(number) : number);
    this._at += sizeOf(kind);
  }

  /**
   * Write the marker of something with a length.
   *
   * @internal
   * @param {number} length
   * @param {number} few the marker that contains it @param {number} most if it is below this
   * @param {number} mark the one with 8 bits @param {number} least 1 if there is none
   */
  _length(length, few, most, mark, least = 0) {
    if (length < most) this._byte(few | length);
    else {
      const size = length > 65535 ? 2 : length > 255 ? 1 : least;
      this._number(mark + size, size + 2, length);
    }
  }

  /** @internal @param {string} text */
  _text(text) {
    const length = text.length;
    if (length < SHORT) {
      const start = this._at;
      this._length(length, 0xa0, 32, 0xd9);
      this._room(length);
      const bytes = this._bytes;
      let at = this._at;
      let place = 0;
      for (; place < length; place++) {
        const code = text.charCodeAt(place);
        if (code > 127) break;
        bytes[at++] = code;
      }
      if (place === length) {
        this._at = at;
        return;
      }
      this._at = start;
    }
    const encoded = encoder.encode(text);
    this._length(encoded.length, 0xa0, 32, 0xd9);
    this._raw(encoded);
  }

  /**
   * Write a value: null, booleans, numbers, bigints of 64 bits, texts, bytes, `Date`, arrays, `Map` and plain objects,
   * whose undefined fields are left out.
   *
   * @internal
   * @param {any} value
   */
  _value(value) {
    const type = typeof value;
    if (type === "string") this._text(value);
    else if (type === "number") {
      if (!Number.isSafeInteger(value)) this._number(0xcb, 1, value);
      else if (value > -33 && value < 128) this._byte(value);
      else {
        const bits = value < 0 ? -2 - 2 * value : value;
        const kind = (value < 0 ? 6 : 2) + (bits < 256 ? 0 : bits < 65536 ? 1 : bits < TWO_32 ? 2 : 3);
        this._number(0xca + kind, kind, value);
      }
    } else if (type === "bigint") {
      const kind = value < 0n ? 9 : 5;
      if (BigInt[value < 0n ? "asIntN" : "asUintN"](64, value) !== value) throw wrong();
      this._number(0xca + kind, kind, value);
    } else if (value == null) this._byte(0xc0);
    else if (type === "boolean") this._byte(value ? 0xc3 : 0xc2);
    else if (type !== "object") throw wrong();
    else if (Array.isArray(value)) {
      this._length(value.length, 0x90, 16, 0xdb, 1);
      for (const each of value) this._value(each);
    } else if (ArrayBuffer.isView(value)) {
      this._length(value.byteLength, 0, 0, 0xc4);
      this._raw(new Uint8Array(value.buffer, value.byteOffset, value.byteLength));
    } else if (value instanceof ArrayBuffer) this._value(new Uint8Array(value));
    else if (value instanceof Date) {
      const whole = Math.floor(+value / 1000);
      // An extension of 12 bytes, of the type -1.
      this._number(0xc7, 2, 12);
      this._number(-1, 4, (+value - whole * 1000) * 1e6);
      this._number(undefined, 9, whole);
    } else {
      const pairs = value instanceof Map ? [...value] : Object.entries(value).filter((pair) => pair[1] !== undefined);
      this._length(pairs.length, 0x80, 16, 0xdd, 1);
      for (const pair of pairs) for (const each of pair) this._value(each);
    }
  }
}

/** For what is written and copied at once. */
export const scratch = new Writer();

/**
 * Return the MessagePack bytes of a value.
 *
 * @param {unknown} value
 * @returns {Uint8Array}
 */
export function encode(value) {
  const start = scratch._at;
  try {
    scratch._value(value);
    return scratch._bytes.slice(start, scratch._at);
  } finally {
    // A field of the value may be computed by code that encodes another one.
    scratch._at = start;
  }
}

// The bytes that are read, the place and the end. Reading calls no foreign code, so one set is enough.
/** @type {Uint8Array} */
let bytes = new Uint8Array();
let view = viewOf(bytes);
let at = 0;
let end = 0;

/** Return the place of so many bytes, and go on after them. @param {number} count */
function skip(count) {
  const start = at;
  if ((at += count) > end) throw wrong();
  return start;
}

/** Read a number of one of the kinds of `NUMBERS`. @param {number} kind @returns {any} */
function number(kind) {
  if (kind === 2) return bytes[skip(1)];
  // @ts-ignore: all of them have this signature
  const found = view[GETTERS[kind]](skip(sizeOf(kind)));
  return typeof found === "bigint" && Number.isSafeInteger(Number(found)) ? Number(found) : found;
}

/** @param {number} length */
function text(length) {
  const start = skip(length);
  if (length < SHORT) {
    let found = "";
    let place = start;
    for (; place < at && bytes[place] < 128; place++) found += String.fromCharCode(bytes[place]);
    if (place === at) return found;
  }
  return decoder.decode(bytes.subarray(start, at));
}

/** Read a timestamp, the only extension that has a value here. @param {number} length */
function timestamp(length) {
  if (number(6) !== -1) throw wrong();
  const isWide = length > 4;
  if (length !== 8) return dateOf(isWide ? number(4) : 0, number(isWide ? 9 : 4));
  const both = BigInt(number(5));
  return dateOf(Number(both >> 34n), Number(both & 0x3ffffffffn));
}

/** @param {number} nanoseconds @param {number} seconds */
const dateOf = (nanoseconds, seconds) => new Date(seconds * 1000 + Math.floor(nanoseconds / 1e6));

/** @param {number} length @param {() => any} [each] */
function list(length, each = read) {
  const found = [];
  while (length--) found.push(each());
  return found;
}

/** Unlike an assignment, this makes `__proto__` a field like all others. @param {number} length */
const map = (length) => Object.fromEntries(list(length, () => [read(), read()]));

/** @returns {any} */
function read() {
  const mark = bytes[skip(1)];
  if (mark < 0x80) return mark;
  if (mark > 0xdf) return mark - 256;
  if (mark > 0x9f && mark < 0xc0) return text(mark & 31);
  if (mark < 0x90) return map(mark & 15);
  if (mark < 0xa0) return list(mark & 15);
  if (mark === 0xc0) return null;
  if (mark === 0xc1) throw wrong();
  if (mark < 0xc4) return mark > 0xc2;
  if (mark < 0xc7) {
    const length = number(mark - 0xc2);
    return bytes.subarray(skip(length), at);
  }
  if (mark < 0xca) return timestamp(number(mark - 0xc5));
  if (mark < 0xd4) return number(mark - 0xca);
  if (mark < 0xd9) return timestamp(1 << (mark - 0xd4));
  if (mark < 0xdc) return text(number(mark - 0xd7));
  return (mark < 0xde ? list : map)(number((mark & 1) + 3));
}

/**
 * Return the value of MessagePack bytes, undefined if there are none. Bytes in it are views of the same memory, whole
 * numbers beyond 2^53 are bigints, timestamps are `Date`, maps are plain objects.
 *
 * @param {Uint8Array} data
 * @param {number} [start]
 * @param {number} [stop]
 * @returns {any}
 * @throws {Error} they are not exactly one value, or one that JavaScript cannot represent
 */
export function decode(data, start = 0, stop = data.length) {
  if (start === stop) return undefined;
  if (data !== bytes) {
    bytes = data;
    view = viewOf(data);
  }
  at = start;
  end = stop;
  const found = read();
  if (at !== end) throw wrong();
  return found;
}
