"""MiniMQ messages: five fields separated by ``:::`` (MiniMQ document, section 4), and the older two-field form.

Id and topic are split from the left, CorrelationID and ReplyTo from the right, and the content is the rest between
them: it may contain any number of colons. A delivery is written so that the same splitting returns the same fields, for
messages of every dialect. The decisions are those of "MiniMQ" and "Across dialects" in docs/reference/dialects.rst.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

from fleximq.errors import BadRequest, InvalidTopic
from fleximq.limits import TOPIC_BYTES, isTooLong
from fleximq.values.message import Content, Message
from fleximq.wire.payload_conversion import toLine

SEPARATOR = ":::"
#: The end of a message with neither CorrelationID nor ReplyTo.
_NEITHER = 2 * SEPARATOR
#: The beginning and end of the line of a common PRODUCE, its end without the line break, and ids that need a look.
_PRODUCE, _NO_FIELDS, _END = b"PRODUCE:", b"::::::", b"::::::\n"
_UNUSUAL = (b"ERROR", b"NO_MSG")
# Making a NamedTuple through its own constructor costs twice as much.
_new = tuple.__new__


class MiniMessage(NamedTuple):
    """The message of a PRODUCE. ``correlation_id`` and ``reply_to`` are empty if absent.

    ``legacy`` marks the v1.0 form, which is delivered without its last two fields.
    """

    id: str
    topic: str
    content: str
    correlation_id: str = ""
    reply_to: str = ""
    legacy: bool = False

    def asMessage(self) -> Message:
        """Return it as a :class:`fleximq.values.message.Message`."""
        messageId, _, content, correlation, replyTo, legacy = self
        ids = messageId, correlation or None, replyTo or None
        return _new(Message, (content.encode(), Content.TEXT, 1, *ids, legacy, True, 0, None))


def _parsePlain(payload: str, known: str | None) -> MiniMessage | None:
    """Return the message of a PRODUCE that has no line break and one way to split it; None for any other."""
    if "\r" in payload or "\n" in payload:
        return None
    if payload.endswith(_NEITHER):
        fields = [*payload[: -len(_NEITHER)].split(SEPARATOR, 2), "", ""]
    elif "::::" not in payload:
        fields = payload.split(SEPARATOR)
    else:
        return None
    if len(fields) != 5 or fields[1] != known or not fields[0] or fields[0].startswith(("ERROR", "NO_MSG")):
        return None
    return _new(MiniMessage, (*fields, False))


def parseProduce(payload: str, newId: Callable[[], str], known: str | None = None) -> MiniMessage:
    """Return the message of a PRODUCE. 0.6 us for plain fields and a known topic, else 1.5.

    Two or more ``:::`` make it v1.1, of three to five fields; none, and a ``:``, make it v1.0, ``topic:content``.

    :param newId: makes the id of a v1.0 message.
    :param known: a topic that was valid before.
    :raises BadRequest: for any other number of fields, or an id that looks like an answer.
    :raises InvalidTopic: for a topic that is empty or too long, or contains a carriage return.
    """
    plain = _parsePlain(payload, known)
    if plain is not None:
        return plain
    separators = payload.count(SEPARATOR)
    if separators >= 2:
        messageId, topic, rest = payload.split(SEPARATOR, 2)
        if not isId(messageId):
            raise BadRequest("the id is empty, NO_MSG, begins with ERROR or holds a line break")
        checkTopic(topic)
        content, correlation, replyTo = [*rest.rsplit(SEPARATOR, 2), "", ""][:3]
        if "\r" in correlation or "\r" in replyTo:
            raise BadRequest("CorrelationID or ReplyTo holds a line break")
        return MiniMessage(messageId, topic, content, correlation, replyTo)
    topic, colon, content = payload.partition(":")
    if separators or not colon:
        raise BadRequest("the message is neither id:::topic:::content:::CorrelationID:::ReplyTo nor topic:content")
    checkTopic(topic)
    return MiniMessage(newId(), topic, content, legacy=True)


def readProduces(lines: list[bytes], place: int, topic: bytes) -> list[Message]:
    """Return the messages of the common PRODUCEs of a topic from ``place`` on, up to the first other line. 0.5 us each.

    They have no CorrelationID, ReplyTo or carriage return; :func:`parseProduce` would return the same messages.

    :param topic: one that was valid before, in UTF-8.
    """
    messages: list[Message] = []
    for line in islice(lines, place, None):
        if not line.startswith(_PRODUCE) or not line.endswith(_NO_FIELDS) or b"\r" in line:
            break
        fields = line[len(_PRODUCE) : -len(_NO_FIELDS)].split(b":::", 2)
        if len(fields) != 3 or fields[1] != topic or fields[0].startswith(_UNUSUAL):
            break
        content = fields[2]
        try:
            messageId = fields[0].decode()
            if not content.isascii():
                content.decode()
        except UnicodeDecodeError:
            break
        if not messageId:
            break
        messages.append(_new(Message, (content, Content.TEXT, 1, messageId, None, None, False, True, 0, None)))
    return messages


def deliveryId(message: Message, newId: Callable[[], str]) -> str:
    """Return the id of a message for MiniMQ clients: its own if MiniMQ can represent it, else a new one."""
    messageId = message.message_id
    return messageId if messageId is not None and isId(messageId) else newId()


def renderRun(messages: Iterable[Message], topic: str) -> list[bytes]:
    """Return parts of the lines that answer CONSUMEs; as :func:`renderDelivery` with the ids of the messages."""
    parts: list[bytes] = []
    text, afterId = Content.TEXT, b":::%b:::" % topic.encode()
    for message in messages:
        content, kind, _, messageId, correlation, replyTo, legacy, line, _, _ = message
        if line and kind is text and not (legacy or correlation or replyTo):
            parts += (messageId or "").encode(), afterId, content, _END
        else:
            parts.append(renderDelivery(message, topic, messageId or ""))
    return parts


def renderDelivery(message: Message, topic: str, messageId: str) -> bytes:
    """Return the line that answers a CONSUME for a spellable topic and a :func:`deliveryId`, its line end included.

    A CorrelationID or ReplyTo that MiniMQ cannot represent is left empty. The content follows
    :mod:`fleximq.wire.payload_conversion`; if it contains a line break it becomes a JSON string. Only messages that
    arrived by MiniMQ preserve their carriage returns.
    """
    content = toLine(message)
    fields = [messageId.encode(), topic.encode(), content]
    if not message.legacy:
        fields += (_field(message.correlation_id), _field(message.reply_to))
    fields[-1] += b"\n"
    return b":::".join(fields)


def checkTopic(topic: str) -> None:
    """Check a topic; raises InvalidTopic if it is empty, over ``TOPIC_BYTES`` or not :func:`isSpellable`."""
    if not topic:
        raise InvalidTopic("empty topic")
    if isTooLong(topic):
        raise InvalidTopic(f"topic is longer than {TOPIC_BYTES} bytes")
    if not isSpellable(topic):
        raise InvalidTopic("a topic cannot hold ::: or a line break, nor end with a colon")


def isSpellable(topic: str) -> bool:
    """Return whether a topic can be one field of a line; others are not visible in MiniMQ."""
    return topic != "" and topic[-1] != ":" and SEPARATOR not in topic and "\r" not in topic and "\n" not in topic


def isId(text: str) -> bool:
    """Return whether an id can be the first field of a line without looking like another answer."""
    return isSpellable(text) and text != "NO_MSG" and not text.startswith("ERROR")


def _field(text: str | None) -> bytes:
    """Return one of the last two fields, empty if splitting from the right would return another value."""
    if not text or text[0] == ":" or SEPARATOR in text or "\r" in text or "\n" in text:
        return b""
    return text.encode()
