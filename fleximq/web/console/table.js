// A table whose rows are updated in place, so that focus, selection and open details survive each update.

import { h, press } from "./dom.js";

/**
 * @typedef {[title: string, field: any, show?: (value: any) => any, kind?: string]} Column
 * `field`: the name of a field, by which rows are also sorted, or a function that shows a row. `show`: returns text or
 * an element for the value of the field. `kind`: "number" is aligned to the right, "minor" hidden on small screens.
 */

/** `<fq-table>`: set {@link define} once, and {@link rows} at each update. */
class Table extends HTMLElement {
  #columns = [];
  #key = (row) => row;
  #rows = [];
  #order = null;
  #descending = false;
  #lines = new Map();
  #body = h("tbody");
  #heads = [];
  #empty = h("p", { class: "empty" });

  /**
   * @param {string} caption read by screen readers
   * @param {Column[]} columns
   * @param {any} key the field that tells rows apart, or a function of a row
   * @param {...any} empty shown if there are no rows
   */
  define(caption, columns, key, ...empty) {
    this.#columns = columns;
    this.#key = of(key);
    this.#empty.append(...empty);
    const heads = columns.map((column) => h("th", { scope: "col", class: column[3] },
      typeof column[1] === "string" ? press(column[0], () => this.#sortBy(column)) : column[0]));
    this.replaceChildren(
      h("div", { class: "scrolled", tabindex: 0, role: "region", "aria-label": caption },
        h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, heads)), this.#body)),
      this.#empty,
    );
    this.#heads = heads;
    return this;
  }

  set rows(rows) {
    this.#rows = rows;
    const used = new Set();
    const lines = this.#sorted().map((row) => {
      const key = this.#key(row);
      used.add(key);
      return this.#line(key, row);
    });
    for (const key of this.#lines.keys()) if (!used.has(key)) this.#lines.delete(key);
    const shown = this.#body.children;
    if (lines.length !== shown.length || lines.some((line, at) => shown[at] !== line)) this.#place(lines);
    this.#empty.hidden = rows.length > 0;
    this.firstElementChild.hidden = rows.length === 0;
  }

  #place(lines) {
    const focused = document.activeElement;
    this.#body.replaceChildren(...lines);
    if (focused && this.#body.contains(focused)) focused.focus();
  }

  #line(key, row) {
    let found = this.#lines.get(key);
    if (!found) {
      const cells = this.#columns.map((column) => h("td", { class: column[3] }));
      found = { line: h("tr", {}, cells), cells, marks: [] };
      this.#lines.set(key, found);
    }
    this.#columns.forEach(([, field, show], at) => {
      const shown = show ? show(of(field)(row)) : of(field)(row);
      const mark = shown instanceof Node ? shown.outerHTML : shown;
      if (found.marks[at] === mark) return;
      found.marks[at] = mark;
      found.cells[at].replaceChildren(shown instanceof Node || typeof shown === "string" ? shown : `${shown ?? "–"}`);
    });
    return found.line;
  }

  #sortBy(column) {
    this.#descending = this.#order === column ? !this.#descending : Boolean(column[3]?.includes("number"));
    this.#order = column;
    this.#columns.forEach((each, at) => {
      if (each === column) this.#heads[at].setAttribute("aria-sort", this.#descending ? "descending" : "ascending");
      else this.#heads[at].removeAttribute("aria-sort");
    });
    this.rows = this.#rows;
  }

  #sorted() {
    if (!this.#order) return this.#rows;
    const by = of(this.#order[1]), sign = this.#descending ? -1 : 1;
    return [...this.#rows].sort((one, other) => sign * compared(by(one), by(other)));
  }
}

const of = (field) => (typeof field === "string" ? (row) => row[field] : field);

function compared(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one ?? "").localeCompare(String(other ?? ""), "en", { numeric: true });
}

customElements.define("fq-table", Table);

/** Return a table, see {@link Table.define}. */
export const table = (...definition) => h("fq-table").define(...definition);
