"""Base of protocols that read the first bytes of a connection and then pass it to another protocol.

On a plain connection the second protocol replaces the first one at the transport. Elsewhere the methods of the first
protocol then *are* the bound methods of the second, so a read costs no extra call; so the second must not replace its
``dataReceived`` later, unless it is a :class:`Handover` itself.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from twisted.internet.interfaces import (
    IAddress,
    IHalfCloseableProtocol,
    IProtocol,
    IProtocolFactory,
    ITransport,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.tcp import Connection
from twisted.python.failure import Failure
from zope.interface import implementer

from fleximq.broker.deadlines import Timer

#: Size of the first reads of a plain connection: strangers can make 64 KiB, Twisted's default, cost 0.1 seconds.
FIRST_READ_BYTES = 1 << 14


def isPlain(transport: object) -> bool:
    """Return whether a transport is a socket of its own, without TLS."""
    return isinstance(transport, Connection) and not transport.TLS


@implementer(IHalfCloseableProtocol)
class Handover(Protocol):
    """A protocol that inspects a connection before passing it on.

    ``connectedAt``, the clock's time when the connection was made, is copied to a protocol with this attribute if there
    is input for it, so that the handshake deadline counts from there. ``whenLost``, if set, is called when the
    connection is lost afterwards.
    """

    connectedAt: float = 0.0
    whenLost: Callable[[], None] | None = None
    _outer: "Handover | None" = None
    _address: IAddress | None = None
    _timer: Timer | None = None
    _outputOver = False

    def makeConnection(self, transport: ITransport) -> None:
        """Begin with small reads."""
        if isinstance(transport, Connection):
            transport.bufferSize = FIRST_READ_BYTES
        super().makeConnection(transport)

    def handOver(self, inner: IProtocol | None, received: bytes) -> Any:
        """Pass the connection and the bytes read so far to another protocol, permanently.

        A protocol that closes the connection at once receives no bytes. None, from a full factory, closes it. Returns
        the protocol that the transport calls from now on.
        """
        transport: Any = self.transport
        if inner is None:
            transport.loseConnection()
            return self
        if received and hasattr(inner, "connectedAt"):
            inner.connectedAt = self.connectedAt
        if isPlain(transport) and IHalfCloseableProtocol.providedBy(inner):
            receiver: Any = inner
            transport.protocol = inner
            vars(self).pop("connectionLost", None)  # ends a reference cycle
            if self.whenLost is not None:
                callWhenLost(inner, self.whenLost)
        else:
            if isinstance(inner, Handover):
                inner._outer = self._outer or self  # the one that the transport calls, over any number of handovers
            self._follow(inner)
            receiver = self
        inner.makeConnection(transport)
        if self._outputOver:
            receiver.writeConnectionLost()
        if received and not getattr(transport, "disconnecting", False):
            inner.dataReceived(received)
        return receiver

    def _follow(self, inner: IProtocol, lost: Callable[[Failure], None] | None = None) -> None:
        """Redirect the transport's calls to this protocol, or ``lost``, also in those that handed over to this one."""
        lost = lost or inner.connectionLost
        half = IHalfCloseableProtocol(inner, None)
        bound: Any = self
        bound.dataReceived = inner.dataReceived
        bound.connectionLost = lost if self.whenLost is None else partial(_lose, self, lost, self.whenLost)
        bound.readConnectionLost = half.readConnectionLost if half else self._endAll
        bound.writeConnectionLost = half.writeConnectionLost if half else (lambda: None)
        if self._outer is not None:
            self._outer._follow(inner, bound.connectionLost)

    def readConnectionLost(self) -> None:
        """Close: the peer ended its input before its protocol was known."""
        self._endAll()

    def writeConnectionLost(self) -> None:
        """The peer reads no more: its protocol is told, once later input has decided it."""
        self._outputOver = True

    def _stopClock(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _peer(self) -> Any:
        return self.transport.getPeer() if self.transport is not None else self._address

    def _endAll(self) -> None:
        transport: Any = self.transport
        transport.loseConnection()


def callWhenLost(protocol: Any, leave: Callable[[], None]) -> None:
    """Call ``leave`` after the connection of a protocol, or of the one that it hands over to, is lost."""
    if isinstance(protocol, Handover):
        protocol.whenLost = leave
    protocol.connectionLost = partial(_lose, protocol, protocol.connectionLost, leave)


def _lose(
    protocol: Any, lost: Callable[[Failure], None], leave: Callable[[], None], reason: Failure = connectionDone
) -> None:
    vars(protocol).pop("connectionLost", None)  # ends a reference cycle
    try:
        lost(reason)
    finally:
        leave()


class HandoverFactory(Factory[Protocol]):
    """Starts and stops the factories that it may hand over to, with the first and last port of a listener."""

    noisy = False

    def __init__(self, factories: Iterable[IProtocolFactory]) -> None:
        self._handedTo = list(factories)

    def startFactory(self) -> None:
        """Start the factories."""
        for factory in self._handedTo:
            factory.doStart()

    def stopFactory(self) -> None:
        """Stop the factories."""
        for factory in self._handedTo:
            factory.doStop()
