"""A protocol that reads the beginning of a connection and then steps aside for the one it found.

Afterwards the transport's calls reach the found protocol directly: the methods of the first one *are* the bound
methods of the second, so that a read costs nothing extra. The found protocol must therefore not replace its own
``dataReceived`` later, unless it is a :class:`Handover` itself.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IAddress, IDelayedCall, IHalfCloseableProtocol, IProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer


@implementer(IHalfCloseableProtocol)
class Handover(Protocol):
    """Base of the protocols that look at a connection first.

    ``connectedAt`` is the clock's time at which the connection was made; a protocol that has an attribute of this
    name is told it, so that its handshake deadline counts from there. ``whenLost``, where it is set, is called when the
    connection is lost after it was handed over.
    """

    connectedAt: float = 0.0
    whenLost: Callable[[], None] | None = None
    _outer: "Handover | None" = None
    _address: IAddress | None = None
    _timer: IDelayedCall | None = None

    def handOver(self, inner: IProtocol | None, received: bytes) -> None:
        """Give the connection, and what was read of it, to another protocol for good.

        An inner protocol that closes the connection at once is not given any bytes. None, from a factory that
        wants no more connections, closes it.
        """
        transport: Any = self.transport
        if inner is None:
            transport.loseConnection()
            return
        if isinstance(inner, Handover):
            inner._outer = self
        if hasattr(inner, "connectedAt"):
            inner.connectedAt = self.connectedAt
        self._follow(inner)
        inner.makeConnection(transport)
        if received and not getattr(transport, "disconnecting", False):
            inner.dataReceived(received)

    def _follow(self, inner: IProtocol) -> None:
        """Pass every call of the transport on to this protocol, and have whoever found us do the same."""
        half = IHalfCloseableProtocol(inner, None)
        bound: Any = self
        bound.dataReceived = inner.dataReceived
        bound.connectionLost = inner.connectionLost if self.whenLost is None else self._lostThen(inner)
        bound.readConnectionLost = half.readConnectionLost if half else self._endAll
        bound.writeConnectionLost = half.writeConnectionLost if half else _nothing
        if self._outer is not None:
            self._outer._follow(inner)

    def _lostThen(self, inner: IProtocol) -> Callable[..., None]:
        def lost(reason: Failure = connectionDone) -> None:
            try:
                inner.connectionLost(reason)
            finally:
                if self.whenLost is not None:
                    self.whenLost()

        return lost

    def readConnectionLost(self) -> None:
        """The peer said all it will say, and it was not enough to know what it wanted: close."""
        self._endAll()

    def writeConnectionLost(self) -> None:
        """The peer reads no more; whatever it still sends decides."""

    def _stopClock(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _peer(self) -> Any:
        return self.transport.getPeer() if self.transport is not None else self._address

    def _endAll(self) -> None:
        transport: Any = self.transport
        transport.loseConnection()


def _nothing() -> None:
    """Take no notice, as Twisted does for protocols that know no half-closed connections."""
