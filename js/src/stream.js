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
export const report = (words, error) => console.error(`FlexiMQ: ${words}`, error);

/** @param {number} seconds */
export const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

/**
 * Return the result of a promise, or throw {@link TimedOut}.
 *
 * @template T
 * @param {Promise<T>} promise
 * @param {number} seconds
 * @param {string} what
 * @returns {Promise<T>}
 */
export function within(promise, seconds, what) {
  /** @type {any} */
  let timer;
  /** @type {Promise<never>} */
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new TimedOut(`${what} did not arrive within ${seconds} s`)), seconds * 1000);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
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
  _bytes = 0;
  /** @internal @type {{ resolve: (item: T | undefined) => void, reject: (error: Error) => void }[]} */
  _waiters = [];
  /** True or an error when there will be no further items. @internal @type {true | Error | undefined} */
  _end = undefined;
  /** Whether the function still runs for an item. @internal */
  _isBusy = false;
  /** @internal @type {(end: Error | undefined) => void} */
  _ended = () => {};
  /** Resolves when there will be no further items: with the error that is the reason, undefined if it was closed. */
  closed = /** @type {Promise<Error | undefined>} */ (new Promise((resolve) => (this._ended = resolve)));

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
    if (this._call && !this._isBusy) {
      this._run(item);
      return;
    }
    const waiter = this._waiters.shift();
    if (waiter) {
      waiter.resolve(item);
      return;
    }
    this._items.push(item);
    this._bytes += this._weight(item);
    if (this._bytes > this._limit) this._full();
  }

  /** There are too many unread items. @internal */
  _full() {
    this._finish(new Overrun(`${this._bytes} bytes were unread`));
  }

  /** @internal @param {any} item @returns {number} */
  _weight(item) {
    return OVERHEAD + (item._weight || 0);
  }

  /** Remove and return the first unread item. @internal @returns {T} */
  _shift() {
    const items = this._items;
    const item = items[this._first];
    // @ts-ignore: the place is free
    items[this._first++] = undefined;
    this._bytes -= this._weight(item);
    if (this._first === items.length || (this._first > 1024 && this._first * 2 > items.length)) {
      items.splice(0, this._first);
      this._first = 0;
    }
    return item;
  }

  /** Call the function, and again for each item that came meanwhile. @internal @param {T} item */
  _run(item) {
    const more = () => {
      this._isBusy = false;
      while (this.waiting && !this._isBusy) this._run(this._shift());
    };
    try {
      const result = /** @type {any} */ (this._call)(item);
      if (result && result.then) {
        this._isBusy = true;
        result.then(more, (/** @type {unknown} */ error) => {
          report("a callback failed", error);
          more();
        });
      }
    } catch (error) {
      report("a callback failed", error);
    }
  }

  /** Expect no further items; unread ones can still be read. @internal @param {true | Error} end */
  _finish(end) {
    if (this._end) return;
    this._end = end;
    const error = end === true ? undefined : end;
    if (error && this._call) report("a subscription ended", error);
    for (const { resolve, reject } of this._waiters.splice(0)) {
      if (error) reject(error);
      else resolve(undefined);
    }
    this._ended(error);
  }

  /**
   * Return the next item; undefined after so many seconds without one, or if this was closed.
   *
   * @param {number} [timeout]
   * @returns {Promise<T | undefined>}
   * @throws {Error} the reason for the end, after the last unread item
   */
  take(timeout) {
    if (this.waiting) return Promise.resolve(this._shift());
    if (this._end) return this._end === true ? Promise.resolve(undefined) : Promise.reject(this._end);
    return new Promise((resolve, reject) => {
      const waiter = { resolve, reject };
      this._waiters.push(waiter);
      if (timeout !== undefined) {
        const timer = setTimeout(() => {
          this._waiters = this._waiters.filter((each) => each !== waiter);
          resolve(undefined);
        }, timeout * 1000);
        waiter.resolve = (item) => {
          clearTimeout(timer);
          resolve(item);
        };
        waiter.reject = (error) => {
          clearTimeout(timer);
          reject(error);
        };
      }
    });
  }

  /** Expect no further items; unread ones can still be read. */
  close() {
    this._finish(true);
  }

  /** @returns {Promise<IteratorResult<T, undefined>>} */
  next() {
    if (this.waiting) return Promise.resolve({ value: this._shift(), done: false });
    return this.take().then((value) => (value === undefined ? { value, done: true } : { value, done: false }));
  }

  /** @returns {Promise<IteratorResult<T, undefined>>} */
  return() {
    this.close();
    return Promise.resolve({ value: undefined, done: true });
  }

  [Symbol.asyncIterator]() {
    return this;
  }
}
