"""The packets between the nodes of a mesh: their interest, and volatile runs (/explanation/cluster, The mesh).

Each node tells all others the patterns of its clients in numbered steps, which they confirm; one that misses a step
asks for the whole table. Runs are sent to interested nodes, at most once, with the number of messages sent there
before, so that the receiver knows how many it lost. It confirms them; while too many bytes are not confirmed, the
publishers of further ones are paused.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import msgpack
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from zope.interface import Interface

from fleximq.cluster.interfaces import IMeshLink

_log = Logger()

#: Seconds between two signs of life, and without one until a node counts as silent.
INTERVAL, SILENCE = 1.0, 4.0
#: The largest number of seconds for which a client waits until all nodes know its subscription.
BARRIER = 1.0
#: A node with more patterns says that it is interested in all topics, until it has fewer than the second number.
MANY, FEWER = 10_000, 9_000
#: Runs are sent at the end of a reactor turn, or when they have so many bytes.
PACKET_BYTES = 1 << 18
#: While more bytes of runs are not confirmed by a node, their publishers are paused; a server of NATS ends a connection
#: for which 64 MiB wait. A node confirms when it has received so many.
WINDOW, CONFIRM_BYTES = 8 << 20, 1 << 20
#: Bytes of a packet around its content.
_MARGIN = 1024


class Interest(NamedTuple):
    """A pattern of a node's clients; ``durable``: a durable queue there has this topic or pattern. With ``client``,
    the id of one that accepts direct messages, ``pattern`` is the name that it joined with.
    """

    pattern: str
    durable: bool = False
    client: int = 0


#: The patterns that match every topic.
ALL = tuple(Interest(pattern) for pattern in ("#", "$sys/#", "$dead/#"))


class Kind(IntEnum):
    """The first value of a packet; the sender's name and session follow. INTEREST: a step of the sender's table
    (version, is it whole, added, removed; None for both is a sign of life); CONFIRMED: the session and version of the
    receiver that the sender has; WHOLE: a request for the receiver's table; RUNS: messages sent before, their number,
    the runs; PIECE: a part of a large packet (number, how many, bytes); LEAVING: the node stops; QUESTION: its number,
    and the question; ANSWER: session and number of the question, and the answer; RECEIVED: the session of the receiver,
    and how many of the messages that it has sent have arrived, or are lost.
    """

    INTEREST = 0
    CONFIRMED = 1
    WHOLE = 2
    RUNS = 3
    PIECE = 4
    LEAVING = 5
    QUESTION = 6
    ANSWER = 7
    RECEIVED = 8


class Reading(Protocol):
    """Pauses reading from a publisher."""

    def pause(self, reason: object) -> None:
        """Pause it until :meth:`resume` was called for every reason."""

    def resume(self, reason: object) -> None:
        """Remove a reason."""


class IMeshUser(Interface):
    """The broker's side of a mesh."""

    def interestChanged(node: str, added: Sequence[Interest], removed: Sequence[Interest]) -> None:
        """Learn that a node wants other messages."""

    def received(node: str, runs: Sequence[Any]) -> None:
        """Deliver runs of another node to the clients of this one."""

    def reading() -> Reading | None:
        """Return what pauses the publisher of the run that is being queued."""

    def asked(question: Any, answer: Callable[[Any], None]) -> None:
        """Answer a question of another node, now or later, or not at all."""

    def counted(event: str, number: int) -> None:
        """Count an event: messages ``lost`` between nodes, or ``unconfirmed`` subscriptions."""


class Peer:
    """Another node. ``interest`` and ``version`` are its table and the last step of it, ``confirmed`` the last step of
    this node's table that it has confirmed; if it ``isLate``, it is not waited for until it confirms again. ``sent``
    counts the messages to it since this node started, ``expected`` is the number of the next one from it, as counted
    there. ``packets`` are those of runs that it has not confirmed: ``sent`` after each, and its bytes, in all
    ``openBytes``. If it ``isFull``, those that send more to it are ``paused``.
    """

    def __init__(self, name: str, session: str, now: float) -> None:
        self.name = name
        self.session = session
        self.seen = now
        self.interest: set[Interest] = set()
        self.version = -1
        self.confirmed = -1
        self.isLate = False
        self.sent = 0
        self.expected = -1  # unknown
        self.waiting: list[Any] = []
        self.waitingMessages = self.waitingBytes = 0
        self.pieces: list[bytes] = []
        self.packets: deque[tuple[int, int]] = deque()
        self.openBytes = self.receivedBytes = 0
        self.isFull = False
        self.paused: set[Reading] = set()


