// Messages that wait for their time, and recurring schedules.

import { bytes, count, exact, h, heading, linked, mark, Page, Paging, principal, section, span, table, time, yes } from "../page.js";

export default class Schedules extends Page {
  build() {
    this.paging = new Paging("schedules", this, "Part of topic, name or id");
    this.totals = h("span", { class: "hint" });
    this.repeats = table("Recurring schedules", [
      ["Name", "name"],
      ["Topic", "topic", linked("topic")],
      ["When", (row) => (row.every ? `every ${span(row.every / 1000)}` : h("span", {}, h("code", {}, row.cron), ` ${row.timezone}`))],
      ["Next", (row) => (row.paused ? mark("paused", "warn") : time(row.next))],
      ["Missed times", "catch_up", null, "minor"],
      ["Principal", (row) => (row.settings ? "settings file" : principal(row.principal)), null, "minor"],
      ["", ({ name, paused }) => h("span", { class: "actions" },
        this.act(paused ? "Resume" : "Pause", "schedules/pause", { name, paused: !paused }, `${name} ${paused ? "goes on" : "is paused"}.`),
        this.act("Remove", "schedules/cancel", { name }, `${name} is removed.`,
          { title: `Remove ${name}?`, words: "It publishes nothing any more.", action: "Remove", deletes: true }))],
    ], "name", "There is none. Add one: ", h("code", {}, "fleximq schedules add reports '{}' --name nightly --cron '30 2 * * *'"));
    this.single = table("Messages that wait for their time", [
      ["Due", "due", time],
      ["Topic", "topic", linked("topic")],
      ["Message id", "message_id", null, "minor"],
      ["Principal", "principal", principal, "minor"],
      ["Size", "bytes", bytes, "number minor"],
      ["On disk", "kept", yes, "minor"],
      ["", ({ id, topic, due }) => this.act("Cancel", "schedules/cancel", { id },
        ({ cancelled }) => (cancelled === false ? "It was published already." : "The message is cancelled."),
        { title: "Cancel this message?", words: `The message to ${topic}, due ${exact(due)}, is never published.`, action: "Cancel it", deletes: true })],
    ], "id", "Nothing waits for its time. Try: ", h("code", {}, "fleximq enqueue mails hello --delay 60"));
    this.append(heading("Schedules", this.totals, this.paging.filter), section("Recurring", this.repeats), section("Once", this.single, this.paging.bar));
  }

  load() {
    return this.paging.read();
  }

  show({ waiting, late = 0, repeats, schedules }) {
    this.totals.replaceChildren(`${count(waiting)} wait`, late > 1 ? mark(`${span(late)} late`, "bad") : "");
    this.found = repeats ?? this.found ?? [];
    this.repeats.rows = this.found;
    this.single.rows = schedules;
  }
}
