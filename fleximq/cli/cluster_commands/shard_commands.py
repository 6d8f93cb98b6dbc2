"""``fleximq cluster move`` gives a shard another owner; ``refill`` and ``adopt`` fill its stream, ``forget`` removes a
node.
"""

import os
import secrets
import time
from argparse import Namespace
from collections.abc import Callable
from threading import Timer
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred

from fleximq.cli.cluster_commands.connection import Calls, Survey, clusterCommand, connected, settingsFrom
from fleximq.cli.command import argument, switch
from fleximq.cluster.interfaces import AHEAD, ELECTION, ClusterError, ICluster
from fleximq.cluster.node_state import NodeState
from fleximq.cluster.refill import refill as refilled
from fleximq.cluster.stream_log import StreamLog
from fleximq.cluster.stream_replica import StreamReplica
from fleximq.errors import JournalError
from fleximq.journal.files.file_system import Files
from fleximq.journal.files.folder_files import IDENTITY, Lock
from fleximq.journal.files.folder_survey import Finding, FolderSurvey

_PATIENCE, _LONGEST = 30.0, 86_400.0  #: Seconds for a new owner to serve, and those that the largest copies may take.
_WAYS = (
    "; start missing nodes; or, if they are lost or this cluster has fewer, use --new; --from NODE replaces what the"
    " stream has by a copy, --to NODE gives a copy up"
)
_SHARD = argument("shard", "SHARD", "the number of the shard: 0", type=int)


def _ask(calls: Calls, cluster: ICluster, survey: Survey, node: str, command: str, to: str = "") -> None:
    """Give a node a command; raises ClusterError with the reason if it does not carry it out."""
    question = {"do": command, "to": to, "at": NodeState.of(survey.living[node]).at}
    error = calls.result(cluster.ask(node, question))["error"]
    if error:
        raise ClusterError(error)


@clusterCommand("move", _SHARD, argument("node", "NODE", "the node that is to own it, as status names it"))
def move(arguments: Namespace) -> None:
    """Hand a shard to another node."""
    shard, node = arguments.shard, arguments.node
    with connected(settingsFrom(arguments)) as (calls, cluster, survey):
        if shard not in survey.owners:
            raise ClusterError(f"there is no shard {shard}; a cluster has shard 0")
        # An owner that lost its NATS server connects to another, or another node takes over.
        calls.until(lambda: survey.owners[shard].node in survey.living, ELECTION)
        former = survey.owners[shard]
        if former.node not in survey.living:
            raise ClusterError(f"shard {shard} has no living owner that could hand it on")
        began = time.monotonic()
        _ask(calls, cluster, survey, former.node, "move", node)

        def serves() -> bool:
            owner = survey.owners[shard]
            record = survey.nodes.get(owner.node)
            return owner.term > former.term and record is not None and NodeState.of(record).state == "owning"

        calls.until(serves, _PATIENCE)
        owner = survey.owners[shard]
        if owner.node != node or not serves():
            raise ClusterError(f"shard {shard} is not owned by {node}, but by {owner.node or 'no node'}")
        print(
            f"{node} owns shard {shard} in term {owner.term}, {time.monotonic() - began:.1f} seconds after the command"
        )


@clusterCommand("forget", argument("node", "NODE", "the node that will not run any more, as status names it"))
def forget(arguments: Namespace) -> None:
    """Remove a node for good, whose broker does not run any more."""
    node = arguments.node
    with connected(settingsFrom(arguments)) as (calls, cluster, survey):
        if node not in survey.nodes:
            names = ", ".join(sorted(survey.nodes)) or "none"
            raise ClusterError(f"there is no node named {node}; these are: {names}")
        if node in survey.living or node in survey.answering:
            raise ClusterError(f"{node} runs; stop its broker first")
        if NodeState.of(survey.nodes[node]).end > max(
            (NodeState.of(each).end for each in survey.living.values()), default=0
        ):
            raise ClusterError(f"the copy of {node} has more than those of the nodes that run, which wait for it")
        calls.result(cluster.forget(node))
        print(f"{node} is forgotten")


@clusterCommand(
    "refill", _SHARD,
    argument("--from", "NODE", "replace the content of the stream by the copy of this node", dest="source"),
    argument("--to", "NODE", "rename the files of this node's copy, so that it fetches another", dest="target"),
    switch("--new", "no missing node has more than the living ones"),
)  # fmt: skip
def refill(arguments: Namespace) -> None:
    """Fill an older stream from the longest copy, or say which copy is right."""
    shard, source, target = arguments.shard, arguments.source, arguments.target
    if (source is not None) + (target is not None) + arguments.new > 1:
        raise ClusterError("only one of --from, --to and --new can be used")
    with connected(settingsFrom(arguments)) as (calls, cluster, survey):
        # A node that lost its NATS server connects to another; --new needs the longest of all copies.
        wanted = set(survey.nodes) if arguments.new else {source, target}
        calls.until(lambda: wanted.isdisjoint(survey.silent), ELECTION)
        for node in filter(None, (source, target)):
            if node not in survey.living:
                raise ClusterError(f"there is no living node named {node}; these are: {', '.join(survey.living)}")
        if target is not None:
            _ask(calls, cluster, survey, target, "discard")
            print(f"{target} renames its files to *.aside, ends, and fetches the stream when it is started again")
        elif arguments.new:
            _begin(calls, cluster, survey, shard)
        else:
            _refill(calls, cluster, survey, shard, source)


