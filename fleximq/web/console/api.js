// Requests to the broker, and the session of the user.

/** The session: `principal`, `csrf`, `rights` with the paths for `read` and `admin`, and the `methods` to sign in. */
export const session = { principal: null, csrf: null, rights: { read: [], admin: [] }, methods: [], isOpen: false };

/** An answer that is not a success. `status` is 0 if there was no answer. */
export class Refused extends Error {
  constructor(status, words) {
    super(words);
    this.status = status;
  }
}

/** Events: "outage" with the error, "answered", and "signed-out". */
export const events = new EventTarget();

/** Return the value of a GET of a path of the API, e.g. `get("queues/detail", { topic })`. */
export const get = (path, query = {}) => request("GET", `/api/${path}${queryOf(query)}`);

/** Return the answer to a change. */
export const post = (path, value) => request("POST", `/api/${path}`, value);

/** Return a token for one connection of a client; undefined if the broker needs none. */
export const ticket = async () => (await request("POST", "/console/ticket", {})).token ?? undefined;

/** Whether the user may read or change by a path of the API. */
export const may = (path) => session.rights.admin.includes(`/api/${path}`) || session.rights.read.includes(`/api/${path}`);

/** Learn who the user is. */
export async function begin() {
  take(await request("GET", "/console/session"));
}

/** Sign in. */
export async function signIn(credentials) {
  take(await request("POST", "/console/session", credentials));
}

/** Sign out. */
export async function signOut() {
  await request("DELETE", "/console/session");
  take({ principal: null, csrf: null, rights: { read: [], admin: [] } });
  session.isOpen = false;
  events.dispatchEvent(new Event("signed-out"));
}

function take(answer) {
  Object.assign(session, answer, { isOpen: true });
}

function queryOf(query) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

async function request(method, path, value) {
  const headers = {};
  if (method !== "GET") headers["X-FlexiMQ-CSRF"] = session.csrf ?? "";
  if (value !== undefined) headers["Content-Type"] = "application/json";
  let response, answer;
  try {
    response = await fetch(path, {
      method, headers, body: value === undefined ? undefined : JSON.stringify(value), cache: "no-store",
      signal: AbortSignal.timeout(20000),
    });
    answer = await response.json();
  } catch (error) {
    const refused = new Refused(0, response ? `the answer is not JSON (${response.status})` : "the broker does not answer");
    events.dispatchEvent(new CustomEvent("outage", { detail: refused }));
    throw refused;
  }
  events.dispatchEvent(new Event("answered"));
  if (response.ok) return answer;
  if (response.status === 401 && path !== "/console/session" && session.isOpen) {
    session.isOpen = false; // once, or the form would lose what was typed
    events.dispatchEvent(new Event("signed-out"));
  }
  if (response.status === 401 && answer.methods) session.methods = answer.methods;
  throw new Refused(response.status, answer.error ?? `status ${response.status}`);
}
