"""``fleximq cluster status``: the nodes of a cluster, the owner of its shard, and its stream."""

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import median
from typing import Any, TypeVar
from urllib.request import urlopen

from twisted.internet.defer import Deferred

from fleximq.cli.cluster_commands.connection import Survey, clusterCommand, clusterNames, connected, settingsFrom
from fleximq.cli.command import argument, switch
from fleximq.cli.output import console, jsonOption, say, table
from fleximq.cluster.interfaces import AHEAD, ClusterError, StreamBounds
from fleximq.cluster.node_state import CLOSE, NodeState, differing, lackingCopies, messagesBehind, secondsBehind
from fleximq.config.option_values import formattedSize
from fleximq.config.settings import Settings
from fleximq.values.printable import jsonLine

T = TypeVar("T")

#: Seconds by which clocks may differ without a warning.
_CLOCK = 2.0
_LOSS = "a loss of power on two machines takes messages that were confirmed"
_MONITOR = "the monitoring port of a NATS server, e.g. http://10.0.0.1:8222: is sync_interval always?"


@clusterCommand(
    "status", argument("--monitor", "URL", _MONITOR, action="append"), jsonOption("one JSON object"),
    switch("--all", "all clusters on these NATS servers, not only that of --cluster-name"),
)  # fmt: skip
def status(arguments: Namespace) -> int:
    """Show nodes, owner and stream; exit code 2 after a warning."""
    settings = settingsFrom(arguments)
    names = clusterNames(settings) if arguments.all else [settings.clusterName]
    clusters = {name: look(replace(settings, clusterName=name)) for name in names}
    syncs = [synced(url) for url in arguments.monitor or ()]
    unsynced = [words for good, words in syncs if not good]
    if arguments.json:
        whole = {name: {**found, "warnings": [*found["warnings"], *unsynced]} for name, found in clusters.items()}
        print(jsonLine({"clusters": whole} if arguments.all else whole[settings.clusterName]))
    else:
        for name, found in clusters.items():
            if arguments.all:
                print(f"cluster {name}")
            show(found)
        for good, words in syncs:
            print(words) if good else say(f"warning: {words}")
    return 2 if unsynced or any(found["warnings"] for found in clusters.values()) else 0


def look(settings: Settings) -> dict[str, Any]:
    """Return the facts about a cluster, as the command prints them in JSON; raises as :func:`connected`."""
    with connected(settings, lastKnown=True) as (calls, cluster, survey):
        unknown: list[str] = []

        def known(what: str, asked: "Deferred[T]") -> T | None:
            try:
                return calls.result(asked)
            except ClusterError as error:
                unknown.append(f"{what}: the NATS servers do not answer at present ({error}); ask again")
                return None

        replicas = known("copies of the stream and of the keys", cluster.replicas(survey.owners)) or {}
        bounds = {shard: known(f"stream of shard {shard}", cluster.bounds(shard)) for shard in sorted(survey.owners)}
    found: dict[str, Any] = {"shards": [shardRow(survey, *each) for each in bounds.items()]}
    found["nodes"] = list(nodeRows(survey))
    found["isOld"] = bool(survey.unread)
    found["replicas"] = {what: each._asdict() for what, each in replicas.items()}
    found["warnings"] = [*warnings(survey, found), *unknown, *lackingCopies(replicas)]
    return found


def shardRow(survey: Survey, shard: int, bounds: StreamBounds | None) -> dict[str, Any]:
    """Return the fields of a shard; without ``bounds`` those of its stream are null."""
    owner = survey.owners[shard]
    living = owner.node in survey.living or owner.node in survey.answering
    row = {"shard": shard, "owner": owner.node, "term": owner.term, "living": living}
    return row | {name: getattr(bounds, name, None) for name in ("first", "last", "bytes", "limit")}


