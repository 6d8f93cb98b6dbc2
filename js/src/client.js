/**
 * A client of FlexiMQ over WebSocket, which reconnects by itself.
 *
 * @module
 */

import { pauseAfter } from "./backoff.js";
import { Connection } from "./connection.js";
import * as errors from "./errors.js";
import {
  BCAST, BROKER, FIXED, JOIN, NOTIF, number32, PING, PONG, PUB, REP, REQ, SUB, writeHead, writePayload,
} from "./frames.js";
import { Job, Jobs } from "./jobs.js";
import { Directed, Message } from "./messages.js";
import { decode, Writer } from "./msgpack.js";
import { overlap } from "./patterns.js";
import { report, sleep, Stream, within } from "./stream.js";
import { Subscription } from "./subscription.js";

/** @typedef {import("./subscription.js").Start} Start */
/** @typedef {import("./backoff.js").Backoff} Backoff */
/** @typedef {number | string | (number | string)[]} Targets */

/**
 * @typedef {object} Options durations are in seconds, sizes in bytes
 * @property {string | (() => string | Promise<string>)} [token] a token, or a function that gets a new one for each
 *   connection; a JSON Web Token is also renewed before it expires
 * @property {Record<string, string>} [credentials] others, e.g. `{ type: "basic", username, password }`
 * @property {string} [name] by which others can reach this client, and all others of that name
 * @property {number} [timeout] for connecting, and by default for every call that waits, 30
 * @property {Backoff | false} [reconnect] delays between attempts; false: end with the first connection
 * @property {boolean} [repeat] give every publication a message id, so that it is repeated after a lost connection, and
 *   stored once on a durable topic; without it, only those with a `messageId` are
 * @property {number} [buffer] of messages that wait to be sent or confirmed, 16 MiB
 * @property {number} [unread] of messages that one subscription has not read, 64 MiB
 * @property {number} [maxMessage] of a received message, 64 MiB
 * @property {number} [keepAlive] of silence before a PING, 30; after three of them the connection is given up
 * @property {{ pack: (value: any) => Uint8Array, unpack: (payload: Uint8Array) => any }} [codec] in place of MessagePack
 * @property {any} [WebSocket] its constructor, where the platform has none; the package `ws` is found by itself
 */

/**
 * @typedef {object} PublishOptions durations are in seconds
 * @property {string | true} [messageId] identifies it: repeated until the broker has it, and stored once on a durable
 *   topic; true makes one
 * @property {string | Uint8Array} [key] by which it is grouped, or ordered in a queue
 * @property {string} [correlationId]
 * @property {string} [replyTo]
 * @property {number} [priority] in queues, from 0 to 9, which is first; 4 without it
 * @property {number} [delay] until it is published
 * @property {Date} [at] when it is published
 * @property {number} [expires] after which it leaves a queue
 * @property {Record<string, unknown>} [headers] further fields of its header
 */

/**
 * @typedef {object} Status
 * @property {"joined" | "away" | "closed"} state
 * @property {Error} [error] the reason
 * @property {string[]} [missing] topics and patterns whose subscriptions miss messages until the client has rejoined
 */

/** Refusals that are stored. */
const REFUSALS = 1000;
/** Bytes of answers that the client sends by itself while they are unsent; more are dropped. */
const ANSWERS = 1 << 20;
/** Bytes that the broker may send before it has admitted the client. */
const JOINING = 1 << 20;
const SETTLE = "/queue/settle";
/** Another attempt to join would get the same answer. */
const PERMANENT = [400, 401, 403, 604];
/** The largest delay of a timer in milliseconds. */
const LONGEST = 2 ** 31 - 1;

const DONE = Promise.resolve();
/** Where messages are written that are held. */
const spare = new Writer();

/** @param {unknown} value @returns {Record<string, any>} */
const asMap = (value) => (value && typeof value === "object" && !Array.isArray(value) ? value : {});

/** @param {unknown} value */
const asText = (value) => (typeof value === "string" ? value : "");

const random = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (each) => each.toString(36)).join("");

/** @param {Uint8Array} bytes @param {number} start @param {number} end */
function tryDecode(bytes, start, end) {
  try {
    return decode(bytes, start, end);
  } catch {
    return undefined;
  }
}

/** @param {unknown} value */
const wordsOf = (value) => asText(value) || asText(asMap(value).error);

/** @param {string} topic @param {PublishOptions} options @param {string} [id] @param {object} [more] */
function headerOf(topic, { messageId, key, correlationId, replyTo, priority, delay, at, expires, headers }, id, more) {
  if (headers && "topic" in headers) throw new TypeError("headers must not contain the topic");
  return {
    topic,
    ...more,
    key,
    message_id: messageId === true ? id : (messageId ?? id),
    correlation_id: correlationId,
    reply_to: replyTo,
    priority,
    deliver_in: delay === undefined ? undefined : Math.round(delay * 1000),
    deliver_at: at && at.getTime(),
    expires_in: expires === undefined ? undefined : Math.round(expires * 1000),
    ...headers,
  };
}

