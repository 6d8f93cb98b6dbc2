// Traces: the frames of one client, or the publications to a topic, in words.

import { attempt, bytes, choice, count, field, filterForm, get, h, heading, labelled, link, mark, Page, post, press, section, table } from "../page.js";

export default class Trace extends Page {
  every = 1000;

  build() {
    const [kind = "client", value = ""] = this.segments;
    this.state = h("span");
    this.stop = this.button("Stop", "trace/stop", () => this.change(null, "trace/stop", { trace: this.trace }, "The trace has ended."));
    this.stop.hidden = true;
    this.lines = table("Lines of the trace", [
      ["Time", "time", (moment) => new Date(moment).toISOString().slice(11, 23)],
      ["Direction", "direction"],
      ["Client", "client_id", (id) => (id ? link(id, "client", id) : ""), "minor"],
      ["Frames", (row) => `${row.kind}${row.count > 1 ? ` × ${count(row.count)}` : ""}`],
      ["Bytes", "bytes", bytes, "number minor"],
      ["What", "words"],
    ], "number", "No line yet.");
    this.earlier = table("Traces", [
      ["Trace", (row) => press(`${row.trace}`, () => this.#follow(row.trace), { class: "quiet" })],
      ["Of", (row) => row.topic ?? `client ${row.client_id}`],
      ["State", (row) => row.ended ?? "runs"],
      ["Lines", "frames", count, "number"],
      ["By", "by", null, "minor"],
    ], "trace", "There is none.");
    this.append(heading("Trace", this.state, this.stop),
      h("p", { class: "hint" }, "A trace shows frames and publications in words, without payloads. It ends by itself."),
      filterForm((asked) => this.#start(asked),
        labelled("What to trace", choice("kind", [["client", "client"], ["topic", "topic or pattern"]], kind)),
        labelled("Id or name", field("value", { required: true, value, placeholder: "1001 or orders.#" })),
        labelled("Lines at most", field("limit", { type: "number", min: 1, max: 1000, value: 200 })),
        labelled("Seconds at most", field("seconds", { type: "number", min: 1, max: 600, value: 60 })),
        h("button", { class: "main" }, "Start")),
      this.lines, section("Traces of the last minutes", this.earlier));
    this.lines.hidden = true;
  }

  async load() {
    return { list: (await get("traces")).traces, found: this.trace ? await get("trace", { trace: this.trace, after: this.rows.length, limit: 1000 }) : null };
  }

  show({ list, found }) {
    this.earlier.rows = list;
    if (!found || found.trace !== this.trace) return;
    this.rows.push(...found.lines.filter((row) => row.number > this.rows.length));
    this.lines.rows = this.rows;
    this.stop.hidden = Boolean(found.ended);
    this.state.replaceChildren(found.ended ? mark(`ended: ${found.ended}`) : mark("runs", "good"));
  }

  async #start({ kind, value, limit, seconds }) {
    const what = kind === "topic" ? { topic: value } : { client_id: Number(value) };
    const started = await attempt(() => post("trace/start", { ...what, limit: Number(limit), seconds: Number(seconds) }));
    if (started) this.#follow(started.trace);
  }

  #follow(trace) {
    [this.trace, this.rows] = [trace, []];
    this.lines.hidden = false;
    this.lines.rows = [];
    this.refresh();
  }
}
