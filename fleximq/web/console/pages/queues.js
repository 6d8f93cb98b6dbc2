// All work queues.

import { field, h } from "../dom.js";
import { bytes, count, link, mark, rate, span } from "../format.js";
import { heading, Page, Paging } from "../page.js";
import { table } from "../table.js";

/** Seconds after which the oldest message counts as late. */
const LATE = 60;

export default class Queues extends Page {
  build() {
    this.paging = new Paging("queues", this);
    this.filter = field("contains", { type: "search", placeholder: "Filter by name", "aria-label": "Filter by name", oninput: () => this.show(this.found) });
    this.table = table("Queues", [
      { title: "Queue", show: (row) => link(row.topic, "queue", row.topic), by: (row) => row.topic },
      { title: "State", show: state },
      { title: "Waiting", show: (row) => count(row.messages), by: (row) => row.messages, number: true },
      { title: "In flight", show: (row) => count(row.in_flight), by: (row) => row.in_flight, number: true },
      { title: "Retried later", show: (row) => count(row.delayed), by: (row) => row.delayed, number: true, minor: true },
      { title: "Oldest", show: (row) => (row.messages ? span(row.oldest_seconds) : "–"), by: (row) => row.oldest_seconds, number: true },
      { title: "In", show: (row) => rate(row.in_per_second), by: (row) => row.in_per_second, number: true, minor: true },
      { title: "Out", show: (row) => rate(row.out_per_second), by: (row) => row.out_per_second, number: true, minor: true },
      { title: "Consumers", show: (row) => count(row.consumers), by: (row) => row.consumers, number: true },
      { title: "Memory", show: (row) => bytes(row.bytes), by: (row) => row.bytes, number: true, minor: true },
    ], (row) => row.topic,
    "There is no queue yet. Make one: ", h("code", {}, "fleximq enqueue mails '{\"to\": \"ann@example.org\"}'"));
    this.append(heading("Queues", this.filter), this.table, this.paging.bar);
  }

  load() {
    return this.paging.read();
  }

  show(found) {
    this.found = found;
    const part = this.filter.value.toLowerCase();
    this.table.rows = (found?.queues ?? []).filter((row) => !row.dead_letters && row.topic.toLowerCase().includes(part));
  }
}

/** What an operator should know about a queue, as a mark. */
export function state(row) {
  if (row.paused) return mark("paused", "warn");
  if (row.messages && !row.consumers) return mark("nobody consumes", "bad");
  if (row.messages && row.oldest_seconds > LATE) return mark("late", "warn");
  return row.messages || row.in_flight ? mark("working", "good") : mark("empty");
}
