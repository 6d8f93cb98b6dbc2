"""The place of a message that is only in the journal: a message with its id and offset, without its contents."""

from fleximq.values.message import Content, Message

#: The payload of these messages; known by identity.
ONLY_IN_JOURNAL = b"(in the journal)"
_new = tuple.__new__


def placeOf(message: Message) -> Message:
    """Return the place of a message that can be read again, else the message itself."""
    if not message.offset:
        return message
    return placeAt(message.offset, message.content, message.qos, message.message_id)


def placeAt(offset: int, content: Content = Content.BYTES, qos: int = 1, messageId: str | None = None) -> Message:
    """Return the place at an offset of the journal."""
    return _new(Message, (ONLY_IN_JOURNAL, content, qos, messageId, None, None, False, False, offset, None))
