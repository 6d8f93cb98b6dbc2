// Dead letters: messages that a queue gave up, each with its story.

import { because, bytes, choice, count, counted, field, filled, filterForm, get, h, heading, labelled, link, linked, message, momentField, momentOf, Page, Paging, table, time } from "../page.js";

const SHOWN = 50;
const REASONS = [["", "any"], ...["attempts", "rejected", "expired", "too large"].map((each) => [each, each])];
const MOMENTS = ["after", "before"];

export default class Letters extends Page {
  build() {
    [this.queue] = this.segments;
    if (this.queue) this.#buildOne(this.queue);
    else this.#buildAll();
  }

  load() {
    return this.queue ? this.#letters() : this.paging.read({ dead_letters: "only" });
  }

  show(found) {
    if (this.queue) this.#showLetters(found);
    else this.table.rows = found.queues.map((row) => ({ ...row, queue: row.topic.replace(/^\$dead\//, "") }));
  }

  // -- all queues --------------------------------------------------------------------------------

  #buildAll() {
    this.paging = new Paging("queues", this, "Filter by name");
    this.table = table("Queues with dead letters", [
      ["Queue", "queue", linked("letters")],
      ["Dead letters", "messages", count, "number"],
      ["Size", "bytes", bytes, "number"],
    ], "queue", "There are none that you may see.");
    this.append(heading("Dead letters", this.paging.filter), this.table, this.paging.bar);
  }

  // -- one queue ---------------------------------------------------------------------------------

  #buildOne(queue) {
    this.form = filterForm(() => this.refresh(),
      labelled("Reason", choice("reason", REASONS, "")),
      labelled("Words contain", field("words")),
      labelled("Consumer", field("consumer")),
      labelled("Died after", momentField("after")),
      labelled("Died before", momentField("before")));
    this.form.addEventListener("input", () => this.refresh());
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
    for (const name of MOMENTS) if (found[name]) found[name] = momentOf(found[name]) || null;
    return found;
  }

  #letters() {
    return get("dead-letters", { queue: this.queue, limit: SHOWN, ...this.#conditions() }).catch((error) => {
      if (error.status === 404) return { waiting: 0, searched: 0, matching: 0, letters: [] };
      throw error;
    });
  }

  #showLetters({ waiting, searched, matching, letters }) {
    this.matching = Object.keys(this.#conditions()).length
      ? `${searched < waiting ? "at least " : ""}${counted(matching, "dead letter")}` : counted(waiting, "dead letter");
    this.total.textContent = `${Object.keys(this.#conditions()).length ? `${this.matching.replace(/ dead letters?/, "")} of ${count(waiting)} match` : `${count(waiting)} in all`}${letters.length < SHOWN ? "" : `, the oldest ${SHOWN} are shown`}`;
    this.empty.textContent = letters.length ? "" : waiting ? "No dead letter matches the filter." : "No message of this queue is dead.";
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
    const one = { queue: this.queue, ids: [row.message_id] };
    return message(row.message_id, [h("strong", {}, row.words || row.reason), " ", h("span", { class: "hint" }, time(row.last), ` · attempt ${row.attempts}`)], [
      ["Why", row.words ? `${row.reason}: ${row.words}` : row.reason], ["Attempts", count(row.attempts)],
      ["First attempt", time(row.first)], ["Died", time(row.last)], ["Last consumer", row.consumer],
      ["Topic", row.topic], ["Key", row.key], ["Size", bytes(row.bytes)],
    ], row, h("div", { class: "actions" },
      this.act("Return to the queue", "dead-letters/return", one, outcome),
      this.act("Delete", "dead-letters/delete", one, outcome,
        { title: "Delete this dead letter?", words: `${row.message_id} is discarded for ever.`, action: "Delete", deletes: true })));
  }

  #all(act) {
    if (!this.form.reportValidity()) return; // or all would be concerned
    this.change(act === "return"
      ? { title: `Return ${this.matching}?`, words: `What matches goes back into ${this.queue}, and workers get it again.`, action: "Return them" }
      : { title: `Delete ${this.matching}?`, words: "What matches is discarded for ever.", action: "Delete them", typed: this.queue, deletes: true },
    `dead-letters/${act}`, { queue: this.queue, ...this.#conditions() }, outcome);
  }
}

function outcome(answer) {
  const number = answer.returned ?? answer.deleted ?? 0;
  return `${counted(number, "dead letter")} ${number === 1 ? "is" : "are"} ${answer.returned === undefined ? "deleted" : "back in the queue"}${because(answer)}.`;
}
