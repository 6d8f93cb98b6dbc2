"""The form in which every queue takes its deliveries."""

from collections.abc import Sequence
from typing import Any

from zope.interface import implementer

from fleximq.broker.envelope import Envelope
from fleximq.interfaces import IForm
from fleximq.values.message import Message

_new = tuple.__new__


@implementer(IForm)
class _QueuedForm:
    """Single messages, each with the QoS of its envelope and its offset in the journal."""

    def render(self, envelope: Envelope, body: Any, count: int) -> Sequence[Message]:
        """Return the run's messages; only those that need another QoS or an offset are copied."""
        messages = envelope.source.messages(body)
        qos = envelope.qos
        if envelope.offset:
            return [
                _new(Message, (payload, content, qos, messageId, correlation, replyTo, legacy, line, offset, head))
                for offset, (payload, content, _, messageId, correlation, replyTo, legacy, line, _, head) in enumerate(
                    messages, envelope.offset
                )
            ]
        for message in messages:
            if message.qos != qos:
                return [message if message.qos == qos else message._replace(qos=qos) for message in messages]
        return messages


#: One for all queues, so that a run is rendered once.
QUEUED = _QueuedForm()
