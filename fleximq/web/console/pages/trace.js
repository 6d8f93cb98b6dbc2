// Traces: the frames of one client, or the publications to a topic, in words.

import { get, post } from "../api.js";
import { choice, field, h, labelled, toast } from "../dom.js";
import { bytes, count, link, mark } from "../format.js";
import { heading, Page, section } from "../page.js";
import { table } from "../table.js";

export default class Trace extends Page {
  build() {
    const [kind = "client", value = ""] = this.segments;
    this.kind = choice("kind", [["client", "client"], ["topic", "topic or pattern"]], kind);
    this.value = field("value", { required: true, value, placeholder: "1001 or orders.#" });
    this.state = h("span");
    this.stop = this.button("Stop", "trace/stop", () => this.change(null, "trace/stop", { trace: this.trace }, () => "The trace has ended."));
    this.stop.hidden = true;
    this.lines = table("Lines of the trace", [
      { title: "Time", show: (row) => new Date(row.time).toISOString().slice(11, 23) },
      { title: "Direction", show: (row) => row.direction ?? "" },
      { title: "Client", show: (row) => (row.client_id ? link(row.client_id, "client", row.client_id) : ""), minor: true },
      { title: "Frames", show: (row) => `${row.kind}${row.count > 1 ? ` × ${count(row.count)}` : ""}` },
      { title: "Bytes", show: (row) => bytes(row.bytes), number: true, minor: true },
      { title: "What", show: (row) => row.words },
    ], (row) => row.number, "No line yet.");
    this.earlier = table("Traces", [
      { title: "Trace", show: (row) => h("button", { type: "button", class: "quiet", onclick: () => this.#follow(row.trace) }, `${row.trace}`) },
      { title: "Of", show: (row) => row.topic ?? `client ${row.client_id}` },
      { title: "State", show: (row) => row.ended ?? "runs" },
      { title: "Lines", show: (row) => count(row.frames), number: true },
      { title: "By", show: (row) => row.by, minor: true },
    ], (row) => row.trace, "There is none.");
    this.append(heading("Trace", this.state, this.stop),
      h("p", { class: "hint" }, "A trace shows frames and publications in words, without payloads. It ends by itself."),
      h("form", { class: "filter", onsubmit: (event) => { event.preventDefault(); this.#start(event.target); } },
        labelled("What to trace", this.kind), labelled("Id or name", this.value),
        labelled("Lines at most", field("limit", { type: "number", min: 1, max: 1000, value: 200 })),
        labelled("Seconds at most", field("seconds", { type: "number", min: 1, max: 600, value: 60 })),
        h("button", { class: "main" }, "Start")),
      this.lines, section("Traces of the last minutes", this.earlier));
    this.lines.hidden = true;
  }

  get every() {
    return 1000;
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

  async #start(form) {
    const { kind, value, limit, seconds } = Object.fromEntries(new FormData(form));
    const what = kind === "topic" ? { topic: value } : { client_id: Number(value) };
    try {
      this.#follow((await post("trace/start", { ...what, limit: Number(limit), seconds: Number(seconds) })).trace);
    } catch (error) {
      toast(`Refused: ${error.message}.`, true);
    }
  }

  #follow(trace) {
    [this.trace, this.rows] = [trace, []];
    this.lines.hidden = false;
    this.lines.rows = [];
    this.refresh();
  }
}
