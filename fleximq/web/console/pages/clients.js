// Connected clients, and bans.

import { bytes, count, get, h, heading, linked, mark, may, Page, Paging, principal, rate, section, span, table, time } from "../page.js";

/** What holds up a client, as marks. */
export const pace = ({ slow }) => (slow?.length ? h("span", {}, slow.map((each) => mark(each, "bad"))) : mark("reads", "good"));

export default class Clients extends Page {
  build() {
    this.paging = new Paging("clients", this, "Part of name or address");
    this.slow = h("input", { type: "checkbox", onchange: this.paging.again });
    this.table = table("Clients", [
      ["Id", "client_id", linked("client")],
      ["Name", "client_name", (name) => name || "–"],
      ["Dialect", "dialect", null, "minor"],
      ["Principal", "principal", principal, "minor"],
      ["Address", "address", null, "minor"],
      ["Received", (row) => rate(this.#rateOf(row, "received_messages")), null, "number"],
      ["Delivered", (row) => rate(this.#rateOf(row, "delivered_messages")), null, "number"],
      ["Unread", "unread_bytes", bytes, "number"],
      ["State", pace],
      ["Subscriptions", "subscriptions", count, "number minor"],
      ["Connected", "connected", span, "number minor"],
    ], "client_id", "No client is connected. Try: ", h("code", {}, "fleximq sub 'news.#'"));
    const whom = (row) => (row.principal ? { principal: row.principal } : { address: row.address });
    this.bans = table("Bans", [
      ["Principal or address", (row) => row.principal ?? row.address],
      ["Until", "until", (until) => (until ? time(until) : "for ever")],
      ["Reason", "reason"],
      ["By", "by", null, "minor"],
      ["", (row) => this.act("Remove", "bans/remove", whom(row), "The ban is removed.",
        { title: "Remove this ban?", words: `${row.principal ?? row.address} may connect again.`, action: "Remove" })],
    ], (row) => `${row.principal} ${row.address}`, "Nobody is banned.");
    this.append(heading("Clients", h("label", { class: "inline" }, this.slow, "only slow ones"), this.paging.filter), this.table, this.paging.bar);
    if (may("bans")) this.append(section("Bans", this.bans));
  }

  load() {
    return Promise.all([this.paging.read({ slow: this.slow.checked || null }), may("bans") ? get("bans", { limit: 100 }) : { bans: [] }]);
  }

  show([{ clients }, { bans }]) {
    const now = performance.now() / 1000;
    this.before = this.last ?? new Map();
    this.last = new Map(clients.map((row) => [row.client_id, { ...row, now }]));
    this.table.rows = [...this.last.values()];
    this.bans.rows = bans;
  }

  #rateOf(row, name) {
    const before = this.before.get(row.client_id);
    return before && row[name] !== undefined ? Math.max(0, row[name] - before[name]) / (row.now - before.now) : null;
  }
}
