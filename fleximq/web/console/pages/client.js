// One client, with the acts against it.

import { get } from "../api.js";
import { h } from "../dom.js";
import { bytes, count, link, mark, span } from "../format.js";
import { facts, heading, Page, section, tell } from "../page.js";
import { table } from "../table.js";

const HOUR = 3600;

export default class Client extends Page {
  build() {
    this.number = Number(this.segments[0]);
    this.facts = facts();
    this.state = h("span");
    this.subscriptions = table("Subscriptions", [{ title: "Topic or pattern", show: (row) => row }], (row) => row, "It has no subscription.");
    this.append(
      heading(`Client ${this.segments[0]}`, this.state,
        this.button("Disconnect…", "clients/disconnect", () => this.change(
          { title: `Disconnect client ${this.number}?`, words: "It may connect again at once.", action: "Disconnect" },
          "clients/disconnect", { client_id: this.number }, () => "It is disconnected.")),
        this.button("Ban for an hour…", "bans/add", () => this.#ban(), "danger")),
      h("p", {}, link("All clients", "clients"), " · ", h("a", { href: `#/trace/client/${this.number}` }, "Trace this client")),
      this.facts, section("Subscriptions", this.subscriptions));
  }

  load() {
    return get("clients/detail", { client_id: this.number });
  }

  show(row) {
    this.row = row;
    this.state.replaceChildren(...(row.slow?.length ? row.slow.map((each) => mark(each, "bad")) : [mark("reads", "good")]));
    tell(this.facts, [
      ["Name", row.client_name || "none"], ["Dialect", row.dialect], ["Principal", row.principal ?? "anonymous"], ["Address", row.address],
      ["Connected for", span(row.connected)], ["Messages received", count(row.received_messages)], ["Messages delivered", count(row.delivered_messages)],
      ["Bytes received", bytes(row.received_bytes)], ["Bytes sent", bytes(row.sent_bytes)],
      ["Unread", `${bytes(row.unread_bytes)}${row.unread_limit ? ` of at most ${bytes(row.unread_limit)}` : ""}`],
      ["Consumes from", row.queues?.length ? h("span", {}, row.queues.map((each) => [link(each, "queue", each), " "])) : "no queue"],
    ]);
    this.subscriptions.rows = row.subscribed ?? [];
  }

  #ban() {
    const { principal, address } = this.row ?? {};
    const host = (address ?? "").replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");
    const whom = principal ? { principal } : { address: host };
    this.change(
      { title: `Ban ${principal ?? host}?`, words: "All its clients are disconnected and may not connect for an hour.", action: "Ban", typed: principal ?? host },
      "bans/add", { ...whom, seconds: HOUR, reason: "by the console" }, () => "The ban holds for an hour.");
  }
}
