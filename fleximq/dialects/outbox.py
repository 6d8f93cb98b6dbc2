"""What waits to be sent on one connection. Hot.

A delivery costs one append to a list, 0.1 us; everything that one turn brought is joined and written once. Where
the transport is a plain socket and idle, the bytes go to the kernel at once, which saves a round through the
reactor and a copy: 12 us less per request and reply. What the peer does not read is held here up to a byte budget,
counted together with what the transport has not sent; over it the consumer is too slow, and ``overflow`` is called
once.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IPullProducer, IPushProducer, ITransport
from twisted.internet.tcp import Connection
from zope.interface import implementer

from fleximq.dialects.turn import Turn

#: The most that is handed to the transport at once when a slow reader catches up.
_PORTION = 1 << 20


@implementer(IPushProducer, IPullProducer)
class Outbox:
    """Collects chunks and writes them in order.

    :param transport: where to; every byte of a stream connection must pass through its outbox.
    :param limit: bytes that may wait before the consumer counts as too slow.
    :param overflow: called when they are exceeded.
    :param shared: others write to the transport as well, so nothing may overtake its buffer.
    """

    __slots__ = ("_closing", "_direct", "_fresh", "_held", "_limit", "_overflow", "_paused", "_registered", "_relief",
                 "_transport", "_turn", "_unsent", "waiting")  # fmt: skip

    def __init__(
        self, transport: ITransport, turn: Turn, limit: int, overflow: Callable[[], None], shared: bool = False
    ) -> None:
        self._transport: Any = transport
        self._turn = turn
        self._limit = limit
        self._overflow = overflow
        self._direct = not shared and isinstance(transport, Connection) and not transport.TLS
        self._fresh: list[bytes] = []
        self._held: list[bytes | memoryview] = []
        self._unsent = 0
        self._paused = False
        self._closing = False
        self._registered = not self._direct
        self._relief: Callable[[], None] | None = None
        self.waiting = 0
        if not self._direct:
            self._transport.registerProducer(self, True)

    def take(self, chunk: bytes, count: int = 1) -> None:
        """Send these bytes at the end of the turn, behind all that was taken before.

        It is what the broker calls to deliver a run of ``count`` messages.
        """
        fresh = self._fresh
        if not fresh:
            self._turn.add(self)
        fresh.append(chunk)

    def flush(self) -> None:
        """Write what this turn brought, or hold it while the peer does not read."""
        fresh = self._fresh
        if not fresh:
            return
        chunk = fresh[0] if len(fresh) == 1 else b"".join(fresh)
        self._fresh = []
        if self._closing:
            return
        if not self._paused:
            self._write(chunk)
            return
        self._held.append(chunk)
        self.waiting += len(chunk)
        if self.waiting + self._unsent > self._limit:
            self._overflow()

    def close(self) -> None:
        """Send all that waits, then close the connection; what comes later is dropped."""
        if self._closing:
            return
        self.flush()
        self._closing = True
        if not self._paused:
            self._finish()

    def abort(self) -> None:
        """Drop all that waits and close the connection now."""
        self._closing = True
        self._fresh = []
        self._held.clear()
        self.waiting = 0
        self._release()
        if hasattr(self._transport, "abortConnection"):
            self._transport.abortConnection()
        else:
            self._transport.loseConnection()

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call once, when the peer has read so much that nothing is held here any more."""
        self._relief = call

    def _write(self, chunk: bytes) -> None:
        if self._direct:
            sent = self._transport.writeSomeData(chunk)
            if sent == len(chunk):
                return
            rest = memoryview(chunk)[sent:] if isinstance(sent, int) else chunk  # an error shows at the next write too
            self._held.append(rest)
            self.waiting = len(rest)
            self._paused = self._registered = True
            self._transport.registerProducer(self, False)  # which asks for the first portion
        elif len(chunk) <= _PORTION:
            self._unsent = len(chunk)
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
        if self._direct:
            if self._held:
                self._catchUp()
                return
            self._release()
        self._paused = False
        self._catchUpAll()
        if self._paused:
            return
        if self._closing:
            self._finish()
        elif self._relief is not None:
            relief, self._relief = self._relief, None
            relief()

    def _finish(self) -> None:
        """Close the connection; all that waited was handed to the transport."""
        self._release()
        self._transport.loseConnection()

    def _catchUpAll(self) -> None:
        while self._held and not self._paused:
            self._catchUp()

    def _catchUp(self) -> None:
        """Give the transport the next portion of what is held."""
        size = places = 0
        for chunk in self._held:
            places += 1
            size += len(chunk)
            if size >= _PORTION:
                break
        portion = self._held[:places]
        del self._held[:places]
        if size > _PORTION:
            last = memoryview(portion[-1])
            portion[-1] = last[: _PORTION - size]
            self._held.insert(0, last[_PORTION - size :])
            size = _PORTION
        self.waiting -= size
        self._unsent = size
        self._transport.write(b"".join(portion))

    def stopProducing(self) -> None:
        """The connection is gone: nothing will be sent any more."""
        self._relief = None
        self._closing = True
        self._fresh = []
        self._held.clear()
        self.waiting = 0

    def _release(self) -> None:
        """Stop being the transport's producer, so that it may close when it is empty."""
        if self._registered:
            self._registered = False
            self._transport.unregisterProducer()
