// The nodes of the cluster, its owner, and who lags behind.

import { get } from "../api.js";
import { h } from "../dom.js";
import { count, mark, span } from "../format.js";
import { facts, heading, Page, section, tell } from "../page.js";
import { table } from "../table.js";

export default class Cluster extends Page {
  build() {
    this.facts = facts();
    this.none = h("p", { class: "empty" }, "This broker is not a node of a cluster. See ", h("code", {}, "fleximq broker --help"), ", --cluster.");
    this.nodes = table("Nodes", [
      { title: "Node", show: (row) => row.node, by: (row) => row.node },
      { title: "State", show: (row) => mark(row.state, row.reason || row.missing ? "bad" : "good"), by: (row) => row.state },
      { title: "Address", show: (row) => row.address ?? "–", minor: true },
      { title: "Behind by", show: (row) => (row.behind === null ? "–" : `${count(row.behind)} messages, ${span(row.seconds)}`), by: (row) => row.behind, number: true },
      { title: "Missing", show: (row) => (row.missing ? JSON.stringify(row.missing) : "nothing"), minor: true },
      { title: "Remarks", show: (row) => [row.reason, row.lost && `lost: ${JSON.stringify(row.lost)}`, row.differs.length && `settings differ: ${row.differs.join(", ")}`].filter(Boolean).join("; ") || "–" },
      { title: "Version", show: (row) => row.version, minor: true },
    ], (row) => row.node, "No node is known yet.");
    this.section = section("Nodes", this.nodes);
    this.append(heading("Cluster"), this.facts, this.none, this.section);
  }

  load() {
    return get("cluster");
  }

  show({ cluster }) {
    this.none.hidden = Boolean(cluster);
    this.section.hidden = this.facts.hidden = !cluster;
    if (!cluster) return;
    tell(this.facts, [
      ["This node", cluster.node], ["Its state", cluster.state], ["Serves clients", cluster.serving ? "yes" : "no, it forwards them"],
      ["Owner", cluster.owner ?? mark("none", "bad")], ["Term", count(cluster.term)], ["Changes of the owner", count(cluster.changes)],
      ["Missing", cluster.missing ? JSON.stringify(cluster.missing) : null], ["Mesh", cluster.mesh === null ? "no" : cluster.mesh.join(", ") || "no other node"],
    ]);
    this.nodes.rows = cluster.nodes;
  }
}