@dataclass(eq=False)
class Mesh:
    """One node of a mesh; its ``session`` differs in each life of the node.

    :param atTurnEnd: calls a function when all that was read in this turn is processed.
    """

    link: IMeshLink
    node: str
    session: str
    clock: IReactorTime
    user: IMeshUser
    atTurnEnd: Callable[[Callable[[], None]], object]

    def __post_init__(self) -> None:
        self.peers: dict[str, Peer] = {}
        self._counts: Counter[Interest] = Counter()
        self._changed: dict[Interest, bool] = {}
        self._clients = 0
        self._isAll = False
        self._asking: dict[int, Callable[[str, Any], None]] = {}
        self._questions = 0
        self._sent: dict[str, int] = {}
        self._version = 0
        self._barriers: list[tuple[int, float, Callable[[], None]]] = []
        self._toFlush: list[Peer] = []
        self._held: set[str] = set()
        self._isWaiting = self._isStopped = False
        self._timer: IDelayedCall | None = None
        self._ticked = 0.0

    def start(self) -> None:
        """Connect, and exchange tables with the others."""
        self._ticked = self.clock.seconds()
        self.link.start(self.received, self._connected)
        self._timer = self.clock.callLater(INTERVAL, self._tick)

    def stop(self) -> None:
        """Leave the others, and disconnect."""
        self._isStopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._send("", Kind.LEAVING)
        self.link.stop()

    def _connected(self) -> None:
        self._send("", Kind.WHOLE)
        self._tellWhole("")

    def _tick(self) -> None:
        """Give a sign of life, and forget silent nodes, unless this one was paused."""
        self._timer = self.clock.callLater(INTERVAL, self._tick)
        now = self.clock.seconds()
        if now - self._ticked > 2 * INTERVAL:
            for peer in self.peers.values():
                peer.seen = now
        self._ticked = now
        for peer in [each for each in self.peers.values() if now - each.seen >= SILENCE]:
            self._forget(peer, "is silent")
        self._send("", Kind.INTEREST, self._version, False, None, None)
        for peer in self.peers.values():
            if peer.packets:  # it confirms this at once, and notices that it has lost the last ones
                self._send(peer.name, Kind.RUNS, peer.sent, 0, [])
        self._checkBarriers()

    # -- interest ----------------------------------------------------------------------------------

    def add(self, pattern: str, durable: bool = False, client: int = 0) -> None:
        """Count a subscription; the others learn the first of a pattern at the end of the turn."""
        interest = Interest(pattern, durable, client)
        self._counts[interest] += 1
        if self._counts[interest] == 1:
            self._clients += client > 0
            self._change(interest, True)

    def remove(self, pattern: str, durable: bool = False, client: int = 0) -> None:
        """Take a subscription back; the others learn the end of the last of a pattern."""
        interest = Interest(pattern, durable, client)
        self._counts[interest] -= 1
        if not self._counts[interest]:
            del self._counts[interest]
            self._clients -= client > 0
            self._change(interest, False)

    def _change(self, interest: Interest, isAdded: bool) -> None:
        if self._changed.pop(interest, isAdded) is isAdded:  # else the others do not know of it yet
            self._changed[interest] = isAdded
            self._later()

    def _later(self) -> None:
        if not self._isWaiting:
            self._isWaiting = True
            self.atTurnEnd(self._endTurn)

    def _endTurn(self) -> None:
        self._isWaiting = False
        if not self._isStopped:
            self._tell()
            self._flushAll()

    def _tell(self) -> None:
        """Tell the others what has changed, after the runs so far: they may be of clients that have left."""
        changed, self._changed = self._changed, {}
        if not changed:
            return
        self._flushAll()
        self._version += 1
        number, wasAll = len(self._counts) - self._clients, self._isAll
        self._isAll = number > MANY or (wasAll and number >= FEWER)
        if self._isAll is not wasAll:
            self._tellWhole("")
            return
        steps = [(each, isAdded) for each, isAdded in changed.items() if not wasAll or each.durable or each.client]
        added, removed = ([each for each, isAdded in steps if isAdded is wanted] for wanted in (True, False))
        self._send("", Kind.INTEREST, self._version, False, added, removed)

    def _tellWhole(self, node: str) -> None:
        self._flushAll()
        # It may contain changes of this turn already: adding or removing twice has no effect.
        table = list(self._counts)
        if self._isAll:
            table = [*ALL, *(each for each in table if each.durable or each.client)]
        self._send(node, Kind.INTEREST, self._version, True, table, [])

    # -- the barrier -------------------------------------------------------------------------------

    @property
    def isConfirmed(self) -> bool:
        """Whether all living nodes know the subscriptions of this node's clients."""
        return not self._changed and self._hasAll(self._version)

    def whenConfirmed(self, call: Callable[[], None]) -> None:
        """Call when all living nodes know the present subscriptions, after :data:`BARRIER` seconds at the latest."""
        self._tell()
        if self.isConfirmed:
            call()
        else:
            self._barriers.append((self._version, self.clock.seconds() + BARRIER, call))
            self.clock.callLater(BARRIER, self._checkBarriers)

    def _hasAll(self, version: int) -> bool:
        return all(peer.confirmed >= version or peer.isLate for peer in self.peers.values())

    def _checkBarriers(self) -> None:
        now = self.clock.seconds()
        while self._barriers:
            version, until, call = self._barriers[0]
            if not self._hasAll(version):
                if now < until:
                    return
                late = [peer for peer in self.peers.values() if peer.confirmed < version]
                for peer in late:
                    peer.isLate = True
                _log.warn(
                    "{names} did not confirm a subscription within {seconds} s, and may not send its first messages",
                    names=", ".join(peer.name for peer in late),
                    seconds=BARRIER,
                )
                self.user.counted("unconfirmed", 1)
            del self._barriers[0]
            call()

    # -- runs --------------------------------------------------------------------------------------

    def queue(self, peer: Peer, run: Any, count: int, size: int) -> None:
        """Send a run of ``count`` messages and about ``size`` bytes to a node, at the end of the turn. Hot."""
        if not peer.waiting:
            self._toFlush.append(peer)
            self._later()
        peer.waiting.append(run)
        peer.waitingMessages += count
        peer.waitingBytes += size
        if peer.waitingBytes > PACKET_BYTES:
            self._toFlush.remove(peer)
            self._flush(peer)
        if peer.isFull:
            reading = self.user.reading()
            if reading is not None:
                reading.pause(peer)
                peer.paused.add(reading)

    def queueInOrder(self, peer: Peer, run: Any, count: int, size: int) -> None:
        """As :meth:`queue`; the node receives it after all of this node's table, and before what it changes later."""
        self._tell()
        self.queue(peer, run, count, size)

    def _flushAll(self) -> None:
        peers, self._toFlush = self._toFlush, []
        for peer in peers:
            self._flush(peer)

    def _flush(self, peer: Peer) -> None:
        runs, count = peer.waiting, peer.waitingMessages
        peer.waiting, peer.waitingMessages, peer.waitingBytes = [], 0, 0
        size = self._send(peer.name, Kind.RUNS, peer.sent, count, runs)
        peer.sent += count
        peer.packets.append((peer.sent, size))
        peer.openBytes += size
        peer.isFull = peer.openBytes > WINDOW

    def hold(self, node: str) -> None:
        """Confirm no messages of a node, so that its publishers are paused soon, until :meth:`release`."""
        self._held.add(node)

    def release(self, node: str) -> None:
        """Confirm the messages of a node again."""
        self._held.discard(node)
        if node in self.peers:
            self._confirmRuns(self.peers[node])

    def _confirmRuns(self, peer: Peer) -> None:
        if peer.name not in self._held:
            peer.receivedBytes = 0
            self._send(peer.name, Kind.RECEIVED, peer.session, peer.expected)

    def _runsConfirmed(self, peer: Peer, session: str, number: int) -> None:
        if session == self.session:
            while peer.packets and peer.packets[0][0] <= number:
                peer.openBytes -= peer.packets.popleft()[1]
            if peer.isFull and peer.openBytes <= WINDOW // 2:
                self._relieve(peer)

    def _relieve(self, peer: Peer) -> None:
        peer.isFull = False
        paused, peer.paused = peer.paused, set()
        for reading in paused:
            reading.resume(peer)

    def _send(self, node: str, kind: Kind, *values: Any) -> int:
        """Send a packet, in pieces if it is large; return the number of its bytes."""
        data = msgpack.packb((kind, self.node, self.session, *values))
        most = self.link.maxPayload - _MARGIN
        if len(data) <= most:
            self.link.send(node, data)
            return len(data)
        number = -(-len(data) // most)
        for index in range(number):
            piece = data[index * most : (index + 1) * most]
            self.link.send(node, msgpack.packb((Kind.PIECE, self.node, self.session, index, number, piece)))
        return len(data)

    # -- questions ---------------------------------------------------------------------------------

    def ask(self, question: Any, found: Callable[[str, Any], None]) -> int:
        """Ask all other nodes; call with name and answer of each, until :meth:`endAsking` gets the returned number."""
        self._questions += 1
        self._asking[self._questions] = found
        self._send("", Kind.QUESTION, self._questions, question)
        return self._questions

    def endAsking(self, number: int) -> None:
        """Ignore later answers to a question."""
        del self._asking[number]

    def _answer(self, peer: Peer, number: int, question: Any) -> None:
        session = peer.session

        def answer(value: Any) -> None:
            self._send(peer.name, Kind.ANSWER, session, number, value)

        self.user.asked(question, answer)

    def _answered(self, peer: Peer, session: str, number: int, value: Any) -> None:
        if session == self.session and number in self._asking:
            self._asking[number](peer.name, value)

    # -- receiving ---------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Receive a packet."""
        kind, name, session, *values = msgpack.unpackb(data)
        if kind == Kind.LEAVING:
            if name in self.peers:
                self._forget(self.peers[name], "stops")
            return
        peer = self.peers.get(name)
        if peer is None or peer.session != session:
            peer = self._meet(name, session)
        peer.seen = self.clock.seconds()
        _RECEIVERS[kind](self, peer, *values)
        if kind == Kind.RUNS:
            peer.receivedBytes += len(data)
            if peer.receivedBytes >= CONFIRM_BYTES or not values[1]:
                self._confirmRuns(peer)

    def _meet(self, name: str, session: str) -> Peer:
        former = self.peers.get(name)
        if former is not None:
            self._forget(former, "has started again")
        _log.info("node {name} is in the mesh", name=name)
        peer = self.peers[name] = Peer(name, session, self.clock.seconds())
        peer.sent = self._sent.get(name, 0)
        self._tellWhole(name)
        return peer

    def _forget(self, peer: Peer, reason: str) -> None:
        _log.info("node {name} is not in the mesh any more: it {reason}", name=peer.name, reason=reason)
        del self.peers[peer.name]
        self._sent[peer.name] = peer.sent
        if peer in self._toFlush:
            self._toFlush.remove(peer)
        self.user.interestChanged(peer.name, [], list(peer.interest))
        self._relieve(peer)
        self._checkBarriers()

    def _learn(self, peer: Peer, version: int, isWhole: bool, added: Any, removed: Any) -> None:
        """Apply a step or the whole table that :meth:`_tell` or :meth:`_tellWhole` of another node has sent; ask for
        the whole table if a step is missing.
        """
        if isWhole:
            if version < peer.version:
                return
            table = {Interest(*each) for each in added}
            new, gone = table - peer.interest, peer.interest - table
        elif version == peer.version:
            new, gone = set(), set()
        elif added is not None and version == peer.version + 1 and peer.version >= 0:
            new = {Interest(*each) for each in added} - peer.interest
            gone = {Interest(*each) for each in removed} & peer.interest
        else:
            self._send(peer.name, Kind.WHOLE)
            return
        peer.interest |= new
        peer.interest -= gone
        peer.version = version
        if new or gone:
            self.user.interestChanged(peer.name, list(new), list(gone))
        self._send(peer.name, Kind.CONFIRMED, peer.session, version)

    def _confirmed(self, peer: Peer, session: str, version: int) -> None:
        if session == self.session:
            peer.confirmed = max(peer.confirmed, version)
            peer.isLate = peer.isLate and peer.confirmed < self._version
            self._checkBarriers()

    def _delivered(self, peer: Peer, first: int, count: int, runs: Sequence[Any]) -> None:
        if 0 <= peer.expected < first:
            lost = first - peer.expected
            _log.warn("{number} messages from node {name} were lost", number=lost, name=peer.name)
            self.user.counted("lost", lost)
        peer.expected = first + count
        self.user.received(peer.name, runs)

    def _joined(self, peer: Peer, index: int, number: int, piece: bytes) -> None:
        if index == 0:
            peer.pieces = []
        if index == len(peer.pieces):
            peer.pieces.append(piece)
            if len(peer.pieces) == number:
                pieces, peer.pieces = peer.pieces, []
                self.received(b"".join(pieces))


_RECEIVERS: dict[int, Callable[..., None]] = {
    Kind.INTEREST: Mesh._learn,
    Kind.CONFIRMED: Mesh._confirmed,
    Kind.WHOLE: lambda mesh, peer: mesh._tellWhole(peer.name),
    Kind.RUNS: Mesh._delivered,
    Kind.PIECE: Mesh._joined,
    Kind.QUESTION: Mesh._answer,
    Kind.ANSWER: Mesh._answered,
    Kind.RECEIVED: Mesh._runsConfirmed,
}
