// One client, with the acts against it.

import { bytes, count, facts, get, h, heading, link, Page, principal, queues, section, span, table, tell } from "../page.js";
import { pace } from "./clients.js";

const HOUR = 3600;

export default class Client extends Page {
  build() {
    this.number = Number(this.segments[0]);
    this.facts = facts();
    this.state = h("span");
    this.subscriptions = table("Subscriptions", [["Topic or pattern", (row) => row]], (row) => row, "It has no subscription.");
    this.append(
      heading(`Client ${this.segments[0]}`, this.state,
        this.act("Disconnect…", "clients/disconnect", { client_id: this.number }, "It is disconnected.",
          { title: `Disconnect client ${this.number}?`, words: "It may connect again at once.", action: "Disconnect" }),
        this.button("Ban for an hour…", "bans/add", () => this.#ban())),
      h("p", {}, link("All clients", "clients"), " · ", link("Trace this client", "trace", "client", this.number)),
      this.facts, section("Subscriptions", this.subscriptions));
  }

  load() {
    return get("clients/detail", { client_id: this.number });
  }

  show(row) {
    this.row = row;
    this.state.replaceChildren(pace(row));
    tell(this.facts, [
      ["Name", row.client_name || "none"], ["Dialect", row.dialect], ["Principal", principal(row.principal)], ["Address", row.address],
      ["Connected for", span(row.connected)], ["Messages received", count(row.received_messages)], ["Messages delivered", count(row.delivered_messages)],
      ["Bytes received", bytes(row.received_bytes)], ["Bytes sent", bytes(row.sent_bytes)],
      ["Unread", `${bytes(row.unread_bytes)}${row.unread_limit ? ` of at most ${bytes(row.unread_limit)}` : ""}`],
      ["Consumes from", queues(row.queues) ?? "no queue"],
    ]);
    this.subscriptions.rows = row.subscribed ?? [];
  }

  #ban() {
    const { principal: name, address } = this.row ?? {};
    const host = (address ?? "").replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");
    this.change(
      { title: `Ban ${name ?? host}?`, words: "All its clients are disconnected and may not connect for an hour.", action: "Ban", typed: name ?? host },
      "bans/add", { ...(name ? { principal: name } : { address: host }), seconds: HOUR, reason: "by the console" }, "The ban holds for an hour.");
  }
}
