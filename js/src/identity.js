/**
 * The Identity dialect: channels and texts over WebSocket, the smallest way to a chat. For all else there is `fleximq`.
 *
 * @module
 */

/** Unsent texts are at most so many; further ones are refused. */
const MOST = 1000;

/**
 * Connect to a broker. It reconnects by itself, and subscribes again; texts of an outage are not delivered.
 *
 * @param {string} url e.g. "ws://localhost:7890/identity"
 * @param {{
 *   token?: () => string | Promise<string>,
 *   onMessage?: (text: string, channel: string, sender: string) => unknown,
 *   onState?: (state: "joined" | "away", identity: string) => unknown,
 *   onError?: (code: number, words: string) => unknown,
 *   WebSocket?: any,
 * }} [options] `token` gets a token for each connection
 */
export function connect(url, { token, onMessage, onState, onError, WebSocket = globalThis.WebSocket } = {}) {
  /** @type {Set<string>} */
  const channels = new Set();
  /** @type {string[]} */
  let unsent = [];
  /** @type {any} */
  let socket;
  /** @type {any} */
  let timer;
  let failures = 0;
  let isJoined = false;
  let isClosed = false;

  /** @param {string} text */
  const send = (text) => {
    if (isJoined) socket.send(text);
  };

  const begin = async () => {
    const place = new URL(url, globalThis.location?.href);
    place.protocol = place.protocol.replace("http", "ws");
    try {
      if (token) place.searchParams.set("token", await token());
    } catch {
      return again();
    }
    if (isClosed) return;
    socket = new WebSocket(place.href, ["identity"]);
    socket.onmessage = (/** @type {{ data: string }} */ { data }) => {
      const [, word, rest] = /^([A-Z-]+):(.*)$/s.exec(data) ?? [];
      if (word === "IDENTITY") {
        isJoined = true;
        failures = 0;
        for (const channel of channels) send(`SUBSCRIBE:${channel}`);
        for (const text of unsent.splice(0)) send(text);
        onState?.("joined", rest);
      } else if (word === "MSG") {
        const [, channel, sender, text] = /^([^:]*):([^:]*):(.*)$/s.exec(rest) ?? [];
        onMessage?.(text, channel, sender);
      } else if (word === "ERROR") {
        const [, code, words] = /^(\d*):?(.*)$/s.exec(rest) ?? [];
        onError?.(Number(code), words);
      }
    };
    socket.onclose = again;
    socket.onerror = () => {};
  };

  const again = () => {
    if (isClosed) return;
    if (isJoined) onState?.("away", "");
    isJoined = false;
    timer = setTimeout(begin, Math.min(100 * 2 ** failures++, 30_000) * (1 - Math.random() / 2));
  };

  begin();
  return {
    /** @param {string} channel */
    subscribe(channel) {
      channels.add(channel);
      send(`SUBSCRIBE:${channel}`);
    },
    /** @param {string} channel */
    unsubscribe(channel) {
      channels.delete(channel);
      send(`UNSUBSCRIBE:${channel}`);
    },
    /**
     * Publish a text to a channel that this client has subscribed to; it waits for the first connection, or the next.
     *
     * @param {string} channel
     * @param {string} text
     */
    publish(channel, text) {
      if (isJoined) send(`PUBLISH:${channel}:${text}`);
      else if (unsent.push(`PUBLISH:${channel}:${text}`) > MOST) {
        unsent = unsent.slice(0, MOST);
        throw new Error("too many texts wait for a connection");
      }
    },
    /** End the connection for good. */
    close() {
      isClosed = true;
      clearTimeout(timer);
      socket?.close();
    },
  };
}
