// Dead letters: messages that a queue gave up, each with its story.

import { get } from "../api.js";
import { choice, field, filled, h, labelled } from "../dom.js";
import { bytes, count, link, payload, time } from "../format.js";
import { because, facts, heading, Page, tell } from "../page.js";
import { table } from "../table.js";

const SHOWN = 50;
const REASONS = [["", "any"], ...["attempts", "rejected", "expired", "too large"].map((each) => [each, each])];

export default class Letters extends Page {
  build() {
    [this.queue] = this.segments;
    if (this.queue) this.#buildOne();
    else this.#buildAll();
  }

  load() {
    return this.queue ? this.#letters() : this.#queues();
  }

  show(found) {
    if (this.queue) this.#showLetters(found);
    else this.table.rows = found;
  }

  // -- all queues --------------------------------------------------------------------------------

  #buildAll() {
    this.table = table("Queues with dead letters", [
      { title: "Queue", show: (row) => link(row.queue, "letters", row.queue), by: (row) => row.queue },
      { title: "Dead letters", show: (row) => count(row.messages), by: (row) => row.messages, number: true },
      { title: "Size", show: (row) => bytes(row.bytes), by: (row) => row.bytes, number: true },
    ], (row) => row.queue, "There are none that you may see.");
    this.append(heading("Dead letters"), this.table);
  }

  async #queues() {
    const rows = [];
    for (let after, pages = 0; pages < 20; pages += 1) {
      const found = await get("queues", { limit: 1000, after });
      rows.push(...found.queues.filter((row) => row.dead_letters && row.messages));
      after = found.next;
      if (!after) break;
    }
    return rows.map((row) => ({ ...row, queue: row.topic.replace(/^\$dead\//, "") }));
  }

  // -- one queue ---------------------------------------------------------------------------------

  #buildOne() {
    const [queue] = this.segments;
    this.form = h("form", { class: "filter", onsubmit: (event) => { event.preventDefault(); this.refresh(); }, oninput: () => this.refresh() },
      labelled("Reason", choice("reason", REASONS, "")),
      labelled("Words contain", field("words")),
      labelled("Consumer", field("consumer")),
      labelled("Died after", field("after", { type: "datetime-local" })),
      labelled("Died before", field("before", { type: "datetime-local" })));
    this.total = h("span", { class: "hint" });
    this.list = h("div", { class: "rows" });
    this.empty = h("p", { class: "empty" });
    this.lines = new Map();
    this.append(
      heading(`Dead letters of ${queue}`, this.total,
        this.button("Return all that match…", "dead-letters/return", () => this.#all("return")),
        this.button("Delete all that match…", "dead-letters/delete", () => this.#all("delete"), "danger")),
      h("p", {}, link("All dead letters", "letters"), " · ", link("The queue", "queue", queue)),
      this.form, this.list, this.empty);
  }

  /** The conditions of the filter, as the API takes them. */
  #conditions() {
    const found = filled(this.form);
    for (const name of ["after", "before"]) if (found[name]) found[name] = new Date(found[name]).getTime();
    return found;
  }

  #letters() {
    return get("dead-letters", { queue: this.queue, limit: SHOWN, ...this.#conditions() }).catch((error) => {
      if (error.status === 404) return { waiting: 0, letters: [] };
      throw error;
    });
  }

  #showLetters(found) {
    const letters = found.letters;
    this.total.textContent = `${count(found.waiting)} in all` + (letters.length < SHOWN ? "" : `, the oldest ${SHOWN} that match are shown`);
    this.empty.textContent = letters.length ? "" : found.waiting ? "No dead letter matches the filter." : "No message of this queue is dead.";
    const keyOf = (row) => `${row.offset ?? ""}:${row.message_id}:${row.last}`;
    const keys = new Set(letters.map(keyOf));
    for (const [key, line] of this.lines) if (!keys.has(key)) { line.remove(); this.lines.delete(key); }
    letters.forEach((row, at) => {
      let line = this.lines.get(keyOf(row));
      if (!line) this.lines.set(keyOf(row), (line = this.#letter(row)));
      if (this.list.children[at] !== line) this.list.insertBefore(line, this.list.children[at] ?? null);
    });
  }

  #letter(row) {
    const list = facts();
    tell(list, [
      ["Why", row.words ? `${row.reason}: ${row.words}` : row.reason],
      ["Attempts", count(row.attempts)],
      ["First attempt", time(row.first)],
      ["Died", time(row.last)],
      ["Last consumer", row.consumer],
      ["Topic", row.topic],
      ["Key", row.key],
      ["Size", bytes(row.bytes)],
    ]);
    return h("details", { class: "letter" },
      h("summary", {}, h("code", {}, row.message_id ?? "no id"), " ", h("strong", {}, row.words || row.reason), " ", h("span", { class: "hint" }, time(row.last), ` · attempt ${row.attempts}`)),
      list, payload(row),
      h("div", { class: "actions" },
        this.button("Return to the queue", "dead-letters/return", () => this.change(null, "dead-letters/return",
          { queue: this.queue, ids: [row.message_id] }, (answer) => outcome("return", answer))),
        this.button("Delete", "dead-letters/delete", () => this.change(
          { title: "Delete this dead letter?", words: `${row.message_id} is discarded for ever.`, action: "Delete" },
          "dead-letters/delete", { queue: this.queue, ids: [row.message_id] }, (answer) => outcome("delete", answer)), "danger")));
  }

  #all(act) {
    const conditions = this.#conditions();
    const which = Object.keys(conditions).length ? "All dead letters that match the filter" : "All dead letters of this queue";
    this.change(
      act === "return"
        ? { title: "Return all that match?", words: `${which} go back into ${this.queue}, and workers get them again.`, action: "Return them" }
        : { title: "Delete all that match?", words: `${which} are discarded for ever.`, action: "Delete them", typed: this.queue },
      `dead-letters/${act}`, { queue: this.queue, ...conditions }, (answer) => outcome(act, answer));
  }
}

function outcome(act, answer) {
  const number = answer.returned ?? answer.deleted ?? 0;
  return `${count(number)} ${number === 1 ? "dead letter is" : "dead letters are"} ${act === "return" ? "back in the queue" : "deleted"}${because(answer)}.`;
}
