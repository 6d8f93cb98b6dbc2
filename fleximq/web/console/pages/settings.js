// The settings in effect, and where each one is from.

import { get, h, heading, inWords, Page, search, table } from "../page.js";

export default class Settings extends Page {
  every = 30000;

  build() {
    this.filter = search("Filter by name", () => this.show(this.found));
    this.table = table("Settings", [
      ["Option", "name", (name) => h("code", {}, name)],
      ["Value", "value", shown],
      ["From", "from"],
    ], "name", "There is no such option.");
    this.append(heading("Settings", this.filter), this.table);
  }

  load() {
    return get("settings");
  }

  show(found) {
    this.found = found;
    const { settings, origins = {} } = found ?? { settings: {} };
    this.table.rows = Object.entries(settings).filter(([name]) => name.includes(this.filter.value.toLowerCase()))
      .map(([name, value]) => ({ name, value, from: from(origins[name]) }));
  }
}

const from = (origin) => [origin?.source, origin?.path, origin?.line && `line ${origin.line}`].filter(Boolean).join(", ");

function shown(value) {
  if (value === null || value.length === 0) return h("span", { class: "hint" }, "none");
  return Array.isArray(value) ? value.map(inWords).join(", ") : inWords(value);
}
