// All topics, in pages that the broker makes, and the busiest ones.

import { get } from "../api.js";
import { field, h } from "../dom.js";
import { count, link, rate } from "../format.js";
import { heading, Page, Paging, section } from "../page.js";
import { table } from "../table.js";

const name = { title: "Topic", show: (row) => link(row.topic, "topic", row.topic), by: (row) => row.topic };
const rest = [
  { title: "Subscribers", show: (row) => count(row.subscribers), by: (row) => row.subscribers, number: true },
  { title: "Published", show: (row) => count(row.published), by: (row) => row.published, number: true },
  { title: "Durable", show: (row) => (row.durable ? "yes" : "no"), minor: true },
  { title: "In queue", show: (row) => (row.queued === null ? "–" : count(row.queued)), number: true, minor: true },
];

export default class Topics extends Page {
  build() {
    this.paging = new Paging("topics", this);
    this.filter = field("contains", { type: "search", placeholder: "Part of the name", "aria-label": "Part of the name", oninput: () => { this.paging.reset(); this.refresh(); } });
    this.busiest = table("Busiest topics", [name, { title: "Rate", show: (row) => rate(row.per_second), by: (row) => row.per_second, number: true }, ...rest], (row) => row.topic, "Nobody publishes at the moment.");
    this.table = table("Topics", [name, ...rest], (row) => row.topic, "There is no such topic. Make one: ", h("code", {}, "fleximq pub news hello"));
    this.append(heading("Topics", this.filter), section("Busiest", this.busiest), section("By name", this.table, this.paging.bar));
  }

  load() {
    this.#measure();
    return this.paging.read({ contains: this.filter.value });
  }

  show(found) {
    this.table.rows = found.topics;
  }

  /** Show the busiest topics, which the broker measures for a second. */
  async #measure() {
    if (this.isMeasuring) return;
    this.isMeasuring = true;
    try {
      const contains = this.filter.value;
      const { topics } = await get("topics/busiest", { contains, limit: 5 });
      if (contains === this.filter.value) this.busiest.rows = topics;
    } catch {
      // The list of topics tells why.
    } finally {
      this.isMeasuring = false;
    }
  }
}
