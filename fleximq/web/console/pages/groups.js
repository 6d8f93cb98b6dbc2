// Consumer groups of the pipeline, with their lag.

import { h } from "../dom.js";
import { bytes, count, time } from "../format.js";
import { heading, Page, Paging } from "../page.js";
import { table } from "../table.js";

export default class Groups extends Page {
  build() {
    this.paging = new Paging("groups", this);
    this.end = h("span", { class: "hint" });
    this.table = table("Consumer groups", [
      { title: "Group", show: (row) => row.group, by: (row) => row.group },
      { title: "Next offset", show: (row) => count(row.next), by: (row) => row.next, number: true },
      { title: "Behind by", show: (row) => `${count(row.records)} messages`, by: (row) => row.records, number: true },
      { title: "Bytes", show: (row) => bytes(row.bytes), by: (row) => row.bytes, number: true, minor: true },
      { title: "Lost", show: (row) => count(row.lost), number: true, minor: true },
      { title: "Last progress", show: (row) => time(row.time) },
    ], (row) => row.group, "No pipeline has read this journal. Start one: ", h("code", {}, "fleximq-pipeline ingest --journal JOURNAL --lake LAKE"));
    this.append(heading("Consumer groups", this.end), this.table, this.paging.bar);
  }

  load() {
    return this.paging.read();
  }

  show(found) {
    this.end.textContent = found.end === null ? "there is no journal" : `the journal ends at offset ${count(found.end)}`;
    this.table.rows = found.groups;
  }
}
