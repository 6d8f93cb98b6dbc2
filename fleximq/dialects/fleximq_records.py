"""What FlexiMQ subscribers get of the journal: its records, and the runs of those who follow it with their offsets."""

from collections.abc import Sequence
from typing import Any

from zope.interface import implementer

from fleximq.broker.feed import LateForm
from fleximq.broker.values import Envelope
from fleximq.dialects.fleximq_form import FLEXI_FORM, LAYOUT_B_FORM
from fleximq.interfaces import IForm
from fleximq.message import Content, Message
from fleximq.records import CONTENTS, Batch, Run, runOf
from fleximq.wire.flexi_layouts import toLayoutB
from fleximq.wire.flexi_record import (
    framesWith,
    framesWithout,
    mixedWith,
    mixedWithout,
    prefixWith,
    prefixWithout,
)
from fleximq.wire.payloads import toMessagePack


def recordsWith(batches: Sequence[Batch]) -> bytes:
    """Return records as PUB frames with their offsets."""
    return b"".join([_frames(batch, True) for batch in batches])


def recordsWithout(batches: Sequence[Batch]) -> bytes:
    """Return records as PUB frames without offsets."""
    return b"".join([_frames(batch, False) for batch in batches])


def _frames(batch: Batch, offset: bool) -> bytes:
    payloads = _payloads(batch.contents, batch.payloads)
    if not payloads:
        return b""
    prefix = prefixWith if offset else prefixWithout
    topics, publishers, headers = batch.topicOf, batch.publisherOf, batch.headers
    if _same(topics) and _same(publishers) and _same(headers):
        shared = prefix(batch.publishers[publishers[0]][0], headers[0], batch.topics[topics[0]])
        return framesWith(shared, batch.offsets, payloads) if offset else framesWithout(shared, payloads)
    prefixes = [
        prefix(batch.publishers[publisher][0], header, batch.topics[topic])
        for topic, publisher, header in zip(topics, publishers, headers, strict=True)
    ]
    return mixedWith(prefixes, batch.offsets, payloads) if offset else mixedWithout(prefixes, payloads)


def _same(column: Any) -> bool:
    """Tell whether all values of a column are the same."""
    return column.count(column[0]) == len(column)  # type: ignore[no-any-return]


def _payloads(contents: Sequence[int], payloads: Sequence[bytes]) -> Sequence[bytes]:
    """Return payloads as FlexiMQ carries them."""
    if all(CONTENTS[code][0] is Content.MESSAGEPACK for code in set(contents)):
        return payloads
    return [
        toMessagePack(Message(payload, CONTENTS[code][0])) for code, payload in zip(contents, payloads, strict=True)
    ]


@implementer(IForm)
class OffsetForm:
    """Whole PUB frames whose headers end with the offset; what is not in the journal goes as it does to others."""

    def render(self, envelope: Envelope, body: Any, count: int) -> bytes:
        """Return the run as frames."""
        if not envelope.offset:
            return FLEXI_FORM.render(envelope, body, count)
        source: Any = envelope.source
        run: Run = source.run(body) if hasattr(source, "run") else runOf(source.messages(body))
        publisher = envelope.publisher.id
        topic = envelope.topic.name
        offsets = range(envelope.offset, envelope.offset + count)
        contents = [run.contents] * count if isinstance(run.contents, int) else run.contents
        payloads = _payloads(contents, run.payloads)
        if isinstance(run.headers, bytes):
            return framesWith(prefixWith(publisher, run.headers, topic), offsets, payloads)
        return mixedWith([prefixWith(publisher, header, topic) for header in run.headers], offsets, payloads)


OFFSET_FORM = OffsetForm()


@implementer(IForm)
class OffsetFormB:
    """The same in layout B."""

    def render(self, envelope: Envelope, body: Any, count: int) -> bytes:
        """Return the run as frames."""
        return toLayoutB(OFFSET_FORM.render(envelope, body, count))


#: The forms of all who follow the journal, in layout A and in layout B.
FOLLOWING = LateForm(OFFSET_FORM)
FOLLOWING_B = LateForm(OffsetFormB())
#: The forms of those who are brought up to date, and then get what others get.
PASSING = LateForm(FLEXI_FORM)
PASSING_B = LateForm(LAYOUT_B_FORM)
