"""Output buffer of one connection. Hot.

A delivery costs one list append, 0.1 us; the output of a turn is joined and written once: to the kernel directly if
the transport is a plain, idle socket, which saves 12 us per request and reply. Unread output is buffered up to a byte
limit, the mark, which includes the bytes that the transport has not sent. While the peer does not read, the policy of
:mod:`fleximq.dialects.connection.slow_consumer` decides about each further delivery.

Deliveries to a slow peer in a form of its own are rendered after all writes of the turn, and not at all if the policy
would drop them: rendering 16 messages of 4 KiB as base64 takes 125 us, while other connections wait.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IPullProducer, IPushProducer
from zope.interface import implementer

from fleximq.broker.replay.feed import DeferredRun
from fleximq.broker.traffic import Traffic
from fleximq.dialects.connection.handover import isPlain
from fleximq.dialects.connection.outbox_state import TRANSITIONS, HalfClose, OutboxEvent, OutboxState
from fleximq.dialects.connection.slow_consumer import DISCONNECT, Block, PausablePublisher, Policy
from fleximq.dialects.connection.tapped_transport import TappedTransport
from fleximq.dialects.connection.tcp_socket import probePeer
from fleximq.dialects.connection.write_backlog import Chunk, WriteBacklog
from fleximq.dialects.connection.write_turn import WriteTurn

__all__ = ["MAX_UNREAD", "Chunk", "Outbox", "markOf"]

#: Maximum bytes passed to the transport at once when a slow reader catches up.
_CHUNK_BYTES = 1 << 20
#: A peer that pulls messages and has this much unread is sent no more answers: the messages stay in their queue, where
#: they need neither rendering nor buffering.
MAX_UNREAD = 1 << 20
#: Up to this many chunks are passed to the kernel as they are; more are joined first.
_VECTOR = 16
#: The backlog of an outbox that never had any; one of its own would take 700 bytes of each connection.
_NOTHING_HELD = WriteBacklog()
#: The deferred runs of an outbox that has none; a list of its own would take 56 bytes of each connection.
_NOT_DEFERRED: list[tuple[DeferredRun, int, PausablePublisher | None]] = []
_WRITING, _CLOSED = OutboxState.WRITING, OutboxState.CLOSED
_PAUSED = OutboxState.PAUSED, OutboxState.OVERFLOWED
_UNREAD = *_PAUSED, OutboxState.DRAINING


def markOf(budget: int) -> int:
    """Return the mark for a connection with this memory budget; a 64th is reserved for bookkeeping."""
    return budget - budget // 64


@implementer(IPushProducer, IPullProducer)
class Outbox:
    """Collects chunks and writes them in order; every byte of the connection must pass through it.

    :param limit: the mark: unsent bytes above which the consumer is too slow.
    :param overflow: called once, when the policy gives up on the consumer.

    ``traffic`` counts both directions. ``messagesWithin(chunk, space)``, set by the session, returns the number of
    bytes, and of messages, that end within ``space`` bytes of a run.
    """

    #: Why a publisher is not read that this outbox pauses.
    pauseWords = "a subscriber of its messages reads too slowly"
    __slots__ = ("_deferred", "_direct", "_fresh", "_halfClose", "_held", "_overflow", "_policy", "_publisher",
                 "_reliefs", "_state", "_transport", "_turn", "_unsent", "_writes", "limit", "messagesWithin",
                 "traffic", "waiting")  # fmt: skip

    def __init__(
        self, transport: Any, turn: WriteTurn, limit: int, overflow: Callable[[], None], policy: Policy = DISCONNECT
    ) -> None:
        self._transport = transport
        self._turn = turn
        self._overflow = overflow
        self._policy = policy
        self._direct = isPlain(transport)
        self._fresh: list[Chunk] = []
        self._held = _NOTHING_HELD
        # Received while paused, with their publisher.
        self._deferred = _NOT_DEFERRED
        self._publisher: PausablePublisher | None = None
        self._unsent = 0
        self._state = _WRITING
        self._writes = True  # in WRITING; comparing the state would cost a delivery 5 ns more
        self._halfClose = HalfClose.NEVER
        self._reliefs: list[Callable[[], None]] = []
        self.messagesWithin: Callable[[Chunk, int], tuple[int, int]] = _noneWithin
        self.limit = limit
        self.traffic = Traffic()
        self.waiting = 0
        if not self._direct:
            self._transport.registerProducer(self, True)

    @property
    def space(self) -> int:
        """Free bytes up to the mark; negative above it."""
        return self.limit - self.waiting - self._unsent

    @property
    def unread(self) -> int:
        """The number of bytes that the peer has not read, as far as they are not in the system's buffer."""
        return self.waiting + self._unsent if self._state in _UNREAD else 0

    @property
    def isUnread(self) -> bool:
        """Whether output waits until the peer reads."""
        return self._state in _UNREAD

    @property
    def full(self) -> bool:
        """Whether too much is unread to answer further requests; :meth:`whenRelieved` reports the end of it."""
        return self._state in _UNREAD and (self.waiting + self._unsent >= MAX_UNREAD or self.space <= 0)

    @property
    def sent(self) -> int:
        """The number of bytes that were passed to the system, as far as that is known."""
        return self.traffic.bytesOut - (self._unsent if self._state in _UNREAD else 0)

    @property
    def taken(self) -> int:
        """The number of bytes so far, also of those that are not sent yet."""
        return self.traffic.bytesOut + self.waiting + self.pendingBytes

    @property
    def empty(self) -> bool:
        """Whether it is closed and everything was passed to the system, so that only the peer's end is awaited."""
        return self._state in (OutboxState.HALF_CLOSED, _CLOSED)

    @property
    def isOpen(self) -> bool:
        """Whether it accepts output."""
        return self._state is _WRITING or self._state in _PAUSED

    @property
    def reader(self) -> PausablePublisher | None:
        """The connection whose read is being processed, that is, the publisher, if any."""
        return self._publisher or self._turn.reader

    def deliver(self, chunk: Chunk, count: int = 1) -> None:
        """Send a run of ``count`` messages at the end of the turn, after all earlier output."""
        self.traffic.messagesOut += count
        if not self._writes:
            if self._deferred:
                self._applyPolicy()
            if self._state in _PAUSED:
                self._policy.deliver(self, chunk, count)
            return
        fresh = self._fresh
        if not fresh:
            self._turn.add(self)
        fresh.append(chunk)

    def deliverLate(self, run: DeferredRun, count: int = 1) -> None:
        """Send a run that is rendered here; if the peer does not read, after all writes of the turn."""
        self.traffic.messagesOut += count
        if not self._writes:
            if self._state in _PAUSED:
                if not self._deferred:
                    self._turn.later(self._applyPolicy)
                    self._deferred = []
                self._deferred.append((run, count, self._turn.reader))
            return
        fresh = self._fresh
        if not fresh:
            self._turn.add(self)
        fresh.append(run.rendered())

    def take(self, chunk: Chunk) -> None:
        """Send an answer at the end of the turn, after all earlier output."""
        if not self._writes:
            if self._deferred:
                self._applyPolicy()
            if self._state in _PAUSED:
                self.hold(chunk)
                if self.waiting + self._unsent > self.limit * self._policy.answerFactor:
                    self.overflow()
            return
        fresh = self._fresh
        if not fresh:
            self._turn.add(self)
        fresh.append(chunk)

    def hold(self, chunk: Chunk) -> None:
        """Buffer these bytes until the peer has read all earlier ones."""
        self.waiting += len(chunk)
        if self._own().append(chunk):
            self._turn.later(self._held.pack)

    def _own(self) -> WriteBacklog:
        if self._held is _NOTHING_HELD:
            self._held = WriteBacklog()
        return self._held

    def overflow(self) -> None:
        """Report that the consumer is too slow, once until it has caught up."""
        if self._state is OutboxState.PAUSED:
            self._step(OutboxEvent.OVERFLOW)
            self._overflow()

    @property
    def pendingBytes(self) -> int:
        """The number of bytes to be written at the end of the turn."""
        return sum(map(len, self._fresh))

    def flush(self) -> None:
        """Write the output of this turn, or buffer it while the peer does not read."""
        fresh = self._fresh
        if not fresh:
            return
        self._fresh = []
        if self._state is _WRITING:
            if self._direct and len(fresh) <= _VECTOR:
                self._send(fresh)
                return
            if len(fresh) == 1 or sum(map(len, fresh)) <= _CHUNK_BYTES:
                fresh = [b"".join(fresh)]
        for chunk in fresh:  # large chunks one by one, as other readers may share them
            if self._state in _PAUSED:
                Outbox.hold(self, chunk)  # already framed on WebSockets
            elif self._state is _WRITING:
                if self._direct:
                    self._send([chunk])
                else:
                    self._write(chunk)

    def close(self) -> None:
        """Send all pending output, then close the connection; later output is dropped."""
        if not self.isOpen:
            return
        self._applyPolicy()
        self.flush()
        self._step(OutboxEvent.CLOSE)
        self._endOutput()

    def tap(self, wrote: Callable[[bytes], None]) -> Callable[[], None]:
        """Pass all bytes to a tap that are written from the next message on, and return a function that ends this."""
        transport, isOver = self._transport, False

        def begin() -> None:
            if not isOver:
                self._transport = TappedTransport(transport, wrote)

        def end() -> None:
            nonlocal isOver
            isOver, self._transport = True, transport

        if self.waiting:
            self.whenRelieved(begin)
        else:
            begin()
        return end

    def detach(self) -> bool:
        """Leave the transport to another protocol; return False while output is unsent."""
        self.flush()
        if self._state is not _WRITING:
            return False
        if not self._direct:
            self._transport.unregisterProducer()
        self._step(OutboxEvent.LOSE)
        return True

    def probe(self, seconds: int) -> None:
        """Let the system find out whether the peer is gone, after so many seconds of silence."""
        probePeer(self._transport, seconds)

    def linger(self) -> None:
        """On a plain socket, make :meth:`close` end only our output, and the connection when the peer has ended too.

        The system discards sent but unread output when a socket with unread input is closed.
        """
        if self._direct and self._halfClose is HalfClose.NEVER:
            self._halfClose = HalfClose.WANTED

    def finish(self) -> None:
        """The peer has ended its side: stop waiting for it."""
        self._halfClose = HalfClose.PEER_ENDED
        self._endOutput()

    def abort(self) -> None:
        """Drop all pending output and close the connection now."""
        registered = self._state in _UNREAD or not (self._direct or self._state is _CLOSED)
        self._step(OutboxEvent.LOSE)
        self._forget()
        if registered:
            self._transport.unregisterProducer()
        if hasattr(self._transport, "abortConnection"):
            self._transport.abortConnection()
        else:
            self._transport.loseConnection()

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call once, when no output is buffered any more or the connection is lost."""
        self._reliefs.append(call)

    def _applyPolicy(self) -> None:
        """Apply the policy to deferred deliveries. Runs that it would drop are not rendered."""
        late, self._deferred = self._deferred, _NOT_DEFERRED
        keepsAll = isinstance(self._policy, Block)
        for run, count, publisher in late:
            if self._state not in _PAUSED:
                break
            self._publisher = publisher
            self._policy.deliver(self, run.rendered() if keepsAll or self.space > 0 else b"", count)
        self._publisher = None

    def _send(self, chunks: Sequence[Chunk]) -> None:
        socket = self._transport.socket
        try:
            sent = socket.send(chunks[0]) if len(chunks) == 1 else socket.sendmsg(chunks)
        except OSError:  # full, or an error that the transport's next write reports too
            sent = 0
        self.traffic.bytesOut += sent
        for chunk in chunks:
            size = len(chunk)
            if sent >= size:
                sent -= size
            else:
                self._own().append(memoryview(chunk)[sent:])
                self.waiting += size - sent
                sent = 0
        if self.waiting:
            self._step(OutboxEvent.PAUSE)
            self._transport.registerProducer(self, False)  # this requests the first chunk

    def _write(self, chunk: Chunk) -> None:
        if len(chunk) <= _CHUNK_BYTES:
            self._unsent = len(chunk)
            self.traffic.bytesOut += self._unsent
            self._transport.write(bytes(chunk))
        else:
            self._own().append(chunk)
            self.waiting = len(chunk)
            self._catchUpAll()

    def pauseProducing(self) -> None:
        """IPushProducer: the transport's buffer is full."""
        self._step(OutboxEvent.PAUSE)

    def resumeProducing(self) -> None:
        """IPushProducer: the transport has sent its buffer."""
        self._unsent = 0
        self._applyPolicy()
        if self._state is _CLOSED:  # by the policy
            return
        if self._direct:
            if self._held:
                self._pushOn()
                if self._held:
                    return
            self._transport.unregisterProducer()
        self._step(OutboxEvent.RESUME)
        self._catchUpAll()
        if self._state is _WRITING:
            self._relieve()
        self._endOutput()

    def _endOutput(self) -> None:
        """Close the connection, or our side of it, when it is closing and everything was passed to the transport."""
        if self._state is not OutboxState.HALF_CLOSED:
            return
        if self._halfClose is HalfClose.WANTED:
            self._endOurSide()
            return
        self._step(OutboxEvent.END)
        if not self._direct:
            self._transport.unregisterProducer()
        self._transport.loseConnection()

    def _endOurSide(self) -> None:
        self._transport.resumeProducing()  # resume reading in any case; the input is discarded
        self._transport.loseWriteConnection()

    def _catchUpAll(self) -> None:
        while self._held and self._state not in _UNREAD:
            self._catchUp()

    def _catchUp(self) -> None:
        chunk = self._held.take(_CHUNK_BYTES)
        self._unsent = len(chunk)
        self.waiting -= self._unsent
        self.traffic.bytesOut += self._unsent
        self._transport.write(chunk)

    def _pushOn(self) -> None:
        """Pass backlog to the kernel, in larger chunks than the transport would; if it is full, ask for more later."""
        space, send = _CHUNK_BYTES, self._transport.socket.send
        while self._held and space > 0:
            chunk = self._held.takeView(space)
            try:
                sent = send(chunk)
            except OSError:  # full, or an error that the transport's empty write reports too
                sent = 0
            space -= sent
            self.waiting -= sent
            self.traffic.bytesOut += sent
            if sent < len(chunk):
                self._held.putBack(memoryview(chunk)[sent:])
                break
        if self._held:
            self._transport.startWriting()

    def stopProducing(self) -> None:
        """The connection is lost: drop all output."""
        self._step(OutboxEvent.LOSE)
        self._forget()
        self._relieve()

    def _step(self, event: OutboxEvent) -> None:
        self._state = TRANSITIONS[self._state, event]
        self._writes = self._state is _WRITING

    def _forget(self) -> None:
        self._overflow = _nothing  # a reference cycle
        self._fresh = []
        self._deferred = _NOT_DEFERRED
        self.waiting = 0
        if self._held:
            self._turn.freeLater(self._held.clear())

    def _relieve(self) -> None:
        reliefs, self._reliefs = self._reliefs, []
        for relief in reliefs:
            relief()


def _noneWithin(chunk: Chunk, space: int) -> tuple[int, int]:
    return 0, 0


def _nothing() -> None:
    pass
