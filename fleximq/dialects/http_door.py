"""Where HTTP connections come in: WebSockets go to their dialect, everything else to the web site.

Reads the head of the first request within a bound and a deadline, keeps out who may not come (remote peers, pages
of foreign origins), and hands the connection with all its bytes on. docs/dialects.rst, "Identity" and "One port".
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from twisted.internet.interfaces import IAddress, IProtocolFactory, IReactorTime
from twisted.internet.protocol import Factory, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from fleximq.dialects.handover import Handover
from fleximq.dialects.http_head import HEAD_BYTES, HttpError, RequestHead, webSocketDialect
from fleximq.dialects.origins import Origins
from fleximq.security.protection import Protection, nameProxy
from fleximq.security.whence import whence

_log = Logger()

_END = b"\r\n\r\n"


class HttpDoor(Handover):
    """Reads one request head and steps aside."""

    factory: "HttpDoorFactory"

    def __init__(self, address: IAddress | None, now: float) -> None:
        self._address = address
        self.connectedAt = now
        self._received = bytearray()
        self._method = ""

    def connectionMade(self) -> None:
        """Start the clock, or go on with the time that the connection has left."""
        left = self.connectedAt + self.factory.deadline - self.factory.clock.seconds()
        self._timer = self.factory.clock.callLater(max(0.0, left), self._tooSlow)

    def dataReceived(self, data: bytes) -> None:
        """Look for the end of the head, in linear time. What comes after an answer is dropped."""
        if self._timer is None:
            return
        searched = max(0, len(self._received) - len(_END) + 1)
        self._received += data
        end = self._received.find(_END, searched, HEAD_BYTES)
        if end >= 0:
            self._stopClock()
            self._decide(bytes(self._received[:end]))
        elif len(self._received) >= HEAD_BYTES:
            self._stopClock()
            self._refuse(HttpError(431, f"the head of a request may have {HEAD_BYTES} bytes"))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Forget the connection."""
        self._stopClock()

    def _decide(self, raw: bytes) -> None:
        try:
            head = RequestHead.parse(raw)
            self._method = head.method
            factory = self.factory.takerOf(head, self._peer())
        except HttpError as error:
            self._refuse(error)
            return
        received, self._received = bytes(self._received), bytearray()
        self.handOver(factory.buildProtocol(self._address), received)

    def _tooSlow(self) -> None:
        self._timer = None
        if not self._received:
            self.factory.counted("refused: said nothing before the handshake deadline", 1)
            _log.debug("{peer} said nothing before the handshake deadline", peer=whence(self._peer()))
            self._endAll()
        else:
            self._refuse(HttpError(408, "the head of the request did not arrive in time"))

    def _refuse(self, error: HttpError) -> None:
        """Answer with an error and close."""
        self.factory.counted(f"refused: HTTP {error.code}", 1)
        _log.warn(
            "Refusing HTTP from {peer} with {code}: {sentence}",
            peer=whence(self._peer()),
            code=error.code,
            sentence=error,
        )
        transport: Any = self.transport
        transport.write(_response(error, withBody=self._method != "HEAD"))
        self._endAll()


class HttpDoorFactory(Factory[HttpDoor]):
    """Makes the doors of a listener.

    :param webSockets: the factory of each dialect that is served over WebSocket here, by the dialect's name.
    :param site: takes every request that asks for no WebSocket.
    :param protection: says which peers may come.
    :param origins: says which web pages may come.
    :param clock: the reactor's time.
    :param deadline: how many seconds after its begin a connection must have sent the head of its request.
    :param counted: called with the reason and 1 for every request that is refused here.
    :param path: the only path on which there are WebSockets, "" for all.
    """

    noisy = False

    def __init__(
        self,
        webSockets: Mapping[str, IProtocolFactory],
        site: IProtocolFactory,
        protection: Protection,
        origins: Origins,
        clock: IReactorTime,
        deadline: float,
        counted: Callable[[str, int], object] = lambda event, number: None,
        path: str = "",
    ) -> None:
        self._webSockets = dict(webSockets)
        self._site = site
        self._protection = protection
        self._origins = origins
        self.clock = clock
        self.deadline = deadline
        self.counted = counted
        self._path = path

    def buildProtocol(self, addr: IAddress | None) -> HttpDoor:
        """Return the door for one connection."""
        door = HttpDoor(addr, self.clock.seconds())
        door.factory = self
        return door

    def takerOf(self, head: RequestHead, peer: object) -> Any:
        """Return the factory that takes this request of this peer.

        :raises HttpError: 403 for a peer or an origin that may not come, 403 or 404 for a dialect not served here.
        """
        protection = self._protection.behindProxy() if nameProxy(head.fields) else self._protection
        refusal = protection.refusal(peer)
        if refusal is not None:
            raise HttpError(403, refusal)
        if not head.isUpgrade:
            return self._site
        if not self._origins.admit(head.only("origin"), head.only("host")):
            raise HttpError(403, "pages of this origin are not admitted, see --allowed-origin")
        if self._path not in ("", head.path):
            raise HttpError(404, "there are no WebSockets on this path")
        return self._webSockets[webSocketDialect(head, frozenset(self._webSockets))]

    def startFactory(self) -> None:
        """Start the factories behind the door with the first port."""
        for factory in (self._site, *self._webSockets.values()):
            factory.doStart()

    def stopFactory(self) -> None:
        """Stop the factories behind the door with the last port."""
        for factory in (self._site, *self._webSockets.values()):
            factory.doStop()


def _response(error: HttpError, withBody: bool) -> bytes:
    body = f"{error}\n".encode()
    head = (
        f"HTTP/1.1 {error.code} {HTTPStatus(error.code).phrase}\r\n"
        f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if withBody else b"")
