r"""Converts a message's payload to the form of another dialect (docs/reference/dialects.rst, "Across dialects").

| from \ to | FlexiMQ: :func:`toMessagePack` | BlipMQ: :func:`toBytes` | MiniMQ, Identity: :func:`toUtf8` |
| --- | --- | --- | --- |
| MessagePack | as it is | str, bin: the content; else as it is | str, bin: the content; else compact JSON |
| bytes | bin | as it is | as it is, or base64 |
| text | str | as it is | as it is |

An empty MessagePack payload is empty everywhere. One that is not exactly one value, contains a string that is not UTF-8
or is nested too deeply is treated as a bin of all its bytes. Where text is required, bytes that are not UTF-8 become
standard base64 with padding. These functions never raise.

JSON of more than :data:`JSON_VALUES` values or :data:`JSON_BYTES` bytes would hold up the reactor, so base64 of all
bytes takes its place. The slowest payloads just below the bounds take 20 to 25 ms, base64 of 16 MiB 30 to 45 ms.
"""

from base64 import b64encode
from struct import Struct

import msgspec

from fleximq.limits import MEBIBYTE
from fleximq.values.message import Content, Message
from fleximq.wire.messagepack_json import toJson
from fleximq.wire.websocket_frame import isUtf8

#: Maximum values in a payload that is converted to JSON, and its maximum bytes.
JSON_VALUES = 1 << 16
JSON_BYTES = MEBIBYTE
#: Marker -> width of the length after it, for str and bin.
_STRINGS = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_BINS = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_LENGTHS = _STRINGS | _BINS
_8, _16, _32 = Struct(">BB"), Struct(">BH"), Struct(">BI")


def toMessagePack(message: Message) -> bytes:
    """Return the payload for FlexiMQ: one MessagePack value, or no bytes if a FlexiMQ client sent none."""
    payload = message.payload
    if message.content is Content.MESSAGEPACK:
        return payload
    if message.content is Content.BYTES:
        return _head(len(payload), 0xC4) + payload
    if len(payload) < 32:
        return bytes((0xA0 | len(payload),)) + payload
    return _head(len(payload), 0xD9) + payload


def toBytes(message: Message) -> bytes:
    """Return the payload for BlipMQ: opaque bytes."""
    if message.content is not Content.MESSAGEPACK:
        return message.payload
    plain = contentOfString(message.payload)
    return message.payload if plain is None else plain[0]


def toUtf8(message: Message) -> bytes:
    """Return the payload for MiniMQ and Identity: text, here in UTF-8."""
    payload = message.payload
    if message.content is Content.TEXT:
        return payload
    if message.content is Content.BYTES or not payload:
        return _textOrBase64(payload)
    plain = contentOfString(payload)
    if plain is not None:
        content, isString = plain
        return content if isString else _textOrBase64(content)
    if len(payload) > JSON_BYTES:
        return b64encode(payload)
    try:
        return toJson(payload, JSON_VALUES)
    except ValueError:
        return _textOrBase64(payload)


def toLine(message: Message) -> bytes:
    """Return :func:`toUtf8` without a line break: a text with one becomes a JSON string."""
    text = toUtf8(message)
    if b"\n" in text or (b"\r" in text and not message.line):
        return msgspec.json.encode(text.decode()) if len(text) <= JSON_BYTES else b64encode(text)
    return text


def toText(message: Message) -> str:
    """Return the payload for MiniMQ and Identity: text."""
    return toUtf8(message).decode()


def contentOfString(payload: bytes) -> tuple[bytes, bool] | None:
    """Return the content of a payload that is exactly one bin or one str in UTF-8, and whether it is a str."""
    if not payload:
        return None
    marker = payload[0]
    if 0xA0 <= marker < 0xC0:
        start, length = 1, marker & 0x1F
    elif marker in _LENGTHS:
        start = 1 + _LENGTHS[marker]
        length = int.from_bytes(payload[1:start], "big")
    else:
        return None
    if start + length != len(payload):
        return None
    content, isString = payload[start:], marker not in _BINS
    return None if isString and not isUtf8(content) else (content, isString)


def _head(length: int, marker: int) -> bytes:
    """Return marker and length of a str or bin; the next two markers have two and four bytes of length."""
    if length <= 0xFF:
        return _8.pack(marker, length)
    return _16.pack(marker + 1, length) if length <= 0xFFFF else _32.pack(marker + 2, length)


def _textOrBase64(content: bytes) -> bytes:
    return content if isUtf8(content) else b64encode(content)
