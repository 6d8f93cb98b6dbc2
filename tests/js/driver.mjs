// Uses the client on behalf of a program at the other end of standard input and output. Both sides send MessagePack
// values, each after its length in 4 bytes:
//   [number, object, method, arguments] -> [number, "ok" | error, result];  object 0 is this program
//   ["call", number, function, argument] -> ["answer", number, "ok" | error, result]
import * as fleximq from "../js/src/index.js";

const { decode, encode } = fleximq;
const objects = new Map();
const answers = new Map();
const handed = new Map();
let last = 0;

function say(...message) {
  const bytes = encode(message);
  const head = Buffer.alloc(4);
  head.writeUInt32BE(bytes.length);
  process.stdout.write(Buffer.concat([head, bytes]));
}

const stored = (value) => {
  objects.set(++last, value);
  return last;
};

// Values cross as they are, whatever this client makes of them.
const shown = (message) => ({
  topic: message.topic, path: message.path, payload: message.payload.length ? encode(message.value) : new Uint8Array(),
  publisher: message.publisher, header: message.header, gap: message.isGap,
});

const described = (value) => {
  if (value instanceof fleximq.Message) return { message: shown(value) };
  if (value instanceof fleximq.Job) {
    const { queue, tag, attempt, message } = value;
    return { job: stored(value), queue, tag, attempt, message: shown(message) };
  }
  if (value instanceof fleximq.Client) return { object: stored(value), kind: "client" };
  if (value instanceof fleximq.Jobs) return { object: stored(value), kind: "jobs" };
  if (value instanceof fleximq.Stream) return { object: stored(value), kind: "stream", topic: value.topic ?? "" };
  return { value: value ?? null };
};

const failure = (error) => ({
  name: error.name, message: String(error.message), status: error.status ?? 0, words: error.words ?? "",
  path: error.path ?? "", others: (error.others ?? []).map(failure),
});

// Functions are numbers of the other side.
const callback = (number) => async (value) => {
  const own = ++last;
  const answer = new Promise((resolve, reject) => answers.set(own, { resolve, reject }));
  say("call", own, number, described(value));
  return answer;
};

const actions = {
  async connect(url, options, watcher) {
    const client = await fleximq.connect(url, { ...options, reconnect: options.reconnect ?? {} });
    if (watcher) client.status(({ state, error }) => say("state", watcher, state, error ? failure(error) : null));
    return client;
  },
  get: (object, name) => objects.get(object)[name],
  forget: (object) => void objects.delete(object),
  serve: (object, path, number) => objects.get(object).serve(path, callback(number)),
  consume: (object, queue, options, number) =>
    number ? objects.get(object).consume(queue, options, callback(number)) : objects.get(object).consume(queue, options),
  // The next job after the one before is acknowledged, as an iteration does it.
  async nextJob(object, timeout) {
    const job = handed.get(object);
    handed.delete(object);
    if (job && !job.isSettled) {
      try {
        job.ack();
      } catch (error) {
        if (!(error instanceof fleximq.NotSettled)) throw error;
        say("warning", String(error));
      }
    }
    const next = await objects.get(object).take(timeout ?? undefined);
    if (next) handed.set(object, next);
    return next;
  },
  async iterate(object) {
    const { value } = await objects.get(object).next();
    return value;
  },
};

async function perform([number, object, method, given]) {
  try {
    const result = object ? objects.get(object)[method](...given) : actions[method](...given);
    say(number, "ok", described(await result));
  } catch (error) {
    say(number, failure(error), null);
  }
}

let received = Buffer.alloc(0);
process.stdin.on("data", (data) => {
  received = Buffer.concat([received, data]);
  while (received.length >= 4 && received.length >= 4 + received.readUInt32BE()) {
    const end = 4 + received.readUInt32BE();
    const message = decode(Uint8Array.prototype.slice.call(received, 4, end));
    received = received.subarray(end);
    if (message[0] !== "answer") perform(message);
    else {
      const [, own, failed, value] = message;
      const answer = answers.get(own);
      answers.delete(own);
      if (failed === "ok") answer.resolve(value);
      else if (failed.status) answer.reject(new fleximq.Answered(failed.status, failed.words));
      else answer.reject(new Error(failed.words));
    }
  }
});
process.stdin.on("end", () => process.exit());
// The failures of services are a part of some tests.
console.error = () => {};
