"""Conversion of MiniMQ publications and deliveries between lines and messages."""

from collections.abc import Sequence
from operator import attrgetter

from fleximq.broker.envelope import MessageSource, QueueDelivery
from fleximq.dialects.connection.error_codes import MINIMQ_CODES, codeOf
from fleximq.errors import (
    BrokerError,
    Forbidden,
    NotPermitted,
)
from fleximq.values.message import Content, Message
from fleximq.values.records import Run, contentOf, headerOf
from fleximq.wire.minimq_line import NO_MESSAGE, encodeError
from fleximq.wire.minimq_message import renderRun

_isLegacy = attrgetter("legacy")
#: The journal's content codes of a PRODUCE, in today's form and in the older one.
_NEW = contentOf(Message(b"", Content.TEXT, line=True))
_OLD = contentOf(Message(b"", Content.TEXT, legacy=True, line=True))


class MiniJoinRefused(Forbidden):
    """This peer may not join with any credentials."""

    closes = True


class MiniSource(MessageSource):
    """The source of PRODUCEs; a body is the list of messages."""

    def run(self, body: list[Message]) -> Run:
        """Return the messages in journal form. Their ids differ, and some may be in the older form."""
        contents = [_OLD if message.legacy else _NEW for message in body] if any(map(_isLegacy, body)) else _NEW
        return Run([headerOf(message) for message in body], [message.payload for message in body], contents)


#: The source of all MiniMQ publications.
SOURCE = MiniSource()


def renderError(error: BrokerError) -> bytes:
    """Return the line that answers an error (MiniMQ document, section 7)."""
    return encodeError(codeOf(error, MINIMQ_CODES), "not permitted" if isinstance(error, NotPermitted) else str(error))


def renderAnswers(topic: str, deliveries: Sequence[QueueDelivery], count: int) -> bytes:
    """Return the lines that answer this number of CONSUMEs; NO_MSG for those without a delivery."""
    parts = renderRun([message for _, message, _ in deliveries], topic)
    return b"".join(parts) + NO_MESSAGE * (count - len(deliveries))
