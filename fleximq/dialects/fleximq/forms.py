"""Conversion of FlexiMQ publications: the source for publishers and the forms for subscribers.

A run from a FlexiMQ publisher reaches FlexiMQ subscribers unchanged; a run of another dialect is framed here, once for
all of them. Records from the journal are framed with or without their offsets.
"""

from collections.abc import Sequence
from typing import Any

from zope.interface import implementer

from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.broker.replay.feed import DeferredForm
from fleximq.broker.schedules.schedule_header import dividedHeader
from fleximq.compiled import choice
from fleximq.interfaces import IForm
from fleximq.values.header_pairs import SENDER, runWithSender
from fleximq.values.message import Content, Message
from fleximq.values.message_cost import OVERHEAD, costOf
from fleximq.values.message_run import MessageRun, areSingle
from fleximq.values.publication_head import Head, headOf
from fleximq.values.records import CONTENTS, Run, StoredBatch, areAlike, contentOf
from fleximq.wire.fleximq_frame import encodeFrame
from fleximq.wire.fleximq_header import Header, MessageType, packHeader
from fleximq.wire.fleximq_record_frame import framePrefix, recordFrames, timedPrefix, timedPrefixes, withoutTopic
from fleximq.wire.fleximq_scanner import FIXED_BYTES, singleFrames
from fleximq.wire.payload_conversion import toMessagePack


def records(batches: Sequence[StoredBatch], offsets: bool) -> bytes:
    """Return records as PUB frames, with offsets or without."""
    return b"".join([_frames(batch, offsets) for batch in batches])


def _frames(batch: StoredBatch, hasOffset: bool) -> bytes:
    payloads = asMessagePack(batch.contents, batch.payloads)
    if not payloads:
        return b""
    prefixes = _prefixes(batch, hasOffset)
    if not hasOffset:
        return recordFrames(prefixes, None, payloads)
    return recordFrames(timedPrefixes(prefixes, batch.timestamps), batch.offsets, payloads)


def _prefixes(batch: StoredBatch, hasOffset: bool) -> list[bytes]:
    topics, publishers, headers = batch.topicOf, batch.publisherOf, batch.headers
    if areAlike(topics) and areAlike(publishers) and areAlike(headers):
        publisher = batch.publishers[publishers[0]][0]
        return [framePrefix(publisher, headers[0], batch.topics[topics[0]], hasOffset)] * len(batch)
    known: dict[tuple[int, int, bytes, int], bytes] = {}
    prefixes: list[bytes] = []
    for topic, publisher, header in zip(topics, publishers, headers, strict=True):
        common, end = (header, b"") if hasOffset else dividedHeader(header)
        key = topic, publisher, common, len(end)
        found = known.get(key)
        if found is None:
            prefix = framePrefix(batch.publishers[publisher][0], header, batch.topics[topic], hasOffset)
            found = known[key] = prefix[: len(prefix) - len(end)]
        prefixes.append(found + end if end else found)
    return prefixes


def asMessagePack(contents: Sequence[int], payloads: Sequence[bytes]) -> Sequence[bytes]:
    """Return payloads as MessagePack, the format of FlexiMQ."""
    if all(CONTENTS[code][0] is Content.MESSAGEPACK for code in set(contents)):
        return payloads
    return [
        toMessagePack(Message(payload, CONTENTS[code][0])) for code, payload in zip(contents, payloads, strict=True)
    ]


#: The ids that cross between dialects, in the order of encoding.
_IDS = ("message_id", "correlation_id", "reply_to")
_CONTENT = contentOf(Message(b"", Content.MESSAGEPACK))
_new = tuple.__new__


