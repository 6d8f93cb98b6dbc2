/**
 * One WebSocket to a broker: what is sent in one turn of the event loop is written together.
 *
 * @module
 */

import { ConnectionLost } from "./errors.js";
import { FIXED, JOIN, number32, PONG, PUB } from "./frames.js";
import { Writer } from "./msgpack.js";
import { sleep } from "./stream.js";

/** Bytes that are written at once although the turn is not over. */
const CHUNK = 65536;
/** Senders should wait while the WebSocket has more unsent bytes than this. */
const HIGH = 1 << 20;
/** Calls a function at the end of this turn. Timers of pages in the background would be too slow. */
const later = globalThis.setImmediate ?? queueMicrotask;
/** The largest header: the broker adds offsets and stories to those of 64 KiB. */
const HEADER = 1 << 18;
/** Most heads of publications that are remembered. */
const HEADS = 1024;

/** The unsent bytes of one WebSocket, and the beginning of an incomplete frame that it received. */
export class Connection {
  /** The client's id, 0 until it has joined. @internal */
  _id = 0;
  /** @internal */
  _out = new Writer();
  /** Whether a sender should wait. @internal */
  _isFull = false;
  /** @internal */
  _isOpen = false;
  /** @internal */
  _isScheduled = false;
  /** The frames of publications before their payloads, by topic. @internal @type {Map<string, Uint8Array>} */
  _heads = new Map();
  /** @internal @type {Promise<void> | undefined} */
  _draining;
  /** An incomplete frame: its buffer, the bytes that are there, and those that it needs at least. @internal */
  _tail = new Uint8Array();
  /** @internal */
  _tailSize = 0;
  /** @internal */
  _need = 0;

  /**
   * @internal
   * @param {any} socket a WebSocket that connects
   * @param {import("./client.js").Client} client
   * @param {object} join the header of the JOIN
   */
  constructor(socket, client, join) {
    /** @internal */
    this._socket = socket;
    /** @internal */
    this._client = client;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      this._isOpen = true;
      this._frame(JOIN, join);
      this._write();
    };
    socket.onmessage = (/** @type {{ data: ArrayBuffer }} */ { data }) => {
      try {
        if (typeof data === "string") throw "a text";
        client._arrived(data.byteLength);
        this._scan(new Uint8Array(data));
      } catch (error) {
        this._lose(`not FlexiMQ, or too much: ${error}`);
      }
    };
    socket.onerror = socket.onclose = (/** @type {any} */ event) =>
      this._lose(`no connection to ${client._urls.at(-1)}: ${event.reason || event.message || event.code}`);
  }

  /** End it, and tell the client the reason. @internal @param {string} why @param {boolean} [isWanted] */
  _lose(why, isWanted) {
    const isCurrent = this._client._connection === this;
    this._drop();
    if (isCurrent) this._client._lose(new ConnectionLost(why), isWanted);
  }

  /** Close it, after what was written. @internal */
  _drop() {
    this._isOpen = this._isFull = false;
    const socket = this._socket;
    // One that is closed early reports an error, which must have a listener.
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.onerror = () => {};
    socket.close();
  }

  // -- sending ----------------------------------------------------------------------------------------------------------

  /** Collect a frame (FlexiMQ document, section 2). @internal @param {number} type @param {object} [header] @param {unknown} [value] of the payload; undefined: it is empty */
  _frame(type, header, value) {
    const out = this._out;
    const start = out._at;
    try {
      writeFrame(out, type, this._id, header, value);
    } catch (error) {
      out._at = start;
      throw error;
    }
    this._soon();
  }

  /** Write at the end of this turn, or now if there is much. @internal */
  _soon() {
    if (this._out._at > CHUNK) this._write();
    else if (!this._isScheduled) {
      this._isScheduled = true;
      later(() => this._write());
    }
  }

  /** Write what was collected. @internal */
  _write() {
    this._isScheduled = false;
    if (!this._isOpen) return;
    this._client._beforeWriting();
    const out = this._out;
    // A copy: some implementations send it later.
    if (out._at) this._socket.send(out._bytes.slice(0, out._at));
    out._at = 0;
    this._isFull = this._socket.bufferedAmount > HIGH;
  }

  /** Unsent bytes. @internal @returns {number} */
  get _unsent() {
    return this._out._at + this._socket.bufferedAmount;
  }

  /** Wait until senders may go on. @internal @param {() => boolean} isOther another reason to wait */
  _drained(isOther) {
    return (this._draining ??= (async () => {
      do {
        await sleep(0.001);
        this._isFull &&= this._socket.bufferedAmount > HIGH / 2;
      } while (this._isOpen && (this._isFull || isOther()));
      this._draining = undefined;
    })());
  }

  /** The frame of a publication without further fields, before its payload. @internal @param {string} topic @returns {Uint8Array} */
  _head(topic) {
    let head = this._heads.get(topic);
    if (!head) {
      const out = new Writer();
      writeFrame(out, PUB, this._id, { topic });
      head = out._bytes.slice(0, out._at - 8);
      if (this._heads.size >= HEADS) this._heads.clear();
      this._heads.set(topic, head);
    }
    return head;
  }

  // -- receiving --------------------------------------------------------------------------------------------------------

  /** Give the client each complete frame. Memory grows with the bytes that came, not with announced lengths. @internal @param {Uint8Array} bytes */
  _scan(bytes) {
    if (this._tailSize) {
      const size = this._tailSize + bytes.length;
      if (size > this._tail.length) {
        const grown = new Uint8Array(size * 2);
        grown.set(this._tail.subarray(0, this._tailSize));
        this._tail = grown;
      }
      this._tail.set(bytes, this._tailSize);
      this._tailSize = size;
      if (size < this._need) return;
      bytes = this._tail.subarray(0, size);
      this._tail = new Uint8Array();
      this._tailSize = 0;
    }
    const { length } = bytes;
    let at = 0;
    let need = FIXED;
    while (length - at >= need) {
      const header = number32(bytes, at + 22);
      const place = at + FIXED + header;
      if (bytes[at] !== 1 || bytes[at + 1] > PONG || header > HEADER) throw bytes[at];
      need = FIXED + header + 8;
      if (at + need > length) break;
      const payload = number32(bytes, place + 4);
      if (number32(bytes, place) || payload > this._client._options.maxMessage) throw payload;
      need += payload;
      if (at + need > length) break;
      this._client._received(bytes, at, place + 8, at + need);
      if (!this._isOpen) return;
      at += need;
      need = FIXED;
    }
    if (at < length) {
      this._tail = bytes.slice(at);
      this._tailSize = length - at;
      this._need = need;
    }
  }
}

/**
 * Write a frame.
 *
 * @param {Writer} out
 * @param {number} type
 * @param {number} id
 * @param {object} [header]
 * @param {unknown} [value]
 */
export function writeFrame(out, type, id, header, value) {
  out._room(FIXED + 8);
  const start = out._at;
  out._bytes.fill(0, start, (out._at += FIXED));
  out._bytes[start] = 1;
  out._bytes[start + 1] = type;
  out._view.setUint32(start + 2, id);
  if (header) {
    out._value(header);
    out._view.setUint32(start + 22, out._at - start - FIXED);
  }
  writePayload(out, value);
}

/** Write the length and the bytes of a payload. @param {Writer} out @param {unknown} value */
export function writePayload(out, value) {
  out._room(8);
  const start = out._at;
  out._view.setUint32(start, 0);
  out._view.setUint32(start + 4, 0);
  out._at += 8;
  if (value !== undefined) {
    out._value(value);
    out._view.setUint32(start + 4, out._at - start - 8);
  }
}
