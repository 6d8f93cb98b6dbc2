// Warnings and errors of the last hour, as the log has them.

import { get } from "../api.js";
import { h } from "../dom.js";
import { mark, time } from "../format.js";
import { heading, Page } from "../page.js";
import { table } from "../table.js";

const MOST = 1000;

export default class Warnings extends Page {
  build() {
    this.found = [];
    this.table = table("Warnings of the last hour, the newest first", [
      { title: "When", show: (row) => time(row.time), by: (row) => row.number },
      { title: "Level", show: (row) => mark(row.level, row.level === "warn" ? "warn" : "bad"), by: (row) => row.level },
      { title: "What", show: (row) => row.text, by: (row) => row.text },
      { title: "From", show: (row) => h("code", {}, row.source), by: (row) => row.source, minor: true },
    ], (row) => row.number, "Nothing was worth a warning in the last hour.");
    this.append(heading("Warnings"), this.table);
  }

  async load() {
    return (await get("warnings", { limit: MOST })).warnings;
  }

  show(warnings) {
    this.table.rows = warnings.reverse();
  }
}