class FlexiSource(MessageSource):
    """The source of runs with one envelope; a body consists of consecutive complete frames, or is a view of them.

    ``envelopeBytes`` are the bytes of each frame before its payload, ``publisher`` is the client id of its publisher.
    """

    __slots__ = ("_each", "_fields", "_head", "_ids", "_publisher", "_topic", "envelopeBytes")

    def __init__(self, envelopeBytes: int, header: Header, publisher: int = 0) -> None:
        self.envelopeBytes = envelopeBytes
        self._topic = header.topic
        self._publisher = publisher
        self._head: Head | None = None
        self._fields: tuple[Any, ...] | None = None
        self._each = 0
        fields = header.fields
        self._ids = fields.get("message_id"), fields.get("correlation_id"), fields.get("reply_to")

    def messages(self, body: bytes | memoryview) -> Sequence[Message]:
        """Return the payloads of the frames with the ids of their header, and one head for all."""
        return self._run(body, 0).messages()

    def queued(self, body: bytes | memoryview, first: int) -> Sequence[Message]:
        """Return the same messages, as a run if they can leave together."""
        run = self._run(body, first)
        return run.messages() if areSingle(run.head) else run

    def _run(self, body: bytes | memoryview, first: int) -> MessageRun:
        if self._fields is None:
            self._fields = self._others(body)
            self._each = costOf(_new(Message, (b"", *self._fields)))
        return MessageRun(choice.payloads(bytes(body), self.envelopeBytes), self._fields, self._each, first)

    def size(self, body: bytes | memoryview, count: int) -> int:
        """Return the cost of the messages without their overhead, in constant time: all other bytes are equal."""
        each = costOf(_new(Message, (b"", *self._others(body)))) - OVERHEAD
        return len(body) + count * (each - self.envelopeBytes - 8)

    def _others(self, body: bytes | memoryview) -> tuple[Any, ...]:
        """Return the fields of each message after its payload."""
        return Content.MESSAGEPACK, 1, *self._ids, False, False, 0, self._headOf(body)

    def run(self, body: bytes | memoryview) -> Run:
        """Return the payloads of the frames, and their header without the topic."""
        head = self._head or self._headOf(body)
        return Run(head.pairs, choice.joinedPayloads(body, self.envelopeBytes), _CONTENT)

    def _headOf(self, body: bytes | memoryview) -> Head:
        if self._head is None:
            pairs = withoutTopic(bytes(body[FIXED_BYTES : self.envelopeBytes]))
            self._head = headOf(self._topic, pairs, self._publisher)
        return self._head

    def pick(self, body: bytes | memoryview, indexes: Sequence[int]) -> bytes:
        """Return the frames at these indexes."""
        frames = singleFrames(bytes(body), self.envelopeBytes)
        return b"".join([frames[index] for index in indexes])


@implementer(IForm)
class FlexiForm:
    """Complete PUB frames."""

    def render(self, envelope: Envelope, body: Any, count: int) -> bytes | memoryview:
        """Return the run as frames with the publisher's id."""
        if type(envelope.source) is FlexiSource:
            return body  # type: ignore[no-any-return]  # its own source's bodies are frames
        if type(body) is StoredBatch:
            return _frames(body, False)
        publisher = envelope.publisher.id
        fields = {"topic": envelope.topic.name}
        if envelope.publisher.sender:
            fields[SENDER] = envelope.publisher.sender
        return b"".join(_frame(publisher, fields, message) for message in envelope.source.messages(body))


def _frame(publisher: int, fields: dict[str, str], message: Message) -> bytes:
    if message.head is None:
        return encodeFrame(MessageType.PUB, publisher, headerWithIds(fields.copy(), message), toMessagePack(message))
    prefix = framePrefix(publisher, message.head.pairs, fields["topic"], False)
    return recordFrames([prefix], None, [toMessagePack(message)])


def headerWithIds(fields: dict[str, str], message: Message) -> bytes:
    """Return a header with these fields and the ids of a message of another dialect."""
    for name in _IDS:
        value = getattr(message, name)
        if value:
            fields[name] = value
    return packHeader(fields)


FLEXI_FORM = FlexiForm()


@implementer(IForm)
class OffsetForm:
    """Complete PUB frames with time and offset as last header fields; messages outside the journal have neither."""

    def render(self, envelope: Envelope, body: Any, count: int) -> bytes | memoryview:
        """Return the run as frames."""
        if not envelope.offset:
            return FLEXI_FORM.render(envelope, body, count)
        if type(body) is StoredBatch:
            return _frames(body.placed(envelope.offset, envelope.time), True)
        run = envelope.source.run(body)
        if envelope.publisher.sender:
            run = runWithSender(run, envelope.publisher.sender)
        publisher = envelope.publisher.id
        topic = envelope.topic.name
        offsets = range(envelope.offset, envelope.offset + count)
        contents = [run.contents] * count if isinstance(run.contents, int) else run.contents
        payloads = asMessagePack(contents, list(run.payloads))
        if isinstance(run.headers, bytes):
            prefixes = [timedPrefix(framePrefix(publisher, run.headers, topic, True), envelope.time)] * count
        else:
            prefixes = [framePrefix(publisher, header, topic, True) for header in run.headers]
            prefixes = timedPrefixes(prefixes, [envelope.time] * count)
        return recordFrames(prefixes, offsets, payloads)


#: The forms of subscribers that receive earlier messages first, then live ones: by whether they follow the journal,
#: with offsets.
REPLAY_FORMS = {False: DeferredForm(FLEXI_FORM), True: DeferredForm(OffsetForm())}
