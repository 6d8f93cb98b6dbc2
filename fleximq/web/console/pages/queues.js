// All work queues.

import { bytes, count, h, heading, linked, mark, Page, Paging, rate, span, table } from "../page.js";

/** Seconds after which the oldest message counts as late. */
const LATE = 60;

export default class Queues extends Page {
  build() {
    this.paging = new Paging("queues", this, "Filter by name");
    this.table = table("Queues", [
      ["Queue", "topic", linked("queue")],
      ["State", state],
      ["Waiting", "messages", count, "number"],
      ["In flight", "in_flight", count, "number"],
      ["Retried later", "delayed", count, "number minor"],
      ["Oldest", "oldest_seconds", (age) => (age ? span(age) : "–"), "number"],
      ["In", "in_per_second", rate, "number minor"],
      ["Out", "out_per_second", rate, "number minor"],
      ["Consumers", "consumers", count, "number"],
      ["Memory", "bytes", bytes, "number minor"],
    ], "topic", "There is no queue yet. Make one: ", h("code", {}, "fleximq enqueue mails '{\"to\": \"ann@example.org\"}'"));
    this.append(heading("Queues", this.paging.filter), this.table, this.paging.bar);
  }

  load() {
    return this.paging.read({ dead_letters: "none" });
  }

  show(found) {
    this.table.rows = found.queues;
  }
}

/** What an operator should know about a queue, as a mark. */
export function state(row) {
  if (row.paused) return mark("paused", "warn");
  if (row.messages && !row.consumers) return mark("nobody consumes", "bad");
  if (row.messages && row.oldest_seconds > LATE) return mark("late", "warn");
  return row.messages || row.in_flight ? mark("working", "good") : mark("empty");
}
