/**
 * One WebSocket to a broker: what is sent in one turn of the event loop is written together.
 *
 * @module
 */

import { ConnectionLost } from "./errors.js";
import { PUB, Scanner, writeHead } from "./frames.js";
import { Writer } from "./msgpack.js";
import { sleep } from "./stream.js";

/** Bytes that are written at once although the turn is not over. */
const CHUNK = 65536;
/** Senders should wait while the WebSocket has more unsent bytes than this. */
const HIGH = 1 << 20;
/** Most heads of publications that are remembered. */
const HEADS = 1024;

/** The unsent bytes of one WebSocket, and what it received. */
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
  /** Heads of publications, by topic. @internal @type {Map<string, Uint8Array>} */
  _heads = new Map();
  /** @internal @type {Promise<void> | undefined} */
  _draining = undefined;

  /**
   * @internal
   * @param {any} socket a WebSocket that connects
   * @param {number} limit bytes of a received payload
   * @param {() => void} onOpen
   * @param {(bytes: Uint8Array, start: number, payload: number, end: number) => boolean} onFrame
   * @param {(bytes: number) => void} onPiece called before the frames of received bytes
   * @param {(error: ConnectionLost) => void} onLost called once
   * @param {() => void} onWriting called before bytes are written
   */
  constructor(socket, limit, onOpen, onFrame, onPiece, onLost, onWriting) {
    /** @internal */
    this._socket = socket;
    /** @internal */
    this._onWriting = onWriting;
    /** @internal @type {typeof onLost | undefined} */
    this._onLost = onLost;
    const scanner = new Scanner(limit);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      this._isOpen = true;
      onOpen();
    };
    socket.onmessage = (/** @type {{ data: unknown }} */ { data }) => {
      if (!this._onLost) return;
      try {
        if (!(data instanceof ArrayBuffer)) throw new Error("the broker sent a text");
        onPiece(data.byteLength);
        scanner._scan(new Uint8Array(data), onFrame);
      } catch (error) {
        this._lose(/** @type {Error} */ (error).message);
      }
    };
    socket.onerror = (/** @type {any} */ event) => this._lose(event?.message || "the connection failed");
    socket.onclose = (/** @type {any} */ event) =>
      this._lose(event?.reason || (this._isOpen ? "the connection ended" : "the connection failed"));
    if (!globalThis.setImmediate) {
      // Timers of pages in the background are slow.
      /** @internal */
      this._channel = new MessageChannel();
      this._channel.port1.onmessage = () => this._write();
    }
  }

  /** End it, and tell the reason. @internal @param {string | ConnectionLost} why */
  _lose(why) {
    const onLost = this._onLost;
    this._drop();
    onLost?.(why instanceof ConnectionLost ? why : new ConnectionLost(why));
  }

  /** Close it without a report, after what was written. @internal */
  _drop() {
    this._onLost = undefined;
    this._isOpen = this._isFull = false;
    this._channel?.port1.close();
    const socket = this._socket;
    socket.onmessage = null;
    // An implementation may report an error of a connection that is closed early.
    socket.onerror = () => {};
    try {
      socket.close();
    } catch {
      // It was not connected yet.
    }
  }

  /** Write at the end of this turn, or now if there is much. @internal */
  _soon() {
    if (this._out._at >= CHUNK) this._write();
    else if (!this._isScheduled) {
      this._isScheduled = true;
      if (this._channel) this._channel.port2.postMessage(0);
      else setImmediate(() => this._write());
    }
  }

  /** Write what was collected. @internal */
  _write() {
    this._isScheduled = false;
    if (!this._isOpen) return;
    this._onWriting();
    const out = this._out;
    if (out._at) {
      // A copy: some implementations send it later.
      this._socket.send(out._bytes.slice(0, out._at));
      out._at = 0;
      this._isFull = this._socket.bufferedAmount > HIGH;
    }
  }

  /** Unsent bytes. @internal @returns {number} */
  get _unsent() {
    return this._isOpen ? this._out._at + this._socket.bufferedAmount : 0;
  }

  /** Wait until senders may go on. @internal @param {() => boolean} isOther another reason to wait */
  _drained(isOther) {
    return (this._draining ??= (async () => {
      do {
        await sleep(0.001);
        this._isFull &&= this._socket.bufferedAmount > HIGH / 2;
      } while (this._isFull || (this._isOpen && isOther()));
      this._draining = undefined;
    })());
  }

  /** The head of a publication without further fields. @internal @param {string} topic @returns {Uint8Array} */
  _head(topic) {
    let head = this._heads.get(topic);
    if (!head) {
      const out = new Writer();
      writeHead(out, PUB, this._id, { topic });
      head = out._bytes.slice(0, out._at);
      if (this._heads.size >= HEADS) this._heads.clear();
      this._heads.set(topic, head);
    }
    return head;
  }
}
