"""A node of a cluster as a service (/explanation/cluster, "A node").

While a node owns the shard, it runs the broker; otherwise it copies the owner's journal and forwards its clients to the
owner. A node that loses the shard ends its process at once, since it must not answer clients any more; its service
manager starts it again as a standby.
"""

import secrets
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from fleximq.broker.broker import Broker
from fleximq.cluster.follower import Follower
from fleximq.cluster.interfaces import AHEAD, ClusterError, Replicas
from fleximq.cluster.nats.access import connectOptions
from fleximq.cluster.nats.store import NatsCluster
from fleximq.cluster.nats_link import NatsLink
from fleximq.cluster.node_state import lackingCopies
from fleximq.cluster.owner_journal import OwnerJournal
from fleximq.cluster.ownership import INTERVAL, Ownership, State
from fleximq.cluster.refill import refill, replace
from fleximq.cluster.steady_clock import SteadyClock
from fleximq.cluster.stream_log import FENCE, StreamLog, StreamWorker
from fleximq.cluster.stream_replica import ReplicaError, StreamReplica
from fleximq.cluster.trim import trimCopy, trimStream
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.endpoints.listen import Listen
from fleximq.errors import JournalError
from fleximq.journal.files.file_system import Files
from fleximq.journal.journal_folder import JournalFolder
from fleximq.journal.recovery.recovered_state import RecoveredJournal
from fleximq.services.cluster_operator import ClusterOperator, settingsThatLast
from fleximq.services.host import Host, Inputs, ListenerPlace
from fleximq.services.journal_service import restore, warn
from fleximq.services.mesh_node import Membership, MeshNode
from fleximq.services.meshed_broker import MeshedBroker
from fleximq.services.network.connection_limit import ConnectionLimit
from fleximq.services.network.node_listener import BuildDelegate
from fleximq.services.network.node_ports import NodePorts
from fleximq.services.process.log_writer import report
from fleximq.services.process.startup_failure import exitNow
from fleximq.services.process.wakeup import Wakeup
from fleximq.web.health_pages import Check

_log = Logger()

SHARD = 0
#: The exit code of a node that lost the shard.
LOST = 75
#: Seconds between two removals: of expired records by an owner, of records that the stream has removed by a standby.
_CLEANING = 60.0
#: Seconds between two looks at how many copies the NATS servers have.
_COUNTING = 10.0
#: Seconds between two looks at whether a node in a mesh may serve, and at whether an owner serves again.
_LOOK, _HELD = 0.1, 0.05
#: Seconds after which a copy should have joined the stream.
_JOINED = 10.0
#: Seconds for the last commit of an owner that stops, and for the record of another owner after the own disk failed.
_LAST, _HANDING = 10.0, 1.0
#: The states of a node that does not own the shard yet.
_FOLLOWING = State.FOLLOWING, State.FENCING
#: Seconds for reading the last messages of a stream that is replaced.
_FENCED = 30.0
#: Why a copy is not updated while its node writes it to the stream.
_WRITTEN = "its copy is written to the stream"
#: Seconds that clients have to end when an operator moves the shard.
_MOVING = 0.5


class OwnersTurn(WriteTurn):
    """Postpones all writes while ``serving`` says that this node may have lost the shard."""

    __slots__ = ("_isHeld", "serving")

    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self.serving: Callable[[], bool] = lambda: False
        self._isHeld = False

    def flush(self) -> None:
        if self.serving():
            super().flush()
            return
        self.open = False
        self.reader = None
        if not self._isHeld:
            self._isHeld = True
            self._clock.callLater(_HELD, self._again)

    def _again(self) -> None:
        self._isHeld = False
        self.flush()


