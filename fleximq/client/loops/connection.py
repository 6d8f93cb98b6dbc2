"""A client's connection on an event loop, and what it needs of the loop: :class:`Loop` and :class:`Transport`.

Bytes sent in one turn of the loop are written together at its end. A :class:`Connection` gets a new transport on each
reconnect, and ignores events of earlier ones.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from fleximq.client.errors import ConnectionLost
from fleximq.client.protocol.completion import Pending, resolveAll
from fleximq.client.settings import ClientSettings
from fleximq.limits import KIBIBYTE, MEBIBYTE
from fleximq.values.urls import Url

#: Automatic answers are dropped while more bytes of them than this were sent since the send buffer is full.
_ANSWER_BYTES = MEBIBYTE
#: A sender should wait in :meth:`Connection.drain` once this many bytes are collected in one turn of the loop.
DRAIN_BYTES = 64 * KIBIBYTE
T = TypeVar("T")
#: Cancels a timer or a running coroutine; no effect if it has finished.
Cancel = Callable[[], object]


class Transport(ABC):
    """A byte stream to the broker; it reports its events to a :class:`Connection`, which it tells of itself first."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Send bytes in the background."""

    @abstractmethod
    def pauseReading(self) -> None:
        """Stop reading until :meth:`resumeReading`."""

    @abstractmethod
    def resumeReading(self) -> None:
        """Continue reading."""

    @abstractmethod
    def close(self) -> None:
        """Send buffered bytes, and close."""

    @abstractmethod
    def abort(self) -> None:
        """Close at once, discarding buffered bytes."""


class Loop(ABC):
    """An event loop."""

    #: Whether a client may :meth:`dial` whenever it wants; otherwise it is given its connections.
    dials = True

    @abstractmethod
    def slot(self) -> tuple[Awaitable[None], Callable[[], None]]:
        """Return an awaitable, and a function that completes it; calling it again has no effect."""

    @abstractmethod
    def later(self, seconds: float, call: Callable[[], None]) -> Cancel:
        """Call a function after a delay; with 0 in the next turn of the loop."""

    @abstractmethod
    def start(self, work: Coroutine[Any, Any, None]) -> Cancel:
        """Run a coroutine in the background; it must not raise."""

    async def sleep(self, seconds: float) -> None:
        """Wait; with 0, until the next turn of the loop."""
        with suppress(TimeoutError):
            await self.wait(Pending(), seconds, "")

    async def wait(self, pending: Pending[T], timeout: float | None, what: str) -> T:
        """Return the value or raise the error of ``pending``, or a TimeoutError that names ``what``."""
        if not pending.done:
            wait, fire = self.slot()
            pending.onDone = fire
            cancel = None if timeout is None else self.later(timeout, fire)
            try:
                await wait
            finally:
                pending.onDone = None
                if cancel is not None:
                    cancel()
            if not pending.done:
                raise TimeoutError(f"{what} did not arrive within {timeout:g} seconds")
        return pending.result()

    async def waitAmong(self, waiters: list[Pending[None]], timeout: float | None, what: str) -> None:
        """Wait for a result in a list of those that are resolved together; otherwise as :meth:`wait`."""
        pending: Pending[None] = Pending()
        waiters.append(pending)
        try:
            await self.wait(pending, timeout, what)
        finally:
            with suppress(ValueError):
                waiters.remove(pending)

    def currentTask(self) -> object | None:
        """Return the running task, or None if the loop has no tasks."""
        return None

    @abstractmethod
    async def dial(self, url: Url, settings: ClientSettings, connection: "Connection") -> None:
        """Connect, and give the connection a new transport; raises ConnectionLost, or Untrusted for a certificate."""


