"""The state that a node writes into its key, and the overview of all nodes for operators (/guides/cluster)."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from fleximq.cluster.interfaces import AHEAD, NodeRecord, Replicas, ShardOwner

#: A request of an operator is carried out within so many seconds, by the clock of the node that carries it out.
YOUNG = 5.0
#: Maximum lag in seconds of the copy of a node to which an operator moves the shard.
CLOSE = 2.0


class NodeState(NamedTuple):
    """Keys of ``NodeRecord.about``. ``at`` are seconds of the node's own clock, ``end`` and ``time`` are those of its
    copy; ``settings`` has by name a check sum of each setting that a takeover must not change, ``missing`` says which
    nodes may have messages that this one lacks, while it waits for them; ``lost`` is the number of messages that an
    owner cannot read in the stream, although it has them; ``speed`` that of those which the copy got in a second;
    ``clock`` is the time of day, in seconds since 1970, for comparison only.
    """

    version: str
    state: str
    at: float
    end: int
    time: int
    settings: Mapping[str, str]
    reason: str = ""
    missing: str = ""
    lost: int = 0
    speed: float = 0.0
    clock: float = 0.0

    @classmethod
    def of(cls, record: NodeRecord) -> "NodeState":
        """Read a key; one of another version may lack some."""
        empty: dict[str, Any] = {"version": "?", "state": "?", "at": 0.0, "end": 0, "time": 0, "settings": {}}
        return cls(**{name: record.about.get(name, value) for name, value in (empty | cls._field_defaults).items()})


def timeLeft(behind: int, node: NodeRecord) -> str:
    """Return an estimate of when a copy that lacks so many messages has them; "" if there is none."""
    speed = NodeState.of(node).speed
    return f", reads {speed:,.0f} a second and has the rest in {behind / speed:,.0f} seconds" if speed else ""


def checkSums(settings: Mapping[str, object]) -> dict[str, str]:
    """Return a check sum of each setting; the order of patterns does not count."""

    def text(value: object) -> str:
        return repr(sorted(value) if isinstance(value, list | tuple) else value)

    return {name: f"{crc32(text(value).encode()):08x}" for name, value in settings.items()}


def differing(node: NodeRecord, owner: NodeRecord) -> Sequence[str]:
    """Return the names of the settings that a node has other than the owner."""
    own, others = NodeState.of(node).settings, NodeState.of(owner).settings
    return [name for name in own if name in others and own[name] != others[name]]


def lackingCopies(replicas: Mapping[str, Replicas]) -> Sequence[str]:
    """Return a sentence for each stream of which servers lack copies: a further failure may stop the cluster."""
    return [
        f"{what} has {each.current} of {each.wanted} copies on the NATS servers"
        + (f", since it was made with {each.made}" if each.made < each.wanted else ", the others are missing or behind")
        for what, each in replicas.items()
        if each.current < each.wanted
    ]


def secondsBehind(node: NodeRecord, owner: NodeRecord) -> float:
    """Return the seconds between the last frames of two copies; the owner's time is that of the frames."""
    return max(0, NodeState.of(owner).time - NodeState.of(node).time) / 1e6


def messagesBehind(shard: int, node: NodeRecord, owner: NodeRecord) -> int | None:
    """Return how many messages of the stream a copy lacks; None if it cannot be used, or that of the owner."""
    own, others = node.applied.get(shard), owner.applied.get(shard)
    return None if own in (None, AHEAD) or others in (None, AHEAD) else max(0, others - own)


def whyNotTo(shard: int, target: str, owner: ShardOwner, living: Mapping[str, NodeRecord]) -> str:
    """Return why a node cannot take the shard from its owner, "" if it can; ``living`` nodes are not silent."""
    if target == owner.node:
        return f"{target} owns shard {shard} already"
    if target not in living:
        return f"there is no living node named {target}; these are: {', '.join(sorted(living)) or 'none'}"
    if owner.node not in living:
        return f"shard {shard} has no living owner"
    behind = messagesBehind(shard, living[target], living[owner.node])
    if behind is None:
        return f"the copy of {target} cannot be used: {NodeState.of(living[target]).reason or 'it is being read'}"
    if behind and (seconds := secondsBehind(living[target], living[owner.node])) > CLOSE:
        left = timeLeft(behind, living[target])
        return f"the copy of {target} is {behind} messages of the stream, {seconds:.0f} seconds, behind{left}"
    return ""
