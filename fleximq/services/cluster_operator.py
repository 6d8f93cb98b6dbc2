"""What a node of a cluster does for operators: its key says how it is, and it carries out their commands
(/guides/cluster, Operating).
"""

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from fleximq import __version__
from fleximq.cluster.copy import Copy
from fleximq.cluster.follower import Follower
from fleximq.cluster.node_state import YOUNG, NodeState, checkSums, differing, whyNotTo
from fleximq.cluster.ownership import Ownership, State
from fleximq.config.settings import Settings

_log = Logger()


def settingsThatLast(settings: Settings) -> Mapping[str, str]:
    """Return check sums of the settings that a takeover must not change."""
    names = "durable", "retain", "retention", "message-ttl", "redelivery"
    values = settings.durable, settings.retain, settings.retention, settings.messageTtl, settings.redelivery
    return checkSums(dict(zip(names, values, strict=True)))


class ClusterOperator:
    """The commands and the key of one node.

    :param move: called with the node that is to own the shard after this one.
    """

    def __init__(
        self,
        clock: IReactorTime,
        node: str,
        shard: int,
        copy: Copy,
        settings: Mapping[str, str],
        move: Callable[[str], None],
    ) -> None:
        self._clock = clock
        self._node = node
        self._shard = shard
        self._copy = copy
        self._settings = settings
        self._move = move
        self._told: dict[str, tuple[str, list[str]]] = {}

    def begin(self, ownership: Ownership, follower: Follower) -> None:
        """Speak for these from now on."""
        self._ownership = ownership
        self._follower = follower
        ownership.observers.append(self._compare)

    def about(self) -> Mapping[str, Any]:
        """Return what this node's key says."""
        state = self._ownership.state
        reason = self._follower.reason if state is State.FOLLOWING else ""
        at, copy = self._clock.seconds(), self._copy
        return NodeState(__version__, state.name.lower(), at, copy.end, copy.time, self._settings, reason)._asdict()

    def asked(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Carry out a command; the answer has ``error``, "" if it is carried out."""
        try:
            error = self._why(question["do"], question.get("to", ""), float(question["at"]))
        except (KeyError, TypeError, ValueError):
            error = "the command cannot be understood"
        return {"error": error}

    def _why(self, command: str, to: str, at: float) -> str:
        """Carry out a command, or return why not.

        :param at: seconds of this node's clock, as its key had them when the command was given.
        """
        if abs(self._clock.seconds() - at) > YOUNG:
            return f"the command is older than {YOUNG:.0f} seconds"
        if command != "move":
            return f"{self._node} does not know the command {command}"
        if self._ownership.state is not State.OWNING:
            return f"{self._node} does not own shard {self._shard}"
        why = whyNotTo(self._shard, to, self._ownership.owner, self._ownership.living())
        if not why:
            self._move(to)
        return why

    def _compare(self) -> None:
        """Log who has other settings than the owner, once for each change."""
        living = self._ownership.living()
        owner = self._ownership.owner.node
        if owner in living:
            for node, record in living.items():
                names = list(differing(record, living[owner]))
                if self._told.get(node, (owner, [])) != (owner, names) and names:
                    _log.warn(
                        "{node} has other settings than {owner}, which owns shard {shard}: {names}; they would change "
                        "with the owner",
                        node=node, owner=owner, shard=self._shard, names=", ".join(names),
                    )  # fmt: skip
                self._told[node] = owner, names
