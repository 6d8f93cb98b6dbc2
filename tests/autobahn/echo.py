"""What the test suite expects at the other end: every message comes back as it was.

A dialect like all others, so that each byte goes the way that it goes with them: the door, the quick way for batches
of whole frames, Autobahn for all else, the outbox. That quick way is for texts or for binary messages, depending on the
dialect; there is one of each, and messages of the other kind go the long way.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from fleximq.dialects.context import ListenerContext
from fleximq.dialects.session import Session
from fleximq.dialects.websocket.close_code import INVALID_PAYLOAD
from fleximq.dialects.websocket.session_protocol import WebSocketFactory, WebSocketSessionProtocol
from fleximq.errors import BrokerError
from fleximq.security.principal import Admitted
from fleximq.wire.websocket_frame import BINARY, TEXT, encodeFrame, isUtf8

#: The longest message, in bytes: the suite has some of 16 MiB.
LONGEST = 1 << 24


class Slowly(bytes):
    """A message that came the long way, and is of the other kind."""


class EchoSession(Session):
    """One client, let in at once."""

    dialect = "echo"

    def __init__(self, context: ListenerContext, outbox: Any, address: Any) -> None:
        super().__init__(context, outbox, address)
        outbox.messagesWithin = lambda chunk, room: (0, 0)

    def opened(self) -> None:
        """Let it in."""
        if self.handshake.admitted is None:
            self.admit(self.certificate(), self._welcome, self.failed)
        else:
            self._welcome(self.handshake.admitted)

    def _welcome(self, admitted: Admitted) -> None:
        self.letIn(admitted)

    def echo(self, messages: Sequence[bytes], quickly: int) -> None:
        """Send messages back; those that came quickly have frames with this first byte."""
        for message in messages:
            kind = TEXT + BINARY - quickly if isinstance(message, Slowly) else quickly
            self.outbox.take(encodeFrame(kind, message))

    def answerError(self, error: BrokerError) -> None:
        """There is no word for errors."""


class TextFace(WebSocketSessionProtocol):
    """Takes texts quickly."""

    kinds: ClassVar[frozenset[int]] = frozenset({TEXT})

    def messagesReceived(self, messages: list[bytes]) -> None:
        """Send them back."""
        (quickly,) = self.kinds
        self.session.echo(messages, quickly)

    def messageEnded(self) -> None:
        """Take a message that came the long way, and remember of which kind it is."""
        message = self._gathered.drain()
        if self._isText and not isUtf8(message):
            self.fail(INVALID_PAYLOAD, "the text is not UTF-8")
            return
        self.messages.append(message if self._isText is (TEXT in self.kinds) else Slowly(message))


class BinaryFace(TextFace):
    """Takes binary messages quickly."""

    kinds = frozenset({BINARY})


class TextEchoFactory(WebSocketFactory):
    """Builds connections that take texts quickly."""

    protocolClass = TextFace
    subprotocol = "echo_text"

    def __init__(self, context: ListenerContext) -> None:
        super().__init__(context, EchoSession, lambda: LONGEST)


class BinaryEchoFactory(TextEchoFactory):
    """Builds connections that take binary messages quickly."""

    protocolClass = BinaryFace
    subprotocol = "echo_binary"
