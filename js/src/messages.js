/**
 * What a client receives. A value is decoded when it is first asked for.
 *
 * @module
 */

import { decode } from "./msgpack.js";

/** @typedef {Record<string, any>} Header */

/** A value with the header that came with it. */
class Received {
  /**
   * @internal
   * @param {Uint8Array} bytes @param {number} start @param {number} end
   * @param {Header} header
   * @param {number} sender
   * @param {(payload: Uint8Array, start: number, end: number) => any} unpack
   */
  constructor(bytes, start, end, header, sender, unpack) {
    /** @internal */
    this._bytes = bytes;
    /** @internal */
    this._start = start;
    /** @internal */
    this._stop = end;
    /** @internal */
    this._unpack = unpack;
    /** Memory, see `Stream`. @internal */
    this._weight = end - start;
    /** The complete header. */
    this.header = header;
    /** The id of the client that sent it; the broker's is 1. */
    this.publisher = sender;
  }

  /** The encoded value, a view of the bytes that arrived with it. */
  get payload() {
    return this._bytes.subarray(this._start, this._stop);
  }

  /** The value, undefined if the payload is empty. Throws an error if it cannot be decoded. */
  get value() {
    return this._unpack(this._bytes, this._start, this._stop);
  }

  /** The principal of the sender, if the broker says so (`--sender`). @returns {string | undefined} */
  get sender() {
    return this.header.sender_principal;
  }

  /** Hold no more memory than its own. Returns whether it did. @internal */
  _detach() {
    if (this._bytes.byteLength <= 2 * (this._stop - this._start)) return false;
    this._bytes = this.payload.slice();
    this._start = 0;
    this._stop = this._bytes.length;
    return true;
  }
}

/** A publication. */
export class Message extends Received {
  /** The topic of the publication. @returns {string} */
  get topic() {
    return this.header.topic;
  }

  /** The offset in the journal, for subscriptions with a start. @returns {number | undefined} */
  get offset() {
    return this.header.offset;
  }

  /** When the broker stored it, for subscriptions with a start. @returns {Date | undefined} */
  get time() {
    return this.offset === undefined ? undefined : new Date(this.header.stored_at);
  }

  /** The key by which its publisher grouped it. @returns {string | Uint8Array | undefined} */
  get key() {
    return this.header.key;
  }

  /** The id that its publisher gave it. @returns {string | undefined} */
  get messageId() {
    return this.header.message_id;
  }

  /** Whether this is no message, but the place of messages that may be missing, since the connection was lost. */
  get isGap() {
    return !this.publisher;
  }
}

/** A request to this client, or a notification, whose `path` is undefined if it was a broadcast. */
export class Directed extends Received {
  /** @returns {string} */
  get path() {
    return this.header.routing?.[0]?.path;
  }
}
