// What all pages share: they read the API every two seconds while somebody looks at them.

import { get, may, post, session } from "./api.js";
import { confirmed, h, toast } from "./dom.js";

const EVERY = 2000;

/** A page. It overrides {@link build}, {@link load} and {@link show}. `segments` are those of its address. */
export class Page extends HTMLElement {
  segments = [];
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

  /** Milliseconds between two reads. */
  get every() {
    return EVERY;
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
  button(words, path, act, kind = "") {
    const permitted = may(path);
    return h("button", {
      type: "button", class: kind, disabled: !permitted, title: permitted ? null : `needs the right admin for api/${path}`,
      onclick: act,
    }, words);
  }

  /** Ask once, make a change, tell its outcome (`done` gets the answer), and read the page again. */
  async change(question, path, value, done) {
    if (question && !(await confirmed(question.title, question.words ?? "", question.action, question.typed ?? null))) return false;
    try {
      toast(done(await post(path, value)));
    } catch (error) {
      toast(`Refused: ${error.message}.`, true);
      return false;
    } finally {
      this.refresh();
    }
    return true;
  }
}

/** Return the heading of a page, with what belongs beside it. */
export const heading = (words, ...beside) => h("div", { class: "heading" }, h("h1", {}, words), ...beside);

/** Return a section with a heading. */
export const section = (words, ...children) => h("section", {}, h("h2", {}, words), ...children);

/** Return a list of facts: pairs of a name and text or an element. */
export const facts = () => h("dl", { class: "facts" });

/** Show facts; those whose value is null are left out. */
export function tell(list, pairs) {
  list.replaceChildren(...pairs.filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value]) => h("div", { class: String(value).length > 40 && !(value instanceof Node) ? "wide" : null }, h("dt", {}, name), h("dd", {}, value))));
}

/** Reads a listing of the API in pages: {@link all} up to `most` rows, or one page after the other by buttons. */
export class Paging {
  #before = [];
  #after;
  #next = null;

  constructor(path, page, limit = 100) {
    this.path = path;
    this.limit = limit;
    this.back = h("button", { type: "button", class: "quiet", onclick: () => { this.#after = this.#before.pop(); page.refresh(); } }, "Previous");
    this.on = h("button", { type: "button", class: "quiet", onclick: () => { this.#before.push(this.#after); this.#after = this.#next; page.refresh(); } }, "Next");
    this.bar = h("nav", { class: "paging", "aria-label": "Pages of the list", hidden: true }, this.back, this.on);
  }

  /** Begin at the first page again. */
  reset() {
    this.#before = [];
    this.#after = undefined;
  }

  /** Read the present page, and return the whole answer. */
  async read(query = {}) {
    const answer = await get(this.path, { ...query, limit: this.limit, after: this.#after });
    this.#next = answer.next ?? null;
    this.back.disabled = this.#before.length === 0;
    this.on.disabled = this.#next === null;
    this.bar.hidden = this.back.disabled && this.on.disabled;
    return answer;
  }
}

/** Return why a change ended before it was complete, as the end of a sentence. */
export const because = (answer) => (answer.reason ? `, then it ended: ${answer.reason}` : "");
