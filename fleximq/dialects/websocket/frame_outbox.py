"""Output buffers of WebSockets: of complete frames, or of a byte stream that is sent as one binary message per turn.

Autobahn's own frames pass through them too: a PONG follows the answers to messages before its PING, the close frame
follows all output.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from fleximq.dialects.connection.outbox_state import HalfClose
from fleximq.dialects.outbox import Chunk, Outbox
from fleximq.wire.websocket_frame import BINARY, frameHead

#: Chunks of at least so many bytes are not copied.
_UNCOPIED_BYTES = 1 << 16
#: The longest binary message that combines deliveries: clients refuse much longer ones.
MESSAGE_BYTES = 1 << 19


class WebSocketOutbox(Outbox):
    """Collects complete frames.

    :param farewell: called once before closing; queues the close frame and returns whether to await the peer's.
    """

    __slots__ = ("_farewell",)

    def __init__(self, *arguments: Any, farewell: Callable[[], bool], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._farewell = farewell

    def takeFrame(self, frame: bytes) -> None:
        """Send a complete frame, or the head of an HTTP response, at the end of the turn."""
        self.take(frame)

    def close(self) -> None:
        """Send pending output and a close frame; :meth:`finish` closes the connection if the peer's is awaited."""
        if self.isOpen:
            self._halfClose = HalfClose.WANTED if self._farewell() else HalfClose.NEVER
            super().close()

    def linger(self) -> None:
        """A no-op: the peer's close frame is awaited in any case."""

    def _endOurSide(self) -> None:
        """A no-op: the close frame was sent."""


class FramingOutbox(WebSocketOutbox):
    """Collects bytes of a stream; the output of one turn is one binary message.

    So a delivery is rendered once for all clients of its dialect, and this is as fast as plain streams.
    """

    __slots__ = ("_framed",)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._framed: list[Chunk] = []

    def takeFrame(self, frame: bytes) -> None:
        """Send a complete frame after all earlier bytes."""
        self.take(b"")
        if self._fresh:
            self._framed += _messages(self._fresh)
            self._framed.append(frame)
            self._fresh = [b""]
        elif self.isOpen:
            super().hold(frame)

    def hold(self, chunk: Chunk) -> None:
        """Buffer these bytes as a message of their own."""
        for part in _messages([chunk]):
            super().hold(part)

    def flush(self) -> None:
        """Frame the output of this turn, and write it."""
        if self._fresh:
            self._fresh = [*self._framed, *_messages(self._fresh)]
            self._framed = []
        super().flush()


def _messages(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return heads and bodies of the messages that carry these bytes."""
    size = sum(map(len, chunks))
    if size <= MESSAGE_BYTES:
        return [frameHead(BINARY, size), *chunks] if size else []
    parts: list[Chunk] = []
    room = 0
    for areLarge, group in groupby(chunks, lambda chunk: len(chunk) >= _UNCOPIED_BYTES):
        # Views of large chunks, which other readers may share.
        for chunk in group if areLarge else (b"".join(group),):
            view = memoryview(chunk)
            while view:
                if not room:
                    room = min(MESSAGE_BYTES, size)
                    size -= room
                    parts.append(frameHead(BINARY, room))
                parts.append(view[:room])
                view, room = view[room:], room - len(parts[-1])
    return parts