class ClusterNode(Host):
    """A node as the host of its broker, and as the :class:`ClusterState` of its pages.

    :raises SettingError: a file for NATS cannot be used.
    """

    #: Made with the broker, and :attr:`service` after it; there are no requests before both.
    journal: OwnerJournal
    service: "ClusterService"
    turn: OwnersTurn

    #: This node's part in a mesh, made with the broker; None for a node that forwards all its clients.
    mesh: MeshNode | None = None

    def __init__(self, inputs: Inputs) -> None:
        self._reactor = reactor = inputs.reactor
        self._settings = settings = inputs.settings
        self.state = self
        self.wakeup = wakeup = Wakeup(reactor)
        self.turn = OwnersTurn(reactor)
        self.copy = StreamReplica(Files(), str(settings.journal), SHARD)
        self.trimmed: Callable[[int], None] = lambda position: None
        self._options = connectOptions(
            settings.cluster, settings.clusterAuth, settings.clusterCa, settings.clusterCertificate, settings.clusterKey
        )
        room, replicas = settings.clusterBytes, 1 if len(settings.cluster) == 1 else 3
        name, options = settings.clusterName, self._options
        self._cluster = NatsCluster(settings.cluster, name, wakeup.call, room=room, replicas=replicas, options=options)
        isEncrypted = "tls" in self._options
        node, isMesh = str(settings.node), settings.mesh
        self.ports = NodePorts(reactor, node, settings.clusterWait, settings.nodeAddress, isEncrypted, isMesh)

    def drainTimeout(self, seconds: float) -> float:
        """Return the seconds that connections have to end; few before another node serves them."""
        return min(seconds, _MOVING) if self.service.successor else seconds

    @property
    def operator(self) -> ClusterOperator:
        """The part that carries out operators' requests to this node."""
        return self.service.operator

    def ready(self) -> Check:
        """Check whether this node can own the shard, or follow, and serves its clients."""
        isReady, words = self.operator.ready()
        if self.ports.isReady:
            return Check("cluster", isReady, words)
        return Check("cluster", False, f"{words}; is not in the mesh yet, so that its clients wait")

    async def freshen(self) -> None:
        """Prepare :meth:`ready`."""
        await self.operator.freshen(self.journal.probe)

    def values(self) -> dict[str, float]:
        """Return the metrics of this node, by name."""
        return {**self.operator.values(), **self.service.values(), **self.ports.forwarding.values()}

    def overview(self) -> dict[str, Any]:
        """Return the nodes of the cluster, as this node knows them."""
        peers = None if self.mesh is None else sorted(self.mesh.mesh.peers)
        return {**self.operator.overview(), "serving": self.ports.isServing, "mesh": peers}

    def refusal(self) -> str:
        """Return why this node answers only requests about itself; "" if it answers others, in a mesh not all."""
        return "" if self.ports.isInMesh else self._notOwner()

    def _notOwner(self) -> str:
        owner = self.service.ownership.owner.node
        return "" if self.ports.isServing else f"this node does not own the journal; {owner or 'no node'} does"

    def makeJournal(self, folder: JournalFolder) -> OwnerJournal:
        """Return the journal of this node, for its copy's folder."""
        options = {"refusal": self._refusalWithAddress} if self._settings.mesh else {}
        self.journal = OwnerJournal(self.copy, folder, trimmed=lambda position: self.trimmed(position), **options)
        return self.journal

    def makeBroker(self, **parts: Any) -> Broker:
        """Return the broker of this node, made with these parts."""
        settings, node = self._settings, str(self._settings.node)
        if not settings.mesh:
            return Broker(**parts)
        link = NatsLink(self._reactor, settings.cluster, settings.clusterName, node, self._options)
        session, refusal = secrets.token_hex(8), self._refusalWithAddress
        clock, blocks, connect = self._reactor, self._cluster.nextBlock, self.ports.forwarding.connectToOwner
        membership = Membership(self.turn, link, node, session, clock, blocks, refusal, connect)
        broker = MeshedBroker(membership, **parts)
        self.mesh = broker.node
        return broker

    def abortStart(self, sentence: str) -> NoReturn:
        """End the process with a sentence, exit code 1."""
        endNow(sentence, 1)

    def _refusalWithAddress(self) -> str:
        place = self.ports.forwarding.place
        return self._notOwner() + ("" if place is None else f", at {place.host}")

    def hold(self, broker: Broker) -> None:
        self.served = MultiService()
        self.journal.queues = broker.checkpointer
        self._restore = partial(restore, broker)

    def serve(self) -> "ClusterService":
        settings = self._settings
        mesh = self.mesh
        self.service = service = ClusterService(
            SteadyClock(self._reactor), self._cluster, str(settings.node), self.copy, self.journal, self.ports,
            self.served, self.wakeup, self._restore, self.abortStart, settings=settingsThatLast(settings),
            stop=self._reactor.stop, mesh=mesh, nodes=len(settings.cluster),
        )  # fmt: skip
        self.trimmed = service.trim
        # A follower in a mesh writes too. An owner writes only while it surely owns the shard.
        ownership = service.ownership
        self.turn.serving = lambda: ownership.serving or (mesh is not None and ownership.state in _FOLLOWING)
        return service

    def early(self, brokerService: MultiService) -> MultiService:
        return self.ports  # it also runs while this node follows

    @property
    def listening(self) -> list[MultiService]:
        return [self.ports, self.served]

    @property
    def owned(self) -> MultiService:
        return self.service.owned

    def placeOf(self, listen: Listen, limit: ConnectionLimit) -> ListenerPlace:
        if listen.isStdio:
            return ListenerPlace(self.owned)
        # A node is ready when it follows: its listeners are open from then on.
        return ListenerPlace(self.ports, self.ports.sharing(listen, limit))

    def forwarded(self) -> int:
        return len(self.ports.forwarding.joined)

    def acceptDelegates(self, builder: Callable[[], BuildDelegate]) -> None:
        if self._settings.mesh:
            self.ports.acceptDelegates(builder())


