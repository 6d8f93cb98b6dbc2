/**
 * FlexiMQ's client for browsers, workers, Node and Deno.
 *
 * @module
 */

export { Client, connect } from "./client.js";
export * from "./errors.js";
export { Job, Jobs } from "./jobs.js";
export { Message } from "./messages.js";
export { decode, encode } from "./msgpack.js";
export { Stream } from "./stream.js";
export { Subscription } from "./subscription.js";
