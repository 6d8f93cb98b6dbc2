"""Messages as JSON objects, for readers and workers by HTTP. Hot.

``value`` is the payload: MessagePack as its JSON, text as a string. Bytes are base64, and ``encoding`` says so; so are
values that JSON would hold up the reactor for (:mod:`fleximq.wire.payload_conversion`), and those that are none. A
message of 100 bytes takes 0.6 us where neighbours share their header (Python 3.11), a map of five values 1 us.
"""

from base64 import b64encode
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from fleximq.values.message import Content, Message
from fleximq.values.records import CONTENTS, StoredBatch
from fleximq.wire.messagepack_json import toJson
from fleximq.wire.payload_conversion import JSON_BYTES, JSON_VALUES, contentOfString

#: Up to so many bytes, no choice of keys of maps is slow to read.
_SMALL_BYTES = 1024
#: The type of timestamps in MessagePack.
_TIMESTAMP = b"\xff"
#: Longer headers are not cached.
_SHORT = 1024
#: Fields of a header that are fields of the object; all others are in ``headers``, except the mark of messages for a
#: queue, which their publisher did not write.
_OWN, _MARKS = ("message_id", "correlation_id", "reply_to", "key"), ("queue",)
_encoder = msgspec.json.Encoder()
_encode, _encodeLines = _encoder.encode, _encoder.encode_lines
_decode = msgspec.msgpack.Decoder().decode
_MESSAGEPACK, _TEXT = Content.MESSAGEPACK, Content.TEXT


def valueOf(content: Content, payload: bytes) -> bytes:
    """Return the JSON of a payload, with the field ``encoding`` after it if it is base64."""
    if content is _MESSAGEPACK:
        if not payload:
            return b"null"
        if len(payload) <= _SMALL_BYTES and _TIMESTAMP not in payload:
            try:
                value = _decode(payload)
                return _encode(value) if type(value) is not bytes else _base64(value)
            except (TypeError, ValueError, RecursionError):
                pass  # it has odd keys or values, or is none
        return _slowValueOf(payload)
    if len(payload) > JSON_BYTES or content is not _TEXT:
        return _base64(payload)
    return _encode(payload.decode("utf-8", "replace"))


def _slowValueOf(payload: bytes) -> bytes:
    plain = contentOfString(payload)
    if plain is not None and not plain[1]:
        return _base64(plain[0])
    if len(payload) > JSON_BYTES:
        return _base64(payload)
    try:
        return toJson(payload, JSON_VALUES)
    except ValueError:
        return _base64(payload)


def _base64(content: bytes) -> bytes:
    return b'"%b","encoding":"base64"' % b64encode(content)


def headOf(topic: str, header: bytes) -> bytes:
    """Return the beginning of an object with the topic and the fields of a header."""
    return (_headOf if len(header) <= _SHORT else _headOf.__wrapped__)(topic, header)


@lru_cache(maxsize=1024)
def _headOf(topic: str, header: bytes) -> bytes:
    found: dict[str, Any] = {"topic": topic}
    if header:
        try:
            fields = msgspec.json.decode(toJson(header, JSON_VALUES))
        except ValueError:
            fields = {}
        found |= {name: fields[name] for name in _OWN if name in fields}
        more = {name: value for name, value in fields.items() if name not in (*_OWN, *_MARKS)}
        if more:
            found["headers"] = more
    return _encode(found)[:-1]


class Alike(NamedTuple):
    """Neighbouring messages with one topic, header and time (microseconds since 1970, 0 if it is not known)."""

    topic: str
    header: bytes
    time: int


def rows(alike: Alike, contents: Sequence[int], payloads: Sequence[bytes], first: int, isEvent: bool) -> list[bytes]:
    """Return the objects of alike messages, as lines or as Server-Sent Events.

    :param contents: keys of :data:`fleximq.values.records.CONTENTS`.
    :param first: the offset of the first one, the others follow it; 0: they are not stored.
    """
    head = headOf(alike.topic, alike.header).replace(b"%", b"%%")
    if alike.time:
        head = b'%b,"time":%d.%06d' % (head, *divmod(alike.time, 1_000_000))
    begin, end = (b"data: ", b"}\n\n") if isEvent else (b"", b"}\n")
    values = _valuesOf(contents, payloads)
    if not first:
        template = b'%b%b,"value":%%b%b' % (begin, head, end)
        return [*map(template.__mod__, values)]
    offsets = range(first, first + len(payloads))
    if not isEvent:
        template = b'%b,"offset":%%d,"value":%%b%b' % (head, end)
        return [*map(template.__mod__, zip(offsets, values, strict=True))]
    template = b'id: %%d\n%b%b,"offset":%%d,"value":%%b%b' % (begin, head, end)
    return [*map(template.__mod__, zip(offsets, offsets, values, strict=True))]


def _valuesOf(contents: Sequence[int], payloads: Sequence[bytes]) -> list[bytes]:
    """Return the JSON of each payload: in C where all are small values of MessagePack."""
    kinds = [CONTENTS[code][0] for code in set(contents)]
    if kinds == [_MESSAGEPACK] and max(map(len, payloads)) <= _SMALL_BYTES and _TIMESTAMP not in b"".join(payloads):
        try:
            values = [*map(_decode, payloads)]
            if bytes not in map(type, values):
                return _encodeLines(values).splitlines()
        except (TypeError, ValueError, RecursionError):
            pass
    return [valueOf(CONTENTS[code][0], payload) for code, payload in zip(contents, payloads, strict=True)]


def recordRows(batch: StoredBatch, hasOffsets: bool, isEvent: bool) -> list[bytes]:
    """Return the objects of records; without offsets, as if they were not stored."""
    found: list[bytes] = []
    columns = enumerate(zip(batch.topicOf, batch.headers, batch.timestamps, batch.offsets, strict=True))
    payloads, contents = batch.payloads, batch.contents
    for _, group in groupby(columns, lambda each: (*each[1][:3], each[1][3] - each[0])):
        alike = [*group]
        start, (topic, header, time, first) = alike[0]
        at = slice(start, start + len(alike))
        shared = Alike(batch.topics[topic], header, time)
        found += rows(shared, contents[at], payloads[at], first if hasOffsets else 0, isEvent)
    return found


def jobRow(topic: str, header: bytes, message: Message, tag: str, attempt: int) -> bytes:
    """Return the object of a delivery."""
    value = valueOf(message.content, message.payload)
    return b'%b,"tag":"%b","attempt":%d,"value":%b}' % (headOf(topic, header), tag.encode(), attempt, value)
