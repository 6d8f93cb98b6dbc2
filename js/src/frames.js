/**
 * FlexiMQ's frames: 26 fixed bytes, the header, 8 bytes of length, the payload (FlexiMQ document, section 2).
 *
 * @module
 */

export const JOIN = 0;
export const REQ = 1;
export const REP = 2;
export const NOTIF = 3;
export const BCAST = 4;
export const PUB = 5;
export const SUB = 6;
export const UNSUB = 7;
export const PING = 8;
export const PONG = 9;

/** The client id of the broker. */
export const BROKER = 1;
/** Bytes before the header. */
export const FIXED = 26;
/** The largest header: the broker adds offsets and stories to those of 64 KiB. */
const HEADER = 1 << 18;

/** @param {Uint8Array} bytes @param {number} at */
export const number32 = (bytes, at) =>
  ((bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3]) >>> 0;

/**
 * Write the part of a frame before its payload's length.
 *
 * @param {import("./msgpack.js").Writer} out
 * @param {number} type
 * @param {number} id
 * @param {object} [header]
 */
export function writeHead(out, type, id, header) {
  out._room(64);
  const start = out._at;
  out._bytes.fill(0, start, start + FIXED);
  out._bytes[start] = 1;
  out._bytes[start + 1] = type;
  out._view.setUint32(start + 2, id);
  out._at += FIXED;
  if (header) {
    out._value(header);
    out._view.setUint32(start + 22, out._at - start - FIXED);
  }
}

/**
 * Write the payload of a frame, with its length.
 *
 * @param {import("./msgpack.js").Writer} out
 * @param {((out: import("./msgpack.js").Writer) => void) | undefined} write writes its bytes; undefined: it is empty
 */
export function writePayload(out, write) {
  out._room(8);
  const start = out._at;
  out._view.setUint32(start, 0);
  out._at += 8;
  if (write) write(out);
  out._view.setUint32(start + 4, out._at - start - 8);
}

/** Finds complete frames in bytes that arrive in pieces. Memory grows with the bytes that came, not with lengths. */
export class Scanner {
  /** The beginning of an incomplete frame. @internal */
  _tail = new Uint8Array();
  /** Bytes of it. @internal */
  _size = 0;
  /** Bytes that it needs at least. @internal */
  _need = 0;

  /** @internal @param {number} limit of a payload, in bytes */
  constructor(limit) {
    /** @internal */
    this._limit = limit;
  }

  /**
   * Call a function with the bytes, start, place of the payload and end of each frame, until it returns false.
   *
   * @internal
   * @param {Uint8Array} bytes
   * @param {(bytes: Uint8Array, start: number, payload: number, end: number) => boolean} found
   * @throws {Error} the bytes are no frames, or one is over the limit
   */
  _scan(bytes, found) {
    if (this._size) {
      const size = this._size + bytes.length;
      if (size > this._tail.length) {
        const grown = new Uint8Array(Math.max(size, 2 * this._size));
        grown.set(this._tail.subarray(0, this._size));
        this._tail = grown;
      }
      this._tail.set(bytes, this._size);
      this._size = size;
      if (size < this._need) return;
      bytes = this._tail.subarray(0, size);
      this._size = 0;
    }
    const length = bytes.length;
    let at = 0;
    let need = FIXED;
    while (length - at >= need) {
      const header = number32(bytes, at + 22);
      const place = at + FIXED + header;
      if (bytes[at] !== 1 || bytes[at + 1] > PONG) throw new Error("the received bytes are not FlexiMQ");
      if (header > HEADER) throw new Error(`a header has ${header} bytes`);
      if (place + 8 > length) {
        need += header + 8;
        break;
      }
      const payload = number32(bytes, place + 4);
      if (number32(bytes, place) || payload > this._limit) throw new Error("a message is over the limit of the client");
      const end = place + 8 + payload;
      if (end > length) {
        need = end - at;
        break;
      }
      if (!found(bytes, at, place + 8, end)) return;
      at = end;
    }
    if (at < length) {
      this._tail = bytes.slice(at);
      this._size = length - at;
      this._need = need;
    }
  }
}
