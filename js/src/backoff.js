/**
 * Growing delays between attempts, with a random part.
 *
 * @module
 */

/**
 * @typedef {object} Backoff
 * @property {number} [first] the first delay in seconds, 0.1
 * @property {number} [most] the longest, 30
 * @property {number} [factor] by which each is longer than the one before, 2
 * @property {number} [jitter] the most of it that is left out at random, from 0 to 1, 0.5
 * @property {number} [attempts] after which to give up; without it, never
 */

/**
 * Return the delay in seconds after so many failed attempts, at least 1.
 *
 * @param {Backoff} backoff
 * @param {number} failures
 */
export const pauseAfter = ({ first = 0.1, most = 30, factor = 2, jitter = 0.5 }, failures) =>
  Math.min(first * factor ** (failures - 1), most) * (1 - jitter * Math.random());
