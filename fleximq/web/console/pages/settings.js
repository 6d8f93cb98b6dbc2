// The settings in effect, and where each one is from.

import { get } from "../api.js";
import { field, h } from "../dom.js";
import { heading, Page } from "../page.js";
import { table } from "../table.js";

export default class Settings extends Page {
  build() {
    this.filter = field("contains", { type: "search", placeholder: "Filter by name", "aria-label": "Filter by name", oninput: () => this.show(this.found) });
    this.table = table("Settings", [
      { title: "Option", show: (row) => h("code", {}, row.name), by: (row) => row.name },
      { title: "Value", show: (row) => shown(row.value) },
      { title: "From", show: (row) => from(row.origin), by: (row) => from(row.origin) },
    ], (row) => row.name, "There is no such option.");
    this.append(heading("Settings", this.filter), this.table);
  }

  get every() {
    return 30000;
  }

  load() {
    return get("settings");
  }

  show(found) {
    this.found = found;
    const { settings, origins = {} } = found;
    this.table.rows = Object.entries(settings).filter(([name]) => name.includes(this.filter.value.toLowerCase()))
      .map(([name, value]) => ({ name, value, origin: origins[name] }));
  }
}

const from = (origin) => [origin?.source, origin?.path, origin?.line && `line ${origin.line}`].filter(Boolean).join(", ");

function shown(value) {
  if (value === null || (Array.isArray(value) && !value.length)) return h("span", { class: "hint" }, "none");
  return Array.isArray(value) ? value.map(shown).map((each) => (each instanceof Node ? each.textContent : each)).join(", ") : typeof value === "object" ? JSON.stringify(value) : String(value);
}
