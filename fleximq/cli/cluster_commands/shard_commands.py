"""``fleximq cluster move`` gives a shard another owner; ``refill`` and ``adopt`` fill its stream."""

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
from fleximq.cli.command import argument
from fleximq.cluster.copy import Copy
from fleximq.cluster.interfaces import AHEAD, ClusterError, ICluster
from fleximq.cluster.node_state import NodeState
from fleximq.cluster.refill import refill as refilled
from fleximq.cluster.stream_log import StreamLog
from fleximq.errors import JournalError
from fleximq.journal.files.file_system import Files
from fleximq.journal.files.folder_files import IDENTITY, Lock
from fleximq.journal.files.folder_survey import Finding, FolderSurvey

_PATIENCE, _LONGEST = 30.0, 86_400.0  #: Seconds for a new owner to serve, and those that the largest copies may take.
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
        former = survey.owners.get(shard)
        if former is None:
            raise ClusterError(f"there is no shard {shard}; a cluster has shard 0")
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


@clusterCommand("refill", _SHARD)
def refill(arguments: Namespace) -> None:
    """Fill an older stream from the longest copy."""
    shard = arguments.shard
    with connected(settingsFrom(arguments)) as (calls, cluster, survey):

        def ahead() -> list[str]:
            return [node for node, record in survey.living.items() if record.applied.get(shard) == AHEAD]

        if not ahead():
            raise ClusterError(f"no living node has more of shard {shard} than its stream")
        longest = max(ahead(), key=lambda node: NodeState.of(survey.living[node]).end)
        _ask(calls, cluster, survey, longest, "refill")
        print(f"{longest} brings its copy back into the stream of shard {shard}", flush=True)

        def failure() -> str:
            reason = NodeState.of(survey.nodes[longest]).reason
            return reason if reason.startswith("refilling failed") else ""

        # The first key after the command may be older than it.
        seen = survey.changes[longest] + 1
        calls.until(lambda: survey.changes[longest] > seen and (failure() or not ahead()), _LONGEST)
        if failure():
            raise ClusterError(failure())
        print(f"the stream of shard {shard} has all of it; a node will own it within seconds")


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


def _opened(folder: str) -> Copy:
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
    copy = Copy(files, folder, 0)
    copy.open()
    return copy
