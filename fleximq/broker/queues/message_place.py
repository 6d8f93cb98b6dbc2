"""The place of a message that is only in the journal: a message with its id and offset, without its contents."""

from collections.abc import Sequence

from fleximq.values.message import Content, Message
from fleximq.values.message_cost import costOf
from fleximq.values.message_run import MessageRun

#: The payload of these messages; known by identity.
ONLY_IN_JOURNAL = b"(in the journal)"
_new = tuple.__new__


def placeOf(message: Message) -> Message:
    """Return the place of a message that can be read again, else the message itself."""
    if not message.offset:
        return message
    return placeAt(message.offset, message.content, message.qos, message.message_id)


def placesOf(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the places of messages."""
    if isinstance(messages, MessageRun) and messages.first:
        first = placeOf(messages[0])
        others = first._replace(offset=0)[1:]
        return MessageRun([ONLY_IN_JOURNAL] * len(messages), others, costOf(first) - len(ONLY_IN_JOURNAL), first.offset)
    return list(map(placeOf, messages))


def placeAt(offset: int, content: Content = Content.BYTES, qos: int = 1, messageId: str | None = None) -> Message:
    """Return the place at an offset of the journal."""
    return _new(Message, (ONLY_IN_JOURNAL, content, qos, messageId, None, None, False, False, offset, None))