/** @param {string} token @returns {number} when a JSON Web Token expires, in milliseconds since 1970; NaN: unknown */
function expiryOf(token) {
  try {
    return JSON.parse(atob(token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/"))).exp * 1000;
  } catch {
    return NaN;
  }
}

/** Split the arguments of a subscription: options and a function, either of which may be left out. @param {any[]} more */
const parted = (more) => ({
  options: more.find((each) => typeof each === "object" && each) ?? {},
  call: more.find((each) => typeof each === "function"),
});

/** A connection to a broker. Make one with {@link connect}. */
export class Client {
  /** "connecting" at first, "joined", "away" while it reconnects, or "closed". @type {"connecting" | Status["state"]} */
  state = "connecting";
  /** @internal @type {Connection | undefined} */
  _connection = undefined;
  /** @internal @type {Set<Subscription>} */
  _subscriptions = new Set();
  /** The subscriptions of a topic. @internal @type {Map<string, Subscription[]>} */
  _receivers = new Map();
  /** @internal @type {Map<string, Jobs>} */
  _consumers = new Map();
  /** Subscriptions with unread messages that hold the bytes of the last piece. @internal @type {Subscription[]} */
  _touched = [];

  /** @type {Set<Stream<Directed>>} */
  _notified = new Set();
  /** @type {Set<Stream<Status>>} */
  _watchers = new Set();
  /** @type {Map<string, (request: Directed) => unknown>} */
  _served = new Map();
  /** Bytes of unanswered requests. */
  _unanswered = 0;

  /** Messages without an answer that were sent, and those that are confirmed. */
  _sent = 0;
  _confirmed = 0;
  /** Publications that wait to be sent, or to be confirmed. @type {{ bytes: Uint8Array, keep: boolean, number: number }[]} */
  _held = [];
  _heldBytes = 0;
  _isConfirming = false;
  /** @type {errors.PublishFailed[]} */
  _refusals = [];
  _refused = 0;
  /** Why messages since the last flush may be lost. @type {errors.ConnectionLost | undefined} */
  _loss = undefined;

  _number = 0;
  /** By the timestamp of the PING. @type {Map<number, { sent: number, call: (error: Error | undefined, refusals: errors.PublishFailed[]) => void }>} */
  _barriers = new Map();
  /** @type {Map<string, { target: number | string, resolve: (value: any) => void, reject: (error: Error) => void }>} */
  _replies = new Map();
  /** @type {Map<string, Record<string, any[]>>} */
  _settlements = new Map();
  /** @type {{ resolve: (value?: any) => void, reject: (error: Error) => void } | undefined} */
  _joining = undefined;
  _joiningBytes = 0;
  /** @type {{ resolve: (value?: any) => void, reject: (error: Error) => void }[]} */
  _waiters = [];
  /** @type {string | undefined} */
  _token = undefined;
  _silent = 0;
  /** @type {any} */
  _ticking;
  /** @type {any} */
  _renewing;
  _isRenewed = false;
  /** @type {() => void} */
  _awake = () => {};
  /** @type {errors.ConnectionLost} */
  _lost = new errors.ConnectionLost("the client was closed");
  /** @type {(error: Error | undefined) => void} */
  _ended = () => {};
  /** @type {Promise<Error | undefined>} */
  _closed = new Promise((resolve) => (this._ended = resolve));

  /** The envelope of the last run of publications, its header and receivers. @type {Uint8Array | undefined} */
  _run = undefined;
  /** @type {Record<string, any>} */
  _runHeader = {};
  /** @type {Subscription[]} */
  _runReceivers = [];

  /**
   * @internal
   * @param {string | string[]} url
   * @param {Options} options
   */
  constructor(url, options) {
    /** @internal */
    this._options = {
      timeout: 30, reconnect: {}, buffer: 1 << 24, unread: 1 << 26, maxMessage: 1 << 26, keepAlive: 30, ...options,
    };
    /** @internal */
    this._urls = [url].flat().map((each) => {
      const parsed = new URL(each, globalThis.location?.href);
      parsed.protocol = parsed.protocol.replace("http", "ws");
      return parsed.href;
    });
    // Clients spread over the addresses.
    for (let left = this._urls.length; left > 1; ) {
      const place = Math.floor(Math.random() * left--);
      [this._urls[left], this._urls[place]] = [this._urls[place], this._urls[left]];
    }
    const { codec } = this._options;
    /** @internal @type {(bytes: Uint8Array, start: number, end: number) => any} */
    this._unpack = codec ? (bytes, start, end) => codec.unpack(bytes.subarray(start, end)) : decode;
    for (const [target, name] of this._wakers()) target?.addEventListener?.(name, this._wake);
  }

  /** The id that the broker gave to this connection; it changes when the client reconnects. */
  get id() {
    return this._connection?._id ?? 0;
  }

  // -- connections ----------------------------------------------------------------------------------------------------

  /** @returns {[any, string][]} */
  _wakers() {
    return [
      [globalThis, "online"],
      [globalThis.document, "visibilitychange"],
    ];
  }

  /** Try at once to reconnect, or see whether the connection still lives: the network is back, or the page is seen. */
  _wake = () => {
    if (globalThis.document?.hidden) return;
    this._awake();
    if (this.state === "joined") {
      const connection = this._connection;
      within(this._barrier(true), 5, "").catch(() => connection?._lose("the broker did not answer"));
    }
  };

  /** Connect for the first time. @internal */
  async _begin() {
    try {
      await this._dialAny();
    } catch (error) {
      this._end(/** @type {Error} */ (error));
      throw error;
    }
    this._ticking = setInterval(() => {
      if (this.state !== "joined") return;
      if (++this._silent > 3) this._connection?._lose("the broker was silent for too long");
      else this._ping(0);
    }, this._options.keepAlive * 1000);
    return this;
  }

  async _dialAny() {
    let error;
    for (let left = this._urls.length; left--; ) {
      // One address after the other, beginning with that after the last.
      const url = /** @type {string} */ (this._urls.shift());
      this._urls.push(url);
      try {
        await this._dial(url, left ? Math.min(this._options.timeout, 5) : this._options.timeout);
        return;
      } catch (raised) {
        if (this.state === "closed") throw raised;
        if (!error || isPermanent(error)) error = raised;
      }
    }
    throw error;
  }

  /** @param {string} url @param {number} timeout */
  async _dial(url, timeout) {
    const { token, credentials, name, WebSocket } = this._options;
    const own = this._token ?? (typeof token === "function" ? await token() : token);
    this._token = undefined;
    // Node 20 has none of its own.
    const Socket = WebSocket ?? globalThis.WebSocket ?? (await import("ws")).WebSocket;
    if (this.state === "closed") throw this._lost;
    const auth = own === undefined ? credentials : { type: "token", token: own };
    const joined = new Promise((resolve, reject) => (this._joining = { resolve, reject }));
    this._joiningBytes = this._silent = 0;
    this._run = undefined;
    /** @type {Connection} */
    const connection = new Connection(
      // Other constructors than that of `ws` know no third argument.
      new Socket(url, ["fleximq"], { perMessageDeflate: false }),
      this._options.maxMessage,
      () => {
        writeHead(connection._out, JOIN, 0, { client_name: name, auth });
        writePayload(connection._out, undefined);
        connection._write();
      },
      (...frame) => {
        this._received(...frame);
        return this._connection === connection;
      },
      (bytes) => {
        for (const each of this._touched.splice(0)) each._detach();
        if (!connection._id && (this._joiningBytes += bytes) > JOINING) throw new Error("the broker did not answer the JOIN");
      },
      (lost) => this._lose(lost),
      () => this._settleAndConfirm(),
    );
    this._connection = connection;
    try {
      await within(joined, timeout, "the answer of the broker");
    } catch (error) {
      connection._drop();
      if (this._connection === connection) this._fail(/** @type {Error} */ (error));
      throw error;
    }
    if (typeof token === "function" && own !== undefined) this._renewBefore(expiryOf(own));
  }

  /** Get a new token before this one expires. @param {number} expiry */
  _renewBefore(expiry) {
    clearTimeout(this._renewing);
    const left = expiry - Date.now();
    if (left > 0) this._renewing = setTimeout(() => this._renew(expiry), Math.min(left - Math.min(left / 5, 30_000), LONGEST));
  }

  /** @param {number} expiry */
  async _renew(expiry) {
    if (this.state !== "joined" || expiry - Date.now() > LONGEST / 2) return this._renewBefore(expiry);
    try {
      const token = await /** @type {any} */ (this._options.token)();
      if (expiryOf(token) <= expiry) throw new Error("the new token does not expire later");
      if (this.state !== "joined") return;
      this._token = token;
    } catch (error) {
      report("the token was not renewed:", error);
      return this._renewBefore(expiry);
    }
    // What follows waits for the next connection, and what was sent is confirmed on this one.
    const connection = this._connection;
    const why = new errors.ConnectionLost("the token is renewed");
    this._isRenewed = true;
    this._leave(why);
    await within(this._barrier(true), 5, "").catch(() => {});
    if (this._connection === connection) connection?._lose(why);
  }

  /** The broker has admitted the client. */
  _admitted() {
    this._send(PING, { keepalive: { timestamp: 0, interval: Math.min(Math.max(Math.round(this._options.keepAlive), 5), 300) } });
    /** @type {Map<string, Subscription>} */
    const topics = new Map();
    for (const each of [...this._subscriptions].sort((a, b) => +b._hasStart - +a._hasStart)) {
      if (each._gaps && !each._hasStart) each._put(new Message(new Uint8Array(), 0, 0, { topic: each.topic }, 0, this._unpack));
      if (!each._isPaused) topics.set(each.topic, each);
    }
    const all = [...topics.values(), ...this._consumers.values()];
    for (const each of all) this._subscribed(each).catch(() => {});
    const connection = this._connection;
    this._ping((error, refusals) => {
      if (error) return;
      this._keep(refusals);
      for (const each of this._held) {
        new DataView(each.bytes.buffer).setUint32(2, /** @type {Connection} */ (connection)._id);
        connection?._out._raw(each.bytes);
        each.number = ++this._sent;
        connection?._soon();
      }
      this._held = this._held.filter((each) => each.keep);
      this._heldBytes = this._held.reduce((sum, each) => sum + each.bytes.length, 0);
      this._enter({ state: "joined" });
      this._joining?.resolve();
      this._joining = undefined;
      for (const { resolve } of this._waiters.splice(0)) resolve();
    });
    connection?._write();
  }

  /** @param {Status} status */
  _enter(status) {
    this.state = status.state;
    for (const each of this._watchers) each._put(status);
  }

  /** Enter the state away. @param {Error} error */
  _leave(error) {
    const missing = new Set([...this._subscriptions].filter((each) => !each._hasStart).map((each) => each.topic));
    this._enter({ state: "away", error, missing: [...missing] });
  }

  /** The connection has ended. @param {errors.ConnectionLost} error */
  _lose(error) {
    const last = this._refusals[this._refusals.length - 1];
    if (last) error = new errors.ConnectionLost(`${error.message}, after ${last.message}`);
    this._fail(error);
    const { reconnect } = this._options;
    const wasRenewed = this._isRenewed;
    this._isRenewed = false;
    if (this.state === "joined") {
      if (reconnect) this._leave(error);
    } else if (!wasRenewed) return;
    if (reconnect) this._reconnect(error, reconnect, wasRenewed);
    else this._end(error);
  }

  /** Tell all that wait for the connection that it has ended. @param {Error} error */
  _fail(error) {
    this._lost = error instanceof errors.ConnectionLost ? error : new errors.ConnectionLost(error.message);
    this._connection = undefined;
    this._forgetRun();
    clearTimeout(this._renewing);
    if (this._sent - this._confirmed > this._held.filter((each) => each.number).length) {
      this._loss = new errors.ConnectionLost(`messages since the last flush may be lost: ${error.message}`);
      this._refusals = [];
      this._refused = 0;
    }
    this._confirmed = this._sent;
    this._isConfirming = false;
    for (const each of this._held) each.number = 0;
    this._settlements.clear();
    for (const each of this._consumers.values()) each._clear();
    const barriers = [...this._barriers.values()];
    const replies = [...this._replies.values()];
    this._barriers.clear();
    this._replies.clear();
    for (const { call } of barriers) call(this._lost, []);
    for (const { reject } of replies) reject(this._lost);
    this._joining?.reject(error);
    this._joining = undefined;
  }

  /** @param {Error} error @param {Backoff} backoff @param {boolean} isAtOnce */
  async _reconnect(error, backoff, isAtOnce) {
    for (let failures = isAtOnce ? 0 : 1; this.state === "away"; failures++) {
      if (backoff.attempts && failures > backoff.attempts) break;
      if (failures) {
        await new Promise((resolve) => {
          const timer = setTimeout(resolve, pauseAfter(backoff, failures) * 1000);
          this._awake = () => {
            clearTimeout(timer);
            resolve(undefined);
          };
        });
        this._awake = () => {};
      }
      if (this.state !== "away") return;
      try {
        return await this._dialAny();
      } catch (raised) {
        error = /** @type {Error} */ (raised);
        if (isPermanent(error)) break;
      }
    }
    this._end(error);
  }

  /** Close for good. @param {Error} [error] */
  _end(error) {
    if (this.state === "closed") return;
    const connection = this._connection;
    if (connection?._id) connection._write();
    this.state = "closed";
    connection?._drop();
    const lost = error instanceof errors.ConnectionLost || !error ? error : new errors.ConnectionLost(error.message);
    this._fail(lost ?? new errors.ConnectionLost("the client was closed"));
    clearInterval(this._ticking);
    for (const [target, name] of this._wakers()) target?.removeEventListener?.(name, this._wake);
    for (const { reject } of this._waiters.splice(0)) reject(this._lost);
    this._enter({ state: "closed", error });
    const why = lost ?? true;
    for (const each of [...this._subscriptions, ...this._consumers.values()]) each._leave(why);
    for (const each of this._notified) each._finish(why);
    for (const each of this._watchers) each._finish(true);
    this._awake();
    this._ended(error);
  }

  /** @param {number} timeout */
  async _whenJoined(timeout) {
    if (this.state === "joined") return;
    if (this.state === "closed") throw this._lost;
    /** @type {any} */
    let waiter;
    const joined = new Promise((resolve, reject) => this._waiters.push((waiter = { resolve, reject })));
    try {
      await within(joined, timeout, "a connection");
    } finally {
      this._waiters = this._waiters.filter((each) => each !== waiter);
    }
  }

  // -- what is sent -----------------------------------------------------------------------------------------------------

  /** Send a message if there is a connection. @internal @param {number} type @param {object} [header] @param {(out: any) => void} [write] */
  _send(type, header, write) {
    const connection = this._connection;
    if (!connection?._id) return;
    const out = connection._out;
    const start = out._at;
    try {
      writeHead(out, type, connection._id, header);
      writePayload(out, write);
    } catch (error) {
      out._at = start;
      throw error;
    }
    connection._soon();
  }

  /** Send at the end of the running function. */
  _now() {
    const connection = this._connection;
    queueMicrotask(() => connection?._write());
  }

  /** Send a PING, and call a function with its PONG. @param {0 | ((error: Error | undefined, refusals: errors.PublishFailed[]) => void)} call */
  _ping(call) {
    this._sendSettlements();
    const timestamp = call ? ++this._number : 0;
    if (call) this._barriers.set(timestamp, { sent: this._sent, call });
    this._send(PING, { keepalive: { timestamp } });
  }

  /** Wait until everything is processed, and return the refusals, or keep them. @param {boolean} [keeps] @returns {Promise<errors.PublishFailed[]>} */
  _barrier(keeps) {
    return new Promise((resolve, reject) => {
      if (!this._connection) return reject(this._lost);
      this._ping((error, refusals) => {
        if (keeps) this._keep(refusals);
        if (error) reject(error);
        else resolve(refusals);
      });
      this._now();
    });
  }

  /** Report refusals at the next flush. @param {errors.PublishFailed[]} refusals */
  _keep(refusals) {
    this._refusals.unshift(...refusals);
  }

  /**
   * Make the function that writes a payload.
   *
   * @param {unknown} value
   * @returns {(out: import("./msgpack.js").Writer) => void}
   */
  _packed(value) {
    const { codec } = this._options;
    if (!codec) return (out) => out._value(value);
    const bytes = codec.pack(value);
    return (out) => out._raw(bytes);
  }

  /**
   * Send a message without an answer, or hold it until there is a connection.
   *
   * @param {number} type
   * @param {object | undefined} header
   * @param {unknown} value
   * @param {boolean} keep until it is confirmed
   * @param {string} [topic] of a publication without further fields
   */
  _post(type, header, value, keep, topic) {
    const { state, _connection: connection } = this;
    const { buffer, codec } = this._options;
    if (state === "closed") throw this._lost;
    const isJoined = state === "joined" && connection !== undefined;
    if (isJoined && connection._isFull && connection._unsent > buffer) {
      throw new errors.BufferFull(`${connection._unsent} bytes are unsent: wait for the promise of each call`);
    }
    const out = isJoined ? connection._out : spare;
    const start = isJoined ? out._at : (out._at = 0);
    try {
      if (topic !== undefined && isJoined) out._raw(connection._head(topic));
      else writeHead(out, type, isJoined ? connection._id : 0, header ?? (topic === undefined ? undefined : { topic }));
      if (codec) writePayload(out, this._packed(value));
      else {
        // As writePayload, without a function for each message.
        out._room(8);
        const place = out._at;
        out._view.setUint32(place, 0);
        out._at = place + 8;
        out._value(value);
        out._view.setUint32(place + 4, out._at - place - 8);
      }
      if (keep || !isJoined) {
        const bytes = out._bytes.slice(start, out._at);
        if (this._heldBytes + bytes.length > buffer) {
          const why = isJoined ? "unconfirmed: wait for the promise of each call" : "in the buffer, since the broker is unreachable";
          throw new errors.BufferFull(`${this._heldBytes} bytes are ${why}`);
        }
        this._held.push({ bytes, keep, number: isJoined ? this._sent + 1 : 0 });
        this._heldBytes += bytes.length;
      }
    } catch (error) {
      out._at = start;
      throw error;
    }
    if (!isJoined) return DONE;
    this._sent++;
    connection._soon();
    return connection._isFull || this._isHeldFull() ? connection._drained(() => this._isHeldFull()) : DONE;
  }

  _isHeldFull() {
    return this.state === "joined" && this._heldBytes > this._options.buffer / 2;
  }

  /** Before bytes are written: add settlements, and a PING if publications are to be confirmed. */
  _settleAndConfirm() {
    this._sendSettlements();
    if (this._held.length && this.state === "joined" && !this._isConfirming) {
      this._isConfirming = true;
      this._ping((error, refusals) => {
        this._keep(refusals);
        this._isConfirming = false;
        if (!error && this._held.length) this._connection?._soon();
      });
    }
  }

  /** @internal @param {string} queue @param {string} kind @param {number} tag @param {unknown} entry */
  _settle(queue, kind, tag, entry) {
    let lists = this._settlements.get(queue);
    if (!lists) this._settlements.set(queue, (lists = {}));
    // The broker settles before it extends.
    if (kind !== "extend" && lists.extend) lists.extend = lists.extend.filter((each) => each[0] !== tag);
    (lists[kind] ??= []).push(entry);
    this._sent++;
    if (lists[kind].length >= 1000) this._sendSettlements();
    this._connection?._soon();
  }

  _sendSettlements() {
    for (const [queue, lists] of this._settlements) {
      this._settlements.delete(queue);
      this._send(NOTIF, { routing: [{ client_id: BROKER, path: SETTLE }] }, (out) => out._value({ queue, ...lists }));
    }
  }

  /** Send the SUB of a subscription or consumer, and wait until it is confirmed. @internal @param {Subscription | Jobs} each @returns {Promise<void>} */
  _subscribed(each) {
    return new Promise((resolve, reject) => {
      if (!this._connection) return reject(this._lost);
      this._ping((error, refusals) => {
        this._keep(refusals);
        // What arrived before is of an earlier one.
        if (!error && !each._end) each._open();
      });
      this._send(SUB, each._fields());
      this._ping((error, refusals) => {
        const place = refusals.findIndex((refusal) => !refusal.path);
        const [refusal] = place < 0 ? [] : refusals.splice(place, 1);
        this._keep(refusals);
        if (each instanceof Subscription) each._isConfirmed = true;
        if (refusal) {
          const { topic, queue } = /** @type {any} */ (each);
          error = new errors.SubscribeFailed(refusal.status, refusal.words, topic ?? queue);
          each._leave(error);
        }
        if (error) reject(error);
        else resolve();
      });
      this._now();
    });
  }

  // -- what is received -------------------------------------------------------------------------------------------------

  /** @internal */
  _forgetRun() {
    this._run = undefined;
  }

  /** @param {Uint8Array} bytes @param {number} start @param {number} payload @param {number} end */
  _received(bytes, start, payload, end) {
    this._silent = 0;
    const connection = /** @type {Connection} */ (this._connection);
    const type = bytes[start + 1];
    if (type === PUB) {
      if (connection._id) this._published(bytes, start, payload, end);
      return;
    }
    const sender = number32(bytes, start + 2);
    const header = asMap(decode(bytes, start + FIXED, payload - 8));
    const status = typeof header.status === "number" ? header.status : 200;
    const isRefusal = status >= 400;
    if (!connection._id) {
      if (type !== REP) return;
      if (isRefusal) {
        this._joining?.reject(new errors.JoinRefused(status, wordsOf(tryDecode(bytes, payload, end))));
      } else if (sender > BROKER) {
        connection._id = sender;
        this._admitted();
      }
      return;
    }
    const id = asText(header.reqrep?.id);
    if (type === REP && id) {
      const reply = this._replies.get(id);
      // A name may mean any client.
      if (!reply || (typeof reply.target === "number" && sender !== reply.target && sender !== BROKER)) return;
      this._replies.delete(id);
      if (isRefusal) reply.reject(new errors.RequestFailed(status, wordsOf(tryDecode(bytes, payload, end))));
      else {
        try {
          reply.resolve((sender === BROKER ? decode : this._unpack)(bytes, payload, end));
        } catch (error) {
          reply.reject(/** @type {Error} */ (error));
        }
      }
    } else if ((type === REP || type === NOTIF) && sender === BROKER && isRefusal) {
      this._refusedBy(status, asText(header.routing?.[0]?.path), tryDecode(bytes, payload, end));
    } else if (type === REQ || type === NOTIF || type === BCAST) {
      // A copy, since it may be held for long.
      const directed = new Directed(bytes.slice(payload, end), 0, end - payload, header, sender, this._unpack);
      directed._weight = 16 * (end - start);
      if (type !== REQ) for (const each of this._notified) each._put(directed);
      else if (id) this._requested(directed, id);
    } else if (type === PING || type === PONG) {
      const timestamp = header.keepalive?.timestamp;
      if (type === PING) this._answer(PONG, { keepalive: { timestamp } });
      else this._ponged(timestamp);
    }
  }

  /** Answer if the broker reads. @param {number} type @param {object} header @param {unknown} [words] */
  _answer(type, header, words) {
    if (/** @type {Connection} */ (this._connection)._unsent < ANSWERS) {
      this._send(type, header, words === undefined ? undefined : (out) => out._value(words));
    }
  }

  /** @param {Uint8Array} bytes @param {number} start @param {number} payload @param {number} end */
  _published(bytes, start, payload, end) {
    const size = payload - 8 - start;
    const run = this._run;
    if (run && run.length === size) {
      let place = size - 1;
      while (place > 1 && run[place] === bytes[start + place]) place--;
      if (place === 1) {
        const message = new Message(bytes, payload, end, this._runHeader, number32(run, 2), this._unpack);
        for (const each of this._runReceivers) each._offer(message);
        return;
      }
    }
    const header = asMap(decode(bytes, start + FIXED, payload - 8));
    const message = new Message(bytes, payload, end, header, number32(bytes, start + 2), this._unpack);
    const { delivery, topic } = header;
    if (delivery && this._consumers.size) {
      const jobs = this._consumers.get(delivery.queue);
      if (jobs && typeof delivery.tag === "number") {
        message._weight += 16 * size;
        jobs._put(new Job(this, message));
      }
      return;
    }
    if (typeof topic !== "string") return;
    let receivers = this._receivers.get(topic);
    if (!receivers) {
      receivers = [...this._subscriptions].filter((each) => each._matches(topic));
      if (this._receivers.size > 1000) this._receivers.clear();
      if (size < 4096) this._receivers.set(topic, receivers);
    }
    if (Object.keys(header).length === 1 && size < 1024) {
      this._run = bytes.slice(start, start + size);
      this._runHeader = header;
      this._runReceivers = receivers;
    } else message._weight += size > 256 ? 16 * size : size;
    for (const each of receivers) each._offer(message);
  }

  /** @param {any} timestamp */
  _ponged(timestamp) {
    const barrier = this._barriers.get(timestamp);
    if (!barrier) return;
    this._barriers.delete(timestamp);
    const { sent, call } = barrier;
    this._confirmed = Math.max(this._confirmed, sent);
    let done = 0;
    for (const each of this._held) {
      if (!each.number || each.number > sent) break;
      this._heldBytes -= each.bytes.length;
      done++;
    }
    this._held.splice(0, done);
    call(undefined, this._refusals.splice(0));
  }

  /** @param {number} status @param {string} path @param {any} value */
  _refusedBy(status, path, value) {
    const words = wordsOf(value);
    const consumer = this._consumers.get(path);
    if (consumer && status === 603 && asMap(value).queue) {
      consumer._leave(new errors.SubscribeFailed(status, words, path));
      return;
    }
    const ended = [...this._subscriptions].filter((each) => each.topic === path);
    if (path && ended.some((each) => status === 603 || (each._hasStart && status !== 503))) {
      for (const each of ended) each._leave(new errors.SubscribeFailed(status, words, path));
      return;
    }
    this._refused++;
    if (this._refusals.length < REFUSALS) {
      this._refusals.push(new (path === SETTLE ? errors.NotSettled : errors.PublishFailed)(status, words.slice(0, 1000), path.slice(0, 1024)));
    }
  }

  /** @param {Directed} request @param {string} id */
  async _requested(request, id) {
    const call = this._served.get(request.path);
    const connection = this._connection;
    const header = {
      routing: [{ client_id: request.publisher, path: asText(request.path) }],
      reqrep: { type: "correlation", id },
      status: 200,
    };
    if (!call || this._unanswered > this._options.unread) {
      header.status = call ? 503 : 404;
      this._answer(REP, header, call ? "this client has too many unanswered requests" : `nothing is served at '${header.routing[0].path.slice(0, 100)}'`);
      return;
    }
    this._unanswered += request._weight + 1000;
    try {
      const write = this._packed(await call(request));
      if (this._connection === connection) this._send(REP, header, write);
    } catch (error) {
      const isTold = error instanceof errors.Answered;
      if (!isTold) report(`the service of ${request.path} failed`, error);
      header.status = isTold ? error.status : 500;
      if (this._connection === connection) this._answer(REP, header, isTold ? error.words : "the service failed");
    } finally {
      this._unanswered -= request._weight + 1000;
    }
    connection?._write();
  }

  // -- operations -------------------------------------------------------------------------------------------------------

  /**
   * Publish a value. Wait for the promise if there is much to publish: it resolves when the connection accepts more, and
   * `flush` when the broker has processed everything.
   *
   * @param {string} topic
   * @param {unknown} value
   * @param {PublishOptions} [options]
   * @returns {Promise<void>}
   * @throws {errors.BufferFull} at once: too many bytes wait to be sent or confirmed
   */
  publish(topic, value, options) {
    const { repeat } = this._options;
    if (!options && !repeat) return this._post(PUB, undefined, value, false, topic);
    const keep = repeat || options?.messageId !== undefined;
    return this._post(PUB, headerOf(topic, options ?? {}, keep ? random() : undefined), value, keep);
  }

  /**
   * Publish several values, and wait until they are sent.
   *
   * @param {string} topic
   * @param {Iterable<unknown>} values
   * @param {PublishOptions} [options] of each
   */
  async publishMany(topic, values, options) {
    if (typeof values === "string" || ArrayBuffer.isView(values)) throw new TypeError("several messages are a list");
    for (const each of values) {
      const sent = this.publish(topic, each, options);
      if (sent !== DONE) await sent;
    }
  }

  /**
   * Put a value into a queue, which is made if there is none; as {@link Client.publish}.
   *
   * @param {string} queue
   * @param {unknown} value
   * @param {PublishOptions} [options]
   * @returns {Promise<void>}
   */
  enqueue(queue, value, options = {}) {
    const keep = this._options.repeat || options.messageId !== undefined;
    return this._post(PUB, headerOf(queue, options, keep ? random() : undefined, { queue: true }), value, keep);
  }

  /**
   * Send a notification, which has no answer, to one or more clients.
   *
   * @param {Targets} targets ids, and names that clients joined with: then all of that name
   * @param {string} path names the subject for the receivers
   * @param {unknown} [value]
   * @returns {Promise<void>}
   */
  notify(targets, path, value) {
    const routing = [targets].flat().map((each) => entryOf(each, path));
    return this._post(NOTIF, { routing }, value, false);
  }

  /**
   * Send a value to every other client.
   *
   * @param {unknown} [value]
   * @returns {Promise<void>}
   */
  broadcast(value) {
    return this._post(BCAST, undefined, value, false);
  }

  /**
   * Wait until the broker has processed everything sent so far and, on durable topics, written it to disk.
   *
   * @param {{ timeout?: number }} [options]
   * @throws {errors.PublishFailed} messages since the last flush were refused
   * @throws {errors.ConnectionLost} messages without a `messageId` may be lost; thrown once
   * @throws {errors.TimedOut}
   */
  async flush({ timeout = this._options.timeout } = {}) {
    const until = Date.now() + timeout * 1000;
    for (;;) {
      this._tellLoss();
      await this._whenJoined((until - Date.now()) / 1000);
      this._tellLoss();
      /** @type {errors.PublishFailed[]} */
      let refusals;
      const barrier = this._barrier();
      try {
        refusals = await within(barrier, (until - Date.now()) / 1000, "a flush");
      } catch (error) {
        this._tellLoss();
        if (error instanceof errors.TimedOut) barrier.then((late) => this._keep(late), () => {});
        else if (this.state !== "closed") continue;
        throw error;
      }
      const [first, ...others] = refusals;
      if (first) {
        first.others = others;
        first.count = this._refused;
        this._refused = 0;
        throw first;
      }
      return;
    }
  }

  _tellLoss() {
    const loss = this._loss;
    this._loss = undefined;
    if (loss) throw loss;
  }

  /**
   * Return the seconds to the broker and back, which include processing everything sent before.
   *
   * @param {{ timeout?: number }} [options]
   */
  async ping({ timeout = this._options.timeout } = {}) {
    await this._whenJoined(timeout);
    const begun = performance.now();
    await within(this._barrier(true), timeout, "the answer to a PING");
    return (performance.now() - begun) / 1000;
  }

  /**
   * Subscribe to a topic or pattern, and wait until the broker has confirmed it.
   *
   * After a reconnect, a subscription with a start goes on after its last offset: nothing is lost, nothing comes twice.
   * Others miss messages: {@link Client.status} names them, and `gaps` shows where.
   *
   * @param {string} topic
   * @param {...({ from?: Start, resume?: boolean, gaps?: boolean, timeout?: number } | ((message: Message) => unknown))} more
   *   `from`: the start on durable topics, as messages then have an `offset`; `resume`: start with new ones of durable
   *   topics, but miss none; `gaps`: without a start, give a message that `isGap` where others may be missing. A
   *   function gets each message, one after the other if it returns a promise; without one, iterate over the result.
   * @returns {Promise<Subscription>}
   * @throws {errors.SubscribeFailed} the broker refused
   */
  async subscribe(topic, ...more) {
    const { options, call } = parted(more);
    const { resume, gaps = false, timeout = this._options.timeout } = options;
    let { from } = options;
    await this._whenJoined(timeout);
    if (resume && from === undefined) {
      from = await this.ask("/journal/bounds", { topics: false }, { timeout }).then(
        (bounds) => bounds.end,
        (error) => {
          throw error instanceof errors.Answered ? new errors.SubscribeFailed(error.status, error.words, topic) : error;
        },
      );
    }
    for (const each of this._subscriptions) {
      const starts = +(from !== undefined) + +each._hasStart;
      if (starts && (each.topic === topic || (starts > 1 && overlap(each.topic, topic)))) {
        throw new TypeError(`there is already a subscription to ${each.topic}; use another client for this one`);
      }
    }
    const subscription = new Subscription(this, topic, from, gaps, call);
    try {
      await within(this._subscribed(subscription), timeout, `the subscription to ${topic}`);
    } catch (error) {
      subscription._leave(/** @type {Error} */ (error));
      throw error;
    }
    return subscription;
  }

  /**
   * Return the notifications and broadcasts that this client receives from now on.
   *
   * @param {(notification: Directed) => unknown} [call] gets each of them
   * @returns {Stream<Directed>}
   */
  notifications(call) {
    /** @type {Stream<Directed>} */
    const stream = new Stream(this._options.unread, call);
    this._notified.add(stream);
    stream.closed.then(() => this._notified.delete(stream));
    return stream;
  }

  /**
   * Become a consumer of a queue, which is made if there is none. After a reconnect it goes on with new jobs.
   *
   * @param {string} queue
   * @param {...({ prefetch?: number, concurrency?: number, retry?: Backoff, timeout?: number } | ((job: Job) => unknown))} more
   *   `prefetch`: the most unsettled jobs of this client at once, 1. A function is called with each job, `concurrency`
   *   at once: its end acknowledges the job, a `Reject` rejects it, another error has it delivered again, after `retry`
   *   or as the queue's definition says. Without one, iterate over the result.
   * @returns {Promise<Jobs>}
   * @throws {errors.SubscribeFailed} the broker refused
   */
  async consume(queue, ...more) {
    const { options, call } = parted(more);
    const { concurrency = 1, prefetch = concurrency, retry, timeout = this._options.timeout } = options;
    if (!(prefetch >= 1 && prefetch <= 65535)) throw new RangeError("prefetch must be between 1 and 65,535");
    await this._whenJoined(timeout);
    if (this._consumers.has(queue)) throw new TypeError(`this client consumes from ${queue} already`);
    const jobs = new Jobs(this, queue, prefetch);
    try {
      await within(this._subscribed(jobs), timeout, `the queue ${queue}`);
    } catch (error) {
      jobs._leave(/** @type {Error} */ (error));
      throw error;
    }
    if (call) for (let place = 0; place < concurrency; place++) jobs._work(call, retry);
    return jobs;
  }

  /**
   * Send a request to another client, by its id or name, and return the value of its answer.
   *
   * @param {number | string} target a name means the least busy client of that name
   * @param {string} path
   * @param {unknown} [value]
   * @param {{ timeout?: number }} [options]
   * @returns {Promise<any>}
   * @throws {errors.RequestFailed} the answer is an error, or there is no such client
   * @throws {errors.TimedOut}
   */
  request(target, path, value, options) {
    if (asText(target)[0] === "/") throw new TypeError(`${target} is a path: the id or name of a client comes first`);
    return this._request(target, path, this._packed(value), options);
  }

  /**
   * Send a request to the broker itself, e.g. "/broker/about"; as {@link Client.request}.
   *
   * @param {string} path
   * @param {unknown} [value]
   * @param {{ timeout?: number }} [options]
   * @returns {Promise<any>}
   */
  ask(path, value, options) {
    return this._request(BROKER, path, (out) => out._value(value), options);
  }

  /** @param {number | string} target @param {string} path @param {(out: any) => void} write @param {{ timeout?: number }} [options] */
  async _request(target, path, write, { timeout = this._options.timeout } = {}) {
    await this._whenJoined(timeout);
    const id = random();
    try {
      return await within(
        new Promise((resolve, reject) => {
          // Whoever guesses the id could answer a request to a name.
          this._send(REQ, { routing: [entryOf(target, path)], reqrep: { type: "request", id } }, write);
          this._replies.set(id, { target, resolve, reject });
          this._now();
        }),
        timeout,
        `the answer to ${path}`,
      );
    } catch (error) {
      if (error instanceof errors.RequestFailed) error.path = path;
      throw error;
    } finally {
      this._replies.delete(id);
    }
  }

  /**
   * Answer requests to a path with the result of a function, also after a reconnect. An {@link errors.Answered} that it
   * throws is the answer; other errors are answered with 500.
   *
   * @param {string} path
   * @param {(request: Directed) => unknown} call
   */
  serve(path, call) {
    if (typeof call !== "function") throw new TypeError(`${path} needs a function`);
    if (this._served.has(path)) throw new TypeError(`the path ${path} is already served`);
    this._served.set(path, call);
  }

  /**
   * Return the changes of the connection's state from now on.
   *
   * @param {(status: Status) => unknown} [call] gets each of them
   * @returns {Stream<Status>}
   */
  status(call) {
    /** @type {Stream<Status>} */
    const stream = new Stream(ANSWERS, call);
    if (this.state === "closed") stream.close();
    this._watchers.add(stream);
    stream.closed.then(() => this._watchers.delete(stream));
    return stream;
  }

  /** Return a promise that resolves when the client is closed for good: with the error that ended it, if any. */
  closed() {
    return this._closed;
  }

  /**
   * Get nothing more, let the program finish what was received, and {@link Client.close}.
   *
   * @param {{ timeout?: number }} [options]
   */
  async drain({ timeout = this._options.timeout } = {}) {
    const all = [...this._subscriptions];
    for (const each of all) each.close();
    for (const each of this._consumers.values()) each.halt();
    const isBusy = () => all.some((each) => each.waiting || each._isBusy) || this._unanswered;
    for (const until = Date.now() + timeout * 1000; isBusy() && Date.now() < until; ) await sleep(0.01);
    await this.close({ timeout });
  }

  /**
   * Flush, and end the connection; iterations end. The connection ends even if the flush fails.
   *
   * @param {{ timeout?: number }} [options]
   */
  async close(options) {
    try {
      for (const each of this._subscriptions) each.close();
      if (this.state !== "closed" && (this._sent > this._confirmed || this._held.length || this._loss || this._refusals.length)) {
        await this.flush(options);
      }
    } finally {
      this._end();
    }
  }

  /** End the connection at once. */
  hangUp() {
    this._end();
  }
}

/** @param {number | string} target @param {string} path */
const entryOf = (target, path) => (typeof target === "string" ? { client_name: target, path } : { client_id: target, path });

/** @param {unknown} error */
const isPermanent = (error) => error instanceof errors.JoinRefused && PERMANENT.includes(error.status);

/**
 * Connect to a broker.
 *
 * @param {string | string[]} url one or several of its addresses, e.g. "ws://localhost:7890/ws"; a page may leave out
 *   what it has in common with its own address: "/ws"
 * @param {Options} [options]
 * @returns {Promise<Client>}
 * @throws {errors.ConnectionLost}
 * @throws {errors.JoinRefused}
 */
export const connect = (url, options = {}) => new Client(url, options)._begin();
