"""Conversion of Identity publications: the source for publishers and the form for subscribers, text frames."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from zope.interface import implementer

from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource
from fleximq.broker.replay.feed import DeferredForm
from fleximq.compiled import choice
from fleximq.interfaces import IForm
from fleximq.limits import MEBIBYTE
from fleximq.values.header_pairs import senderOf
from fleximq.values.message import Content, Message
from fleximq.values.records import Run, StoredBatch, contentOf
from fleximq.wire.identity_text import encodeMsg, senderText
from fleximq.wire.payload_conversion import toUtf8

_CONTENT = contentOf(Message(b"", Content.TEXT))
#: Payloads from this many bytes on, whose conversion takes up to 25 ms, are cached; and so many bytes of texts.
_SLOW_BYTES = 256
_CACHED_BYTES = 8 * MEBIBYTE


def senderName(client: ConnectedClient) -> str:
    """Return the name of a publisher for subscribers."""
    return senderText(client.sender) or client.name


class IdentitySource(MessageSource):
    """The source of one client's publications to one channel; a body is a list of UTF-8 texts."""

    __slots__ = ("prefix",)

    def __init__(self, channel: str, sender: str) -> None:
        self.prefix = encodeMsg(channel, sender, b"")

    def messages(self, body: Sequence[bytes]) -> Sequence[Message]:
        """Return the texts as messages."""
        return [Message(text, Content.TEXT) for text in body]

    def run(self, body: Sequence[bytes]) -> Run:
        """Return the texts."""
        return Run(b"", body, _CONTENT)


def recordTexts(batches: Sequence[StoredBatch], convert: Callable[[Message], bytes] = toUtf8) -> bytes:
    """Return records as text frames, with the names of their publishers."""
    frames: list[bytes] = []
    for batch in batches:
        messages = batch.messages()
        senders = map(senderOf, batch.headers)
        indexes = zip(batch.topicOf, batch.publisherOf, senders, range(len(messages)), strict=True)
        for (topic, publisher, sender), group in groupby(indexes, itemgetter(0, 1, 2)):
            name = senderText(sender) or batch.publishers[publisher][1]
            prefix = encodeMsg(batch.topics[topic], name, b"")
            frames.append(choice.encodeTexts(prefix, [convert(messages[index]) for *_, index in group]))
    return b"".join(frames)


class RecordTexts:
    """:func:`recordTexts` with a cache of texts by offset, as many subscribers read the same records."""

    def __init__(self) -> None:
        self._texts: OrderedDict[int, bytes] = OrderedDict()
        self._size = 0

    def render(self, batches: Sequence[StoredBatch]) -> bytes:
        """Return records as text frames, with the names of their publishers."""
        return recordTexts(batches, self._convert)

    def _convert(self, message: Message) -> bytes:
        if message.content is not Content.MESSAGEPACK or len(message.payload) < _SLOW_BYTES:
            return toUtf8(message)
        text = self._texts.get(message.offset)
        if text is None:
            text = self._texts[message.offset] = toUtf8(message)
            self._size += len(text)
            while self._size > _CACHED_BYTES:
                self._size -= len(self._texts.popitem(last=False)[1])
        else:
            self._texts.move_to_end(message.offset)
        return text


@implementer(IForm)
class IdentityForm:
    """MSG frames."""

    def render(self, envelope: Envelope, body: Any, count: int) -> bytes:
        """Return the run as text frames."""
        source = envelope.source
        if type(body) is StoredBatch:
            return recordTexts([body])
        if type(source) is IdentitySource:
            return choice.encodeTexts(source.prefix, body)
        prefix = encodeMsg(envelope.topic.name, senderName(envelope.publisher), b"")
        return choice.encodeTexts(prefix, [toUtf8(message) for message in source.messages(body)])


#: The form of all Identity subscribers.
IDENTITY_FORM = IdentityForm()
#: The same, for subscribers that receive earlier messages first.
RECALLING = DeferredForm(IDENTITY_FORM)
