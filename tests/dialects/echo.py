"""A dialect of one word: what is said comes back. For the tests of the WebSocket face."""

import struct
from typing import Any

from fleximq.dialects.session import Session
from fleximq.dialects.websocket.session_protocol import WebSocketFactory, WebSocketSessionProtocol
from fleximq.errors import BadFraming, BadRequest, BrokerError, TooLarge
from fleximq.security.principal import Admitted
from fleximq.wire import websocket_frame
from fleximq.wire.websocket_frame import encodeFrame
from tests.dialects.conversations import ConversationCase, makeContext
from tests.dialects.websocket_peer import CLOSE, WebSocketPeer, masked

LIMIT = 2000
ERRORS = {"refuse": BadRequest("no"), "framing": BadFraming("what"), "large": TooLarge("much")}


class Echo(Session):
    """Says everything back, and goes wrong when told to."""

    dialect = "echo"

    def opened(self) -> None:
        """Ask to come in."""
        self.admit(None, self.come, self.failed)

    def come(self, admitted: Admitted) -> None:
        """Come in."""
        self.letIn(admitted)

    def received(self, data: bytes) -> None:
        """Say it back, in a frame."""
        word = data.decode(errors="replace")
        if word in ERRORS:
            raise ERRORS[word]
        if word == "boom":
            raise RuntimeError("boom")
        if word == "end":
            self.end("asked to")
        elif word == "abort":
            self.abort("asked to")
        else:
            self.outbox.take(encodeFrame(websocket_frame.TEXT, data))

    def answerError(self, error: BrokerError) -> None:
        """Say what is wrong."""
        self.outbox.take(encodeFrame(websocket_frame.TEXT, f"error {int(error.status)}".encode()))


class EchoFace(WebSocketSessionProtocol):
    """Takes text and binary messages."""

    kinds = frozenset({websocket_frame.TEXT, websocket_frame.BINARY})

    def messagesReceived(self, messages: list[bytes]) -> None:
        """One after the other."""
        for message in messages:
            self.session.received(message)


class EchoFactory(WebSocketFactory):
    """Builds echoes."""

    protocolClass = EchoFace
    subprotocol = "echo"


def closeFrame(code: int, words: bytes = b"") -> bytes:
    """Return a close frame of a client."""
    return masked(CLOSE, struct.pack(">H", code) + words)


class EchoCase(ConversationCase):
    """Peers of echoes."""

    def factory(self, **settings: Any) -> EchoFactory:
        """Return a factory of echoes with these settings."""
        self.context = makeContext(self.clock, **settings)
        return EchoFactory(self.context, Echo, lambda: LIMIT)

    def peer(self, **fields: Any) -> WebSocketPeer:
        """Return a peer whose connection was upgraded."""
        return WebSocketPeer(self.factory(), piece=self.piece).upgrade(**fields)

    def event(self, name: str) -> int:
        """Return how often something was counted."""
        return self.context.broker.counts.events[name]
