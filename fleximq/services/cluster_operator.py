"""A node of a cluster for operators: its key shows its state, and it executes commands (/guides/cluster, Operating)."""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from fleximq import __version__
from fleximq.cluster.follower import Follower
from fleximq.cluster.interfaces import AHEAD, NodeRecord, Replicas, ShardOwner
from fleximq.cluster.node_state import (
    YOUNG,
    NodeState,
    checkSums,
    differing,
    lackingCopies,
    messagesBehind,
    secondsBehind,
    whyNotTo,
)
from fleximq.cluster.ownership import Ownership, State
from fleximq.cluster.stream_replica import StreamReplica
from fleximq.config.settings import Settings

_log = Logger()

#: An owner is ready for so many seconds after its last append.
FRESH = 5.0
#: The speed of a copy is that of so many beats.
_STEPS = 6
#: Seconds between two looks at whether an append was accepted.
_LOOK = 0.05


def settingsThatLast(settings: Settings) -> Mapping[str, str]:
    """Return check sums of the settings that a takeover must not change."""
    names = "durable", "retain", "retention", "message-ttl", "redelivery"
    values = settings.durable, settings.retain, settings.retention, settings.messageTtl, settings.redelivery
    return checkSums(dict(zip(names, values, strict=True)))


@dataclass(eq=False, repr=False)
class ClusterOperator:
    """The commands and the key of one node. ``move`` hands the shard to a node. ``refill`` appends to the stream what
    it lacks of this copy, or for True empties it before. ``setAside`` gives this copy up, and ends the process.
    """

    _clock: IReactorTime
    _node: str
    _shard: int
    _copy: StreamReplica
    _settings: Mapping[str, str]
    _move: Callable[[str], None]
    _refill: Callable[[bool], None]
    _setAside: Callable[[], None]
    _timeOfDay: Callable[[], float] = time.time
    #: Why the last command failed after it was accepted.
    failure = ""
    #: How many messages of the stream an owner cannot read.
    lost = 0
    _told: dict[str, tuple[str, list[str]]] = field(default_factory=dict, init=False)
    _changes = 0

    def __post_init__(self) -> None:
        self._steps: deque[tuple[float, int]] = deque(maxlen=_STEPS)
        self._owner = ShardOwner()
        #: The copies that the NATS servers have of the streams, when they were last asked.
        self.replicas: Mapping[str, Replicas] = {}
        #: When the last append was sent that the stream has accepted, by this node's clock.
        self.appended = -math.inf

    def begin(self, ownership: Ownership, follower: Follower) -> None:
        """Speak for these from now on."""
        self._ownership = ownership
        self._follower = follower
        ownership.observers.append(self._compare)

    def about(self) -> Mapping[str, Any]:
        """Return what this node's key says."""
        state = self._ownership.state
        reason = self.failure or self._follower.reason if state is State.FOLLOWING else ""
        at, copy = self._clock.seconds(), self._copy
        self._steps.append((at, copy.sequence))
        began, sequence = self._steps[0]
        return NodeState(
            __version__, state.name.lower(), at, copy.end, copy.time, self._settings, reason, self.missing, self.lost,
            max(0, copy.sequence - sequence) / max(1.0, at - began), self._timeOfDay(),
        )._asdict()  # fmt: skip

    def overview(self) -> dict[str, Any]:
        """Return the shard's owner and term, how often it changed since this node started, and a row of each living
        node.
        """
        owner, living = self._ownership.owner, self._ownership.living()
        return {
            "node": self._node,
            "state": self._ownership.state.name.lower(),
            "owner": owner.node or None,
            "term": owner.term,
            "changes": self._changes,
            "missing": self.missing,
            "nodes": [self._row(node, living[node], living.get(owner.node)) for node in sorted(living)],
        }

    def _row(self, node: str, record: NodeRecord, owner: NodeRecord | None) -> dict[str, Any]:
        about = NodeState.of(record)
        isFollower = owner is not None and owner is not record
        behind = messagesBehind(self._shard, record, owner) if owner is not None and isFollower else None
        return {
            "node": node,
            "state": about.state,
            "version": about.version,
            "address": record.about.get("forward", {}).get("host"),
            "reason": about.reason,
            "missing": about.missing,
            "lost": about.lost,
            "behind": behind,
            "seconds": secondsBehind(record, owner) if owner is not None and behind else 0.0,
            "differs": list(differing(record, owner)) if owner is not None and isFollower else [],
        }

    @property
    def missing(self) -> str:
        """Which nodes may have messages that this one lacks, while it waits for them to own the shard; "" if none."""
        ownership = self._ownership
        isWaiting = ownership.state is State.FOLLOWING and ownership.owner.node not in ownership.living()
        return ownership.missing() if isWaiting else ""

    def asked(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Carry out a command; the answer has ``error``, "" if it is carried out. The answer to ``state`` has
        the content of the node's key, which cannot be written while NATS servers elect leaders.
        """
        if question.get("do") == "state":
            record = self._ownership.record()
            return {"error": "", "applied": dict(record.applied), "about": dict(record.about)}
        try:
            error = self._why(question["do"], question.get("to", ""), float(question["at"]))
        except (KeyError, TypeError, ValueError):
            error = "the command cannot be understood"
        return {"error": error}

    def _why(self, command: str, to: str, at: float) -> str:
        """Carry out a command, or return why not. ``at``: the time in this node's key when the command was given."""
        if abs(self._clock.seconds() - at) > YOUNG:
            return f"the command is older than {YOUNG:.0f} seconds"
        if command in _FILLING:
            return _FILLING[command](self)
        if command != "move":
            return f"{self._node} does not know the command {command}"
        if self._ownership.state is not State.OWNING:
            return f"{self._node} does not own shard {self._shard}"
        why = whyNotTo(self._shard, to, self._ownership.owner, self._ownership.living())
        if not why:
            self._move(to)
        return why

    def _fill(self) -> str:
        node, owner, applied = self._node, self._ownership.owner.node, self._follower.applied
        why, record = self._follower.reason, self._ownership.living().get(owner)
        if applied == AHEAD and record is not None and NodeState.of(record).state == "owning":
            why = f"{owner} owns shard {self._shard} and appends to its stream"
        elif applied == AHEAD:
            return self._beginRefill(False)
        if not why:
            return f"the stream has all of the copy of {node}"
        return f"{why}; --from {node} replaces what the stream has by the copy of {node}, --to {node} gives it up"

    def _beginRefill(self, replace: bool) -> str:
        self.failure = ""
        self._refill(replace)
        return ""

    def _replace(self) -> str:
        if self._ownership.state is not State.FOLLOWING:
            return f"{self._node} owns shard {self._shard}; name a node that follows"
        return self._beginRefill(True)

    def _discard(self) -> str:
        if self._ownership.state is not State.FOLLOWING or self._ownership.owner.node == self._node:
            return f"{self._node} owns shard {self._shard}, so its copy is needed"
        self._setAside()
        return ""

    def _complete(self) -> str:
        self._ownership.isComplete = True
        return ""

    def successor(self) -> str:
        """Return the node to which this one can hand the shard best, "" if there is none, or it has no shard."""
        owner, living = self._ownership.owner, self._ownership.living()
        if self._ownership.state is not State.OWNING:
            return ""
        able = [node for node in living if not whyNotTo(self._shard, node, owner, living)]
        return max(able, key=lambda node: living[node].applied[self._shard], default="")

    # -- health ------------------------------------------------------------------------------------

    async def freshen(self, probe: Callable[[], None]) -> None:
        """Probe whether an owner can append, unless it did a short time ago."""
        if self._ownership.state is State.OWNING and self._age > FRESH:
            probe()
            until = self._clock.seconds() + FRESH / 2
            while self._age > FRESH and self._clock.seconds() < until:
                await deferLater(self._clock, _LOOK)

    @property
    def _age(self) -> float:
        return self._clock.seconds() - self.appended

    def ready(self) -> tuple[bool, str]:
        """Return whether this node can serve clients or forward them, and a phrase about it, with what is not whole."""
        isReady, words = self._ready()
        return isReady, "; ".join((words, *lackingCopies(self.replicas)))

    def _ready(self) -> tuple[bool, str]:
        owner, state = self._ownership.owner, self._ownership.state
        if state is State.OWNING:
            return self._age <= FRESH, (
                f"owns shard {self._shard} in term {owner.term}; the stream accepted the last append "
                f"{self._age:.1f} seconds ago, at most {FRESH:g} are good"
            )
        if state is not State.FOLLOWING:
            return False, f"{state.name.lower()} shard {self._shard}"
        living = self._ownership.living()
        if owner.node not in living or self._node not in living:
            missing = f"; this node waits: {self.missing}" if self.missing else ""
            return False, f"shard {self._shard} has no living owner{missing}"
        why = whyNotTo(self._shard, self._node, owner, living)
        if self._ownership.isNew:
            why = f"began with an empty folder, and has not seen {owner.node} serve yet"
        return not why, why or f"follows {owner.node}"

    def values(self) -> dict[str, float]:
        """Return the metrics of this node, by name."""
        living, owner = self._ownership.living(), self._ownership.owner
        isOwner = self._ownership.state is State.OWNING
        found = {"cluster_owner": float(isOwner), "cluster_term": owner.term, "cluster_owner_changes": self._changes}
        if self.replicas:
            found["cluster_replicas"] = min(each.current for each in self.replicas.values())
            found["cluster_replicas_wanted"] = max(each.wanted for each in self.replicas.values())
        if not isOwner and owner.node in living and self._node in living:
            behind = messagesBehind(self._shard, living[self._node], living[owner.node])
            if behind is not None:
                seconds = secondsBehind(living[self._node], living[owner.node]) if behind else 0
                found |= {"cluster_lag_messages": behind, "cluster_lag_seconds": seconds}
        return found

    # -- other nodes -------------------------------------------------------------------------------

    def _compare(self) -> None:
        """Log a change of the owner, and who has other settings, once for each change."""
        now = self._ownership.owner
        if now.node and now.term != self._owner.term:
            _log.info("{node} owns shard {shard} in term {term}", node=now.node, shard=self._shard, term=now.term)
            self._changes += self._owner.term > 0
            self._owner = now
        living = self._ownership.living()
        owner = now.node
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


#: The commands of ``fleximq cluster refill``; each returns why it cannot be carried out, "" if it is.
_FILLING: Mapping[str, Callable[[ClusterOperator], str]] = {
    "refill": ClusterOperator._fill,
    "replace": ClusterOperator._replace,
    "discard": ClusterOperator._discard,
    "complete": ClusterOperator._complete,
}
