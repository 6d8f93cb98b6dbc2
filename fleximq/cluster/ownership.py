"""Decides which node owns a shard, and for how long it may serve (/explanation/cluster, Ownership).

The stream is protected by the expected sequence of each append, not here: a wrong decision costs time, or a repeated
delivery. Nodes write a key each second. One whose key has not changed, and of which no frame has arrived, for
:data:`SILENCE` seconds and :data:`BEATS` beats of the watching node is replaced. A beat counts when the watching
node has received its own changed key from the store, as it receives the keys of the others; so neither an unavailable
store, nor a watch without news, nor a pause of the watcher deposes an owner. No clocks are compared.

An owner serves for :data:`DEADLINE` seconds from the sending of its last confirmed append. A confirmed beat extends
this only if it is confirmed in time: later, another node may have taken over in between, and only an append can tell. A
node whose claim was carried out late, when the former owner had come back, waits so long before it serves.

An empty folder, stream or bucket is no proof: it may be new, or lost. So no node claims the shard while the key of
another one, silent or not, names a later end of its copy. An owner that was started again and has less than others, so
that it only follows, is replaced by one of them. The first claim in a bucket, and that of a node that began
with an empty folder and has seen no owner since, needs all nodes that have keys, and at least :attr:`Ownership.nodes`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum, auto
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from fleximq.cluster.interfaces import AHEAD, ClusterError, ICluster, IWatcher, NodeRecord, ShardOwner
from fleximq.values.transitions import Transitions

_log = Logger()

#: Seconds between two beats.
INTERVAL = 1.0
#: Seconds without a sign of life of a node, and beats of the watcher that it received itself meanwhile.
SILENCE = 4.0
BEATS = 4
#: Seconds for which an owner serves after it sent the last confirmed request.
DEADLINE = 3.0
#: An owner that had to stop serving so many seconds ago gives up, so that its clients look for another node.
PATIENCE = 15.0
#: Successive keys in which the owner says that it only follows, until a node with more replaces it. A single one may
#: have been written before the owner claimed the shard.
_RESTING = 2
#: Confirmed beats for which a node that has seen no owner waits for the others: their keys may not have their last end.
_STARTING = 10
#: An owner without a confirmation in so many seconds makes an empty commit.
_PROBE = 1.5
#: Candidates claim a shard one after the other, this many seconds apart.
_RANK = 0.5


class State(Enum):
    """FENCING: this node's claim is recorded, and it makes sure of the stream."""

    FOLLOWING = auto()
    FENCING = auto()
    OWNING = auto()
    STOPPED = auto()


#: The states in the key of a node that only follows, and of one that takes over.
_FOLLOWS, _TAKES = State.FOLLOWING.name.lower(), State.FENCING.name.lower()


class Event(Enum):
    """The steps of a claim."""

    CLAIMED = auto()
    FENCED = auto()
    LOST = auto()
    STOP = auto()


_TRANSITIONS: Transitions[State, Event] = Transitions(
    {
        (State.FOLLOWING, Event.CLAIMED): State.FENCING,
        (State.FENCING, Event.FENCED): State.OWNING,
        (State.FENCING, Event.LOST): State.FOLLOWING,
        (State.OWNING, Event.LOST): State.FOLLOWING,
    }
    | {(state, Event.STOP): State.STOPPED for state in State}
)


@dataclass(slots=True)
class _Sighting:
    """A node's last sign of life: when, and how many own beats were confirmed then; and its key."""

    at: float
    beats: int
    record: NodeRecord


