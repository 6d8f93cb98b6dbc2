// One work queue.

import { attempt, because, brief, bytes, clientLink, count, counted, entries, facts, field, get, h, heading, labelled, link, message, Page, press, principal, rate, section, span, table, tell, yes } from "../page.js";
import { state } from "./queues.js";

const PEEKED = 20;

export default class Queue extends Page {
  build() {
    const [name] = this.segments;
    this.name = name;
    this.facts = facts();
    this.state = h("span");
    this.pause = this.button("Pause", "queues/pause", () => this.#pause());
    this.priorities = table("Waiting messages by priority", [
      ["Priority", "priority", String],
      ["Waiting", "messages", count, "number"],
      ["In flight", "in_flight", count, "number"],
      ["Oldest", (row) => (row.messages ? span(row.oldest_seconds) : "–"), null, "number"],
    ], "priority", "Nothing waits.");
    this.consumers = table("Consumers", [
      ["Client", clientLink],
      ["Principal", "principal", principal, "minor"],
      ["Address", "address", null, "minor"],
      ["Prefetch", "prefetch", count, "number"],
      ["Unsettled", "unsettled", count, "number"],
      ["Since", "since", span, "number"],
    ], "client_id", "Nobody consumes from this queue. Start a worker: ", h("code", {}, `fleximq work '${name}' -- COMMAND`));
    this.peeked = h("div", { class: "rows" });
    this.append(
      heading(name, this.state, this.pause,
        this.act("Move…", "queues/move", { topic: name }, (answer) => `${counted(answer.moved, "message")} ${answer.moved === 1 ? "is" : "are"} moved${because(answer)}.`,
          { title: `Move the messages of ${name}`, action: "Move", fields: labelled("To the queue", field("to", { required: true })) }),
        this.button("Purge…", "queues/purge", () => this.#purge(), "danger")),
      h("p", {}, link("All queues", "queues"), " · ", link("Dead letters of this queue", "letters", name)),
      this.facts, section("Consumers", this.consumers), section("Priorities", this.priorities),
      section("Messages", h("p", { class: "hint" }, "Looking at messages leaves them where they are."), h("div", { class: "actions" },
        press("Show the oldest that wait", () => this.#peek("peek")), press("Show those in flight", () => this.#peek("flying"))), this.peeked));
  }

  load() {
    return get("queues/detail", { topic: this.name });
  }

  show(row) {
    this.row = row;
    this.state.replaceChildren(state(row));
    this.pause.textContent = row.paused ? "Resume" : "Pause";
    tell(this.facts, [
      ["Waiting", count(row.messages)], ["In flight", count(row.in_flight)], ["Retried later", count(row.delayed)],
      ["Oldest", row.messages ? span(row.oldest_seconds) : "–"], ["In", rate(row.in_per_second)], ["Out", rate(row.out_per_second)],
      ["Memory", bytes(row.bytes)], ["Kept on disk", yes(row.kept)], ["Sources", row.sources.join(", ")],
      ["Dead letters", row.dead_letters_waiting ? link(count(row.dead_letters_waiting), "letters", this.name) : "none"],
      ...entries(row.definition, "sources"),
    ]);
    this.priorities.rows = row.priorities.filter((each) => each.messages || each.in_flight);
    this.consumers.rows = row.consuming;
  }

  async #peek(kind) {
    const found = await attempt(() => get(`queues/${kind}`, { topic: this.name, limit: PEEKED }));
    if (!found) return;
    const shown = found.messages.map((each) => this.#message(each, kind));
    this.peeked.replaceChildren(...(shown.length ? shown : [h("p", { class: "empty" }, kind === "peek" ? "Nothing waits." : "Nothing is in flight.")]));
  }

  #message(row, kind) {
    const cancel = async () => {
      if (await this.change(
        { title: "Cancel this message?", words: `${row.message_id} will be delivered to nobody.`, action: "Cancel it", deletes: true },
        "queues/cancel", { topic: this.name, message_id: row.message_id },
        ({ cancelled }) => (cancelled === false ? "It was not waiting any more." : "The message is cancelled."))) this.#peek(kind);
    };
    return message(row.message_id, brief(row), [
      ["Id", row.message_id], ["Offset", row.offset === null ? null : count(row.offset)], ["Key", row.key], ["Topic", row.topic],
      ["Deliveries", row.deliveries === undefined ? null : count(row.deliveries)], ["Priority", row.priority],
      ["Consumer", row.client_id ? clientLink({ client_id: row.client_id }) : null],
      ["In flight for", row.seconds === undefined ? null : span(row.seconds)],
    ], row, kind === "peek" && row.message_id ? this.button("Cancel this message", "queues/cancel", cancel, "danger") : null);
  }

  #pause() {
    const paused = !this.row.paused;
    this.change(
      paused ? { title: `Pause ${this.name}?`, words: "Nobody gets messages of this queue until you resume it. Messages are still accepted.", action: "Pause" } : null,
      "queues/pause", { topic: this.name, paused }, paused ? "The queue is paused." : "The queue goes on.");
  }

  #purge() {
    const number = this.row.messages;
    this.change(
      { title: `Purge ${this.name}?`, words: `${counted(number, "waiting message")} ${number === 1 ? "is" : "are"} discarded for ever. Those in flight stay.`, action: "Purge", typed: this.name, deletes: true },
      "queues/purge", { topic: this.name }, (answer) => `${count(answer.purged)} messages are discarded${because(answer)}.`);
  }
}
