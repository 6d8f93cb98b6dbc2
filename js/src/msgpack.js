/**
 * MessagePack, as FlexiMQ's payloads and headers use it. Depth and sizes are bounded by the bytes that are there, so a
 * hostile peer can neither make it recurse without end nor allocate for an announced length.
 *
 * @module
 */

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
/** Deeper values are refused, in both directions. The broker's limit for headers is the same. */
const DEPTH = 256;
const TWO_32 = 2 ** 32;
/** Texts up to this length are copied in a loop, which is faster than a call of the platform's coder. */
const SHORT = 48;

/** A value of an extension type of MessagePack other than the timestamp, which is a `Date`. */
export class Ext {
  /**
   * @param {number} type from -128 to 127
   * @param {Uint8Array} data
   */
  constructor(type, data) {
    this.type = type;
    this.data = data;
  }
}

/** Bytes that are written one after the other into a buffer that grows. */
export class Writer {
  constructor() {
    /** @internal */
    this._bytes = new Uint8Array(4096);
    /** @internal */
    this._view = new DataView(this._bytes.buffer);
    /** The number of written bytes. @internal */
    this._at = 0;
  }

  /** Make room for so many further bytes. @internal @param {number} count */
  _room(count) {
    if (this._at + count > this._bytes.length) {
      const grown = new Uint8Array(Math.max(this._bytes.length * 2, this._at + count));
      grown.set(this._bytes.subarray(0, this._at));
      this._bytes = grown;
      this._view = new DataView(grown.buffer);
    }
  }

  /** @internal @param {Uint8Array} bytes */
  _raw(bytes) {
    this._room(bytes.length);
    this._bytes.set(bytes, this._at);
    this._at += bytes.length;
  }

  /** Write a marker and an unsigned number of 1, 2 or 4 bytes. @internal @param {number} mark @param {number} size @param {number} number */
  _sized(mark, size, number) {
    this._room(5);
    this._bytes[this._at++] = mark;
    if (size === 1) this._bytes[this._at] = number;
    else if (size === 2) this._view.setUint16(this._at, number);
    else this._view.setUint32(this._at, number);
    this._at += size;
  }

  /**
   * Write the marker of something with a length: `mark` is the one for 8 bits, -1 if there is none, with those for 16
   * and 32 bits after it; `few` the one for lengths below `most`, in one byte.
   *
   * @internal
   * @param {number} length @param {number} few @param {number} most @param {number} mark
   */
  _length(length, few, most, mark) {
    if (length < most) {
      this._room(1);
      this._bytes[this._at++] = few | length;
    } else if (length < 256 && mark !== 0xdb && mark !== 0xdd) this._sized(mark, 1, length);
    else if (length < 65536) this._sized(mark + 1, 2, length);
    else this._sized(mark + 2, 4, length);
  }

  /** @internal @param {number} number */
  _number(number) {
    if (!Number.isSafeInteger(number)) {
      this._room(9);
      this._bytes[this._at] = 0xcb;
      this._view.setFloat64(this._at + 1, number);
      this._at += 9;
    } else if (number >= 0) {
      if (number < 128) {
        this._room(1);
        this._bytes[this._at++] = number;
      } else if (number < 256) this._sized(0xcc, 1, number);
      else if (number < 65536) this._sized(0xcd, 2, number);
      else if (number < TWO_32) this._sized(0xce, 4, number);
      else this._wide(BigInt(number));
    } else if (number >= -32) {
      this._room(1);
      this._bytes[this._at++] = number;
    } else if (number >= -128) this._sized(0xd0, 1, number);
    else if (number >= -32768) this._sized(0xd1, 2, number);
    else if (number >= -(2 ** 31)) this._sized(0xd2, 4, number);
    else this._wide(BigInt(number));
  }

  /** @internal @param {bigint} number */
  _wide(number) {
    const positive = number >= 0n;
    if ((positive ? BigInt.asUintN(64, number) : BigInt.asIntN(64, number)) !== number) {
      throw new RangeError("the number has more than 64 bits");
    }
    this._room(9);
    this._bytes[this._at] = positive ? 0xcf : 0xd3;
    this._view.setBigInt64(this._at + 1, number);
    this._at += 9;
  }

