// Messages that wait for their time, and recurring schedules.

import { h } from "../dom.js";
import { bytes, count, link, mark, span, time } from "../format.js";
import { heading, Page, Paging, section } from "../page.js";
import { table } from "../table.js";

export default class Schedules extends Page {
  build() {
    this.paging = new Paging("schedules", this);
    this.totals = h("span", { class: "hint" });
    this.repeats = table("Recurring schedules", [
      { title: "Name", show: (row) => row.name, by: (row) => row.name },
      { title: "Topic", show: (row) => link(row.topic, "topic", row.topic), by: (row) => row.topic },
      { title: "When", show: when },
      { title: "Next", show: (row) => (row.paused ? mark("paused", "warn") : time(row.next)), by: (row) => row.next },
      { title: "Missed times", show: (row) => row.catch_up, minor: true },
      { title: "Principal", show: (row) => row.principal ?? (row.settings ? "settings file" : "anonymous"), minor: true },
      { title: "", mark: (row) => String(row.paused), show: (row) => h("span", { class: "actions" },
        this.button(row.paused ? "Resume" : "Pause", "schedules/pause", () => this.change(null, "schedules/pause",
          { name: row.name, paused: !row.paused }, () => `${row.name} ${row.paused ? "goes on" : "is paused"}.`)),
        this.button("Remove", "schedules/cancel", () => this.change(
          { title: `Remove ${row.name}?`, words: "It publishes nothing any more.", action: "Remove" },
          "schedules/cancel", { name: row.name }, () => `${row.name} is removed.`), "danger")) },
    ], (row) => row.name, "There is none. Add one: ", h("code", {}, "fleximq schedules add reports '{}' --name nightly --cron '30 2 * * *'"));
    this.single = table("Messages that wait for their time", [
      { title: "Due", show: (row) => time(row.due), by: (row) => row.due },
      { title: "Topic", show: (row) => link(row.topic, "topic", row.topic), by: (row) => row.topic },
      { title: "Message id", show: (row) => row.message_id ?? "–", minor: true },
      { title: "Principal", show: (row) => row.principal ?? "anonymous", minor: true },
      { title: "Size", show: (row) => bytes(row.bytes), by: (row) => row.bytes, number: true, minor: true },
      { title: "On disk", show: (row) => (row.kept ? "yes" : "no"), minor: true },
      { title: "", mark: () => "", show: (row) => this.button("Cancel", "schedules/cancel", () => this.change(
        { title: "Cancel this message?", words: `The message to ${row.topic}, due ${new Date(row.due).toLocaleString()}, is never published.`, action: "Cancel it" },
        "schedules/cancel", { id: row.id }, (answer) => (answer.cancelled === false ? "It was published already." : "The message is cancelled.")), "danger") },
    ], (row) => row.id, "Nothing waits for its time. Try: ", h("code", {}, "fleximq enqueue mails hello --delay 60"));
    this.append(heading("Schedules", this.totals), section("Recurring", this.repeats), section("Once", this.single, this.paging.bar));
  }

  load() {
    return this.paging.read();
  }

  show(found) {
    const late = found.late ?? 0;
    this.totals.replaceChildren(`${count(found.waiting)} wait`, late > 1 ? mark(`${span(late)} late`, "bad") : "");
    this.repeats.rows = found.repeats ?? this.repeatRows ?? [];
    this.repeatRows = found.repeats ?? this.repeatRows;
    this.single.rows = found.schedules;
  }
}

function when(row) {
  return row.every ? `every ${span(row.every / 1000)}` : h("span", {}, h("code", {}, row.cron), ` ${row.timezone}`);
}
