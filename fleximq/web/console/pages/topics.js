// All topics, in pages that the broker makes, and the busiest ones.

import { count, get, h, heading, linked, Page, Paging, rate, section, table, yes } from "../page.js";

const name = ["Topic", "topic", linked("topic")];
const rest = [
  ["Subscribers", "subscribers", count, "number"],
  ["Published", "published", count, "number"],
  ["Durable", "durable", yes, "minor"],
  ["In queue", "queued", count, "number minor"],
];

export default class Topics extends Page {
  build() {
    this.paging = new Paging("topics", this);
    this.busiest = table("Busiest topics", [name, ["Rate", "per_second", rate, "number"], ...rest], "topic", "Nobody publishes at the moment.");
    this.table = table("Topics", [name, ...rest], "topic", "There is no such topic. Make one: ", h("code", {}, "fleximq pub news hello"));
    this.append(heading("Topics", this.paging.filter), section("Busiest", this.busiest), section("By name", this.table, this.paging.bar));
  }

  load() {
    this.#measure();
    return this.paging.read();
  }

  show({ topics }) {
    this.table.rows = topics;
  }

  /** Show the busiest topics, which the broker measures for a second. */
  async #measure() {
    if (this.isMeasuring) return;
    this.isMeasuring = true;
    try {
      const contains = this.paging.filter.value;
      const { topics } = await get("topics/busiest", { contains, limit: 5 });
      if (contains === this.paging.filter.value) this.busiest.rows = topics;
    } catch {
      // The list of topics tells why.
    } finally {
      this.isMeasuring = false;
    }
  }
}
