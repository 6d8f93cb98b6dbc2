"""FlexiMQ publications on their way through the broker: as a source, and as the form FlexiMQ subscribers take.

A run from a FlexiMQ publisher goes to FlexiMQ subscribers verbatim. What comes from another dialect is framed
here, once for all of them.
"""

from collections.abc import Sequence
from typing import Any

from zope.interface import implementer

from fleximq.broker.envelope import Envelope
from fleximq.dialects.fleximq.fleximq_batches import recordsWithout
from fleximq.interfaces import IForm, IRunSource
from fleximq.values.message import Content, Message
from fleximq.values.records import Batch, Run, contentOf
from fleximq.wire.flexi_pairs import withoutTopic
from fleximq.wire.fleximq_frame import MessageType, encodeFrame
from fleximq.wire.fleximq_header import Header, packHeader
from fleximq.wire.fleximq_layout_b import fittingLayoutB, toLayoutB
from fleximq.wire.fleximq_scanner import FIXED_BYTES, fitting, payloads, singles
from fleximq.wire.payload_conversion import toMessagePack

#: The ids that cross between dialects, in the order in which they are written.
_IDS = ("message_id", "correlation_id", "reply_to")
_CONTENT = contentOf(Message(b"", Content.MESSAGEPACK))


@implementer(IRunSource)
class FlexiSource:
    """The source of runs with one envelope: a body is whole frames, one behind the other."""

    __slots__ = ("_envelopeBytes", "_ids", "_kept")

    def __init__(self, envelopeBytes: int, header: Header) -> None:
        self._envelopeBytes = envelopeBytes
        self._kept: bytes | None = None
        fields = header.fields
        self._ids = fields.get("message_id"), fields.get("correlation_id"), fields.get("reply_to")

    def messages(self, body: bytes) -> Sequence[Message]:
        """Return the payloads of the frames with the ids of their header."""
        ids = self._ids
        return [Message(payload, Content.MESSAGEPACK, 1, *ids) for payload in payloads(body, self._envelopeBytes)]

    def run(self, body: bytes) -> Run:
        """Return the payloads of the frames, and their header without the topic."""
        if self._kept is None:
            self._kept = withoutTopic(body[FIXED_BYTES : self._envelopeBytes])
        return Run(self._kept, payloads(body, self._envelopeBytes), _CONTENT)

    def pick(self, body: bytes, places: Sequence[int]) -> bytes:
        """Return the frames at these places."""
        frames = singles(body, self._envelopeBytes)
        return b"".join([frames[place] for place in places])


@implementer(IForm)
class FlexiForm:
    """Whole PUB frames."""

    def render(self, envelope: Envelope, body: Any, count: int) -> bytes:
        """Return the run as frames that carry the publisher's id."""
        if type(envelope.source) is FlexiSource:
            return body  # type: ignore[no-any-return]  # its own source's bodies are frames
        if type(body) is Batch:
            return recordsWithout([body])
        publisher = envelope.publisher.id
        topic = envelope.topic.name
        return b"".join(
            encodeFrame(MessageType.PUB, publisher, _header(topic, message), toMessagePack(message))
            for message in envelope.source.messages(body)
        )

    def cut(self, frames: bytes | memoryview, room: int) -> tuple[int, int]:
        """Return how many bytes, and how many frames, end within ``room`` bytes."""
        return fitting(frames, room)


def _header(topic: str, message: Message) -> bytes:
    fields = {"topic": topic}
    for name in _IDS:
        value = getattr(message, name)
        if value:
            fields[name] = value
    return packHeader(fields)


@implementer(IForm)
class LayoutBForm:
    """Whole PUB frames in layout B."""

    def render(self, envelope: Envelope, body: Any, count: int) -> bytes:
        """Return the run as frames that carry the publisher's id."""
        return toLayoutB(FLEXI_FORM.render(envelope, body, count))

    def cut(self, frames: bytes | memoryview, room: int) -> tuple[int, int]:
        """Return how many bytes, and how many frames, end within ``room`` bytes."""
        return fittingLayoutB(frames, room)


#: The one form of all FlexiMQ subscribers but those that speak layout B.
FLEXI_FORM = FlexiForm()
LAYOUT_B_FORM = LayoutBForm()
