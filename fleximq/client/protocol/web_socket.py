"""A conversation inside a WebSocket, and which conversation a URL asks for."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fleximq.client.events import Delivery, Event
from fleximq.client.protocol.conversation import Conversation
from fleximq.limits import GIBIBYTE
from fleximq.values.urls import USUAL_PORTS, Url
from fleximq.wire.websocket_client import WebSocketClientStream

#: docs/dialects.rst: what says that binary frames are FlexiMQ.
SUBPROTOCOL = "fleximq"


def conversationOn(url: Url, unpack: Callable[[bytes], Any]) -> Conversation:
    """Return a new conversation for a connection to this URL."""
    return WebSocketConversation(url, unpack) if url.isWebSocket else Conversation(unpack=unpack)


class WebSocketConversation(Conversation):
    """What is said and heard on one connection, in binary frames."""

    def __init__(self, url: Url, unpack: Callable[[bytes], Any]) -> None:
        super().__init__(unpack=unpack)
        host = f"[{url.host}]" if ":" in url.host else url.host or "localhost"
        place = host if url.port == USUAL_PORTS[url.scheme] else f"{host}:{url.port}"
        self._stream = WebSocketClientStream(place, url.path, SUBPROTOCOL, GIBIBYTE)
        self.due = self._stream.due
        self._join: bytes | None = None

    def begin(self, credentials: Mapping[str, str] | None = None, name: str | None = None) -> None:
        self._join = self.join(credentials, name)

    def framed(self, data: bytes) -> bytes:
        return self._stream.framed(data)

    def runs(self, data: bytes) -> Iterator[Event | list[Delivery]]:
        plain = self._stream.received(data)
        if self._stream.isOpen and self._join is not None:
            self.due.append(self.framed(self._join))
            self._join = None
        if plain:
            yield from super().runs(plain)