class Connection:
    """The current transport and the bytes that wait to be written to it.

    ``onConnected`` is called with each new transport, ``onReceived`` with bytes, and ``onLost`` with the reason of a
    loss. ``framed`` converts sent bytes before they are written, and may add to them.
    """

    def __init__(
        self,
        loop: Loop,
        onConnected: Callable[[], None],
        onReceived: Callable[[bytes], None],
        onLost: Callable[[ConnectionLost], None],
        framed: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self._loop = loop
        self._onConnected = onConnected
        self._onReceived = onReceived
        self._onLost = onLost
        self._framed = framed
        #: None while disconnected.
        self.transport: Transport | None = None
        self._expected: Transport | None = None
        self._outgoing: list[bytes] = []
        #: Bytes sent in this turn of the loop; an attribute, since each publication reads it.
        self.waiting = 0
        self._cancelWriting: Cancel | None = None
        #: Whether the broker accepts no more; an attribute, since each publication reads it.
        self.isPaused = False
        self._unsentAnswers = 0
        self._drainWaiters: list[Pending[None]] = []

    def send(self, data: bytes) -> None:
        """Send bytes at the end of this turn of the loop."""
        self._outgoing.append(data)
        self.waiting += len(data)
        if self._cancelWriting is None:
            self._cancelWriting = self._loop.later(0, self.writePending)

    def sendAnswer(self, data: bytes) -> None:
        """Send an automatic answer, or drop it if too many are unsent."""
        self._unsentAnswers = self._unsentAnswers + len(data) if self.isPaused else 0
        if self._unsentAnswers <= _ANSWER_BYTES:
            self.send(data)

    async def sendAndDrain(self, data: bytes) -> None:
        """Send bytes, and wait while the broker accepts no more."""
        self.send(data)
        if self.waiting >= DRAIN_BYTES or self.isPaused:
            await self.drain()

    def sendNow(self, data: bytes) -> None:
        """Write bytes at once, after those collected in this turn."""
        self._outgoing.append(data)
        self.writePending()

    def writePending(self) -> None:
        """Write all collected bytes."""
        if self._cancelWriting is not None:
            self._cancelWriting()
            self._cancelWriting = None
        outgoing, self._outgoing, self.waiting = self._outgoing, [], 0
        if self.transport is not None:
            data = self._framed(b"".join(outgoing))
            if data:
                self.transport.write(data)

    async def drain(self) -> None:
        """Write all collected bytes, and wait until the broker accepts more."""
        self.writePending()
        await self._loop.sleep(0)
        await self.room()

    async def room(self) -> None:
        """Wait while the broker accepts no more."""
        while self.isPaused:
            await self._loop.waitAmong(self._drainWaiters, None, "")

    def drop(self) -> None:
        """Abort the transport, and discard collected bytes."""
        self._outgoing, self.waiting = [], 0
        transport = self._detach()
        if transport is not None:
            transport.abort()

    def end(self) -> None:
        """Write all collected bytes, and close the transport."""
        self.writePending()
        transport = self._detach()
        if transport is not None:
            transport.close()

    def _detach(self) -> Transport | None:
        transport, self.transport, self._expected = self.transport, None, None
        self._resume()
        return transport

    def _resume(self) -> None:
        self.isPaused = False
        resolveAll(self._drainWaiters)

    def transportMade(self, transport: Transport) -> None:
        """Expect this transport, and no earlier one, to be connected next."""
        self._expected = transport

    def transportConnected(self, transport: Transport) -> None:
        """Use the transport, if it is the expected one."""
        if self._expected is not transport:
            transport.abort()
            return
        self.transport = transport
        self.isPaused = False
        self._onConnected()

    def bytesReceived(self, transport: Transport, data: bytes) -> None:
        """Handle received bytes."""
        if self.transport is transport:
            self._onReceived(data)

    def transportLost(self, transport: Transport, lost: ConnectionLost) -> None:
        """Handle a closed or lost transport."""
        if self.transport is transport:
            self._onLost(lost)

    def transportPaused(self, transport: Transport) -> None:
        """Write no more, since the send buffer is full."""
        if self.transport is transport:
            self.isPaused = True

    def transportResumed(self, transport: Transport) -> None:
        """Continue to write, since the send buffer has drained."""
        if self.transport is transport:
            self._resume()
