"""The forms in which queues take their deliveries: those of other topics need the topic of each message."""

from collections.abc import Sequence
from typing import Any

from zope.interface import implementer

from fleximq.broker.envelope import Envelope
from fleximq.interfaces import IForm
from fleximq.values import message_loops
from fleximq.values.message import Message
from fleximq.values.message_run import MessageRun, headOf
from fleximq.values.publication_head import Head
from fleximq.values.records import withHead


@implementer(IForm)
class _QueuedForm:
    """Single messages, each with the QoS of its envelope and its offset in the journal."""

    def render(self, envelope: Envelope, body: Any, count: int) -> Sequence[Message]:
        """Return the run's messages; only those that need another QoS are copied."""
        messages = envelope.source.queued(body, envelope.offset)
        if type(messages) is MessageRun:
            return messages if messages.qos == envelope.qos else messages.replaced(qos=envelope.qos)
        return message_loops.withQos(messages, envelope.qos)


class _SourcedForm(_QueuedForm):
    """The same with a head for each message: one of another dialect than FlexiMQ gets one with its topic."""

    def render(self, envelope: Envelope, body: Any, count: int) -> Sequence[Message]:
        messages = super().render(envelope, body, count)
        if headOf(messages) is not None:
            return messages
        head = Head(envelope.topic.name, b"", envelope.publisher.id)
        return [withHead(message, head) for message in messages]


#: For queues that other topics fill than the one of their name.
SOURCED = _SourcedForm()
#: One for all queues, so that a run is rendered once.
QUEUED = _QueuedForm()
