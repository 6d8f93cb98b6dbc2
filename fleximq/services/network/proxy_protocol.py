"""Where connections come in that a proxy passes on, which says first for whom (PROXY protocol, ``haproxy:``).

Twisted's endpoint reads the PROXY header, version 1 or 2, and gives the peer's own address from then on. Nothing may
ask for it before: so what serves the connection is made when the header has come and the peer has said something. From
then on everything, the gate included, sees the address that the proxy told. Twisted's wrapper keeps it to itself when
the peer ends its input; that is passed on here, so that such peers get their pending answers too.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IAddress, IHalfCloseableProtocol, IProtocolFactory, IReactorTime, ITransport
from twisted.internet.protocol import Factory, connectionDone
from twisted.logger import Logger
from twisted.protocols.policies import ProtocolWrapper
from twisted.python.failure import Failure
from zope.interface import alsoProvides

from fleximq.dialects.connection.handover import Handover
from fleximq.security.peer_address import peerAddress
from fleximq.values.counted_event import CountedEvent, EventFamily

_log = Logger("fleximq.services.behind_proxy")

#: What is counted when a connection is closed because nothing came.
SILENT = CountedEvent(
    EventFamily.REFUSED_CONNECTIONS, "no PROXY header, or nothing behind it, before the handshake deadline"
)

#: Counts a connection by its address: returns what takes it back, None if it is too much.
Enter = Callable[[object], Callable[[], None] | None]


class ProxiedProtocol(Handover):
    """Waits until it is known who is there."""

    factory: "ProxiedFactory"
    _known = _let = False
    _leave: Callable[[], None] | None = None

    def makeConnection(self, transport: ITransport) -> None:
        """Listen to what Twisted's wrapper is told, which is our transport."""
        if isinstance(transport, ProtocolWrapper):
            self._listenTo(transport)
        super().makeConnection(transport)

    def connectionMade(self) -> None:
        """Start the clock."""
        self.connectedAt = self.factory.clock.seconds()
        self._timer = self.factory.clock.callLater(self.factory.deadline, self._tooSlow)

    def dataReceived(self, data: bytes) -> None:
        """Hand over to whoever serves the peer that the proxy named."""
        if self._timer is None or not self._mayCome():
            return
        self._stopClock()
        inner = self.factory.inner.buildProtocol(self._peer())
        if inner is not None:
            self._leaveLater()
        self.handOver(inner, data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Forget the connection."""
        self._stopClock()
        if self._leave is not None:
            self._leave()

    def _listenTo(self, wrapper: Any) -> None:
        received = wrapper.dataReceived
        direct = wrapper.transport.getPeer()

        def receivedAndLook(data: bytes) -> None:
            received(data)
            if not self._known and wrapper.getPeer() != direct:
                self._mayCome()
            if self._known and wrapper.__dict__.pop("dataReceived", None) and self._let:
                self._passOnEnds(wrapper)  # who may come talks to the wrapper directly from now on

        wrapper.dataReceived = receivedAndLook

    def _passOnEnds(self, wrapper: Any) -> None:
        """Hear of it when the peer ends its input; only of those who may come, for saying so is half of their cost."""
        wrapper.readConnectionLost = lambda: self.readConnectionLost()
        wrapper.writeConnectionLost = lambda: self.writeConnectionLost()
        alsoProvides(wrapper, IHalfCloseableProtocol)

    def _mayCome(self) -> bool:
        """Count the peer by its own address, once; False if it is too much, and closed."""
        if self._known:
            return True
        self._known = True
        self._leave = self.factory.enter(self._peer())
        if self._leave is None:
            self._stopClock()
            transport: Any = self.transport
            transport.abortConnection()
            return False
        self._let = True
        return True

    def _leaveLater(self) -> None:
        """Take the count back when whoever serves the connection has lost it."""
        (leave, self._leave), before = (self._leave, None), self.whenLost

        def both() -> None:
            if leave is not None:
                leave()
            if before is not None:
                before()

        self.whenLost = both

    def _tooSlow(self) -> None:
        self._timer = None
        self.factory.counted(SILENT, 1)
        _log.debug("{peer}: nothing came through the proxy in time", peer=peerAddress(self._peer()))
        self._endAll()


class ProxiedFactory(Factory[ProxiedProtocol]):
    """Makes the doors of a listener behind a proxy.

    :param inner: makes what serves the peers.
    :param enter: counts each by its own address.
    :param clock: the reactor's time.
    :param deadline: how many seconds a connection may take to say something behind its header.
    :param counted: called with the reason and 1 for every connection that is closed.
    """

    noisy = False

    def __init__(
        self,
        inner: IProtocolFactory,
        enter: Enter,
        clock: IReactorTime,
        deadline: float,
        counted: Callable[[str, int], object],
    ) -> None:
        self.inner = inner
        self.enter = enter
        self.clock = clock
        self.deadline = deadline
        self.counted = counted

    def buildProtocol(self, addr: IAddress | None) -> ProxiedProtocol:
        """Return the door for one connection of the proxy's."""
        door = ProxiedProtocol()
        door.factory = self
        return door

    def startFactory(self) -> None:
        """Start with the first port."""
        self.inner.doStart()

    def stopFactory(self) -> None:
        """Stop with the last port."""
        self.inner.doStop()
