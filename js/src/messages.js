/**
 * What a client receives. A value is decoded when it is asked for.
 *
 * @module
 */

import { decode } from "./msgpack.js";

/** @typedef {Record<string, any>} Header */

/** A publication, notification or request. */
export class Message {
  /**
   * @internal
   * @param {Uint8Array} bytes @param {number} start @param {number} end
   * @param {Header} header
   * @param {number} publisher
   */
  constructor(bytes, start, end, header, publisher) {
    /** @internal */
    this._bytes = bytes;
    /** @internal */
    this._start = start;
    /** @internal */
    this._stop = end;
    /** Memory, see `Stream`. @internal */
    this._weight = end - start;
    /** The complete header: what its publisher gave, e.g. `key`, and `stored_at` or `sender_principal` of the broker. */
    this.header = header;
    /** The id of the client that sent it; the broker's is 1. */
    this.publisher = publisher;
  }

  /** The encoded value, a view of the bytes that arrived with it. */
  get payload() {
    return this._bytes.subarray(this._start, this._stop);
  }

  /** The value, undefined if the payload is empty. Throws an error if it cannot be decoded. */
  get value() {
    return decode(this._bytes, this._start, this._stop);
  }

  /** The topic of a publication. @returns {string} */
  get topic() {
    return this.header.topic;
  }

  /** The path of a notification or request; undefined for a broadcast. @returns {string} */
  get path() {
    return this.header.routing?.[0]?.path;
  }

  /** The offset in the journal, for subscriptions with a start. @returns {number | undefined} */
  get offset() {
    return this.header.offset;
  }

  /** Whether this is no message, but the place of messages that may be missing, since the connection was lost. */
  get isGap() {
    return !this.publisher;
  }

  /** Hold no more memory than its own. @internal */
  _detach() {
    if (this._bytes.length > 2 * (this._stop - this._start)) {
      this._bytes = this.payload.slice();
      this._start = 0;
      this._stop = this._bytes.length;
    }
  }
}
