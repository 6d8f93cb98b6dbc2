// Warnings and errors of the last hour, as the log has them.

import { get, h, heading, mark, Page, table, time } from "../page.js";

export default class Warnings extends Page {
  build() {
    this.table = table("Warnings of the last hour, the newest first", [
      ["When", "time", time],
      ["Level", "level", (level) => mark(level, level === "warn" ? "warn" : "bad")],
      ["What", "text"],
      ["From", "source", (source) => h("code", {}, source), "minor"],
    ], "number", "Nothing was worth a warning in the last hour.");
    this.append(heading("Warnings"), this.table);
  }

  load() {
    return get("warnings", { limit: 1000 });
  }

  show({ warnings }) {
    this.table.rows = warnings.reverse();
  }
}
