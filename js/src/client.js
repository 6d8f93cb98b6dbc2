/**
 * A client of FlexiMQ over WebSocket, which reconnects by itself.
 *
 * @module
 */

import { pauseAfter } from "./backoff.js";
import { Connection, writeFrame, writePayload } from "./connection.js";
import {
  Answered, BufferFull, ConnectionLost, JoinRefused, NotSettled, PublishFailed, RequestFailed, SubscribeFailed,
} from "./errors.js";
import { BCAST, BROKER, FIXED, NOTIF, number32, PING, PONG, PUB, REP, REQ, SUB } from "./frames.js";
import { Job, Jobs } from "./jobs.js";
import { Message } from "./messages.js";
import { decode, scratch } from "./msgpack.js";
import { overlap } from "./patterns.js";
import { Deferred, report, sleep, Stream, within } from "./stream.js";
import { Subscription } from "./subscription.js";

/** @typedef {import("./subscription.js").Start} Start */
/** @typedef {import("./backoff.js").Backoff} Backoff */
/** @typedef {{ timeout?: number }} Patience seconds */

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
 * @property {any} [WebSocket] its constructor, where the platform has none; the package `ws` is found by itself
 */

/**
 * @typedef {object} PublishOptions durations are in seconds
 * @property {string | true} [messageId] identifies it: repeated until the broker has it, and stored once on a durable
 *   topic; true makes one
 * @property {string | Uint8Array} [key] by which it is grouped, or ordered in a queue
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

/** @typedef {PublishFailed[]} Refusals */
/** @typedef {{ _bytes: Uint8Array, _keep: boolean, _number: number }} Held */
/** @typedef {{ _sent: number, _call: (error: Error | undefined, refusals: Refusals) => void }} Barrier */
/** @typedef {{ _target: number | string, _path: string, _call: (error: Error | undefined, value?: any) => void }} Reply */

/** Bytes and number of things that a broker may cause without being asked: answers, refusals, bytes before the JOIN. */
const MOST = 1 << 20;
const REFUSALS = 1000;
const SETTLE = "/queue/settle";
const SILENT = "the broker is silent";
/** Another attempt to join would get the same answer. */
const PERMANENT = [400, 401, 403, 604];
/** Tokens that live longer, in seconds, are not renewed: no timer waits as long. */
const LONGEST = 2e6;
const DONE = Promise.resolve();

/** @param {unknown} value @returns {Record<string, any>} */
const asMap = (value) => (value && typeof value === "object" ? value : {});

/** @param {unknown} value */
const asText = (value) => (typeof value === "string" ? value : "");

const random = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (each) => each.toString(36)).join("");

/** @param {number} [seconds] */
const milliseconds = (seconds) => seconds && Math.round(seconds * 1000);

/** @param {number | string} target @param {string} path */
const entryOf = (target, path) => ({ [typeof target === "string" ? "client_name" : "client_id"]: target, path });

/** Return the value of an error's payload, and its text. @param {Uint8Array} bytes @param {number} start @param {number} end */
function wordsIn(bytes, start, end) {
  let value;
  try {
    value = decode(bytes, start, end);
  } catch {
    // It has no text then.
  }
  return { value: asMap(value), words: (asText(value) || asText(asMap(value).error)).slice(0, 4096) };
}