def _begin(calls: Calls, cluster: ICluster, survey: Survey, shard: int) -> None:
    usable = {node: record.applied[shard] for node, record in survey.living.items() if shard in record.applied}
    if not usable or AHEAD in usable.values():
        raise ClusterError(f"the stream of shard {shard} has less than a copy, or no copy can be used; see status")
    longest = max(usable, key=lambda node: NodeState.of(survey.living[node]).end)
    _ask(calls, cluster, survey, longest, "complete")
    print(f"{longest} may own shard {shard}, with all that its copy has; it will within seconds")


def _refill(calls: Calls, cluster: ICluster, survey: Survey, shard: int, source: str | None) -> None:
    def ahead() -> list[str]:
        return [node for node, record in survey.living.items() if record.applied.get(shard) == AHEAD]

    if source is None and not ahead():
        if why := survey.setBack(shard, calls.result(cluster.bounds(shard)).last):
            raise ClusterError(why)
        states = {node: NodeState.of(record) for node, record in survey.living.items()}
        reasons = {node: each.reason or each.missing for node, each in states.items()}
        why = "".join(f"; {node}: {reason}" for node, reason in reasons.items() if reason)
        raise ClusterError(f"no living node has more of shard {shard} than its stream{why}{_WAYS if why else ''}")
    node = source or max(ahead(), key=lambda node: NodeState.of(survey.living[node]).end)
    _ask(calls, cluster, survey, node, "refill" if source is None else "replace")
    print(f"{node} brings its copy back into the stream of shard {shard}", flush=True)

    def state() -> tuple[int | None, str]:
        return survey.nodes[node].applied.get(shard), NodeState.of(survey.nodes[node]).reason

    def isOver() -> bool:
        applied, reason = state()
        return reason.startswith("refilling failed") or applied not in (None, AHEAD)

    # The first key after the command may be older than it.
    seen = survey.changes[node] + 1
    calls.until(lambda: survey.changes[node] > seen and isOver(), _LONGEST)
    if state()[1].startswith("refilling failed"):
        raise ClusterError(f"{state()[1]}; if that stream is not the right one, --from {node} replaces its content")
    print(f"the stream of shard {shard} has all of it; {afterRefill(survey, node, shard)}")


def afterRefill(survey: Survey, source: str, shard: int) -> str:
    """Return what follows after the copy of a node was written to the stream."""
    ends = {node: NodeState.of(record).end for node, record in survey.living.items()}
    longer = [node for node in sorted(ends) if ends[node] > ends.get(source, 0)]
    if not longer:
        return "a node will own it within seconds"
    return (
        f"but the copy of {' and '.join(longer)} has more, so no node may own the shard: cluster refill {shard} "
        f"appends that, and refill {shard} --to {longer[0]} gives it up"
    )


@clusterCommand("adopt", argument("folder", "FOLDER", "the folder of the journal of a broker that is stopped"))
def adopt(arguments: Namespace) -> None:
    """Fill a new cluster from the journal of a broker."""
    settings = settingsFrom(arguments)
    copy = _opened(arguments.folder)
    try:
        with connected(settings, create=True) as (calls, cluster, survey):
            if survey.living:
                raise ClusterError("brokers of this cluster are running: stop them first")
            if calls.result(cluster.bounds(0)).last:
                raise ClusterError("the stream of shard 0 is not empty: only a new cluster can adopt a journal")

            def callLater(delay: float, call: Callable[..., object], *arguments: Any) -> Timer:
                timer = Timer(delay, calls.add, (call, *arguments))
                timer.daemon = True
                timer.start()
                return timer

            clock: Any = SimpleNamespace(seconds=time.monotonic, callLater=callLater)
            log = StreamLog(
                cluster, 0, copy, node="", term=0, journal=copy.journal, clock=clock,
                now=lambda: 0, randomId=lambda: secrets.randbits(64),
            )  # fmt: skip
            number = calls.result(Deferred.fromCoroutine(refilled(cluster, 0, copy, log)), _LONGEST)
    finally:
        copy.close()
    print(f"the cluster has the journal {copy.journal} with {number} bytes and {copy.next - 1} as its last offset")
    print("start the brokers with empty folders; they fetch it")


def _opened(folder: str) -> StreamReplica:
    """Lock and check a folder; raises JournalError if it is in use, damaged, or not the folder of a journal."""
    files = Files()
    if not os.path.exists(f"{folder}/{IDENTITY}"):
        raise JournalError(f"{folder} is not the folder of a journal")
    lock = Lock(files, folder)
    try:
        found = next((each for each in FolderSurvey(files, folder).check() if isinstance(each, Finding)), None)
    finally:
        lock.release()
    if found is not None:
        raise JournalError(f"{folder} is damaged; start its broker and stop it in order, or see fleximq journal check")
    copy = StreamReplica(files, folder, 0)
    copy.open()
    return copy
