"""Autobahn's WebSocket protocol as a parser: it is given bytes, calls methods, and writes to a transport of ours.

Its public interface is used, so that any release serves: ``dataReceived`` and ``connectionLost`` of Twisted's
protocols, the methods of ``IWebSocketChannelStreamingApi`` that receive, the options of the factory, and the attribute
``log``. Its decisions are read from the bytes that it writes: an HTTP response, a PONG, or a close frame, after which
it may end its transport. The one exception is :attr:`AutobahnParser.receive`.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
from autobahn.websocket.types import ConnectionRequest
from twisted.internet.interfaces import IAddress, ITransport
from zope.interface import implementer


class ParsedWebSocket(Protocol):
    """The connection that a parser serves."""

    def onRequest(self, protocols: list[str]) -> tuple[str | None, dict[str, str]]:
        """Return the subprotocol to choose of these, and further fields of the response.

        :raises ConnectionDeny: the peer is refused.
        """

    def onOpen(self) -> None:
        """The handshake is complete; raises no exception."""

    def onMessageBegin(self, isBinary: bool) -> None:
        """A message begins."""

    def onMessageFrameBegin(self, length: int) -> None:
        """A frame of a message begins, with a payload of ``length`` bytes."""

    def onMessageFrameData(self, payload: bytes) -> None:
        """Take a part of the payload."""

    def onMessageEnd(self) -> None:
        """The message is complete."""

    def onAnswer(self, data: bytes) -> None:
        """Take an HTTP response or a frame for the peer."""

    def onEnd(self, isReply: bool) -> None:
        """The connection is over: the request was refused, or the peer's close frame was read and answered.

        ``isReply``: the close frame written before is the answer to the peer's.
        """


class _NoLog:
    """Drops log lines: the broker logs refusals itself, within limits."""

    def __getattr__(self, level: str) -> Callable[..., None]:
        return _dropped


def _dropped(*arguments: object, **fields: object) -> None:
    pass


class AutobahnParser(WebSocketServerProtocol):
    """Parses the input of one connection."""

    # Not in the instance's dictionary, which would need twice the memory for more than 85 names.
    __slots__ = ("connected", "factory", "peer", "servedWebSocket", "transport")

    log = _NoLog()

    #: Takes bytes that were read, as ``dataReceived`` does, which composes a log line for each call, though it is
    #: dropped: 25 us. The only private name of Autobahn that is used; a release without it is slower.
    receive: ClassVar[Callable[["AutobahnParser", bytes], None]] = getattr(
        WebSocketServerProtocol, "_dataReceived", WebSocketServerProtocol.dataReceived
    )

    def __init__(self, factory: WebSocketServerFactory, served: ParsedWebSocket, address: IAddress) -> None:
        super().__init__()
        self.factory = factory
        self.servedWebSocket = served
        self.makeConnection(_Answers(served, address))

    def onConnect(self, request: ConnectionRequest) -> tuple[str | None, dict[str, str]]:
        return self.servedWebSocket.onRequest(request.protocols)

    def onOpen(self) -> None:
        self.servedWebSocket.onOpen()

    def onMessageBegin(self, isBinary: bool) -> None:
        self.servedWebSocket.onMessageBegin(isBinary)

    def onMessageFrameBegin(self, length: int) -> None:
        self.servedWebSocket.onMessageFrameBegin(length)

    def onMessageFrameData(self, payload: bytes) -> None:
        self.servedWebSocket.onMessageFrameData(payload)

    def onMessageFrameEnd(self) -> None:
        """Do nothing until the end of the message."""

    def onMessageEnd(self) -> None:
        self.servedWebSocket.onMessageEnd()


@implementer(ITransport)
class _Answers:
    """The transport of a parser."""

    __slots__ = ("_address", "_served")

    def __init__(self, served: ParsedWebSocket, address: IAddress) -> None:
        self._served = served
        self._address = address

    def write(self, data: bytes) -> None:
        self._served.onAnswer(data)

    def writeSequence(self, data: Any) -> None:
        self._served.onAnswer(b"".join(data))

    def loseConnection(self) -> None:
        self._served.onEnd(isReply=True)

    def abortConnection(self) -> None:
        """After a close frame for a violation, Autobahn takes the peer's as the answer to it."""
        self._served.onEnd(isReply=False)

    def unregisterProducer(self) -> None:
        """Do nothing: no producer was registered."""

    def getPeer(self) -> IAddress:
        return self._address

    def getHost(self) -> IAddress:
        return self._address


def parserFactory(reactor: Any) -> WebSocketServerFactory:
    """Return the options of all parsers of a listener."""
    factory = WebSocketServerFactory(reactor=reactor, server="")
    # UTF-8 is checked, and close frames are awaited, by the connection, and origins are checked before it is made.
    # A violation is answered by a close frame, which names it.
    factory.setProtocolOptions(
        versions=[13],
        webStatus=False,
        utf8validateIncoming=False,
        failByDrop=False,
        echoCloseCodeReason=True,
        openHandshakeTimeout=0,
        closeHandshakeTimeout=0,
        allowedOrigins=["*"],
        allowNullOrigin=True,
    )
    return factory