@dataclass(eq=False, repr=False)
class ClusterService(MultiService):
    """One node.

    :param cluster: the connection to the store; its ``start`` and ``stop`` return Deferreds.
    :param served: the services of the broker, which run while this node owns the shard; in a mesh always.
    :param restore: called with the recovered state, before the journal takes runs.
    :param abort: called with a sentence if the copy cannot be opened; does not return.
    :param end: ends the process at once, ``stop`` in order, which stops this service.
    :param settings: check sums of the settings that a takeover must not change.
    :param nodes: see :class:`Ownership`.
    """

    _clock: IReactorTime
    _cluster: Any
    _node: str
    _copy: StreamReplica
    _journal: OwnerJournal
    _ports: NodePorts
    _served: MultiService
    _wakeup: Wakeup
    _restore: Callable[[RecoveredJournal], None]
    _abort: Callable[[str], NoReturn]
    _end: Callable[[str], object] = lambda sentence: endNow(sentence)  # noqa: E731
    settings: Mapping[str, str] = field(default_factory=dict)
    stop: Callable[[], object] = lambda: None
    mesh: MeshNode | None = None
    nodes: int = 1
    #: The node that an operator wants to own the shard after this one.
    successor = ""
    _log: StreamLog | None = field(default=None, init=False)
    _isStopping = _isRefilling = False

    def __post_init__(self) -> None:
        super().__init__()
        clock, cluster, node, ports = self._clock, self._cluster, self._node, self._ports
        #: Services that run at the owner only, also in a mesh: programs, and standard input.
        self.owned = MultiService()
        self.operator = ClusterOperator(
            clock, node, SHARD, self._copy, self.settings, self._moveTo, self._refill, self._setAside
        )
        self.ownership = Ownership(
            cluster,
            node,
            SHARD,
            clock,
            applied=lambda: self.follower.applied,
            takeOver=self._takeOver,
            lose=self._lost,
            probe=self._journal.probe,
            about=lambda: {**self.operator.about(), **ports.about, "fence": FENCE},
            end=lambda: self._copy.end,
            nodes=self.nodes,
        )
        self.follower = Follower(cluster, SHARD, self._copy, clock, heard=self.ownership.heard)
        self.operator.begin(self.ownership, self.follower)
        self.ownership.observers.append(lambda: ports.aim(self.ownership.owner, self.ownership.living()))
        ports.setServiceParent(self)
        self._looks = (
            (LoopingCall(self._clean), _CLEANING),
            (LoopingCall(self._measure), INTERVAL),
            (LoopingCall(self._countReplicas), _COUNTING),
        )
        for work, _ in self._looks:
            work.clock = clock

    def startService(self) -> None:
        """Open the copy, and join the cluster when it answers."""
        try:
            self._copy.open()
            self._copy.load(warn)
        except JournalError as error:
            self._abort(str(error))
        self._wakeup.start()
        super().startService()
        joined: Deferred[None] = self._cluster.start()
        joined.addCallback(lambda _: self._join())
        joined.addErrback(lambda failure: _log.failure("the cluster cannot be joined", failure))

    def _join(self) -> None:
        try:
            self._ports.open(self._cluster.host)
        except CannotListenError as error:
            self._abort(f"this node's address cannot be used: {error}")
        _log.info("node {node} follows shard {shard}", node=self._node, shard=SHARD)
        self.follower.start()
        self.ownership.start()
        self._cluster.answer(self._node, self.operator.asked)
        if self.mesh is not None:
            joined = self.mesh.start().addCallback(lambda _: self._joinMesh())
            joined.addErrback(lambda failure: _log.failure("the mesh cannot be joined", failure))
        self._clock.callLater(_JOINED, self._tellUnusable)
        for work, seconds in self._looks:
            work.start(seconds, now=False).addErrback(lambda failure: _log.failure("looking after the copy", failure))

    def _joinMesh(self) -> None:
        """Serve clients, as soon as the copy has all records that the stream had when this node joined it."""
        if self._isStopping:
            return
        if self.ownership.state is not State.OWNING:
            if self.ownership.state is not State.FOLLOWING or not self.follower.isCurrent:
                self._clock.callLater(_LOOK, self._joinMesh)
                return
            assert self.mesh is not None  # so it joined
            self._journal.follow()
            self._copy.added = self.mesh.stored
        self._beginServing()
        self._ports.joinMesh()
        _log.info("node {node} serves its clients itself, in the mesh", node=self._node)

    def _beginServing(self) -> None:
        if self._served.parent is None:
            self._served.setServiceParent(self)

    def _tellUnusable(self) -> None:
        """Log why this node cannot own the shard, if so."""
        if self.ownership.state is State.FOLLOWING and self.follower.applied in (None, AHEAD):
            reason = self.follower.reason or "its folder does not equal the stream, or has more"
            _log.warn("node {node} cannot own shard {shard}: {reason}", node=self._node, shard=SHARD, reason=reason)
        elif missing := self.operator.missing:
            _log.warn("node {node} does not take shard {shard}: {why}", node=self._node, shard=SHARD, why=missing)

    # -- owning ------------------------------------------------------------------------------------

    async def _takeOver(self, term: int) -> None:
        self.follower.stop()
        self._log = log = self._newLog(term)
        worker = StreamWorker(self._clock, self._failed)
        found = await self._journal.take(log, worker, self._restore, self._clock)
        self._beginServing()
        self.owned.setServiceParent(self._served)
        _log.info("The journal is ready with {records} records", records=found.records)
        if self.mesh is None:
            self._ports.serve()
        else:
            self.mesh.own()
            self.mesh.ids.whenFetched(self._ports.serve)  # clients need ids, which a node that has just started lacks

    def _newLog(self, term: int) -> StreamLog:
        def confirmed(sent: float) -> None:
            self.operator.appended = sent
            self.ownership.confirmed(sent)

        return StreamLog(
            self._cluster, SHARD, self._copy, node=self._node, term=term, journal=secrets.token_hex(16),
            clock=self._clock, now=lambda: time.time_ns() // 1000, randomId=lambda: secrets.randbits(64),
            confirmed=confirmed, heard=self.ownership.heard, mayHurry=self._mayHurry,
        )  # fmt: skip

    def _mayHurry(self) -> bool:
        return all(record.about.get("fence", 1) >= FENCE for record in self.ownership.known().values())

    def _refill(self, isAll: bool) -> None:
        """Append the records of this copy that the stream lacks, then follow it again; ``isAll``: empty it first."""
        if not self._isRefilling:
            self._isRefilling = True
            self.follower.stop()
            refilled = Deferred.fromCoroutine(self._refilled(isAll))
            refilled.addErrback(lambda failure: _log.failure("refilling the stream failed", failure))

    async def _refilled(self, isAll: bool) -> None:
        try:
            log = await self._seized() if isAll else self._newLog(0)
            number = await (replace if isAll else refill)(self._cluster, SHARD, self._copy, log)
            _log.info("the stream of shard {shard} has {number} bytes more from this copy", shard=SHARD, number=number)
        except (ClusterError, TimeoutError) as error:
            self.operator.failure = f"refilling failed: {error or 'the end of the stream cannot be read'}"
            _log.error("refilling the stream of shard {shard} failed: {error}", shard=SHARD, error=error)
        self._isRefilling = False
        self.follower.start()

    async def _seized(self) -> StreamLog:
        """Depose the owner, and read the stream to its end if it continues this copy."""
        isContinued = self.follower.applied not in (None, AHEAD)
        self.follower.reason = _WRITTEN
        log = self._newLog(await self.ownership.seize())
        if isContinued:
            await Deferred.fromCoroutine(log.fence()).addTimeout(_FENCED, self._clock)
        return log

    def _setAside(self) -> None:
        """Give the copy up and end the process, which begins another copy when it is started again."""
        self.follower.stop()
        self.ownership.stop()
        self._copy.setAside()
        self._clock.callLater(_HELD, self._end, "the files of this copy were renamed to *.aside, for another copy")

    def values(self) -> dict[str, float]:
        """Return the metrics of the stream and of the connection to it, by name."""
        values = {"cluster_reconnects": self._cluster.reconnects}
        if self._log is not None:
            values["cluster_stream_lost_messages"] = float(self._log.lost)
            if self._log.left is not None:
                values["cluster_stream_free_bytes"] = float(self._log.left)
        return values

    def _failed(self, error: Exception) -> None:
        """Hand the shard on at once if this node's disk failed; the process ends in any case."""
        to = self.operator.successor() if isinstance(error, ReplicaError) else ""
        if not to:
            self.ownership.deposed(str(error))
            return
        self._isStopping = True
        if self.mesh is not None:
            self.mesh.stop()  # or the others would wait for it until they notice its end
        handed = self._handOn(to).addTimeout(_HANDING, self._clock)
        handed.addBoth(lambda _: self._end(f"shard {SHARD} was handed to {to}: {error}"))

    def _handOn(self, node: str) -> "Deferred[None]":
        """Hand the shard to a node, "" for any."""
        moved = Deferred.fromCoroutine(self.ownership.move(node))
        self.ownership.stop()  # at once, or this node would claim the shard again
        return moved

    def _lost(self, reason: str) -> None:
        if not self._isStopping:
            self._end(f"this node does not own shard {SHARD} any more: {reason}")

    def _clean(self) -> None:
        self._tellUnusable()
        if self.ownership.state is State.OWNING:
            self._journal.clean()
        elif self.ownership.state is State.FOLLOWING and self.follower.applied not in (None, AHEAD):
            Deferred.fromCoroutine(trimCopy(self._cluster, SHARD, self._copy)).addErrback(_passOver)

    def _measure(self) -> "Deferred[None]":
        """Look at the stream: an owner for its free room, a follower whether it is the same one. A follower ends if its
        clients read a copy that failed.
        """
        reason = self.follower.reason
        if self._copy.added is not None and reason not in ("", _WRITTEN) and self.ownership.state is State.FOLLOWING:
            self._lost(reason)
        if self._log is not None and self.ownership.state is State.OWNING:
            looked = Deferred.fromCoroutine(self._log.look())
            looked.addCallbacks(lambda _: self._tellLost(), self._wasSetBack)
            return looked
        return Deferred.fromCoroutine(self.follower.look())

    def _countReplicas(self) -> "Deferred[None]":
        """Learn how many copies the NATS servers have, and log when some are missing."""

        def counted(found: Mapping[str, Replicas]) -> None:
            before, self.operator.replicas = lackingCopies(self.operator.replicas), found
            for words in lackingCopies(found):
                if words not in before:
                    _log.warn("{words}: a further failure may stop the cluster", words=words)

        counting: Deferred[Mapping[str, Replicas]] = self._cluster.replicas([SHARD])
        return counting.addCallback(counted).addErrback(_passOver)

    def _wasSetBack(self, failure: Any) -> None:
        failure.trap(ReplicaError)
        self.ownership.deposed(str(failure.value))

    def _tellLost(self) -> None:
        """Log once for each number how many messages the stream has lost."""
        lost = 0 if self._log is None else self._log.lost
        if lost > self.operator.lost:
            _log.error(
                "the stream of shard {shard} has lost {number} messages, which this node has: files of a NATS server "
                "are damaged; fleximq cluster refill {shard} --from NODE, with a follower, writes all of it again",
                shard=SHARD, number=lost,
            )  # fmt: skip
        self.operator.lost = lost

    def trim(self, position: int) -> None:
        """Remove the records before this position from the stream; the owner's journal has removed them."""
        Deferred.fromCoroutine(trimStream(self._cluster, SHARD, position)).addErrback(_passOver)

    # -- stopping ----------------------------------------------------------------------------------

    def _moveTo(self, node: str) -> None:
        """Stop this process in order, and hand the shard to this node."""
        if not self.successor:
            self.successor = node
            self._clock.callLater(0, self.stop)  # after the answer to the command

    def stopService(self) -> "Deferred[Any]":
        """Stop the broker, write a last checkpoint, hand the shard on, and leave the cluster."""
        self._isStopping = True
        for work, _ in self._looks:
            if work.running:
                work.stop()
        stopped: Deferred[Any] = maybeDeferred(super().stopService)
        return stopped.addBoth(lambda _: Deferred.fromCoroutine(self._leave()))

    async def _leave(self) -> None:
        if self.mesh is not None:
            self.mesh.stop()
        self.follower.stop()
        if self.ownership.state is State.OWNING:
            handed = Deferred.fromCoroutine(self._journal.hand(self._clock))
            handed.addTimeout(_LAST, self._clock).addErrback(lambda _: None)
            await handed
            with suppress(ClusterError):
                await self._handOn(self.successor or self.operator.successor())
        else:
            self.ownership.stop()
        with suppress(ClusterError):
            await self.ownership.writeKey()
        self._journal.close()
        self._copy.close()
        await self._cluster.stop()
        self._wakeup.stop()
        if self.successor:
            self._end(f"shard {SHARD} was handed to {self.successor}")


def _passOver(failure: Any) -> None:
    """Try again later."""
    failure.trap(ClusterError, OSError)


def endNow(sentence: str, code: int = LOST) -> NoReturn:
    """End the process without another word to any client."""
    _log.critical("{sentence}", sentence=sentence)
    report(f"fleximq: {sentence}", sys.__stderr__)
    exitNow(code)
