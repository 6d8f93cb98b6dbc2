// Consumer groups of the pipeline, with their lag.

import { bytes, count, h, heading, Page, Paging, table, time } from "../page.js";

export default class Groups extends Page {
  build() {
    this.paging = new Paging("groups", this);
    this.end = h("span", { class: "hint" });
    this.table = table("Consumer groups", [
      ["Group", "group"],
      ["Next offset", "next", count, "number"],
      ["Behind by", "records", (records) => `${count(records)} messages`, "number"],
      ["Bytes", "bytes", bytes, "number minor"],
      ["Lost", "lost", count, "number minor"],
      ["Last progress", "time", time],
    ], "group", "No pipeline has read this journal. Start one: ", h("code", {}, "fleximq-pipeline ingest --journal JOURNAL --lake LAKE"));
    this.append(heading("Consumer groups", this.end), this.table, this.paging.bar);
  }

  load() {
    return this.paging.read();
  }

  show({ end, groups }) {
    this.end.textContent = end === null ? "there is no journal" : `the journal ends at offset ${count(end)}`;
    this.table.rows = groups;
  }
}
