// Connected clients, and bans.

import { get, may } from "../api.js";
import { field, h } from "../dom.js";
import { bytes, count, link, mark, rate, span, time } from "../format.js";
import { heading, Page, Paging, section } from "../page.js";
import { table } from "../table.js";

export default class Clients extends Page {
  build() {
    this.paging = new Paging("clients", this);
    const again = () => { this.paging.reset(); this.refresh(); };
    this.filter = field("contains", { type: "search", placeholder: "Part of name or address", "aria-label": "Part of name or address", oninput: again });
    this.slow = h("input", { type: "checkbox", onchange: again });
    this.rates = new Map();
    this.table = table("Clients", [
      { title: "Id", show: (row) => link(String(row.client_id), "client", row.client_id), by: (row) => row.client_id },
      { title: "Name", show: (row) => row.client_name || "–", by: (row) => row.client_name ?? "" },
      { title: "Dialect", show: (row) => row.dialect, by: (row) => row.dialect, minor: true },
      { title: "Principal", show: (row) => row.principal ?? "anonymous", by: (row) => row.principal ?? "", minor: true },
      { title: "Address", show: (row) => row.address, by: (row) => row.address, minor: true },
      { title: "Received", show: (row) => rate(this.#rateOf(row, "received_messages")), number: true },
      { title: "Delivered", show: (row) => rate(this.#rateOf(row, "delivered_messages")), number: true },
      { title: "Unread", show: (row) => bytes(row.unread_bytes), by: (row) => row.unread_bytes, number: true },
      { title: "State", show: (row) => (row.slow?.length ? h("span", {}, row.slow.map((each) => mark(each, "bad"))) : mark("reads", "good")) },
      { title: "Subscriptions", show: (row) => count(row.subscriptions), by: (row) => row.subscriptions, number: true, minor: true },
      { title: "Connected", show: (row) => span(row.connected), by: (row) => row.connected, number: true, minor: true },
    ], (row) => row.client_id, "No client is connected. Try: ", h("code", {}, "fleximq sub 'news.#'"));
    this.bans = table("Bans", [
      { title: "Principal or address", show: (row) => row.principal ?? row.address },
      { title: "Until", show: (row) => (row.until ? time(row.until) : "for ever") },
      { title: "Reason", show: (row) => row.reason || "–" },
      { title: "By", show: (row) => row.by ?? "–", minor: true },
      { title: "", mark: () => "", show: (row) => this.button("Remove", "bans/remove", () => this.change(
        { title: "Remove this ban?", words: `${row.principal ?? row.address} may connect again.`, action: "Remove" },
        "bans/remove", row.principal ? { principal: row.principal } : { address: row.address }, () => "The ban is removed.")) },
    ], (row) => `${row.principal} ${row.address}`, "Nobody is banned.");
    this.append(heading("Clients", h("label", { class: "inline" }, this.slow, "only slow ones"), this.filter), this.table, this.paging.bar);
    if (may("bans")) this.append(section("Bans", this.bans));
  }

  async load() {
    const [found, bans] = await Promise.all([
      this.paging.read({ contains: this.filter.value, slow: this.slow.checked ? "true" : undefined }),
      may("bans") ? get("bans", { limit: 100 }) : null,
    ]);
    return { found, bans };
  }

  show({ found, bans }) {
    const now = performance.now() / 1000;
    const rows = new Map(found.clients.map((row) => [row.client_id, { ...row, now }]));
    this.before = this.last ?? new Map();
    this.last = rows;
    this.table.rows = [...rows.values()];
    if (bans) this.bans.rows = bans.bans;
  }

  #rateOf(row, name) {
    const before = this.before.get(row.client_id);
    return before && row[name] !== undefined ? Math.max(0, row[name] - before[name]) / (row.now - before.now) : null;
  }
}
