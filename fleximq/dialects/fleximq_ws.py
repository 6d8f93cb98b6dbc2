"""FlexiMQ over WebSocket: binary messages with arbitrary boundaries (docs/reference/dialects.rst, "Over WebSocket").

Input is passed on as it arrives, also of an incomplete message. A WebSocket message has no limit, compressed or not: it
may hold any number of FlexiMQ messages, to which the scanner's limits apply.
"""

from typing import Any

from fleximq.dialects.context import ListenerContext
from fleximq.dialects.fleximq.session import FlexiSession
from fleximq.dialects.session import NamedLogger
from fleximq.dialects.websocket.close_code import UNSUPPORTED
from fleximq.dialects.websocket.frame_outbox import FramingOutbox
from fleximq.dialects.websocket.session_protocol import WebSocketFactory, WebSocketSessionProtocol
from fleximq.wire.websocket_frame import BINARY

#: The limit of a WebSocket message: none.
NO_LIMIT = 1 << 62
#: Bytes of a compressed message inflated at once, to 16 MiB at most.
DEFLATED_STEP = 1 << 14


class FlexiWebSocketProtocol(WebSocketSessionProtocol):
    """Passes WebSocket messages to a FlexiMQ session as a stream."""

    _log = NamedLogger(__name__)
    kinds = frozenset({BINARY})
    outboxClass = FramingOutbox
    joinsLater = True
    deflatedStep = DEFLATED_STEP

    def messagesReceived(self, messages: list[bytes]) -> None:
        """Pass on the bytes of these messages."""
        self.session.reads.received(messages[0] if len(messages) == 1 else b"".join(messages))

    def messageBegun(self, isText: bool) -> None:
        """Refuse text messages."""
        if isText:
            self.fail(UNSUPPORTED, "FlexiMQ takes binary messages only")

    def frameBegun(self, length: int) -> None:
        """Accept frames of any length."""

    def messageData(self, payload: bytes) -> None:
        """Pass on a part of a message."""
        self.messages.append(payload)

    def messageEnded(self) -> None:
        """A no-op: all parts were passed on."""


class FlexiWebSocketFactory(WebSocketFactory):
    """Builds FlexiMQ connections on WebSockets."""

    protocolClass = FlexiWebSocketProtocol
    subprotocol = "fleximq"

    def __init__(self, context: ListenerContext) -> None:
        makeSession: Any = FlexiSession
        super().__init__(context, makeSession, lambda: NO_LIMIT)
