"""``fleximq cluster move SHARD NODE``: another node owns a shard from now on, in an orderly way."""

from argparse import ArgumentParser, Namespace
from time import monotonic

from fleximq.cli.cluster_commands.connection import Calls, Survey, addClusterOptions, connected, settingsFrom, surveyed
from fleximq.cluster.interfaces import ClusterError, ICluster, ShardOwner
from fleximq.cluster.node_state import NodeState

#: Seconds for the new owner to serve.
_PATIENCE = 30.0


def ask(calls: Calls, cluster: ICluster, survey: Survey, node: str, command: str, to: str = "") -> None:
    """Give a node a command.

    :raises ClusterError: it does not carry it out; the text says why.
    """
    question = {"do": command, "to": to, "at": NodeState.of(survey.living[node]).at}
    error = calls.result(cluster.ask(node, question))["error"]
    if error:
        raise ClusterError(error)


def move(arguments: Namespace) -> int:
    """Carry out the command."""
    shard, node = arguments.shard, arguments.node
    with connected(settingsFrom(arguments)) as (calls, cluster):
        survey = surveyed(calls, cluster)
        former = survey.owners.get(shard)
        if former is None:
            raise ClusterError(f"there is no shard {shard}; a cluster has shard 0")
        if former.node not in survey.living:
            raise ClusterError(f"shard {shard} has no living owner that could hand it on")
        began = monotonic()
        ask(calls, cluster, survey, former.node, "move", node)

        def owner() -> ShardOwner:
            return survey.owners[shard]

        def serves() -> bool:
            record = survey.nodes.get(owner().node)
            return owner().term > former.term and record is not None and NodeState.of(record).state == "owning"

        calls.until(serves, _PATIENCE)
        if owner().node != node or not serves():
            raise ClusterError(f"shard {shard} is not owned by {node}, but by {owner().node or 'no node'}")
        print(f"{node} owns shard {shard} in term {owner().term}, {monotonic() - began:.1f} seconds after the command")
    return 0


def prepare(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("shard", metavar="SHARD", type=int, help="the number of the shard: 0")
    parser.add_argument("node", metavar="NODE", help="the node that is to own it, as status names it")
    addClusterOptions(parser)
