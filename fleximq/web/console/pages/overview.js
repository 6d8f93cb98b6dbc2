// How the broker is, and was during the last hour.

import { Chart } from "../chart.js";
import { bytes, count, counted, facts, get, h, heading, Page, rate, section, span, tell, verdict } from "../page.js";

const HOUR = 3600000;

export default class Overview extends Page {
  every = 5000;

  build() {
    this.status = h("span");
    this.facts = facts();
    this.reasons = h("ul");
    this.checks = h("ul");
    this.charts = [
      new Chart("Messages", [["received_messages", "received"], ["delivered_messages", "delivered"], ["stored_messages", "stored"]], rate),
      new Chart("Bytes", [["received_bytes", "received"], ["sent_bytes", "sent"]], (value) => `${bytes(value)}/s`),
      new Chart("Connections", [["connections", "connections"], ["clients", "clients"]], count),
      new Chart("End of the journal", [["journal_end", "offset"]], count),
      new Chart("Trouble", [["dropped", "dropped"], ["errors", "errors"], ["dead_letters", "dead letters"]], rate),
      new Chart("Delay of the event loop", [["lag", "seconds"]], span),
    ];
    this.append(heading("Overview", this.status), this.facts,
      section("What needs your attention", this.reasons), h("div", { class: "charts" }, this.charts.map((each) => each.element)),
      section("Health", this.checks));
  }

  leave() {
    for (const each of this.charts) each.close();
  }

  load() {
    return Promise.all([get("about"), get("health"), get("history", { since: this.next })]);
  }

  show([about, health, history]) {
    const isWell = health.status === "ok";
    this.status.replaceChildren(verdict(isWell, isWell ? "ready" : "not ready"));
    tell(this.facts, [
      ["Version", `${about.version} (${about.implementation})`], ["Running for", span(about.uptime)], ["Clients", count(about.clients)],
      ["Topics", count(about.topics)], ["Queues", count(about.queues)],
      ["Journal", about.journal ? `${bytes(about.journal.bytes)} in ${counted(about.journal.segments, "segment")}` : "none: messages are in memory only"],
    ]);
    const words = [...(health.reasons ?? []), ...(health.notices ?? [])];
    this.reasons.replaceChildren(...(words.length ? words : ["Nothing."]).map((each) => h("li", {}, each)));
    this.checks.replaceChildren(...Object.entries(health.checks ?? {}).map(([name, { ok, words: said }]) => h("li", {}, verdict(ok, ok ? "good" : "failing"), ` ${name}: ${said}`)));
    this.#keep(history);
    for (const each of this.charts) each.show(this.times, this.series);
  }

  /** Add new samples to those of the last hour. */
  #keep(history) {
    if (this.next === undefined || history.time[0] < this.times?.at(-1)) [this.times, this.series] = [[], {}];
    this.times.push(...history.time);
    const drop = this.times.findIndex((each) => each > this.times.at(-1) - HOUR);
    this.times.splice(0, Math.max(0, drop));
    for (const [name, values] of Object.entries(history.series)) {
      (this.series[name] ??= []).push(...values);
      this.series[name].splice(0, Math.max(0, drop));
    }
    this.next = history.next;
  }
}
