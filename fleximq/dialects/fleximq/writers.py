"""Writers: the output of a FlexiMQ client in the form that it reads.

All rooms make messages in the document's form: layout A, a map as header, statuses as numbers. The last step before a
client's outbox is its writer: :class:`Writer` sends them as they are, the others convert them. A chunk for several
clients is converted once (:class:`ConvertedOnce`).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from fleximq.broker.envelope import BROKER_ID
from fleximq.compiled import choice
from fleximq.dialects.outbox import Chunk, Outbox
from fleximq.status import Status
from fleximq.wire.fleximq_array_header import named, withStatusName
from fleximq.wire.fleximq_frame import encodeFrameHead, encodeMessage
from fleximq.wire.fleximq_header import MessageType
from fleximq.wire.fleximq_layout_b import framesWithinLayoutB
from fleximq.wire.fleximq_scanner import framesWithin
from fleximq.wire.large_value import packLarge


class ConvertedOnce:
    """Converts a chunk for all of its receivers: the last chunk, known by its identity, is converted only once."""

    __slots__ = ("_convert", "chunk", "converted")

    def __init__(self, convert: Callable[[bytes], bytes]) -> None:
        self._convert = convert
        self.chunk: Chunk = b""
        self.converted: Any = b""

    def remember(self, chunk: Chunk, converted: Chunk) -> None:
        """Use this conversion of a chunk."""
        self.chunk, self.converted = chunk, converted

    def __call__(self, chunk: Chunk) -> Any:
        """Return the converted chunk."""
        if chunk is not self.chunk:
            self.converted = self._convert(bytes(chunk))
            self.chunk = chunk
        return self.converted


_inLayoutB = ConvertedOnce(lambda frames: choice.toLayoutB(frames))
_withStatusName = ConvertedOnce(withStatusName)


def fromLayoutB(data: bytes, limit: int) -> bytes:
    """Return the frames of a read in layout B in layout A.

    A subscriber with layout B that gets all of them is sent the received bytes, since converting them again would take
    a third of the time of a run.
    """
    frames = choice.fromLayoutB(data, limit)
    _inLayoutB.remember(frames, data if len(frames) == len(data) else memoryview(data)[: len(frames)])
    return frames


class Writer:
    """Writes in the document's form.

    ``deliver`` takes publications, ``replay`` those from the journal, ``forward`` and ``receiveBroadcast`` messages of
    other clients. They are the outbox's own methods, since a call in between would cost a delivery half its time.
    ``success`` is the status of the answer to a JOIN. ``framesWithin`` is for :attr:`Outbox.messagesWithin`.
    """

    __slots__ = ("deliver", "forward", "receiveBroadcast", "replay")
    success: ClassVar[Mapping[str, Any]] = {"status": int(Status.OK)}
    framesWithin = staticmethod(framesWithin)

    def __init__(self, outbox: Outbox) -> None:
        self.deliver = self.receiveBroadcast = outbox.deliver
        self.forward = self.replay = outbox.take

    def encoded(
        self, kind: MessageType, fields: Mapping[str, Any], payload: bytes = b"", sender: int = BROKER_ID
    ) -> bytes:
        """Return a message of the broker."""
        return encodeMessage(kind, sender, fields, payload)

    def reply(self, fields: Mapping[str, Any], value: Any) -> Sequence[Chunk]:
        """Return a REP of the broker with a value; a large view at its end is not copied."""
        head, rest = packLarge(value)
        frame = encodeFrameHead(MessageType.REP, BROKER_ID, fields, len(head) + len(rest)) + head
        return (frame, rest) if rest else (frame,)


class LayoutBWriter:
    """Writes in layout B."""

    __slots__ = ("_deliver", "_writer")
    success = Writer.success
    framesWithin = staticmethod(framesWithinLayoutB)

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._deliver = writer.deliver

    def deliver(self, frames: Chunk, count: int = 1) -> None:
        """Convert and send publications."""
        self._deliver(_inLayoutB.converted if frames is _inLayoutB.chunk else _inLayoutB(frames), count)

    def replay(self, frames: Chunk) -> None:
        """Convert and send publications from the journal."""
        self._writer.replay(_inLayoutB(frames))

    def forward(self, frame: bytes) -> None:
        """Convert and send a message of another client."""
        self._writer.forward(_inLayoutB(frame))

    def receiveBroadcast(self, frame: bytes) -> None:
        """Convert and send a broadcast."""
        self._writer.receiveBroadcast(_inLayoutB(frame))

    def encoded(
        self, kind: MessageType, fields: Mapping[str, Any], payload: bytes = b"", sender: int = BROKER_ID
    ) -> bytes:
        """Return a message of the broker."""
        return choice.toLayoutB(self._writer.encoded(kind, fields, payload, sender))

    def reply(self, fields: Mapping[str, Any], value: Any) -> Sequence[Chunk]:
        """Return a REP of the broker with a value."""
        return (choice.toLayoutB(b"".join(self._writer.reply(fields, value))),)


class ArrayWriter:
    """Writes, in the layout of another writer, for a client whose headers are arrays: statuses are names.

    Such a client knows a status in errors only, so the answer to its JOIN has none. Publications are not changed.
    """

    __slots__ = ("_writer", "deliver", "framesWithin", "replay")
    success: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, writer: "Writer | LayoutBWriter") -> None:
        self._writer = writer
        self.deliver, self.replay, self.framesWithin = writer.deliver, writer.replay, writer.framesWithin

    def forward(self, frame: bytes) -> None:
        """Convert and send a message of another client."""
        self._writer.forward(_withStatusName(frame))

    def receiveBroadcast(self, frame: bytes) -> None:
        """Convert and send a broadcast."""
        self._writer.receiveBroadcast(_withStatusName(frame))

    def encoded(
        self, kind: MessageType, fields: Mapping[str, Any], payload: bytes = b"", sender: int = BROKER_ID
    ) -> bytes:
        """Return a message of the broker."""
        return self._writer.encoded(kind, named(fields), payload, sender)

    def reply(self, fields: Mapping[str, Any], value: Any) -> Sequence[Chunk]:
        """Return a REP of the broker with a value."""
        return self._writer.reply(named(fields), value)


#: The output of a client in the form that it reads.
AnyWriter = Writer | LayoutBWriter | ArrayWriter


class HeldMessages:
    """Messages of other clients to a client that cannot receive them yet, in order."""

    __slots__ = ("_waiting", "_writer")

    def __init__(self, writer: AnyWriter) -> None:
        self._writer = writer
        self._waiting: list[Callable[[], None]] = []

    def forward(self, frame: bytes) -> None:
        """Queue a message."""
        self._waiting.append(partial(self._writer.forward, frame))

    def receiveBroadcast(self, frame: bytes) -> None:
        """Queue a broadcast."""
        self._waiting.append(partial(self._writer.receiveBroadcast, frame))

    def release(self) -> None:
        """Send them."""
        for send in self._waiting:
            send()
