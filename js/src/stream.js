/**
 * What a program reads from a client: an async iterator with a bounded buffer, or the calls of a function.
 *
 * @module
 */

import { Overrun, TimedOut } from "./errors.js";

/** Bytes of memory that an unread item counts, in addition to its own. */
const OVERHEAD = 128;

/**
 * Tell the program of an error that nothing waits for.
 *
 * @param {string} words
 * @param {unknown} error
 */
export const report = (words, error) => console.error(`FlexiMQ: ${words} failed:`, error);

/** @param {number} seconds */
export const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

/** @template T */
export class Deferred {
  /** @internal @type {(value: T) => void} */
  // @ts-ignore: set at once
  _resolve;
  /** @internal @type {(error: unknown) => void} */
  // @ts-ignore: set at once
  _reject;
  /** @internal @type {Promise<T>} */
  _promise = new Promise((resolve, reject) => {
    this._resolve = resolve;
    this._reject = reject;
  });
}

/**
 * Return the result of a promise, or throw {@link TimedOut}.
 *
 * @template T
 * @param {Promise<T>} promise
 * @param {number} seconds
 * @returns {Promise<T>}
 */
export function within(promise, seconds) {
  /** @type {Deferred<T>} */
  const late = new Deferred();
  const timer = setTimeout(() => late._reject(new TimedOut(`no answer within ${seconds} s`)), seconds * 1000);
  return Promise.race([promise, late._promise]).finally(() => clearTimeout(timer));
}

/**
 * Items in their order, for one reader: `for await (const item of stream)`, or {@link Stream.take}.
 *
 * An iteration that ends early closes the stream.
 *
 * @template T
 */
export class Stream {
  /** @internal @type {T[]} */
  _items = [];
  /** The place of the first unread item. @internal */
  _first = 0;
  /** Bytes of the unread ones. @internal */
  _size = 0;
  /** Readers that wait for an item. @internal @type {Deferred<T | undefined>[]} */
  _readers = [];
  /** True or an error when there will be no further items. @internal @type {true | Error | undefined} */
  _end;
  /** Whether the function still runs for an item. @internal */
  _isBusy = false;
  /** @internal @type {Deferred<Error | undefined>} */
  _over = new Deferred();
  /** Resolves when there will be no further items: with the error that is the reason, undefined if it was closed. */
  closed = this._over._promise;

  /**
   * @internal
   * @param {number} limit bytes of unread items
   * @param {((item: T) => unknown) | undefined} [call] gets each item, in place of an iteration
   */
  constructor(limit, call) {
    /** @internal */
    this._limit = limit;
    /** @internal */
    this._call = call;
  }

  /** The number of unread items. */
  get waiting() {
    return this._items.length - this._first;
  }

  /** @internal @param {T} item */
  _put(item) {
    if (this._end) return;
    if (this._call && !this._isBusy) this._run(item);
    else if (this._readers.length) this._readers.shift()?._resolve(item);
    else {
      this._items.push(item);
      this._size += this._weigh(item);
      if (this._size > this._limit) this._full();
    }
  }

  /** There are too many unread items. @internal */
  _full() {
    this._leave(new Overrun(`${this._size} bytes were unread`));
  }

  /** @internal @param {any} item @returns {number} */
  _weigh(item) {
    return OVERHEAD + (item._weight || 0);
  }

  /** Remove and return the first unread item. @internal @returns {T} */
  _shift() {
    const items = this._items;
    const item = items[this._first++];
    this._size -= this._weigh(item);
    if (this._first === items.length || (this._first > 1024 && this._first * 2 > items.length)) {
      items.splice(0, this._first);
      this._first = 0;
    }
    return item;
  }

  /** Call the function, and again for each item that came meanwhile. @internal @param {T} item */
  _run(item) {
    const failed = (/** @type {unknown} */ error) => report("a callback", error);
    try {
      const result = /** @type {any} */ (this._call)(item);
      if (result?.then) {
        this._isBusy = true;
        result.then(undefined, failed).then(() => {
          this._isBusy = false;
          while (this.waiting && !this._isBusy) this._run(this._shift());
        });
      }
    } catch (error) {
      failed(error);
    }
  }

  /** End it; unread items can still be read. @internal @param {true | Error} end */
  _leave(end) {
    if (this._end) return;
    this._end = end;
    const error = end === true ? undefined : end;
    if (error && this._call) report("a subscription", error);
    for (const reader of this._readers.splice(0)) {
      if (error) reader._reject(error);
      else reader._resolve(undefined);
    }
    this._over._resolve(error);
  }

  /**
   * Return the next item; undefined after so many seconds without one, or if this was closed.
   *
   * @param {number} [timeout]
   * @returns {Promise<T | undefined>}
   * @throws {Error} the reason for the end, after the last unread item
   */
  async take(timeout) {
    if (this.waiting) return this._shift();
    if (this._end === true) return undefined;
    if (this._end) throw this._end;
    /** @type {Deferred<T | undefined>} */
    const reader = new Deferred();
    this._readers.push(reader);
    if (timeout === undefined) return reader._promise;
    const timer = setTimeout(() => {
      this._readers = this._readers.filter((each) => each !== reader);
      reader._resolve(undefined);
    }, timeout * 1000);
    return reader._promise.finally(() => clearTimeout(timer));
  }

  /** Get no further items; unread ones can still be read. */
  close() {
    this._leave(true);
  }

  /** @returns {Promise<IteratorResult<T, undefined>>} */
  async next() {
    const value = this.waiting ? this._shift() : await this.take();
    return value === undefined ? { value: undefined, done: true } : { value, done: false };
  }

  /** @returns {Promise<IteratorResult<T, undefined>>} */
  async return() {
    this.close();
    return { value: undefined, done: true };
  }

  [Symbol.asyncIterator]() {
    return this;
  }
}
