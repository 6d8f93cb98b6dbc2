"""Identity texts, parsed and encoded: one text a WebSocket message (Identity document).

Texts are handled as UTF-8, the form in which they are framed and forwarded. The decisions are those of "Identity" in
docs/reference/dialects.rst: unknown words are None, a channel's name ends at the next colon, and the message of a
PUBLISH is everything after its second colon, verbatim.
"""

import re
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple
from urllib.parse import quote

from fleximq.errors import InvalidTopic
from fleximq.limits import isTooLong

_FORBIDDEN = re.compile(r"[:,\s\x00-\x1f\x7f-\x9f]")
_UNSAFE = re.compile(r"[%:,\s\x00-\x1f\x7f-\x9f]")


class Word(Enum):
    """The commands of a client."""

    SUBSCRIBE = b"SUBSCRIBE"
    UNSUBSCRIBE = b"UNSUBSCRIBE"
    PUBLISH = b"PUBLISH"


class ClientText(NamedTuple):
    """A text of a client; ``channel`` is unchecked, and ``message`` in UTF-8, None for all but a PUBLISH with one."""

    word: Word
    channel: str
    message: bytes | None


_WORDS = {word.value: word for word in Word}
_PUBLISH = Word.PUBLISH


def parseText(text: bytes) -> ClientText | None:
    """Parse a text or binary frame; None for unknown words, words without a colon, and bytes that are not UTF-8."""
    name, colon, rest = text.partition(b":")
    word = _WORDS.get(name)
    if word is None or not colon:
        return None
    channel, colon, message = rest.partition(b":")
    try:
        rest.decode()
    except UnicodeDecodeError:
        return None
    return ClientText(word, channel.decode(), message if colon and word is _PUBLISH else None)


def checkChannel(name: str) -> None:
    """Check the name of a channel; raises InvalidTopic unless :func:`isChannel`."""
    if not isChannel(name):
        raise InvalidTopic("Invalid channel name")


def isChannel(name: str) -> bool:
    """Return whether a channel can have this name; topics with other names are not visible to this dialect.

    A name is not empty, has at most :data:`fleximq.limits.TOPIC_BYTES` bytes, and contains no colon, comma, white space
    or control character.
    """
    return name != "" and not isTooLong(name) and not _FORBIDDEN.search(name)


def senderText(name: str) -> str:
    """Return a name as the sender of a MSG: colons, commas, white space, control characters and ``%`` as ``%XX``."""
    return _UNSAFE.sub(lambda found: quote(found[0], safe=""), name)


def encodeIdentity(name: str) -> bytes:
    """Return the greeting with the client's name."""
    return b"IDENTITY:" + name.encode()


def encodeChannels(names: Iterable[str]) -> bytes:
    """Return the list of channels, in the order given, without names that :func:`isChannel` refuses."""
    return b"CHANNELS:" + ",".join(filter(isChannel, names)).encode()


def encodeSubAck(channel: str) -> bytes:
    """Return the answer to a SUBSCRIBE."""
    return b"SUB-ACK:" + channel.encode()


def encodeUnsubAck(channel: str) -> bytes:
    """Return the answer to an UNSUBSCRIBE."""
    return b"UNSUB-ACK:" + channel.encode()


def encodeMsg(channel: str, sender: str, message: bytes) -> bytes:
    """Return a delivery. ``sender`` contains no colon; ``message`` is UTF-8 and copied verbatim."""
    return b"MSG:%b:%b:%b" % (channel.encode(), sender.encode(), message)


def encodeError(code: int, details: str) -> bytes:
    """Return an error."""
    return f"ERROR:{code}:{details}".encode()