/** @param {string} token @returns {number} seconds until a JSON Web Token expires; NaN: unknown */
function lifeOf(token) {
  try {
    return JSON.parse(atob(token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/"))).exp - Date.now() / 1000;
  } catch {
    return NaN;
  }
}

/** A connection to a broker. Make one with {@link connect}. */
export class Client {
  /** "connecting" at first, "joined", "away" while it reconnects, or "closed". @type {"connecting" | Status["state"]} */
  state = "connecting";
  /** @internal @type {Connection | undefined} */
  _connection;
  /** @internal @type {Set<Subscription>} */
  _subscriptions = new Set();
  /** @internal @type {Map<string, Jobs>} */
  _consumers = new Map();
  /** The subscriptions of a topic. @internal @type {Map<string, Subscription[]>} */
  _receivers = new Map();
  /** The envelope of the last run of publications, its header and receivers. @internal @type {Uint8Array | undefined} */
  _run;
  /** @internal @type {Record<string, any>} */
  _runHeader = {};
  /** @internal @type {Subscription[]} */
  _runReceivers = [];

  /** @internal @type {Set<Stream<Message>>} */
  _directed = new Set();
  /** @internal @type {Set<Stream<Status>>} */
  _watchers = new Set();
  /** @internal @type {Map<string, (request: Message) => unknown>} */
  _served = new Map();
  /** Bytes of requests that are being answered, and of jobs that a function works on. @internal */
  _unanswered = 0;

  /** Messages without an answer that were sent, and those that are confirmed. @internal */
  _sent = 0;
  /** @internal */
  _confirmed = 0;
  /** Publications that wait to be sent, or to be confirmed. @internal @type {Held[]} */
  _held = [];
  /** @internal */
  _heldBytes = 0;
  /** @internal */
  _isConfirming = false;
  /** @internal @type {Refusals} */
  _refusals = [];
  /** Why messages since the last flush may be lost. @internal @type {Error | undefined} */
  _loss;
  /** @internal @type {Map<string, Record<string, any[]>>} */
  _settlements = new Map();

  /** @internal */
  _number = 0;
  /** By the timestamp of the PING. @internal @type {Map<number, Barrier>} */
  _barriers = new Map();
  /** @internal @type {Map<string, Reply>} */
  _replies = new Map();
  /** The connection that is being made. @internal @type {Deferred<void>} */
  _joining = new Deferred();
  /** Resolved while the client is joined. @internal @type {Deferred<void>} */
  _ready = new Deferred();
  /** @internal @type {Deferred<Error | undefined>} */
  _over = new Deferred();
  /** Why there is no connection. @internal @type {Error | undefined} */
  _lost;
  /** @internal */
  _joiningBytes = 0;
  /** @internal */
  _silent = 0;
  /** The token of the next connection. @internal @type {string | undefined} */
  _token;
  /** @internal @type {any} */
  _ticking;
  /** @internal @type {any} */
  _renewing;
  /** Ends the wait between two attempts. @internal @type {Deferred<void>} */
  _pause = new Deferred();
  /** @internal */
  _listening = new AbortController();

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
    /** In random order, so that clients spread over the addresses. @internal @type {string[]} */
    this._urls = [url].flat().map((each) => {
      const parsed = new URL(each, globalThis.location?.href);
      parsed.protocol = parsed.protocol.replace("http", "ws");
      return parsed.href;
    });
    this._urls.sort(() => Math.random() - 0.5);
  }

  /** The id that the broker gave to this connection; it changes when the client reconnects. */
  get id() {
    return this._connection?._id ?? 0;
  }

  // -- connections ------------------------------------------------------------------------------------------------------

  /** Connect for the first time. @internal */
  async _begin() {
    try {
      await this._dialAny();
    } catch (error) {
      this._finish(/** @type {Error} */ (error));
      throw error;
    }
    this._ticking = setInterval(() => {
      if (this.state !== "joined") return;
      if (this._silent++ > 2) this._connection?._lose(SILENT);
      else this._ping();
    }, this._options.keepAlive * 1000);
    // The network is back, or the page is seen: reconnect at once, or see whether the connection still lives.
    const { document } = globalThis;
    const wake = () => {
      if (document?.hidden) return;
      this._pause._resolve();
      const connection = this._connection;
      if (this.state === "joined") within(this._barrier(true), 5).catch(() => connection?._lose(SILENT));
    };
    const { signal } = this._listening;
    globalThis.addEventListener?.("online", wake, { signal });
    document?.addEventListener("visibilitychange", wake, { signal });
    return this;
  }

  /** Join at the first address that admits the client, beginning with the one after the last. @internal */
  async _dialAny() {
    let error;
    for (let left = this._urls.length; left--; ) {
      this._urls.push(/** @type {string} */ (this._urls.shift()));
      try {
        return await this._dial();
      } catch (raised) {
        if (!error || isPermanent(error)) error = raised;
        if (this.state === "closed") break;
      }
    }
    throw error;
  }

  /** @internal */
  async _dial() {
    const { token, credentials, name, timeout, WebSocket } = this._options;
    const own = this._token ?? (typeof token === "function" ? await token() : token);
    this._token = undefined;
    // Node 20 has none of its own.
    const Socket = WebSocket ?? globalThis.WebSocket ?? (await import("ws")).WebSocket;
    if (this.state === "closed") throw this._lost;
    this._joining = new Deferred();
    this._joiningBytes = this._silent = 0;
    const auth = own === undefined ? credentials : { type: "token", token: own };
    // Only the constructor of `ws` knows the third argument.
    const socket = new Socket(this._urls.at(-1), ["fleximq"], { perMessageDeflate: false });
    const connection = (this._connection = new Connection(socket, this, { client_name: name, auth }));
    try {
      await within(this._joining._promise, timeout);
    } catch (error) {
      connection._drop();
      this._fail(/** @type {Error} */ (error));
      throw error;
    }
    if (own !== undefined && typeof token === "function") this._renewIn(lifeOf(own), token);
  }

  /** Get another token before this one expires, and reconnect with it. @internal @param {number} left seconds @param {() => string | Promise<string>} token */
  _renewIn(left, token) {
    const connection = this._connection;
    if (!(left > 0 && left < LONGEST)) return;
    this._renewing = setTimeout(async () => {
      try {
        const next = await token();
        // Answers are on their way; there is a fifth of the time left.
        for (let tries = left; tries > 0 && this._replies.size; tries--) await sleep(0.1);
        await this._barrier(true);
        if (connection !== this._connection || !connection) return;
        this._token = next;
        // What was sent meanwhile arrives before the connection ends.
        this._confirmed = this._sent;
        connection._write();
        connection._lose("the token is renewed", true);
      } catch (error) {
        // The broker ends the connection in time, and the next one needs a new token, too.
        report("a new token", error);
      }
    }, left * 800);
  }

  /** The broker has admitted the client: subscribe again, then send what was held. @internal */
  _admitted() {
    const connection = /** @type {Connection} */ (this._connection);
    // Those with a start first: a message comes once to a client.
    const ordered = [...this._subscriptions].sort((a, b) => +b._hasStart - +a._hasStart);
    for (const each of [...ordered, ...this._consumers.values()]) if (!each._isPaused) this._subscribed(each).catch(() => {});
    this._ping((error, refusals) => {
      this._keep(refusals);
      if (error) return;
      for (const each of this._held) {
        const bytes = each._bytes;
        new DataView(bytes.buffer).setUint32(2, connection._id);
        connection._out._raw(bytes);
        connection._soon();
        each._number = ++this._sent;
        // A connection that ends soon confirms a part, so that the next one has less to repeat.
        if (!(this._sent % 128)) this._ping();
        if (!each._keep) this._heldBytes -= bytes.length;
      }
      this._held = this._held.filter((each) => each._keep);
      this._enter({ state: "joined" });
      this._joining._resolve();
      this._ready._resolve();
      // The last of them may have been written already, and are to be confirmed, too.
      connection._soon();
    });
    connection._write();
  }

  /** @internal @param {Status} status */
  _enter(status) {
    this.state = status.state;
    for (const each of this._watchers) each._put(status);
  }

  /** The connection has ended. @internal @param {ConnectionLost} error @param {boolean} [isWanted] reconnect at once */
  _lose(error, isWanted) {
    const last = this._refusals.at(-1);
    if (last) error = new ConnectionLost(`${error.message}; before: ${last.message}`);
    this._fail(error);
    if (this.state !== "joined") return;
    const { reconnect } = this._options;
    if (!reconnect) {
      this._finish(error);
      return;
    }
    this._ready = new Deferred();
    const missing = new Set([...this._subscriptions].filter((each) => !each._hasStart).map((each) => each.topic));
    this._enter({ state: "away", error, missing: [...missing] });
    this._reconnect(error, reconnect, isWanted ? 0 : 1);
  }

  /** Tell all that wait for the connection that it has ended. @internal @param {Error} lost */
  _fail(lost) {
    this._lost = lost;
    this._connection = undefined;
    this._run = undefined;
    clearTimeout(this._renewing);
    if (this._sent - this._confirmed > this._held.filter((each) => each._number).length) {
      this._loss = new ConnectionLost(`messages may be lost: ${lost.message}`);
      this._refusals = [];
    }
    this._confirmed = this._sent;
    for (const each of this._held) each._number = 0;
    this._isConfirming = false;
    this._settlements.clear();
    for (const each of this._consumers.values()) each._clear();
    const calls = [...this._barriers.values(), ...this._replies.values()];
    this._barriers.clear();
    this._replies.clear();
    for (const { _call } of calls) _call(lost, []);
    this._joining._reject(lost);
    // It may be that nothing waits for it.
    this._joining._promise.catch(() => {});
  }

  /** @internal @param {Error} error @param {Backoff} backoff @param {number} failures */
  async _reconnect(error, backoff, failures) {
    for (; this.state === "away" && !(backoff.attempts && failures > backoff.attempts); failures++) {
      if (failures) {
        this._pause = new Deferred();
        const timer = setTimeout(this._pause._resolve, pauseAfter(backoff, failures) * 1000);
        await this._pause._promise;
        clearTimeout(timer);
      }
      if (this.state !== "away") return;
      try {
        return await this._dialAny();
      } catch (raised) {
        error = /** @type {Error} */ (raised);
        if (isPermanent(error)) break;
      }
    }
    this._finish(error);
  }

  /** Close for good. @internal @param {Error} [error] */
  _finish(error) {
    if (this.state === "closed") return;
    const connection = this._connection;
    if (connection?._id) connection._write();
    this._enter({ state: "closed", error });
    connection?._drop();
    this._fail(error ?? new ConnectionLost("the client was closed"));
    this._ready._reject(this._lost);
    this._ready._promise.catch(() => {});
    this._pause._resolve();
    this._listening.abort();
    clearInterval(this._ticking);
    for (const each of [...this._subscriptions, ...this._consumers.values(), ...this._directed]) each._leave(error ?? true);
    for (const each of this._watchers) each.close();
    this._over._resolve(error);
  }

  /** @internal @param {number} timeout */
  async _whenJoined(timeout) {
    if (this.state === "closed") throw this._lost;
    if (this.state !== "joined") await within(this._ready._promise, timeout);
  }

  // -- what is sent -----------------------------------------------------------------------------------------------------

  /** Send a message if there is a connection. @internal @param {number} type @param {object} [header] @param {unknown} [value] */
  _send(type, header, value) {
    if (this._connection?._id) this._connection._frame(type, header, value);
  }

  /** Send a PING, and call a function with its PONG. @internal @param {Barrier["_call"]} call */
  _ping(call = (_, refusals) => this._keep(refusals)) {
    this._sendSettlements();
    const timestamp = ++this._number;
    this._barriers.set(timestamp, { _sent: this._sent, _call: call });
    this._send(PING, { keepalive: { timestamp } });
  }

  /** Wait until everything is processed, and return the refusals, or keep them. @internal @param {boolean} [keeps] @returns {Promise<Refusals>} */
  _barrier(keeps) {
    return new Promise((resolve, reject) => {
      if (!this._connection) return reject(this._lost);
      this._ping((error, refusals) => {
        if (keeps) this._keep(refusals);
        if (error) reject(error);
        else resolve(refusals);
      });
    });
  }

  /** Report refusals at the next flush. @internal @param {Refusals} refusals */
  _keep(refusals) {
    this._refusals.unshift(...refusals);
  }

  /**
   * Send a message without an answer, or hold it until there is a connection. Hot: without an allocation of its own.
   *
   * @param {number} type
   * @param {any} header with only a topic for a publication without further fields
   * @param {unknown} value
   * @param {boolean} keep until it is confirmed
   * @param {string} [topic] in place of a header
   * @returns {Promise<void>}
   * @internal
   */
  _post(type, header, value, keep, topic) {
    if (this.state === "closed") throw this._lost;
    const { buffer } = this._options;
    const connection = this.state === "joined" ? this._connection : undefined;
    /** @param {number} size */
    const check = (size) => {
      if (size > buffer) throw new BufferFull(`${size} bytes wait`);
    };
    if (connection?._isFull) check(connection._unsent);
    const out = connection ? connection._out : scratch;
    const start = connection ? out._at : (out._at = 0);
    try {
      if (connection && topic !== undefined) {
        out._raw(connection._head(topic));
        writePayload(out, value);
      } else writeFrame(out, type, connection ? connection._id : 0, topic === undefined ? header : { topic }, value);
      if (keep || !connection) {
        const bytes = out._bytes.slice(start, out._at);
        check(this._heldBytes + bytes.length);
        this._held.push({ _bytes: bytes, _keep: keep, _number: connection ? this._sent + 1 : 0 });
        this._heldBytes += bytes.length;
      }
    } catch (error) {
      out._at = start;
      throw error;
    }
    if (!connection) return DONE;
    this._sent++;
    connection._soon();
    return connection._isFull || this._isHeldFull() ? connection._drained(() => this._isHeldFull()) : DONE;
  }

  /** @internal */
  _isHeldFull() {
    return this._heldBytes > this._options.buffer / 2;
  }

  /** Add settlements, and a PING if publications are to be confirmed. @internal */
  _beforeWriting() {
    this._sendSettlements();
    if (!this._held.length || this.state !== "joined" || this._isConfirming) return;
    this._isConfirming = true;
    this._ping((_, refusals) => {
      this._keep(refusals);
      this._isConfirming = false;
      this._connection?._soon();
    });
  }

  /** @internal @param {string} queue @param {string} kind @param {number} tag @param {unknown} entry */
  _settle(queue, kind, tag, entry) {
    const lists = this._settlements.get(queue) ?? {};
    this._settlements.set(queue, lists);
    // The broker settles before it extends.
    if (lists.extend) lists.extend = lists.extend.filter((each) => each[0] !== tag);
    (lists[kind] ??= []).push(entry);
    this._sent++;
    this._connection?._soon();
  }

  /** @internal */
  _sendSettlements() {
    for (const [queue, lists] of this._settlements) {
      this._settlements.delete(queue);
      this._send(NOTIF, { routing: [entryOf(BROKER, SETTLE)] }, { queue, ...lists });
    }
  }

  /** Send the SUB of a subscription or consumer, and wait until it is confirmed. @internal @param {Subscription | Jobs} each @returns {Promise<void>} */
  _subscribed(each) {
    return new Promise((resolve, reject) => {
      if (!this._connection) return reject(this._lost);
      // Refusals between the two PINGs, and without a path, are of the SUB.
      /** @type {Refusals} */
      let earlier = [];
      this._ping((_, refusals) => (earlier = refusals));
      each._open();
      this._send(SUB, each._fields());
      this._ping((error, refusals) => {
        const refusal = refusals.find((one) => !one.path);
        this._keep([...earlier, ...refusals.filter((one) => one !== refusal)]);
        each._isConfirmed = true;
        if (refusal?.status === 404 && each._restart()) resolve(this._subscribed(each));
        else {
          if (refusal) each._leave((error = new SubscribeFailed(refusal.status, refusal.words, each.topic)));
          if (error) reject(error);
          else resolve();
        }
      });
    });
  }

  /**
   * Subscribe with something new.
   *
   * @template {Subscription | Jobs} T
   * @param {T} each @param {number} timeout
   * @internal
   */
  async _opened(each, timeout) {
    const work = async () => {
      // Nothing of an earlier one is in transit then.
      await this._barrier(true);
      if (!each._end) await this._subscribed(each);
    };
    try {
      await within(work(), timeout);
    } catch (error) {
      each._leave(true);
      throw error;
    }
    return each;
  }

  // -- what is received -------------------------------------------------------------------------------------------------

  /** The subscriptions have changed. @internal */
  _changed() {
    this._receivers.clear();
    this._run = undefined;
  }

  /** Bytes have arrived. @internal @param {number} count */
  _arrived(count) {
    this._silent = 0;
    if (!this.id && (this._joiningBytes += count) > MOST) throw SILENT;
  }

  /** @internal @param {Uint8Array} bytes @param {number} start @param {number} payload @param {number} end */
  _received(bytes, start, payload, end) {
    const connection = /** @type {Connection} */ (this._connection);
    const type = bytes[start + 1];
    const sender = number32(bytes, start + 2);
    const size = payload - 8 - start;
    if (type === PUB) {
      const run = this._run;
      if (run?.length === size) {
        let place = size - 1;
        while (place && run[place] === bytes[start + place]) place--;
        if (!place) {
          const message = new Message(bytes, payload, end, this._runHeader, sender);
          for (const each of this._runReceivers) each._offer(message);
          return;
        }
      }
    }
    const header = asMap(decode(bytes, start + FIXED, start + size));
    const status = Number(header.status) || 200;
    const isError = status >= 400;
    const id = asText(header.reqrep?.id);
    if (!connection._id) {
      if (type === REP && isError) this._joining._reject(new JoinRefused(status, wordsIn(bytes, payload, end).words));
      else if (type === REP && sender > BROKER) {
        connection._id = sender;
        this._admitted();
      }
    } else if (type === PUB) this._published(new Message(bytes, payload, end, header, sender), bytes, start, size);
    else if (type === REP && id) {
      const reply = this._replies.get(id);
      // A name may mean any client.
      if (!reply || (typeof reply._target === "number" && sender !== reply._target && sender !== BROKER)) return;
      this._replies.delete(id);
      try {
        if (isError) throw new RequestFailed(status, wordsIn(bytes, payload, end).words, reply._path);
        reply._call(undefined, decode(bytes, payload, end));
      } catch (error) {
        reply._call(/** @type {Error} */ (error));
      }
    } else if (sender === BROKER && isError) {
      this._refused(status, asText(header.routing?.[0]?.path), wordsIn(bytes, payload, end));
    } else if (type === PING) this._answer(PONG, { keepalive: header.keepalive }, undefined, true);
    else if (type === PONG) this._ponged(header.keepalive?.timestamp);
    else if (type === REQ || type === NOTIF || type === BCAST) {
      // A copy, since it may be held for long.
      const message = new Message(bytes.slice(payload, end), 0, end - payload, header, sender);
      message._weight += 16 * size;
      if (type === REQ) this._requested(message, id);
      else for (const each of this._directed) each._put(message);
    }
  }

  /** Answer a message; `isCheap`: only if the broker reads. @internal @param {number} type @param {object} header @param {unknown} value @param {boolean} isCheap */
  _answer(type, header, value, isCheap) {
    if (!isCheap || Number(this._connection?._unsent) < MOST) this._send(type, header, value);
  }

  /** @internal @param {Message} message @param {Uint8Array} bytes @param {number} start @param {number} size */
  _published(message, bytes, start, size) {
    const { header } = message;
    const { delivery } = header;
    const topic = asText(header.topic);
    // A header may become many objects.
    message._weight += size > 256 ? 16 * size : size;
    if (delivery && this._consumers.size) {
      if (typeof delivery.tag === "number") this._consumers.get(delivery.queue)?._put(new Job(this, message));
      return;
    }
    let receivers = this._receivers.get(topic);
    if (!receivers) {
      receivers = [...this._subscriptions].filter((each) => each._matches(topic));
      if (this._receivers.size > 1000) this._receivers.clear();
      if (size < 4096) this._receivers.set(topic, receivers);
    }
    if (Object.keys(header).length < 2 && size < 1024) {
      this._run = bytes.slice(start, start + size);
      // The version is not compared.
      this._runHeader = header;
      this._runReceivers = receivers;
    }
    for (const each of receivers) each._offer(message);
  }

  /** @internal @param {any} timestamp */
  _ponged(timestamp) {
    const barrier = this._barriers.get(timestamp);
    if (!barrier) return;
    this._barriers.delete(timestamp);
    this._confirmed = Math.max(this._confirmed, barrier._sent);
    const left = this._held.findIndex((each) => !each._number || each._number > barrier._sent);
    for (const each of this._held.splice(0, left < 0 ? this._held.length : left)) this._heldBytes -= each._bytes.length;
    barrier._call(undefined, this._refusals.splice(0));
  }

  /** @internal @param {number} status @param {string} path @param {{ value: Record<string, any>, words: string }} told */
  _refused(status, path, { value, words }) {
    const consumer = this._consumers.get(path);
    const subscriptions = [...this._subscriptions].filter((each) => each.topic === path);
    if (consumer && status === 603 && value.queue) consumer._leave(new SubscribeFailed(status, words, path));
    else if (path && subscriptions.some((each) => status === 603 || (each._hasStart && status !== 503))) {
      for (const each of subscriptions) each._leave(new SubscribeFailed(status, words, path));
    } else if (this._refusals.length < REFUSALS) {
      this._refusals.push(new (path === SETTLE ? NotSettled : PublishFailed)(status, words, path.slice(0, 1024)));
    }
  }

  /** @internal @param {Message} request @param {string} id */
  async _requested(request, id) {
    const connection = this._connection;
    const path = asText(request.path);
    const call = this._served.get(path);
    const weight = request._weight + 1000;
    /** @param {number} status @param {unknown} value */
    const reply = (status, value) => {
      if (connection !== this._connection) return;
      // Answers that cost no work are sent only while the broker reads.
      this._answer(REP, { routing: [entryOf(request.publisher, path)], reqrep: { type: "correlation", id }, status }, value, !call);
    };
    this._unanswered += weight;
    try {
      if (!call) throw new Answered(404, `nothing is served at '${path.slice(0, 100)}'`);
      if (this._unanswered > this._options.unread) throw new Answered(503, "too many requests");
      reply(200, await call(request));
    } catch (error) {
      if (error instanceof Answered) reply(error.status, error.words);
      else {
        report(path, error);
        reply(500, "the service failed");
      }
    }
    this._unanswered -= weight;
  }

  // -- operations -------------------------------------------------------------------------------------------------------

  /** @internal @param {string} topic @param {unknown} value @param {PublishOptions} options @param {object} [more] */
  _publish(topic, value, options, more) {
    const { messageId, key, priority, delay, at, expires, headers } = options;
    const keep = messageId !== undefined || this._options.repeat === true;
    const header = {
      topic,
      ...more,
      key,
      message_id: keep && (messageId === undefined || messageId === true) ? random() : messageId,
      priority,
      deliver_in: milliseconds(delay),
      deliver_at: at && +at,
      expires_in: milliseconds(expires),
      ...headers,
    };
    return this._post(PUB, header, value, keep);
  }

  /**
   * Publish a value. Await it if there is much to publish: it resolves when the connection accepts more, and
   * {@link Client.flush} when the broker has processed everything.
   *
   * @param {string} topic
   * @param {unknown} value
   * @param {PublishOptions} [options]
   * @returns {Promise<void>}
   * @throws {BufferFull} at once: too many bytes wait
   */
  publish(topic, value, options) {
    return options || this._options.repeat ? this._publish(topic, value, options ?? {}) : this._post(PUB, undefined, value, false, topic);
  }

  /**
   * Publish several values, and wait until they are sent.
   *
   * @param {string} topic
   * @param {Iterable<unknown>} values
   * @param {PublishOptions} [options] of each
   */
  async publishMany(topic, values, options) {
    for (const each of values) {
      const sent = this.publish(topic, each, options);
      // Without a turn of the event loop for each.
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
    return this._publish(queue, value, options, { queue: true });
  }

  /**
   * Send a notification, which has no answer, to one or more clients.
   *
   * @param {number | string | (number | string)[]} targets ids, and names that clients joined with: then all of that name
   * @param {string} path names the subject for the receivers
   * @param {unknown} [value]
   * @returns {Promise<void>}
   */
  notify(targets, path, value) {
    return this._post(NOTIF, { routing: [targets].flat().map((each) => entryOf(each, path)) }, value, false);
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
   * @param {Patience} [options]
   * @throws {PublishFailed} messages since the last flush were refused
   * @throws {ConnectionLost} messages without a message id may be lost; thrown once
   */
  async flush({ timeout = this._options.timeout } = {}) {
    const work = async () => {
      for (;;) {
        const loss = this._loss;
        this._loss = undefined;
        if (loss) throw loss;
        await this._whenJoined(timeout);
        if (this._loss) continue;
        try {
          return await this._barrier();
        } catch (error) {
          // Without a loss, everything is sent again.
          if (this.state === "closed") throw this._loss ?? error;
        }
      }
    };
    const [first, ...others] = await within(work(), timeout);
    if (first) {
      first.others = others;
      throw first;
    }
  }

  /**
   * Subscribe to a topic or pattern, and wait until the broker has confirmed it.
   *
   * After a reconnect, a subscription with a start goes on after its last offset: nothing is lost, nothing comes twice.
   * Others miss messages: {@link Client.status} names them, and `gaps` shows where.
   *
   * @param {string} topic
   * @param {{ from?: Start, gaps?: boolean } & Patience | ((message: Message) => unknown)} [options]
   *   `from`: the start on durable topics, whose messages then have an `offset`; `gaps`: without a start, give a message that `isGap` where others may be missing
   * @param {(message: Message) => unknown} [call] gets each message, one after the other if it returns a promise;
   *   without it, iterate over the result
   * @returns {Promise<Subscription>}
   * @throws {SubscribeFailed} the broker refused
   */
  async subscribe(topic, options = {}, call) {
    if (typeof options === "function") [options, call] = [{}, options];
    const { gaps = false, timeout = this._options.timeout } = options;
    let { from } = options;
    await this._whenJoined(timeout);
    const isNext = from === "next";
    if (isNext) from = Number((await this.ask("/journal/bounds", { topics: false }, { timeout })).end);
    const hasStart = from !== undefined;
    for (const each of this._subscriptions) {
      if (each.topic === topic ? hasStart || each._hasStart : hasStart && each._hasStart && overlap(each.topic, topic)) {
        throw new TypeError(`overlaps ${each.topic}`);
      }
    }
    return this._opened(new Subscription(this, topic, from, isNext, gaps && !hasStart, call), timeout);
  }

  /**
   * Return the notifications and broadcasts that this client receives from now on.
   *
   * @param {(notification: Message) => unknown} [call] gets each of them
   * @returns {Stream<Message>}
   */
  notifications(call) {
    return this._stream(this._directed, call);
  }

  /**
   * Return the changes of the connection's state from now on.
   *
   * @param {(status: Status) => unknown} [call] gets each of them
   * @returns {Stream<Status>}
   */
  status(call) {
    return this._stream(this._watchers, call);
  }

  /**
   * @template T
   * @param {Set<Stream<T>>} all
   * @param {(item: T) => unknown} [call]
   * @internal
   */
  _stream(all, call) {
    /** @type {Stream<T>} */
    const stream = new Stream(this._options.unread, call);
    if (this.state === "closed") stream.close();
    else all.add(stream);
    stream.closed.then(() => all.delete(stream));
    return stream;
  }

  /**
   * Become a consumer of a queue, which is made if there is none. After a reconnect it goes on with new jobs.
   *
   * @param {string} queue
   * @param {{ prefetch?: number } & Patience | ((job: Job) => unknown)} [options] `prefetch`: the most unsettled jobs of
   *   this client at once, 1
   * @param {(job: Job) => unknown} [call] is called with each job, up to `prefetch` at once: its end acknowledges the job,
   *   unless it has settled it, and an error has it delivered again; without it, iterate over the result
   * @returns {Promise<Jobs>}
   * @throws {SubscribeFailed} the broker refused
   */
  async consume(queue, options = {}, call) {
    if (typeof options === "function") [options, call] = [{}, options];
    const { prefetch = 1, timeout = this._options.timeout } = options;
    await this._whenJoined(timeout);
    if (this._consumers.has(queue)) throw new TypeError(`overlaps ${queue}`);
    return this._opened(new Jobs(this, queue, prefetch, call), timeout);
  }

  /**
   * Send a request to another client, by its id or name, and return the value of its answer.
   *
   * @param {number | string} target a name means the least busy client of that name
   * @param {string} path
   * @param {unknown} [value]
   * @param {Patience} [options]
   * @returns {Promise<any>}
   * @throws {RequestFailed} the answer is an error, or there is no such client
   */
  async request(target, path, value, { timeout = this._options.timeout } = {}) {
    await this._whenJoined(timeout);
    // Whoever guesses the id could answer a request to a name.
    const id = random();
    const answer = new Promise((resolve, reject) => {
      this._send(REQ, { routing: [entryOf(target, path)], reqrep: { type: "request", id } }, value);
      this._replies.set(id, { _target: target, _path: path, _call: (error, found) => (error ? reject(error) : resolve(found)) });
    });
    return within(answer, timeout).finally(() => this._replies.delete(id));
  }

  /**
   * Send a request to the broker itself, e.g. "/broker/about"; as {@link Client.request}.
   *
   * @param {string} path
   * @param {unknown} [value]
   * @param {Patience} [options]
   * @returns {Promise<any>}
   */
  ask(path, value, options) {
    return this.request(BROKER, path, value, options);
  }

  /**
   * Tell who is there, of all dialects: at first, and whenever a client joins or leaves. Needs the rights to read
   * "/broker/clients" and to subscribe to "$sys/clients/*".
   *
   * @param {(clients: Record<string, any>[]) => unknown} call gets the first 1,000 clients, each with its `client_id`,
   *   `client_name`, `dialect` and more
   * @returns {Promise<Subscription>} close it to hear no more
   */
  async presence(call) {
    const list = async () => call((await this.ask("/broker/clients", { limit: 1000 })).clients);
    // One request for all changes that came meanwhile.
    /** @type {Subscription | undefined} */
    let subscription;
    subscription = await this.subscribe("$sys/clients/*", { gaps: true }, () => subscription?.waiting || list());
    await list();
    return subscription;
  }

  /**
   * Answer requests to a path with the result of a function, also after a reconnect. An {@link Answered} that it throws
   * is the answer; other errors are answered with 500.
   *
   * @param {string} path
   * @param {(request: Message) => unknown} call
   */
  serve(path, call) {
    if (this._served.has(path)) throw new TypeError(`overlaps ${path}`);
    this._served.set(path, call);
  }

  /** Return a promise that resolves when the client is closed for good: with the error that ended it, if any. */
  closed() {
    return this._over._promise;
  }

  /**
   * Get nothing more, wait until the program has read and answered what was received, and {@link Client.close}.
   *
   * @param {Patience} [options] of the flush
   */
  async drain(options) {
    const all = [...this._subscriptions];
    for (const each of all) each.close();
    for (const each of this._consumers.values()) each.halt();
    while (this._unanswered || all.some((each) => each.waiting || each._isBusy)) await sleep(0.01);
    await this.close(options);
  }

  /**
   * Flush, and end the connection; iterations end. The connection ends even if the flush fails.
   *
   * @param {Patience} [options]
   */
  async close(options) {
    for (const each of [...this._subscriptions, ...this._consumers.values()]) each.close();
    try {
      if (this.state !== "closed" && (this._sent > this._confirmed || this._held.length || this._loss || this._refusals.length)) {
        await this.flush(options);
      }
    } finally {
      this._finish();
    }
  }

  /** End the connection at once. */
  hangUp() {
    this._finish();
  }
}

/** @param {unknown} error */
const isPermanent = (error) => error instanceof JoinRefused && PERMANENT.includes(error.status);

/**
 * Connect to a broker.
 *
 * @param {string | string[]} url one or several of its addresses, e.g. "ws://localhost:7890/ws"; a page may leave out
 *   what it has in common with its own address: "/ws"
 * @param {Options} [options]
 * @returns {Promise<Client>}
 * @throws {ConnectionLost}
 * @throws {JoinRefused}
 */
export const connect = (url, options = {}) => new Client(url, options)._begin();
