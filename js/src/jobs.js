/**
 * Jobs: messages of a queue that are this client's alone, until it settles them or its connection ends.
 *
 * @module
 */

import { NotSettled } from "./errors.js";
import { SUB, UNSUB } from "./frames.js";
import { report, Stream } from "./stream.js";

/** @typedef {import("./messages.js").Message} Message */

/**
 * One job. Settle it once: {@link Job.ack}, {@link Job.retry} or {@link Job.reject}; none of them waits. After the
 * client's `flush` the broker has carried them out and, for a durable queue, stored them.
 */
export class Job {
  /** Whether it was settled. */
  isSettled = false;

  /**
   * @internal
   * @param {import("./client.js").Client} client
   * @param {Message} message
   */
  constructor(client, message) {
    const { queue, tag, attempt } = message.header.delivery;
    /** @internal */
    this._client = client;
    /** @internal */
    this._connection = client._connection;
    /** @internal */
    this._weight = message._weight;
    /** The message: its `topic`, `header` and `payload`. */
    this.message = message;
    /** @type {string} */
    this.queue = queue;
    /** @type {number} */
    this.tag = tag;
    /** 1 at the first delivery. @type {number} */
    this.attempt = attempt;
  }

  /** The value, undefined if the payload is empty. Throws an error if it cannot be decoded. */
  get value() {
    return this.message.value;
  }

  /**
   * Acknowledge it: it is done, and never delivered again.
   *
   * @throws {NotSettled} it is settled, or its connection has ended, so that it is delivered again
   */
  ack() {
    this._settle("ack", this.tag);
  }

  /**
   * Have it delivered again, after a delay in seconds; without one, as the queue's definition says.
   *
   * @param {number} [delay]
   * @throws {NotSettled} as {@link Job.ack}
   */
  retry(delay) {
    this._settle("retry", [this.tag, delay === undefined ? null : Math.round(delay * 1000)]);
  }

  /**
   * Make it a dead letter at once, with these words, at most 4 KiB.
   *
   * @param {string} [reason]
   * @throws {NotSettled} as {@link Job.ack}
   */
  reject(reason = "") {
    // No character has more than 3 bytes for each of its units.
    this._settle("reject", [this.tag, reason.slice(0, 1365)]);
  }

  /**
   * Keep it for so many seconds from now, in a queue with a lease.
   *
   * @param {number} lease
   * @throws {NotSettled} as {@link Job.ack}
   */
  extend(lease) {
    this._settle("extend", [this.tag, Math.round(lease * 1000)]);
    this.isSettled = false;
  }

  /** @internal @param {string} kind @param {unknown} entry */
  _settle(kind, entry) {
    if (this.isSettled || this._connection !== this._client._connection) {
      throw new NotSettled(404, this.isSettled ? "already settled" : "lost: it is delivered again", this.queue);
    }
    this._client._settle(this.queue, kind, this.tag, entry);
    this.isSettled = true;
  }
}

/**
 * The jobs of a queue: `for await (const job of jobs)` acknowledges each one after the body of the loop, unless it is
 * settled. A loop that ends early closes this, and unsettled jobs return to the queue.
 *
 * @extends {Stream<Job>}
 */
export class Jobs extends Stream {
  /** @internal @type {Job | undefined} */
  _handed;
  /** @internal */
  _hasStart = false;
  /** @internal */
  _isConfirmed = false;
  /** @internal */
  _isPaused = false;

  /**
   * @internal
   * @param {import("./client.js").Client} client
   * @param {string} queue
   * @param {number} prefetch
   * @param {((job: Job) => unknown) | undefined} call
   */
  constructor(client, queue, prefetch, call) {
    super(client._options.unread, call);
    /** @internal */
    this._client = client;
    /** The name of the queue. */
    this.queue = this.topic = queue;
    /** @internal */
    this._prefetch = prefetch;
  }

  /** The header of its SUB. @internal */
  _fields() {
    return { topic: this.queue, queue: this.queue, prefetch: this._prefetch };
  }

  /** @internal */
  _restart() {
    return false;
  }

  /** Begin to get jobs. @internal */
  _open() {
    this._client._consumers.set(this.queue, this);
  }

  /** Drop the unread ones. @internal */
  _clear() {
    this._items = [];
    this._first = this._size = 0;
  }

  /** Stop consuming; unsettled jobs return to the queue at once. @internal @override @param {true | Error} end */
  _leave(end) {
    const client = this._client;
    this._clear();
    if (client._consumers.get(this.queue) === this) {
      client._consumers.delete(this.queue);
      client._sendSettlements();
      client._send(UNSUB, { topic: this.queue, queue: this.queue });
    }
    super._leave(end);
  }

  /** Return an unread job to its queue if there will be no reader. @internal @param {Job} job @override */
  _put(job) {
    if (this._end) job.retry(0);
    else super._put(job);
  }

  /** Call the function with a job, and settle it. @internal @param {Job} job @override */
  async _run(job) {
    const client = this._client;
    client._unanswered += job._weight;
    /** @type {any} */
    let error;
    try {
      await this._call?.(job);
    } catch (raised) {
      error = raised;
      report(`a job of ${this.queue}`, error);
    }
    client._unanswered -= job._weight;
    // One of a lost connection is delivered again.
    if (job.isSettled || job._connection !== client._connection) return;
    if (error) job.retry();
    else job.ack();
  }

  /**
   * Acknowledge the job before, and return the next one.
   *
   * @override
   * @returns {Promise<IteratorResult<Job, undefined>>}
   */
  async next() {
    const handed = this._handed;
    this._handed = undefined;
    try {
      if (handed && !handed.isSettled) handed.ack();
    } catch (error) {
      report("to acknowledge a job", error);
    }
    const result = await super.next();
    this._handed = result.value;
    return result;
  }

  /** Get no further jobs, and return the unread ones to the queue; those that were read can still be settled. */
  halt() {
    if (this._end) return;
    const unread = this._items.slice(this._first);
    this._clear();
    for (const job of unread) if (job._connection === this._client._connection) job.retry(0);
    super._leave(true);
    this._prefetch = 0;
    this._client._send(SUB, this._fields());
  }
}