@implementer(IWatcher)
@dataclass(eq=False)
class Ownership:
    """One node's part in the ownership of one shard.

    ``owner`` is the last known record, ``state`` this node's own part; ``observers`` are called after each change of a
    key.

    :param clock: its seconds must not be those of a clock that can be set.
    :param applied: returns the last sequence in this node's copy, None while it cannot be used, or AHEAD. While a node
        says that its copy has more than the stream, an older stream was put in place, and no node claims the shard.
    :param about: returns what else this node's key has, see :class:`NodeRecord`.
    :param takeOver: fences the stream for this term and opens the broker; the shard is served when it returns.
    :param lose: called with the reason once for each :meth:`takeOver` that began and is over: from then on no client
        may be answered; the copy is to be followed again.
    :param probe: makes an empty commit.
    :param end: returns the position after the last frame of the copy.
    :param nodes: so many must be there before the first claim of a cluster.
    """

    cluster: ICluster
    node: str
    shard: int
    clock: IReactorTime
    _: KW_ONLY
    applied: Callable[[], int | None]
    takeOver: Callable[[int], Awaitable[None]]
    lose: Callable[[str], None]
    probe: Callable[[], None] = lambda: None
    about: Callable[[], Mapping[str, Any]] = dict
    end: Callable[[], int] = lambda: 0
    nodes: int = 1
    #: Whether an operator has said that missing nodes have nothing that this one lacks.
    isComplete = False

    def __post_init__(self) -> None:
        self.owner = ShardOwner()
        self.state = State.FOLLOWING
        self.observers: list[Callable[[], None]] = []
        self._nodes: dict[str, _Sighting] = {}
        self._beats = 0
        self._lastBeat = self._since = self._until = self.clock.seconds()
        self._begun = self._claimed = 0
        #: Confirmed beats since the last progress of a takeover.
        self._stuck = 0
        #: The name of this life in the own key, and whether that was read, after which keys are signs of life.
        self._life = self.clock.seconds()
        self._isRead = False
        #: The nodes that have written their keys since.
        self._present: set[str] = set()
        self._isEmpty = False
        self._hasSeenOwner = False
        #: How many successive keys of the owner, up to the last one, say that it only follows.
        self._resting = 0
        #: The owner before this node's claim; "" if that handed the shard on.
        self._former = ""
        self._due = 0.0
        self._timer: IDelayedCall | None = None
        self._claiming: IDelayedCall | None = None
        self._unwatch: Callable[[], None] | None = None

    def start(self) -> None:
        """Beat, watch the others, and claim the shard when it has no owner."""
        self._isEmpty = self.end() == 0
        self._unwatch = self.cluster.watch(self)
        self._beat()

    def stop(self) -> None:
        """End everything at once; :meth:`move` the shard before."""
        self.state = _TRANSITIONS[self.state, Event.STOP]
        for timer in (self._timer, self._claiming):
            if timer is not None and timer.active():
                timer.cancel()
        if self._unwatch is not None:
            self._unwatch()

    # -- serving -----------------------------------------------------------------------------------

    @property
    def serving(self) -> bool:
        """Whether this node may hand out messages and answer clients; to be asked before each time. It beats if that is
        due: a reactor turn in which thousands of clients leave has no time for timers.
        """
        if self.state is not State.OWNING:
            return False
        now = self.clock.seconds()
        if now >= self._due:
            self._beat()
        return self._since <= now < self._until

    def confirmed(self, sent: float) -> None:
        """Learn that the stream has accepted an append that was sent at this time."""
        self._until = max(self._until, sent + DEADLINE)
        self._stuck = 0

    def heard(self, isLater: bool = False) -> None:
        """Learn that a message of the stream has arrived: a sign of life of the owner, or of the one before.

        :param isLater: it was appended after this node began to follow.
        """
        self._hasSeenOwner |= isLater
        self._stuck = 0
        self._sight(self._former if self.state is State.FENCING else self.owner.node)

    async def move(self, node: str) -> None:
        """Hand the shard to another node, "" for any; to be drained before. A node that cannot take it gives it back.
        Raises ClusterError if the record could not be changed, or perhaps could not; this node may claim it again.
        """
        self._lose("it is handed on")
        await self.cluster.claim(self.shard, ShardOwner(node, self.owner.term + 1, self.owner.revision))

    async def seize(self) -> int:
        """Take the shard from any owner, without serving it; return the term. Raises ClusterError as :meth:`move`."""
        self._begun = self.owner.term + 1
        await self.cluster.claim(self.shard, ShardOwner(self.node, self._begun, self.owner.revision))
        return self._begun

    def deposed(self, reason: str) -> None:
        """Learn that the stream, or this node's own disk, prevents this node from going on."""
        if self._lose(reason) and self.owner.node == self.node:
            _unlessRefused(self.move(""))

    # -- beats -------------------------------------------------------------------------------------

    def _beat(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = self.clock.callLater(INTERVAL, self._beat)
        sent = self.clock.seconds()
        self._due = sent + INTERVAL
        beaten = self.writeKey()
        beaten.addCallback(lambda _: self._beaten(sent))
        beaten.addErrback(lambda failure: failure.trap(ClusterError))
        if self.state is State.OWNING and self._until - sent < DEADLINE - _PROBE:
            self.probe()
            if sent - self._until > PATIENCE:
                self._lose(f"the servers of the cluster have confirmed nothing for {DEADLINE + PATIENCE:.0f} seconds")

    def writeKey(self) -> "Deferred[None]":
        """Tell the others the state of this node; also for the last time, so that they know where its copy ends."""
        return self.cluster.beat(self.node, self.record())

    def record(self) -> NodeRecord:
        """Return the present content of this node's key."""
        applied = self.applied()
        about = {**self.about(), "end": self.end(), "life": self._life, "state": self.state.name.lower()}
        return NodeRecord({} if applied is None else {self.shard: applied}, about)

    def _beaten(self, sent: float) -> None:
        now = self.clock.seconds()
        if now < self._until:
            self.confirmed(sent)
        if now - self._lastBeat > DEADLINE:
            # This node was paused or cut off: news of others may not have arrived yet.
            for node in self._nodes:
                self._sight(node)
        self._lastBeat = now
        self._stuck += 1
        if self.state is State.FENCING and self._stuck > PATIENCE:
            self.deposed("the stream does not accept the takeover: it may have been created again")
        self._claimIfFree()

    # -- watching ----------------------------------------------------------------------------------

    def nodeChanged(self, node: str, record: NodeRecord) -> None:
        self._sight(node)
        self._nodes[node].record = record
        if node == self.node and record.about.get("life") == self._life:
            self._isRead = True
            # Only a received beat shows that the keys of the others would be received too.
            self._beats += 1
        if node == self.owner.node:
            self._resting = self._resting + 1 if record.about.get("state") == _FOLLOWS else 0
        if self._isRead:
            self._present.add(node)
            self._hasSeenOwner |= node == self.owner.node != self.node
        self._tell()

    def nodeForgotten(self, node: str) -> None:
        if node != self.node:
            self._nodes.pop(node, None)
            self._present.discard(node)
            self._tell()

    def ownerChanged(self, shard: int, owner: ShardOwner) -> None:
        if shard != self.shard or owner.revision <= self.owner.revision or self.state is State.STOPPED:
            return
        former = self.owner.node
        isOld = self.owner.revision == 0 and owner.term != self._claimed
        self.owner = owner
        self._resting = 0
        self._sight(owner.node)
        if owner.term != self._begun or owner.node != self.node:
            self._lose(f"{owner.node or 'no node'} owns the shard now")
        # A record that is older than this process needs a new claim, so that each term has one owner.
        if owner.node == self.node and owner.term > self._begun and not isOld:
            self._former = former if owner.term == self._claimed and former != self.node else ""
            self._begin(owner.term)
        self._tell()

    def living(self) -> dict[str, NodeRecord]:
        """Return the keys of all nodes that are not silent, this one included."""
        return {node: seen.record for node, seen in self._nodes.items() if node and not self._isSilent(node)}

    def known(self) -> dict[str, NodeRecord]:
        """Return the keys of all nodes, silent ones included."""
        return {node: seen.record for node, seen in self._nodes.items() if node and seen.record.about}

    def _tell(self) -> None:
        for observer in list(self.observers):
            observer()

    def _sight(self, node: str) -> None:
        known = self._nodes.get(node)
        self._nodes[node] = _Sighting(self.clock.seconds(), self._beats, known.record if known else NodeRecord({}))

    def _isSilent(self, node: str, seconds: float = SILENCE) -> bool:
        seen = self._nodes.get(node)
        if seen is None:
            return self._beats >= BEATS
        return self.clock.seconds() - seen.at >= seconds and self._beats - seen.beats >= BEATS

    def _isAbsent(self, node: str) -> bool:
        return node not in self._present

    @property
    def isNew(self) -> bool:
        """Whether this node began with an empty folder, and has seen no owner since."""
        return self._isEmpty and not self._hasSeenOwner

    # -- claims ------------------------------------------------------------------------------------

    def _claimIfFree(self) -> None:
        own = self._usable()
        if self.state is not State.FOLLOWING or own is None or not self._isFree():
            return
        if self._claiming is None or not self._claiming.active():
            self._claiming = self.clock.callLater(self._rank(own) * _RANK, self._claim, self.owner)

    def _usable(self) -> int | None:
        """Return the last sequence in this node's copy, None if it cannot be used."""
        applied = self.applied()
        return None if applied == AHEAD else applied

    def _isFree(self) -> bool:
        """Whether the shard's owner is silent or overtaken, there is none, or it is this node in an earlier life."""
        if any(self._appliedBy(seen) == AHEAD and not self._isSilent(node) for node, seen in self._nodes.items()):
            return False
        owner = self.owner.node
        return (owner in ("", self.node) or self._isGone(owner) or self._isOvertaken) and not self.missing()

    def _isGone(self, owner: str) -> bool:
        """Whether the owner is silent; for longer if it takes over: with a large journal it may have no time to beat,
        and this node would have as little.
        """
        seen = self._nodes.get(owner)
        isTaking = seen is not None and seen.record.about.get("state") == _TAKES
        return self._isSilent(owner, PATIENCE if isTaking else SILENCE)

    @property
    def _isOvertaken(self) -> bool:
        """Whether the owner only follows, and has less than this node: it was started again with an empty folder."""
        owner = self._nodes.get(self.owner.node)
        return owner is not None and self._resting >= _RESTING and self._endOf(owner) < self.end()

    def missing(self) -> str:
        """Return why another node may have messages that this one lacks, "" if none can."""
        if self.isComplete:
            return ""
        if not self._isRead:
            return "the keys of the nodes are being read"
        ends = {node: self._endOf(seen) for node, seen in self._nodes.items() if node}
        return self._longerCopy(ends) or ("" if self._hasSeenOwner else self._missingNodes(ends))

    def _longerCopy(self, ends: Mapping[str, int]) -> str:
        """Return which node has more, by the ends of the copies in the keys of all nodes; "" if none."""
        own = self.end()
        longest = max(ends, key=lambda node: ends[node])
        if ends[longest] <= own:
            return ""
        return f"the copy of {longest} ends at position {ends[longest]}, that of {self.node} at {own}"

    def _missingNodes(self, ends: Mapping[str, int]) -> str:
        """Return which nodes must run before this one, which has seen no owner, claims the shard; "" if none."""
        isFirst = self._isEmpty or not self.owner.revision
        silent = sorted(filter(self._isSilent if isFirst else self._isAbsent, ends))
        if silent and (isFirst or self._beats < _STARTING):
            return f"{', '.join(silent)} may have messages, but does not run, or is cut off"
        if isFirst and len(ends) < self.nodes:
            return f"a new cluster begins with {self.nodes} nodes, as many as its NATS servers"
        return ""

    def _rank(self, own: int) -> int:
        """Return how many living nodes have more of the stream, or as much and a smaller name."""
        others = [node for node in self.living() if node not in (self.node, self.owner.node)]
        copies = [(self._appliedBy(self._nodes[node]), node) for node in others]
        return sum(applied is not None and (-applied, node) < (-own, self.node) for applied, node in copies)

    @staticmethod
    def _endOf(seen: _Sighting) -> int:
        end: int = seen.record.about.get("end", 0)
        return end

    def _appliedBy(self, seen: _Sighting) -> int | None:
        return seen.record.applied.get(self.shard)

    def _claim(self, free: ShardOwner) -> None:
        if self.state is State.FOLLOWING and free == self.owner and self._isFree() and self._usable() is not None:
            self._claimed = free.term + 1
            # Only the record shows the outcome: a claim without an answer may succeed later.
            _unlessRefused(self.move(self.node))

    def _begin(self, term: int) -> None:
        self._begun = term
        if self._usable() is None:
            _unlessRefused(self.move(""))
            return
        self.state = _TRANSITIONS[self.state, Event.CLAIMED]
        self._beat()
        Deferred.fromCoroutine(self._open(term)).addErrback(
            lambda failure: _log.failure("taking over the shard failed", failure)
        )

    async def _open(self, term: int) -> None:
        try:
            self._stuck = 0
            await self.takeOver(term)
        except Exception as error:
            if self._begun == term and self.state is State.FENCING:
                self.deposed(str(error))
            if not isinstance(error, ClusterError | OSError):
                raise
            return
        if self._begun == term and self.state is State.FENCING:
            self.state = _TRANSITIONS[self.state, Event.FENCED]
            if self._former and (former := self._nodes.get(self._former)) is not None:
                self._since = former.at + DEADLINE
            self._beat()
            _log.info("this node owns shard {shard} in term {term}", shard=self.shard, term=term)

    def _lose(self, reason: str) -> bool:
        if self.state not in (State.FENCING, State.OWNING):
            return False
        self.state = _TRANSITIONS[self.state, Event.LOST]
        _log.info("this node does not own shard {shard} any more: {reason}", shard=self.shard, reason=reason)
        self.lose(reason)
        return True


def _unlessRefused(change: Awaitable[None]) -> None:
    """Wait for a change of a record; only the record shows the outcome."""

    async def wait() -> None:
        try:
            await change
        except ClusterError as error:
            _log.debug("the owner was not changed: {error}", error=error)

    Deferred.fromCoroutine(wait())
