"""A client's connection on an event loop. Bytes sent in one turn of the loop are written together at its end.

The :class:`Connection` lives as long as the client and gets a new transport on each reconnect. Events of earlier
transports are ignored.
"""

from collections.abc import Callable
from typing import NamedTuple

from fleximq.client.errors import ConnectionLost
from fleximq.client.loops.interfaces import Cancellable, Listener, Loop, Transport
from fleximq.client.protocol.completion import Pending
from fleximq.limits import KIBIBYTE

#: A sender should wait in :meth:`Connection.drain` once this many bytes are collected in one turn of the loop.
DRAIN_BYTES = 64 * KIBIBYTE


class Callbacks(NamedTuple):
    """Called on connect, with received bytes, and with the reason when the transport is lost."""

    connected: Callable[[], None]
    received: Callable[[bytes], None]
    lost: Callable[[ConnectionLost], None]


class Connection:
    """The current transport and the bytes that wait to be written to it.

    :param framed: converts sent bytes before they are written, and may add to them.
    """

    def __init__(self, loop: Loop, callbacks: Callbacks, framed: Callable[[bytes], bytes] = bytes) -> None:
        self._loop = loop
        self._callbacks = callbacks
        self._framed = framed
        #: None while disconnected.
        self.transport: Transport | None = None
        self._current: _CurrentListener | None = None
        self._outgoing: list[bytes] = []
        #: Bytes sent in this turn of the loop; an attribute, since each publication reads it.
        self.waiting = 0
        self._writing: Cancellable | None = None
        self._drainWaiters: list[Pending[None]] | None = None

    def listen(self) -> Listener:
        """Return the listener for the next transport; events of earlier ones are ignored from now on."""
        self._current = _CurrentListener(self, self._callbacks)
        return self._current

    # -- sending -----------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send bytes at the end of this turn of the loop."""
        self._outgoing.append(data)
        self.waiting += len(data)
        if self._writing is None:
            self._writing = self._loop.later(0, self.writePending)

    async def sendAndDrain(self, data: bytes) -> None:
        """Send bytes, and wait while the broker accepts no more."""
        self.send(data)
        if self.waiting >= DRAIN_BYTES:
            await self.drain()

    def sendNow(self, data: bytes) -> None:
        """Write bytes at once, after those collected in this turn."""
        self._outgoing.append(data)
        self.writePending()

    def writePending(self) -> None:
        """Write all collected bytes."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        outgoing, self._outgoing, self.waiting = self._outgoing, [], 0
        if self.transport is not None:
            data = self._framed(b"".join(outgoing))
            if data:
                self.transport.write(data)

    async def drain(self) -> None:
        """Write all collected bytes, and wait until the broker accepts more."""
        self.writePending()
        await self._loop.sleep(0)
        while self._drainWaiters is not None:
            drained: Pending[None] = Pending()
            self._drainWaiters.append(drained)
            await self._loop.wait(drained, None, "")

    # -- ending ------------------------------------------------------------------------------------

    def drop(self) -> None:
        """Abort the transport, and discard collected bytes."""
        transport = self._detach()
        self._outgoing, self.waiting = [], 0
        self._resumed()
        if transport is not None:
            transport.abort()

    def end(self) -> None:
        """Write all collected bytes, and close the transport."""
        self.writePending()
        transport = self._detach()
        self._resumed()
        if transport is not None:
            transport.close()

    def _detach(self) -> Transport | None:
        transport, self.transport, self._current = self.transport, None, None
        return transport

    # -- events of the transport -------------------------------------------------------------------

    def _attached(self, listener: "_CurrentListener", transport: Transport) -> bool:
        if self._current is not listener:
            transport.abort()
            return False
        self.transport = transport
        self._drainWaiters = None
        return True

    def _paused(self) -> None:
        if self._drainWaiters is None:
            self._drainWaiters = []

    def _resumed(self) -> None:
        waiting, self._drainWaiters = self._drainWaiters or (), None
        for each in waiting:
            each.succeed(None)


class _CurrentListener:
    """Forwards the events of one transport, as long as it is the current one."""

    def __init__(self, connection: Connection, callbacks: Callbacks) -> None:
        self._connection = connection
        self._callbacks = callbacks

    def transportConnected(self, transport: Transport) -> None:
        if self._connection._attached(self, transport):
            self._callbacks.connected()

    def bytesReceived(self, transport: Transport, data: bytes) -> None:
        if self._connection.transport is transport:
            self._callbacks.received(data)

    def transportLost(self, transport: Transport, lost: ConnectionLost) -> None:
        if self._connection.transport is transport:
            self._callbacks.lost(lost)

    def transportPaused(self, transport: Transport) -> None:
        if self._connection.transport is transport:
            self._connection._paused()

    def transportResumed(self, transport: Transport) -> None:
        if self._connection.transport is transport:
            self._connection._resumed()
