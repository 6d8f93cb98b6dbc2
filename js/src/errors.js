/**
 * Errors of the client. What the broker or another client answered is an {@link Answered}, with its status.
 *
 * @module
 */

/** The base class. */
export class ClientError extends Error {
}

/** The connection could not be made, or it ended; messages in transit may have arrived or not. */
export class ConnectionLost extends ClientError {
}

/** A subscription had too many unread messages and was ended; those received before can still be read. */
export class Overrun extends ClientError {
}

/** Too many bytes wait to be sent; the message was dropped. */
export class BufferFull extends ClientError {
}

/** An answer did not arrive in time. */
export class TimedOut extends ClientError {
}

/** The broker or another client answered with a status of 400 or more. */
export class Answered extends ClientError {
  /**
   * @param {number} status as in the FlexiMQ document, 5.1
   * @param {string} words its text
   * @param {string} [path] the path or topic concerned
   */
  constructor(status, words, path = "") {
    super(`${status}: ${words}`);
    this.status = status;
    this.words = words;
    this.path = path;
  }
}

/** The broker refused to admit the client. */
export class JoinRefused extends Answered {
}

/** The answer to a request is an error. */
export class RequestFailed extends Answered {
}

/** The broker refused a subscription, or ended it, e.g. because its next message was removed. */
export class SubscribeFailed extends Answered {
}

/**
 * The broker refused a publication, notification or broadcast. This is the first refusal since the last flush;
 * `others` has later ones, up to a limit.
 */
export class PublishFailed extends Answered {
  /** @type {PublishFailed[]} */
  others = [];
}

/** A job was not settled: it was already, or its connection or lease has ended, so that it is delivered again. */
export class NotSettled extends PublishFailed {
}

// Bundlers shorten the names of classes.
for (const [name, { prototype }] of Object.entries({
  ClientError, ConnectionLost, Overrun, BufferFull, TimedOut, Answered,
  JoinRefused, RequestFailed, SubscribeFailed, PublishFailed, NotSettled,
})) {
  prototype.name = name;
}
