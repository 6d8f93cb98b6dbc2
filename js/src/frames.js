/**
 * The types of FlexiMQ's frames: 26 fixed bytes, the header, 8 bytes of length, the payload (FlexiMQ document, section 2).
 *
 * @module
 */

export const JOIN = 0;
export const REQ = 1;
export const REP = 2;
export const NOTIF = 3;
export const BCAST = 4;
export const PUB = 5;
export const SUB = 6;
export const UNSUB = 7;
export const PING = 8;
export const PONG = 9;

/** The client id of the broker. */
export const BROKER = 1;
/** Bytes before the header. */
export const FIXED = 26;
/** @param {Uint8Array} bytes @param {number} at */
export const number32 = (bytes, at) =>
  ((bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3]) >>> 0;
