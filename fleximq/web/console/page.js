// What all pages share: they read the API every two seconds while somebody looks at them.

import { get, may, post, session } from "./api.js";
import { attempt, confirmed, h, press, search, toast } from "./dom.js";
import { payload } from "./format.js";

export * from "./api.js";
export * from "./dom.js";
export * from "./format.js";
export * from "./table.js";

const EVERY = 2000;

/** A page. It overrides {@link build}, {@link load} and {@link show}. `segments` are those of its address. */
export class Page extends HTMLElement {
  segments = [];
  /** Milliseconds between two reads. */
  every = EVERY;
  #timer = 0;
  #isLoading = false;
  #isAskedAgain = false;
  #problem = h("p", { class: "problem", role: "alert", hidden: true });
  #look = () => { if (!document.hidden && !this.#isLoading) this.refresh(); };

  connectedCallback() {
    this.append(this.#problem);
    this.build();
    document.addEventListener("visibilitychange", this.#look);
    this.refresh();
    this.#timer = setInterval(this.#look, this.every);
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
    document.removeEventListener("visibilitychange", this.#look);
    this.leave();
  }

  /** Add the elements. */
  build() {}

  /** Stop everything that the page started. */
  leave() {}

  /** Read what is shown. */
  async load() {}

  /** Show what was read. */
  show(found) {}

  /** Read and show now. */
  async refresh() {
    if (!session.isOpen) return;
    this.#isAskedAgain = this.#isLoading; // with another filter, perhaps
    if (this.#isLoading) return;
    this.#isLoading = true;
    try {
      const found = await this.load();
      if (!this.isConnected) return;
      this.show(found);
      this.#problem.hidden = true;
    } catch (error) {
      if (error.status === 0 || error.status === 401) return; // shown for all pages
      this.#problem.textContent = error.status ? `This page cannot be shown: ${error.message}.` : String(error);
      this.#problem.hidden = false;
    } finally {
      this.#isLoading = false;
      if (this.#isAskedAgain && this.isConnected) this.refresh();
    }
  }

  /** Return a button for a change by a path of the API; it is disabled, with the reason, without the right. */
  button(words, path, act, kind = null) {
    const permitted = may(path);
    return press(words, act, { class: kind, disabled: !permitted, title: permitted ? null : `needs the right admin for api/${path}` });
  }

  /** Return a button that makes a change, see {@link change}. */
  act(words, path, value, done, question) {
    return this.button(words, path, () => this.change(question, path, value, done), question?.deletes ? "danger" : null);
  }

  /** Ask once, make a change, tell its outcome (`done`, or what it returns for the answer), and read the page again. */
  async change(question, path, value, done) {
    const given = question ? await confirmed(question) : {};
    if (!given) return false;
    const answer = await attempt(() => post(path, { ...value, ...given }));
    if (answer) toast(typeof done === "string" ? done : done(answer));
    this.refresh();
    return Boolean(answer);
  }
}

/** Return the heading of a page, with what belongs beside it. */
export const heading = (words, ...beside) => h("div", { class: "heading" }, h("h1", {}, words), ...beside);

/** Return a section with a heading. */
export const section = (words, ...children) => h("section", {}, h("h2", {}, words), ...children);

/** Return a list of facts: pairs of a name and text or an element. */
export const facts = (pairs = []) => tell(h("dl", { class: "facts" }), pairs);

/** Show facts; those whose value is null are left out. */
export function tell(list, pairs) {
  list.replaceChildren(...pairs.filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value]) => h("div", { class: String(value).length > 40 && !(value instanceof Node) ? "wide" : null }, h("dt", {}, name), h("dd", {}, value))));
  return list;
}

/** Return facts for the entries of an object, in words. */
export const entries = (object, ...hidden) => Object.entries(object ?? {}).filter(([name, value]) => value !== null && !hidden.includes(name))
  .map(([name, value]) => [name.replaceAll("_", " "), inWords(value)]);

/** Return a value of the API as text. */
export const inWords = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));

/** Return a line for a message, which opens to its facts and its payload. */
export const message = (name, words, pairs, row, ...more) =>
  h("details", {}, h("summary", {}, h("code", {}, name ?? "no id"), " ", words), facts(pairs), payload(row), more);

/** Reads a listing of the API in pages, one after the other by the buttons of its `bar`, and by its `filter`. */
export class Paging {
  #before = [];
  #after;
  #next = null;

  constructor(path, page, words = "Part of the name") {
    this.path = path;
    this.again = () => { this.reset(); page.refresh(); };
    this.filter = search(words, this.again);
    const to = (words, step) => press(words, () => { step(); page.refresh(); }, { class: "quiet" });
    this.back = to("Previous", () => { this.#after = this.#before.pop(); });
    this.on = to("Next", () => { this.#before.push(this.#after); this.#after = this.#next; });
    this.bar = h("nav", { class: "paging", "aria-label": "Pages of the list", hidden: true }, this.back, this.on);
  }

  /** Begin at the first page again. */
  reset() {
    this.#before = [];
    this.#after = undefined;
  }

  /** Read the present page, and return the whole answer. */
  async read(query = {}) {
    const answer = await get(this.path, { contains: this.filter.value, ...query, limit: 100, after: this.#after });
    this.#next = answer.next ?? null;
    this.back.disabled = this.#before.length === 0;
    this.on.disabled = this.#next === null;
    this.bar.hidden = this.back.disabled && this.on.disabled;
    return answer;
  }
}

/** Return why a change ended before it was complete, as the end of a sentence. */
export const because = (answer) => (answer.reason ? `, then it ended: ${answer.reason}` : "");