  /** @internal @param {string} text */
  _text(text) {
    const length = text.length;
    if (length < SHORT) {
      this._room(length + 2);
      const bytes = this._bytes;
      let at = this._at;
      if (length < 32) bytes[at++] = 0xa0 | length;
      else {
        bytes[at++] = 0xd9;
        bytes[at++] = length;
      }
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
   * @param {unknown} value @param {number} [depth]
   */
  _value(value, depth = 0) {
    switch (typeof value) {
      case "string":
        this._text(value);
        return;
      case "number":
        this._number(value);
        return;
      case "boolean":
      case "undefined":
        this._room(1);
        this._bytes[this._at++] = value ? 0xc3 : value === false ? 0xc2 : 0xc0;
        return;
      case "bigint":
        this._wide(value);
        return;
      case "object":
        break;
      default:
        throw new TypeError(`MessagePack has no type for a ${typeof value}`);
    }
    if (depth > DEPTH) throw new RangeError("the value is nested too deeply, or contains itself");
    if (value === null) {
      this._room(1);
      this._bytes[this._at++] = 0xc0;
    } else if (Array.isArray(value)) {
      this._length(value.length, 0x90, 16, 0xdb);
      for (const each of value) this._value(each, depth + 1);
    } else if (value instanceof ArrayBuffer || ArrayBuffer.isView(value)) {
      const bytes =
        value instanceof ArrayBuffer ? new Uint8Array(value) : new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
      this._length(bytes.length, 0, 0, 0xc4);
      this._raw(bytes);
    } else if (value instanceof Date) {
      const time = value.getTime();
      if (Number.isNaN(time)) throw new RangeError("the date is invalid");
      const whole = Math.floor(time / 1000);
      this._sized(0xc7, 2, 0x0cff);
      this._room(12);
      this._view.setUint32(this._at, (time - whole * 1000) * 1e6);
      this._view.setBigInt64(this._at + 4, BigInt(whole));
      this._at += 12;
    } else if (value instanceof Ext) {
      this._length(value.data.length, 0, 0, 0xc7);
      this._room(1);
      this._bytes[this._at++] = value.type;
      this._raw(value.data);
    } else {
      const pairs = value instanceof Map ? [...value] : Object.entries(value).filter((pair) => pair[1] !== undefined);
      this._length(pairs.length, 0x80, 16, 0xdd);
      for (const [key, each] of pairs) {
        this._value(key, depth + 1);
        this._value(each, depth + 1);
      }
    }
  }
}

const scratch = new Writer();

/**
 * Return the MessagePack bytes of a value.
 *
 * @param {unknown} value
 * @returns {Uint8Array}
 */
export function encode(value) {
  scratch._at = 0;
  scratch._value(value);
  return scratch._bytes.slice(0, scratch._at);
}

// The bytes that are read, the place and the end. Reading calls no foreign code, so one set is enough.
let bytes = new Uint8Array();
let view = new DataView(bytes.buffer);
let at = 0;
let end = 0;

/** @param {number} count */
function skip(count) {
  const start = at;
  // Also refuses what is not a number.
  if (!((at += count) <= end)) throw new RangeError("the MessagePack value is cut short");
  return start;
}

/** @param {number} size */
function unsigned(size) {
  const start = skip(size);
  return size === 1 ? bytes[start] : size === 2 ? view.getUint16(start) : view.getUint32(start);
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

/** @param {number} length */
function extension(length) {
  const type = view.getInt8(skip(1));
  const start = skip(length);
  if (type === -1 && (length === 4 || length === 8 || length === 12)) {
    if (length === 4) return new Date(view.getUint32(start) * 1000);
    if (length === 12) return new Date(Number(view.getBigInt64(start + 4)) * 1000 + Math.floor(view.getUint32(start) / 1e6));
    const first = view.getUint32(start);
    return new Date(((first & 3) * TWO_32 + view.getUint32(start + 4)) * 1000 + Math.floor((first >>> 2) / 1e6));
  }
  return new Ext(type, bytes.subarray(start, at));
}

/** @param {number} length @param {number} depth */
function list(length, depth) {
  const found = [];
  while (length--) found.push(read(depth));
  return found;
}

/** @param {number} length @param {number} depth */
function map(length, depth) {
  /** @type {Record<string, unknown>} */
  const found = {};
  while (length--) {
    const key = read(depth);
    if (typeof key !== "string" && typeof key !== "number") throw new TypeError("a key of a map is no text or number");
    const value = read(depth);
    // An assignment would exchange the prototype.
    if (key === "__proto__") Object.defineProperty(found, key, { value, enumerable: true, configurable: true, writable: true });
    else found[key] = value;
  }
  return found;
}

/** @param {bigint} number */
function narrow(number) {
  const small = Number(number);
  return Number.isSafeInteger(small) ? small : number;
}

/** @param {number} depth @returns {unknown} */
function read(depth) {
  if (depth > DEPTH) throw new RangeError("the MessagePack value is nested too deeply");
  const mark = bytes[skip(1)];
  if (mark < 0x80) return mark;
  if (mark < 0x90) return map(mark & 15, depth + 1);
  if (mark < 0xa0) return list(mark & 15, depth + 1);
  if (mark < 0xc0) return text(mark & 31);
  if (mark >= 0xe0) return mark - 256;
  switch (mark) {
    case 0xc0:
      return null;
    case 0xc2:
      return false;
    case 0xc3:
      return true;
    case 0xca:
      return view.getFloat32(skip(4));
    case 0xcb:
      return view.getFloat64(skip(8));
    case 0xcf:
      return narrow(view.getBigUint64(skip(8)));
    case 0xd0:
      return view.getInt8(skip(1));
    case 0xd1:
      return view.getInt16(skip(2));
    case 0xd2:
      return view.getInt32(skip(4));
    case 0xd3:
      return narrow(view.getBigInt64(skip(8)));
  }
  if (mark >= 0xcc && mark < 0xcf) return unsigned(1 << (mark - 0xcc));
  if (mark >= 0xc4 && mark < 0xc7) {
    const length = unsigned(1 << (mark - 0xc4));
    return bytes.subarray(skip(length), at);
  }
  if (mark >= 0xc7 && mark < 0xca) return extension(unsigned(1 << (mark - 0xc7)));
  if (mark >= 0xd4 && mark < 0xd9) return extension(1 << (mark - 0xd4));
  if (mark >= 0xd9 && mark < 0xdc) return text(unsigned(1 << (mark - 0xd9)));
  if (mark >= 0xdc && mark < 0xde) return list(unsigned(mark === 0xdc ? 2 : 4), depth + 1);
  if (mark >= 0xde) return map(unsigned(mark === 0xde ? 2 : 4), depth + 1);
  throw new TypeError("the bytes are not MessagePack");
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
    view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  }
  at = start;
  end = stop;
  const found = read(0);
  if (at !== end) throw new RangeError("there are bytes after the MessagePack value");
  return found;
}
