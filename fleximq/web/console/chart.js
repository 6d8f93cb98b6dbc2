// Charts of the last hour, each with its numbers in a table.

import { h } from "./dom.js";
import { clock, ticks } from "./format.js";
import { table } from "./table.js";

const COLORS = ["--mark", "--warn", "--good"];
const HEIGHT = 160;

/** A chart of one or more series. `series`: pairs of a name and words; `format` returns a value as text. */
export class Chart {
  #plot;
  #times = [];
  #values = [];

  constructor(title, series, format) {
    this.title = title;
    this.series = series;
    this.format = format;
    this.place = h("div");
    const columns = series.map(([name, words]) => [words, name, (value) => format(value ?? 0), "number"]);
    this.numbers = table(title, [["Time", "time", clock], ...columns], "time");
    this.details = h("details", { ontoggle: () => this.#fill() }, h("summary", {}, h("small", {}, "The numbers")), this.numbers);
    this.element = h("div", { class: "chart" }, h("h2", {}, title), this.place, this.details);
    this.watch = new ResizeObserver(() => this.#plot?.setSize({ width: this.place.clientWidth, height: HEIGHT }));
    this.watch.observe(this.place);
    this.draw = this.draw.bind(this);
    addEventListener("themed", this.draw);
  }

  /** Show these times, in milliseconds since 1970, and values by series. */
  show(times, found) {
    this.#times = times;
    this.#values = this.series.map(([name]) => found[name] ?? []);
    if (this.#plot) this.#plot.setData(this.#columns());
    else this.draw();
    this.#fill();
  }

  /** Draw with the present colours. */
  draw() {
    if (!this.#times.length || !this.place.clientWidth) return;
    // The canvas knows no variables.
    const resolved = (name) => {
      const probe = h("i");
      probe.style.color = `var(${name})`;
      document.body.append(probe);
      const found = getComputedStyle(probe).color;
      probe.remove();
      return found;
    };
    const axis = { stroke: resolved("--soft"), grid: { stroke: resolved("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    this.#plot?.destroy();
    this.#plot = new window.uPlot({
      width: this.place.clientWidth, height: HEIGHT, cursor: { y: false }, legend: { live: true },
      scales: { y: { range: (plot, low, high) => [low > high / 2 ? low - (high - low) / 10 - 1 : 0, high > 0 ? high + (high - low) / 10 + 1e-3 : 1] } },
      axes: [{ ...axis, values: (plot, found) => ticks(found.map((each) => each * 1000)) }, { ...axis, size: 88, values: (plot, ticks) => ticks.map((each, at) => (at && this.format(each) === this.format(ticks[at - 1]) ? "" : this.format(each))) }],
      series: [{ value: (plot, at) => (at ? clock(at * 1000) : "–") },
        ...this.series.map(([, words], at) => ({ label: words, stroke: resolved(COLORS[at]), width: 1.5, points: { show: false }, value: (plot, value) => (value === null || value === undefined ? "–" : this.format(value)) }))],
    }, this.#columns(), this.place);
    this.place.firstElementChild.setAttribute("aria-hidden", "true"); // the table has the same
  }

  /** Release what was taken. */
  close() {
    this.watch.disconnect();
    removeEventListener("themed", this.draw);
    this.#plot?.destroy();
  }

  #columns() {
    return [this.#times.map((each) => each / 1000), ...this.#values];
  }

  #fill() {
    if (!this.details.open) return;
    this.numbers.rows = this.#times.map((time, at) =>
      ({ time, ...Object.fromEntries(this.series.map(([name], which) => [name, this.#values[which][at]])) })).reverse();
  }
}
