/**
 * The messages of a topic or pattern.
 *
 * @module
 */

import { UNSUB } from "./frames.js";
import { Message } from "./messages.js";
import { matcher } from "./patterns.js";
import { Stream } from "./stream.js";

/**
 * Where a subscription to durable topics begins: with the first or last stored message, the next one that is published,
 * an offset, or a time in milliseconds since 1970.
 *
 * @typedef {"first" | "last" | "next" | number | { time: number }} Start
 */

/** Bytes that may arrive after a subscription has paused, since they were in transit. */
const TRANSIT = 1 << 24;

/**
 * The messages of a topic or pattern, in order: `for await (const message of subscription)`.
 *
 * With a start, it goes on after its last offset when the connection returns, or when a program that was slow has read
 * the most of what is unread. Without one, too many unread bytes end it with an `Overrun`.
 *
 * @extends {Stream<Message>}
 */
export class Subscription extends Stream {
  /** The last offset that arrived. @internal */
  _last = -1;
  /** Whether it waits for the program to read, and gets no messages meanwhile. @internal */
  _isPaused = false;

  /**
   * @internal
   * @param {import("./client.js").Client} client
   * @param {string} topic
   * @param {Start | undefined} from
   * @param {boolean} isNext
   * @param {boolean} gaps
   * @param {((message: Message) => unknown) | undefined} call
   */
  constructor(client, topic, from, isNext, gaps, call) {
    super(client._options.unread, call);
    /** @internal */
    this._client = client;
    /** The topic or pattern. */
    this.topic = topic;
    /** @internal */
    this._from = from;
    /** @internal */
    this._isNext = isNext;
    /** @internal */
    this._hasStart = from !== undefined;
    /** Without it, messages without an offset will be repeated with one. @internal */
    this._isConfirmed = !this._hasStart;
    /** @internal */
    this._gaps = gaps;
    /** @internal */
    this._matches = matcher(topic);
  }

  /** The header of its SUB. @internal @returns {object} */
  _fields() {
    if (!this._hasStart) return { topic: this.topic };
    this._isConfirmed = false;
    return { topic: this.topic, from: this._last < 0 ? this._from : this._last + 1 };
  }

  /** Whether to begin with the first message, since an offset to begin with was refused. @internal */
  _restart() {
    // All stored messages are later than that offset then: the topic had none.
    const isFirst = this._isNext && this._last < 0;
    if (isFirst) this._from = "first";
    this._isNext = false;
    return isFirst;
  }

  /** @internal @param {Message} message */
  _offer(message) {
    if (this._hasStart) {
      const offset = message.offset;
      if (typeof offset === "number") {
        if (offset <= this._last) return;
        this._last = offset;
      } else if (!this._isConfirmed) return;
    }
    this._put(message);
    // Unread messages of a slow reader must not hold all the bytes that arrived with them.
    if (this.waiting > 512 || (this.waiting && message._bytes.length > 1 << 17)) message._detach();
  }

  /** @internal @override */
  _full() {
    if (!this._hasStart || this._size > this._limit + TRANSIT) super._full();
    else if (!this._isPaused) {
      this._isPaused = true;
      this._client._send(UNSUB, { topic: this.topic });
    }
  }

  /** @internal @override */
  _shift() {
    const message = super._shift();
    if (this._isPaused && this._size < this._limit / 2) {
      this._isPaused = false;
      // When it is away, all subscriptions are made again later.
      if (this._client.state === "joined" && !this._end) this._client._subscribed(this).catch(() => {});
    }
    return message;
  }

  /** Unsubscribe; unread messages can still be read. @internal @override @param {true | Error} end */
  _leave(end) {
    const client = this._client;
    if (client._subscriptions.delete(this)) {
      client._changed();
      if (![...client._subscriptions].some((each) => each.topic === this.topic)) client._send(UNSUB, { topic: this.topic });
    }
    super._leave(end);
  }

  /** Begin to get messages, or go on. @internal */
  _open() {
    if (this._gaps && this._client._subscriptions.has(this)) this._put(new Message(new Uint8Array(), 0, 0, { topic: this.topic }, 0));
    this._client._subscriptions.add(this);
    this._client._changed();
  }
}
