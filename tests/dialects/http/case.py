"""Conversations of plain HTTP with a broker in memory, through the router of a listener."""

import json
from typing import Any

from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory, Protocol

from fleximq.dialects.context import ListenerContext
from fleximq.dialects.http.protocol import HttpFactory
from fleximq.dialects.http.routing.origins import Origins
from fleximq.dialects.http.routing.request_router import RequestRouterFactory
from fleximq.interfaces import IAdmission
from tests.dialects.conversations import HERE, ConversationCase, Peer, makeContext


class PageRecorder(Protocol):
    """In place of the web site: records and answers nothing."""

    admitted: Any = None

    def __init__(self) -> None:
        self.received = b""
        self.isLost = False

    def dataReceived(self, data: bytes) -> None:
        self.received += data

    def connectionLost(self, reason: object = None) -> None:
        self.isLost = True


class PageFactory(Factory[PageRecorder]):
    """Keeps its protocols."""

    noisy = False

    def __init__(self) -> None:
        self.built: list[PageRecorder] = []

    def buildProtocol(self, addr: object) -> PageRecorder:
        self.built.append(PageRecorder())
        return self.built[-1]


class HttpCase(ConversationCase):
    """A test with a listener of plain HTTP. ``settings`` are those of the broker."""

    settings: dict[str, Any] = {}

    def setUp(self) -> None:
        """Make the listener."""
        super().setUp()
        self.open(makeContext(self.clock, **self.settings))

    def open(self, context: ListenerContext, origins: Origins | None = None) -> None:
        """Serve this context from now on."""
        self.context, self.broker = context, context.broker
        self.site = PageFactory()
        self.router = self.routerFor(context, origins or Origins())

    def routerFor(self, context: ListenerContext, origins: Origins) -> RequestRouterFactory:
        """Return a listener's factory."""
        proxied: IAdmission = context.admission
        router = RequestRouterFactory(
            {}, self.site, context.admission, proxied, origins, context.broker.deadlines, 10.0,
            context.broker.observers.counted, unadmitted=context.unadmitted,
        )  # fmt: skip
        router.plain = HttpFactory(context)
        return router

    def join(self, address: IAddress = HERE) -> Peer:
        """Return a new connection."""
        router: Any = self.router
        return self.connect(router, address)

    def turn(self) -> None:
        """Let calls of the next turns of the reactor happen."""
        for _ in range(3):
            self.clock.advance(0)


def request(line: str, body: bytes = b"", *fields: str, length: bool = True) -> bytes:
    """Return a request; ``line`` is its method and target. A body has its length, unless ``length`` is False."""
    lines = [f"{line} HTTP/1.1", "Host: 127.0.0.1:7890", *fields]
    if length and (body or line.startswith("POST")):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def post(path: str, value: Any = None, *fields: str) -> bytes:
    """Return a POST with a value as JSON."""
    return request(f"POST {path}", json.dumps(value).encode(), "Content-Type: application/json", *fields)


def responses(heard: bytes) -> list[tuple[int, dict[str, str], bytes]]:
    """Return the status, header fields and body of each response."""
    found = []
    while heard:
        head, _, heard = heard.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        size = int(fields.get("content-length", "0"))
        found.append((int(first.split(" ")[1]), fields, heard[:size]))
        heard = heard[size:]
    return found


def answers(heard: bytes) -> list[tuple[int, Any]]:
    """Return the status and the value of each response."""
    return [(status, json.loads(body) if body else None) for status, _, body in responses(heard)]
