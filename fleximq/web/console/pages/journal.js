// The journal: its segments, retention and damage, and how long the disk lasts.

import { h } from "../dom.js";
import { bytes, count, mark, time } from "../format.js";
import { facts, heading, Page, Paging, section, tell } from "../page.js";
import { table } from "../table.js";

export default class Journal extends Page {
  build() {
    this.paging = new Paging("journal", this);
    this.state = h("span");
    this.facts = facts();
    this.segments = table("Segments", [
      { title: "Offsets", show: (row) => `${count(row.first)} to ${count(row.next - 1)}`, by: (row) => row.first },
      { title: "Begins at byte", show: (row) => count(row.base), number: true, minor: true },
      { title: "Size", show: (row) => bytes(row.bytes), by: (row) => row.bytes, number: true },
      { title: "Lost bytes", show: (row) => (row.lost ? mark(bytes(row.lost), "bad") : "none"), by: (row) => row.lost, number: true },
      { title: "Newest message", show: (row) => time(row.latest), by: (row) => row.latest },
    ], (row) => row.base, "There is no segment.");
    this.append(heading("Journal", this.state), this.facts, section("Segments", this.segments, this.paging.bar));
  }

  get every() {
    return 5000;
  }

  load() {
    return this.paging.read();
  }

  show({ journal, segments }) {
    if (!journal) {
      this.state.replaceChildren();
      tell(this.facts, [["Journal", "None: messages are in memory only. Start the broker with --journal FOLDER and --durable 'TOPICS'."]]);
    } else {
      this.state.replaceChildren(mark(journal.state === "ok" ? "writable" : journal.state, journal.state === "ok" ? "good" : "bad"));
      tell(this.facts, [
        ["Trouble", journal.reason || null], ["Folder", journal.folder], ["End offset", count(journal.end)],
        ["Size", `${bytes(journal.bytes)}${journal.max_bytes ? ` of at most ${bytes(journal.max_bytes)}` : ""}`],
        ["Free on the disk", bytes(journal.free_bytes)], ["Grows by", journal.bytes_per_day === null ? null : `${bytes(journal.bytes_per_day)} a day`],
        ["Lasts for", journal.days_left === null ? null : mark(`${count(journal.days_left)} days`, journal.days_left < 3 ? "bad" : journal.days_left < 14 ? "warn" : "good")],
        ["Sync", journal.fsync], ["Durable topics", journal.durable.join(", ")], ["Retained topics", journal.retain.join(", ") || "none"],
        ["Retention", journal.retention.map((each) => (typeof each === "string" ? each : JSON.stringify(each))).join(", ") || "none: messages stay"],
        ["Lost ranges", journal.lost.length ? JSON.stringify(journal.lost) : "none"], ["Torn frames", journal.torn.length ? JSON.stringify(journal.torn) : "none"],
      ]);
    }
    this.segments.rows = segments ?? [];
  }
}
