"""The form of those who follow the journal: runs with the offsets of their messages."""

from typing import Any

from zope.interface import implementer

from fleximq.broker.envelope import Envelope
from fleximq.broker.replay.feed import LateForm
from fleximq.dialects.fleximq.fleximq_batches import asMessagePack
from fleximq.dialects.fleximq.forms import FLEXI_FORM, LAYOUT_B_FORM
from fleximq.interfaces import IForm
from fleximq.values.records import Run, runOf
from fleximq.wire.fleximq_layout_b import toLayoutB
from fleximq.wire.fleximq_record_frame import framesWith, mixedWith, prefixWith


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
        payloads = asMessagePack(contents, run.payloads)
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
