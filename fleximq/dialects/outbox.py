"""What waits to be sent on one connection. Hot.

A delivery costs one append to a list, 0.1 us; everything that one turn brought is joined and written once. Where
the transport is a plain socket and idle, the bytes go to the kernel at once, which saves a round through the
reactor and a copy: 12 us less per request and reply. What the peer does not read is held here up to a byte budget,
the mark, counted together with what the transport has not sent; while it does not keep up, the policy of
:mod:`fleximq.dialects.connection.slow_consumer` decides on every further delivery. How bytes are held is told in
:mod:`fleximq.dialects.connection.write_backlog`.

What a peer that does not keep up takes in a form of its own is rendered behind everybody's writes, and not at all where
the policy would leave it out: 125 us for 16 messages of 4 KiB that become base64, for which 20 others waited before.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IPullProducer, IPushProducer
from twisted.internet.tcp import Connection
from zope.interface import implementer

from fleximq.broker.replay.feed import DeferredRun
from fleximq.broker.traffic import Traffic
from fleximq.dialects.connection.slow_consumer import DISCONNECT, Block, PausablePublisher, Policy
from fleximq.dialects.connection.write_backlog import Chunk, WriteBacklog
from fleximq.dialects.connection.write_turn import WriteTurn

__all__ = ["MAX_UNREAD", "Chunk", "Outbox", "markOf"]

#: The most that is handed to the transport at once when a slow reader catches up.
_PORTION = 1 << 20
#: So much follows what the kernel took at once: when the transport has sent it, it asks for more.
_NEXT = 1 << 16
#: A peer that is sent only what it asks for, and leaves so much unread, is answered no further: what it asks for stays
#: in its queue, where it costs nothing to render and hold.
MAX_UNREAD = 1 << 20
#: So few chunks are given to the kernel as they are; more are joined first.
_VECTOR = 16


def markOf(budget: int) -> int:
    """Return the mark for a connection that may take so many bytes of memory: a 64th is for what holding them costs."""
    return budget - budget // 64


@implementer(IPushProducer, IPullProducer)
class Outbox:
    """Collects chunks and writes them in order.

    :param transport: where to; every byte of a connection must pass through its outbox.
    :param limit: the mark: bytes that may wait before the consumer counts as too slow.
    :param overflow: called once when it is too slow by the policy.
    :param policy: what happens to deliveries over the mark.

    ``traffic`` is what went over its connection, both ways. ``cut(chunk, room)`` finds the last end of a message within
    ``room`` bytes of a run: the bytes and messages before it. The session sets it to its form's.
    """

    __slots__ = ("_closing", "_direct", "_fresh", "_held", "_last", "_deferred", "_lingering", "_lingers", "_overflow",
                 "_overflowed", "_paused", "_policy", "_publisher", "_registered", "_reliefs", "_transport", "_turn",
                 "_unsent", "cut", "limit", "traffic", "waiting")  # fmt: skip

    def __init__(
        self,
        transport: Any,
        turn: WriteTurn,
        limit: int,
        overflow: Callable[[], None],
        policy: Policy = DISCONNECT,
    ) -> None:
        self._transport = transport
        self._turn = turn
        self._overflow = overflow
        self._policy = policy
        self._direct = isinstance(transport, Connection) and not transport.TLS
        self._fresh: list[Chunk] = []
        self._held = WriteBacklog()
        self._deferred: list[
            tuple[DeferredRun, int, PausablePublisher | None]
        ] = []  # came while paused, with who published it
        self._last = False
        self._publisher: PausablePublisher | None = None
        self._unsent = 0
        self._paused = False
        self._closing = False
        self._lingers: bool | None = False  # None: the peer has nothing more to say
        self._lingering = False
        self._overflowed = False
        self._registered = not self._direct
        self._reliefs: list[Callable[[], None]] = []
        self.cut: Callable[[Chunk, int], tuple[int, int]] = lambda chunk, space: (0, 0)
        self.limit = limit
        self.traffic = Traffic()
        self.waiting = 0
        if not self._direct:
            self._transport.registerProducer(self, True)

    @property
    def space(self) -> int:
        """How many bytes there are up to the mark; negative above it."""
        return self.limit - self.waiting - self._unsent

    @property
    def full(self) -> bool:
        """Whether the peer leaves so much unread that it need not be answered further; its relief is told."""
        return self._paused and (self.waiting + self._unsent >= MAX_UNREAD or self.space <= 0)

    @property
    def empty(self) -> bool:
        """Whether it is closed and all was handed to the system, so that only the peer's end is awaited."""
        return self._closing and not self._paused

    @property
    def reader(self) -> PausablePublisher | None:
        """Whose read is being worked through: who publishes, if somebody does."""
        return self._publisher or self._turn.reader

    def deliver(self, chunk: Chunk, count: int = 1) -> None:
        """Send a run of ``count`` messages at the end of the turn, behind all that was taken before."""
        self.traffic.messagesOut += count
        if self._paused:
            if self._deferred:
                self._applyPolicy()
            if not self._closing:
                self._policy.deliver(self, chunk, count)
            return
        fresh = self._fresh
        if not fresh:
            self._turn.add(self)
        fresh.append(chunk)

    def deliverLate(self, run: DeferredRun, count: int = 1) -> None:
        """Do the same with a run that is rendered here; behind everybody's writes, while the peer does not keep up."""
        self.traffic.messagesOut += count
        if self._paused:
            if not self._closing:
                if not self._deferred:
                    self._turn.add(self)
                self._deferred.append((run, count, self._turn.reader))
            return
        fresh = self._fresh
        if not fresh:
            self._turn.add(self)
        fresh.append(run.rendered())

    def take(self, chunk: Chunk) -> None:
        """Send an answer at the end of the turn, behind all that was taken before."""
        if self._paused:
            if self._deferred:
                self._applyPolicy()
            if not self._closing:
                self.hold(chunk)
                if self.waiting + self._unsent > self.limit * self._policy.answerFactor:
                    self.overflow()
            return
        fresh = self._fresh
        if not fresh:
            self._turn.add(self)
        fresh.append(chunk)

    def hold(self, chunk: Chunk) -> None:
        """Keep these bytes until the peer has read what came before them."""
        self.waiting += len(chunk)
        if self._held.append(chunk):
            self._turn.packLater(self._held)

    def overflow(self) -> None:
        """Say that the consumer is too slow, once until it has caught up."""
        if not self._overflowed:
            self._overflowed = True
            self._overflow()

    def flush(self) -> None:
        """Write what this turn brought, or hold it while the peer does not read."""
        if self._deferred:
            self._postponePolicy()
        fresh = self._fresh
        if not fresh:
            return
        self._fresh = []
        if self._closing:
            return
        if self._paused:
            for chunk in fresh:  # framed already, where there are frames
                Outbox.hold(self, chunk)
        elif not self._direct:
            self._write(b"".join(fresh))
        elif len(fresh) <= _VECTOR:
            self._send(fresh)
        else:
            self._send([b"".join(fresh)])

    def close(self) -> None:
        """Send all that waits, then close the connection; what comes later is dropped."""
        if self._closing:
            return
        self._applyPolicy()
        self.flush()
        self._closing = True
        if not self._paused:
            self._finish()

    def linger(self) -> None:
        """Let :meth:`close` end only what goes out, and the connection when the peer has ended its side as well.

        A socket that is closed with something unread in it takes back what the peer has not read yet. Where there is
        more than a plain socket, this changes nothing.
        """
        if self._lingers is not None:
            self._lingers = self._direct

    def finish(self) -> None:
        """The peer has ended its side: wait for it no longer."""
        self._lingers = None
        if self._lingering:
            self._transport.loseConnection()

    def abort(self) -> None:
        """Drop all that waits and close the connection now."""
        self._closing = True
        self._forget()
        self._release()
        if hasattr(self._transport, "abortConnection"):
            self._transport.abortConnection()
        else:
            self._transport.loseConnection()

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call once, when the peer has read so much that nothing is held here any more, or is gone."""
        self._reliefs.append(call)

    def _postponePolicy(self) -> None:
        """Let all others write before what is late is settled."""
        if self._last:
            self._applyPolicy()
        else:
            self._last = True
            self._turn.add(self)

    def _applyPolicy(self) -> None:
        """Let the policy decide on what came late. What it would leave out anyway is not rendered."""
        late, self._deferred = self._deferred, []
        self._last = False
        keepsAll = isinstance(self._policy, Block)
        for run, count, publisher in late:
            if self._closing:
                break
            self._publisher = publisher
            self._policy.deliver(self, run.rendered() if keepsAll or self.space > 0 else b"", count)
        self._publisher = None

    def _send(self, chunks: Sequence[Chunk]) -> None:
        """Give the kernel what it takes, and hold the rest."""
        socket = self._transport.socket
        try:
            sent = socket.send(chunks[0]) if len(chunks) == 1 else socket.sendmsg(chunks)
        except OSError:  # full, or an error that the transport's next write shows too
            sent = 0
        self.traffic.bytesOut += sent
        for chunk in chunks:
            size = len(chunk)
            if sent >= size:
                sent -= size
            else:
                self._held.append(memoryview(chunk)[sent:])
                self.waiting += size - sent
                sent = 0
        if self._held:
            self._paused = self._registered = True
            self._transport.registerProducer(self, False)  # which asks for the first portion

    def _write(self, chunk: Chunk) -> None:
        if len(chunk) <= _PORTION:
            self._unsent = len(chunk)
            self.traffic.bytesOut += self._unsent
            self._transport.write(chunk)
        else:
            self._held.append(chunk)
            self.waiting = len(chunk)
            self._catchUpAll()

    def pauseProducing(self) -> None:
        """The transport has enough for now (IPushProducer)."""
        self._paused = True

    def resumeProducing(self) -> None:
        """The transport has sent what it had and can take more."""
        self._unsent = 0
        self._applyPolicy()
        if self._direct:
            if self._held:
                self._pushOn()
                if self._unsent:
                    return
            self._release()
        self._paused = False
        self._catchUpAll()
        if self._paused:
            return
        if self._closing:
            self._finish()
        else:
            self._overflowed = False
            self._relieve()

    def _finish(self) -> None:
        """Close the connection; all that waited was handed to the transport."""
        self._release()
        if self._lingers:
            self._lingering = True
            self._transport.resumeProducing()  # whatever was against it: what is read now is thrown away
            self._transport.loseWriteConnection()
        else:
            self._transport.loseConnection()

    def _catchUpAll(self) -> None:
        while self._held and not self._paused:
            self._catchUp()

    def _catchUp(self, most: int = _PORTION) -> None:
        """Give the transport the next portion of what is held."""
        portion = self._held.take(most)
        self._unsent = len(portion)
        self.waiting -= self._unsent
        self.traffic.bytesOut += self._unsent
        self._transport.write(portion)

    def _pushOn(self) -> None:
        """Give the kernel the next portion of what is held, as far as it takes it, and the transport what asks again.

        The transport would copy all of it, and send it in smaller pieces.
        """
        portion = self._held.takeView(_PORTION)
        try:
            sent = self._transport.socket.send(portion)
        except OSError:  # full, or an error that the transport's next write shows too
            sent = 0
        self.waiting -= sent
        self.traffic.bytesOut += sent
        if sent < len(portion):
            self._held.putBack(memoryview(portion)[sent:])
        if self._held:
            self._catchUp(_NEXT)

    def stopProducing(self) -> None:
        """The connection is gone: nothing will be sent any more."""
        self._closing = True
        self._forget()
        self._relieve()

    def _forget(self) -> None:
        """Drop all that waits."""
        self._fresh = []
        self._deferred = []
        self.waiting = 0
        if self._held:
            self._turn.freeLater(self._held.clear())

    def _relieve(self) -> None:
        reliefs, self._reliefs = self._reliefs, []
        for relief in reliefs:
            relief()

    def _release(self) -> None:
        """Stop being the transport's producer, so that it may close when it is empty."""
        if self._registered:
            self._registered = False
            self._transport.unregisterProducer()
