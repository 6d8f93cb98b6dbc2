// The nodes of the cluster, its owner, and who lags behind.

import { count, facts, get, h, heading, inWords, mark, Page, section, span, table, tell, verdict } from "../page.js";

export default class Cluster extends Page {
  build() {
    this.facts = facts();
    this.none = h("p", { class: "empty" }, "This broker is not a node of a cluster. See ", h("code", {}, "fleximq broker --help"), ", --cluster.");
    this.nodes = table("Nodes", [
      ["Node", "node"],
      ["State", (row) => verdict(!row.reason && !row.missing, row.state)],
      ["Address", "address", null, "minor"],
      ["Behind by", (row) => (row.behind === null ? "–" : `${count(row.behind)} messages, ${span(row.seconds)}`), null, "number"],
      ["Missing", "missing", (missing) => (missing ? inWords(missing) : "nothing"), "minor"],
      ["Remarks", (row) => [row.reason, row.lost && `lost: ${inWords(row.lost)}`, row.differs.length && `settings differ: ${row.differs.join(", ")}`].filter(Boolean).join("; ") || "–"],
      ["Version", "version", null, "minor"],
    ], "node", "No node is known yet.");
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
      ["Missing", cluster.missing && inWords(cluster.missing)], ["Mesh", cluster.mesh === null ? "no" : cluster.mesh.join(", ") || "no other node"],
    ]);
    this.nodes.rows = cluster.nodes;
  }
}