def nodeRows(survey: Survey, shard: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the fields of each node."""
    owner, present = survey.owners.get(shard), survey.living
    clocks = {node: ahead for node, ahead in survey.clocks.items() if node in present}
    usual = median(clocks.values()) if clocks else 0.0
    clocks = {node: round(ahead - usual, 1) for node, ahead in clocks.items()}
    owning = survey.nodes.get(owner.node) if owner is not None else None
    for node, record in sorted(survey.nodes.items()):
        about, living = NodeState.of(record), node in present or node in survey.answering
        silent = 0.0 if node in present else max(0.0, -survey.clocks.get(node, 0.0))  # it wrote its key then
        other = "unknown" if survey.unread else "silent"
        row: dict[str, Any] = {
            "node": node, "living": living, "state": about.state if living else other, "last": about.state,
            "version": about.version,
            "address": record.about.get("forward", {}).get("host"), "reason": about.reason,
            "missing": about.missing, "lost": about.lost, "speed": about.speed, "clock": clocks.get(node, 0.0),
            "silent": silent,
        }  # fmt: skip
        if owning is not None and owning is not record:
            row["behind"] = messagesBehind(shard, record, owning)
            row["seconds"] = secondsBehind(record, owning) if row["behind"] else 0.0
            row["differs"] = list(differing(record, owning))
        row["ahead"] = record.applied.get(shard) == AHEAD
        yield row


def warnings(survey: Survey, found: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each thing that needs an operator."""
    if survey.unread:
        ages = [row["silent"] for row in found["nodes"]]
        old = f"the last are {min(ages):,.0f} seconds old" if ages else "no server gives its copy of them"
        yield f"the keys of the nodes cannot be read, {old}: {survey.unread}"
    for row in found["shards"]:
        shard = row["shard"]
        if survey.unread:
            yield f"it is not known whether shard {shard} has an owner; the last known is {row['owner'] or 'none'}"
        elif not row["living"]:
            yield f"shard {shard} has no living owner" + (f"; the last was {row['owner']}" if row["owner"] else "")
        if why := survey.setBack(shard, row["last"]):
            yield why
        if row["limit"] and row["bytes"] > 0.8 * row["limit"]:
            yield f"the stream of shard {shard} is almost full: more --retention, or a larger limit, is needed"
    if not found["nodes"] and not survey.unread:
        yield "no node has joined this cluster yet"
    for row in found["nodes"]:
        node = row["node"]
        if row["state"] == "unknown":
            yield f"{node} does not answer; its state of {row['silent']:,.0f} seconds ago is {row['last']}"
        elif not row["living"]:
            since = f" for {row['silent']:,.0f} seconds" if row["silent"] else ""
            words = f"its broker does not run, or is cut off; cluster forget {node} removes it for good"
            yield f"{node} is silent{since}: {words}"
        elif row["silent"] and not survey.unread:
            yield f"{node} runs, but has not written its key for {row['silent']:,.0f} seconds"
        elif row["ahead"]:
            yield f"the stream has less than the copy of {node}, so no node may own the shard; see cluster refill"
        elif row["reason"]:
            yield f"{node} does not follow: {row['reason']}"
        elif row["missing"]:
            yield f"{node} does not take the shard: {row['missing']}; see cluster refill"
        if row["lost"]:
            yield (
                f"the stream has lost {row['lost']:,} messages, which {node} has: files of a NATS server are damaged; "
                "cluster refill 0 --from NODE, with a follower, writes all of it again"
            )
        if abs(row["clock"]) > _CLOCK:
            words = "ahead of" if row["clock"] > 0 else "behind"
            yield f"the clock of {node} is {abs(row['clock']):,.0f} seconds {words} the others"
        if row.get("differs"):
            yield f"{node} has other settings than the owner: {', '.join(row['differs'])}"


def synced(url: str) -> tuple[bool, str]:
    """Ask a server's monitoring port whether each write is synced; raises ClusterError if there is none."""
    if not url.startswith(("http://", "https://")):
        raise ClusterError(f"monitor is {url!r}, but must be like http://10.0.0.1:8222")
    try:
        with urlopen(f"{url.rstrip('/')}/varz", timeout=5) as answer:
            config = json.load(answer)["jetstream"]["config"]
        always, seconds = config.get("sync_always"), config.get("sync_interval", 0) / 1e9
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ClusterError(f"{url} is not the monitoring port of a NATS server with JetStream: {error}") from error
    words = "always" if always else f"{seconds:g} seconds, not always: {_LOSS}"
    return bool(always), f"{url}: sync_interval is {words}"


def show(found: Mapping[str, Any]) -> None:
    """Print it for people."""
    for row in found["shards"]:
        owner = f"{row['owner']} in term {row['term']}" if row["owner"] else "no node"
        print(f"shard {row['shard']} {'was' if found['isOld'] else 'is'} owned by {owner}")
        if row["last"] is None:
            continue
        part = f" of {formattedSize(row['limit'])} ({row['bytes'] / row['limit']:.0%})" if row["limit"] else ""
        print(f"its stream has messages {row['first']:,} to {row['last']:,}, {row['bytes']:,} bytes{part}")
    rows = []
    for row in found["nodes"]:
        seconds = None if row.get("behind") is None else round(row["seconds"], 1)
        state = f"{row['last']} {row['silent']:,.0f} s ago" if row["state"] == "unknown" else row["state"]
        rows.append((row["node"], state, row["version"], row.get("behind"), seconds, row["address"]))
    if rows:
        console().print(table(("node", "state", "version", "behind", "seconds", "address"), rows, expand=False))
    for row in found["nodes"]:
        if (row.get("seconds") or 0) > CLOSE and row["speed"]:
            left = row["behind"] / row["speed"]
            print(f"{row['node']} reads {row['speed']:,.0f} messages of the stream a second: {left:,.0f} seconds more")
    for words in found["warnings"]:
        say(f"warning: {words}")
