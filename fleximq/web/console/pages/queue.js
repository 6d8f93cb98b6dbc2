// One work queue.

import { get } from "../api.js";
import { field, h, labelled, toast } from "../dom.js";
import { brief, bytes, count, link, payload, rate, span } from "../format.js";
import { because, facts, heading, Page, section, tell } from "../page.js";
import { table } from "../table.js";
import { state } from "./queues.js";

const PEEKED = 20;

export default class Queue extends Page {
  build() {
    const [name] = this.segments;
    this.name = name;
    this.facts = facts();
    this.state = h("span");
    this.pause = this.button("Pause", "queues/pause", () => this.#pause());
    const purge = this.button("Purge…", "queues/purge", () => this.#purge(), "danger");
    const move = this.button("Move…", "queues/move", () => this.#move());
    this.priorities = table("Waiting messages by priority", [
      { title: "Priority", show: (row) => String(row.priority), by: (row) => row.priority },
      { title: "Waiting", show: (row) => count(row.messages), number: true },
      { title: "In flight", show: (row) => count(row.in_flight), number: true },
      { title: "Oldest", show: (row) => (row.messages ? span(row.oldest_seconds) : "–"), number: true },
    ], (row) => row.priority, "Nothing waits.");
    this.consumers = table("Consumers", [
      { title: "Client", show: (row) => link(row.name || `client ${row.client_id}`, "client", row.client_id) },
      { title: "Principal", show: (row) => row.principal ?? "anonymous", minor: true },
      { title: "Address", show: (row) => row.address ?? "–", minor: true },
      { title: "Prefetch", show: (row) => count(row.prefetch), number: true },
      { title: "Unsettled", show: (row) => count(row.unsettled), number: true },
      { title: "Since", show: (row) => span(row.since), number: true },
    ], (row) => `${row.client_id}`, "Nobody consumes from this queue. Start a worker: ", h("code", {}, `fleximq work '${name}' -- COMMAND`));
    this.peeked = h("div", { class: "rows" });
    this.append(
      heading(name, this.state, this.pause, move, purge),
      h("p", {}, link("All queues", "queues"), " · ", link("Dead letters of this queue", "letters", name)),
      this.facts,
      section("Consumers", this.consumers),
      section("Priorities", this.priorities),
      section("Messages", h("p", { class: "hint" }, "Looking at messages leaves them where they are."), h("div", { class: "actions" },
        h("button", { type: "button", onclick: () => this.#peek("peek") }, "Show the oldest that wait"),
        h("button", { type: "button", onclick: () => this.#peek("flying") }, "Show those in flight")), this.peeked),
    );
  }

  load() {
    return get("queues/detail", { topic: this.name });
  }

  show(row) {
    this.row = row;
    this.state.replaceChildren(state(row));
    this.pause.textContent = row.paused ? "Resume" : "Pause";
    tell(this.facts, [
      ["Waiting", count(row.messages)],
      ["In flight", count(row.in_flight)],
      ["Retried later", count(row.delayed)],
      ["Oldest", row.messages ? span(row.oldest_seconds) : "–"],
      ["In", rate(row.in_per_second)],
      ["Out", rate(row.out_per_second)],
      ["Memory", bytes(row.bytes)],
      ["Kept on disk", row.kept ? "yes" : "no"],
      ["Sources", (row.sources ?? []).join(", ")],
      ["Dead letters", row.dead_letters_waiting ? link(count(row.dead_letters_waiting), "letters", this.name) : "none"],
      ...definition(row.definition),
    ]);
    this.priorities.rows = row.priorities.filter((each) => each.messages || each.in_flight);
    this.consumers.rows = row.consuming ?? [];
  }

  async #peek(kind) {
    try {
      const { messages } = await get(`queues/${kind}`, { topic: this.name, limit: PEEKED });
      this.peeked.replaceChildren(...(messages.length ? messages.map((each) => this.#message(each, kind)) : [h("p", { class: "empty" }, kind === "peek" ? "Nothing waits." : "Nothing is in flight.")]));
    } catch (error) {
      toast(`Refused: ${error.message}.`, true);
    }
  }

  #message(row, kind) {
    const list = facts();
    tell(list, [
      ["Id", row.message_id], ["Offset", row.offset === null ? null : count(row.offset)], ["Key", row.key], ["Topic", row.topic],
      ["Deliveries", row.deliveries === undefined ? null : count(row.deliveries)], ["Priority", row.priority],
      ["Consumer", row.client_id ? link(`client ${row.client_id}`, "client", row.client_id) : null],
      ["In flight for", row.seconds === undefined ? null : span(row.seconds)],
    ]);
    const cancel = kind === "peek" && row.message_id ? this.button("Cancel this message", "queues/cancel", async () => {
      const gone = await this.change(
        { title: "Cancel this message?", words: `${row.message_id} will be delivered to nobody.`, action: "Cancel it" },
        "queues/cancel", { topic: this.name, message_id: row.message_id },
        (answer) => (answer.cancelled === false ? "It was not waiting any more." : "The message is cancelled."));
      if (gone) this.#peek(kind);
    }, "danger") : null;
    return h("details", {}, h("summary", {}, h("code", {}, row.message_id ?? "no id"), " ", brief(row)), list, payload(row), cancel);
  }

  #pause() {
    const paused = !this.row.paused;
    this.change(
      paused ? { title: `Pause ${this.name}?`, words: "Nobody gets messages of this queue until you resume it. Messages are still accepted.", action: "Pause" } : null,
      "queues/pause", { topic: this.name, paused }, () => (paused ? "The queue is paused." : "The queue goes on."));
  }

  #purge() {
    this.change(
      { title: `Purge ${this.name}?`, words: `${count(this.row.messages)} waiting messages are discarded for ever. Those in flight stay.`, action: "Purge", typed: this.name },
      "queues/purge", { topic: this.name }, (answer) => `${count(answer.purged)} messages are discarded${because(answer)}.`);
  }

  async #move() {
    const to = field("to", { required: true });
    const form = h("form", { method: "dialog" }, h("h2", { id: "move-title" }, `Move the messages of ${this.name}`),
      labelled("To the queue", to),
      h("div", { class: "actions" }, h("button", { type: "button", class: "quiet", onclick: () => dialog.close("") }, "Cancel"), h("button", { class: "main", value: "yes" }, "Move")));
    const dialog = h("dialog", { "aria-labelledby": "move-title" }, form);
    document.body.append(dialog);
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (dialog.returnValue !== "yes" || !to.value) return;
      this.change(null, "queues/move", { topic: this.name, to: to.value }, (answer) => `${count(answer.moved)} messages are moved${because(answer)}.`);
    });
    dialog.showModal();
  }
}

function definition(defined) {
  return Object.entries(defined ?? {}).filter(([name, value]) => value !== null && name !== "sources")
    .map(([name, value]) => [name.replaceAll("_", " "), typeof value === "object" ? JSON.stringify(value) : String(value)]);
}
