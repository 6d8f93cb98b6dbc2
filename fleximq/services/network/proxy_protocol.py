"""Connections through a proxy that names the client first (PROXY protocol, ``haproxy:``).

Twisted's endpoint reads the PROXY header, version 1 or 2, and reports the client's address from then on. So the next
protocol is built after the header and the first input; it and the connection limit see the client's address. Twisted's
wrapper does not report the end of the client's input; it is passed on here, so that pending answers are sent.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IAddress, IHalfCloseableProtocol, IProtocolFactory, IReactorTime, ITransport
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.protocols.haproxy._wrapper import HAProxyProtocolWrapper
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from zope.interface import alsoProvides

from fleximq.dialects.connection.handover import Handover
from fleximq.security.peer_address import peerAddress
from fleximq.services.network.proxy_header import splitHeader
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.log_limit import LogLimits

_log = Logger()

#: Counter event: the connection was closed without input.
SILENT = CountedEvent(
    EventFamily.REFUSED_CONNECTIONS, "no PROXY header, or nothing behind it, before the handshake deadline"
)

#: Counter event: the connection was closed because of its PROXY header.
MALFORMED = CountedEvent(EventFamily.REFUSED_CONNECTIONS, "malformed PROXY header")

#: Counts a connection by its address: returns a function that uncounts it, None if it exceeds a limit.
Enter = Callable[[object], Callable[[], None] | None]


class ProxiedProtocol(Handover):
    """Waits for the client's address."""

    factory: "ProxiedFactory"
    _known = _let = False
    _leave: Callable[[], None] | None = None

    def makeConnection(self, transport: ITransport) -> None:
        """Observe the input of Twisted's wrapper, which is the transport, or below TLS."""
        if isinstance(transport, ProtocolWrapper):
            self._listenTo(transport)
        wrapper: Any = transport
        while isinstance(wrapper, ProtocolWrapper) and not isinstance(wrapper, HAProxyProtocolWrapper):
            wrapper = wrapper.transport
        if isinstance(wrapper, HAProxyProtocolWrapper):
            self._guardHeader(wrapper)
        super().makeConnection(transport)

    def connectionMade(self) -> None:
        self.connectedAt = self.factory.clock.seconds()
        self._timer = self.factory.clock.callLater(self.factory.deadline, self._tooSlow)

    def dataReceived(self, data: bytes) -> None:
        """Hand over to the protocol for the client that the proxy named."""
        if self._timer is None or not self._admit():
            return
        self._stopClock()
        inner = self.factory.wrappedFactory.buildProtocol(self._peer())
        if inner is not None:
            (leave, self._leave), before = (self._leave, None), self.whenLost

            def leaveBoth() -> None:
                for call in (leave, before):
                    if call is not None:
                        call()

            self.whenLost = leaveBoth
        self.handOver(inner, data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._stopClock()
        if self._leave is not None:
            self._leave()

    def _listenTo(self, wrapper: Any) -> None:
        received = wrapper.dataReceived
        direct = wrapper.transport.getPeer()

        def receivedAndLook(data: bytes) -> None:
            received(data)
            if not self._known and wrapper.getPeer() != direct:
                self._admit()
            if self._known and wrapper.__dict__.pop("dataReceived", None) and self._let:
                # The admitted client's input reaches the wrapper directly now, and its end is passed on. Only then,
                # because declaring the interface is half of the cost.
                wrapper.readConnectionLost = lambda: self.readConnectionLost()
                wrapper.writeConnectionLost = lambda: self.writeConnectionLost()
                alsoProvides(wrapper, IHalfCloseableProtocol)

        wrapper.dataReceived = receivedAndLook

    def _guardHeader(self, wrapper: Any) -> None:
        """Give Twisted the header in one piece, once it is complete; close if it is malformed."""
        received, collected = wrapper.dataReceived, b""

        def receivedHeader(data: bytes) -> None:
            nonlocal collected
            collected += data
            try:
                split = splitHeader(collected)
                if split is None:
                    return
                received(split[0])
                if wrapper._proxyInfo is None:
                    raise ValueError("it names an unknown command, family or address")
            except ValueError as error:
                wrapper.dataReceived = lambda data: None
                self._malformed(wrapper.transport, error)
                return
            if wrapper.__dict__.get("dataReceived") is receivedHeader:
                wrapper.dataReceived = received
            if split[1]:
                wrapper.dataReceived(split[1])

        wrapper.dataReceived = receivedHeader

    def _malformed(self, transport: Any, reason: Exception) -> None:
        self.factory.counted(MALFORMED, 1)
        more = self.factory.logLimits["malformed PROXY header"].ending(self.factory.clock.seconds())
        if more is not None:
            words = "Closing the connection from the proxy {peer}: its PROXY header is refused: {reason}{more}"
            _log.warn(words, peer=peerAddress(transport.getPeer()), reason=reason, more=more)
        transport.abortConnection()

    def _admit(self) -> bool:
        """Count the client by its own address, once; close and return False if it exceeds a limit."""
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

    def _tooSlow(self) -> None:
        self._timer = None
        self.factory.counted(SILENT, 1)
        more = self.factory.logLimits["silent behind a proxy"].ending(self.factory.clock.seconds())
        if more is not None:
            words = "{peer}: no input arrived through the proxy before the handshake deadline{more}"
            _log.debug(words, peer=peerAddress(self._peer()), more=more)
        self._endAll()


class ProxiedFactory(WrappingFactory[Any]):
    """Builds the protocols of a listener for a proxy; ``inner`` builds those of clients.

    :param enter: counts each client by its own address.
    :param deadline: seconds from the connection to the first input after the header.
    :param counted: called with the reason and 1 for every closed connection.
    """

    noisy = False

    def __init__(
        self,
        inner: IProtocolFactory,
        enter: Enter,
        clock: IReactorTime,
        deadline: float,
        counted: Callable[[str, int], object],
        logLimits: LogLimits | None = None,
    ) -> None:
        super().__init__(inner)
        self.enter, self.clock, self.deadline, self.counted = enter, clock, deadline, counted
        self.logLimits = LogLimits() if logLimits is None else logLimits

    def buildProtocol(self, addr: IAddress | None) -> Any:
        protocol = ProxiedProtocol()
        protocol.factory = self
        return protocol
