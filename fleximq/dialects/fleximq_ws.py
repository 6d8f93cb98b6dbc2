"""FlexiMQ over WebSocket: binary messages that may be cut anywhere (docs/dialects.rst, "Transports").

Where a message ends says nothing about where a FlexiMQ frame does. So what arrives is handed on as it comes, also
of an unfinished message, and the scanner's limits are the only ones; just what a compressed message may inflate to
is bounded here.
"""

from typing import Any

from fleximq.dialects.context import Context
from fleximq.dialects.fleximq.session import FlexiSession
from fleximq.dialects.session import NamedLogger
from fleximq.dialects.websocket.face import WebSocketFactory, WebSocketSessionProtocol
from fleximq.dialects.websocket.frame_outbox import FramingOutbox
from fleximq.dialects.websocket.protocol import UNSUPPORTED
from fleximq.limits import MEBIBYTE
from fleximq.wire.websocket_frame import BINARY

#: A compressed message may inflate to so much more than one FlexiMQ message may have.
ROOM = MEBIBYTE


class FlexiWebSocketProtocol(WebSocketSessionProtocol):
    """Feeds a FlexiMQ session from a WebSocket as from a stream."""

    _log = NamedLogger("fleximq.dialects.fleximq_ws.FlexiFace")
    kinds = frozenset({BINARY})
    outboxClass = FramingOutbox
    joinsLater = True

    def messagesReceived(self, messages: list[bytes]) -> None:
        """Hand on the bytes of these messages."""
        self.session.received(messages[0] if len(messages) == 1 else b"".join(messages))

    def onMessageBegin(self, isBinary: bool) -> None:
        """Refuse text."""
        super().onMessageBegin(isBinary)
        if not isBinary:
            self.fail(UNSUPPORTED, "FlexiMQ takes binary messages only")

    def onMessageFrameBegin(self, length: int) -> None:
        """Take frames of any length."""

    def onMessageFrameData(self, payload: bytes) -> None:
        """Hand on a part of a message."""
        self.messages.append(payload)

    def onMessageEnd(self) -> None:
        """All of the message was handed on."""


class FlexiWebSocketFactory(WebSocketFactory):
    """Builds FlexiMQ connections on WebSockets."""

    protocolClass = FlexiWebSocketProtocol
    subprotocol = "fleximq"

    def __init__(self, context: Context) -> None:
        makeSession: Any = FlexiSession
        super().__init__(context, makeSession, lambda: context.settings.limits.message + ROOM)
