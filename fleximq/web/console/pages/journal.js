// The journal: its segments, retention and damage, and how long the disk lasts.

import { bytes, count, facts, h, heading, inWords, mark, Page, Paging, section, table, tell, time, verdict } from "../page.js";

export default class Journal extends Page {
  every = 5000;

  build() {
    this.paging = new Paging("journal", this);
    this.state = h("span");
    this.facts = facts();
    this.segments = table("Segments", [
      ["Offsets", (row) => `${count(row.first)} to ${count(row.next - 1)}`],
      ["Begins at byte", "base", count, "number minor"],
      ["Size", "bytes", bytes, "number"],
      ["Lost bytes", "lost", (lost) => (lost ? mark(bytes(lost), "bad") : "none"), "number"],
      ["Newest message", "latest", time],
    ], "base", "There is no segment.");
    this.append(heading("Journal", this.state), this.facts, section("Segments", this.segments, this.paging.bar));
  }

  load() {
    return this.paging.read();
  }

  show({ journal, segments }) {
    this.segments.rows = segments ?? [];
    this.state.replaceChildren(journal ? verdict(journal.state === "ok", journal.state === "ok" ? "writable" : journal.state) : "");
    const { days_left: days } = journal ?? {};
    const list = (values, none) => values.map((each) => (typeof each === "string" ? each : inWords(each))).join(", ") || none;
    tell(this.facts, !journal ? [["Journal", "None: messages are in memory only. Start the broker with --journal FOLDER and --durable 'TOPICS'."]] : [
      ["Trouble", journal.reason || null], ["Folder", journal.folder], ["End offset", count(journal.end)],
      ["Size", `${bytes(journal.bytes)}${journal.max_bytes ? ` of at most ${bytes(journal.max_bytes)}` : ""}`],
      ["Free on the disk", bytes(journal.free_bytes)], ["Grows by", journal.bytes_per_day === null ? null : `${bytes(journal.bytes_per_day)} a day`],
      ["Lasts for", days === null ? null : mark(`${count(days)} days`, days < 3 ? "bad" : days < 14 ? "warn" : "good")],
      ["Sync", journal.fsync], ["Durable topics", journal.durable.join(", ")], ["Retained topics", list(journal.retain, "none")],
      ["Retention", list(journal.retention, "none: messages stay")],
      ["Lost ranges", list(journal.lost, "none")], ["Torn frames", list(journal.torn, "none")],
    ]);
  }
}
