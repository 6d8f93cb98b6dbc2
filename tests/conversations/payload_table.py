"""The table "Across dialects" of docs/reference/dialects.rst as code: how payloads change between dialects.

It is meant to be slow and plain, and shares nothing with the broker's own translation. ``delivered`` says what a
subscriber of one dialect gets for what a publisher of another has sent.
"""

import base64
import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import msgpack

#: The dialects, FlexiMQ's two carriers apart.
DIALECTS = ("fleximq", "fleximqWs", "blipmq", "minimq", "identity")


def delivered(source: str, target: str, sent: bytes) -> bytes:
    """Return what a subscriber gets: FlexiMQ's and BlipMQ's payload, or MiniMQ's or Identity's text in UTF-8.

    :param sent: the publisher's payload in the same terms.
    """
    if target.startswith("fleximq"):
        return _toFlexi(source, sent)
    if target == "blipmq":
        return _toBytes(source, sent)
    text = _toText(source, sent)
    if target == "minimq" and source != "minimq" and ("\n" in text or "\r" in text):
        text = json.dumps(text, ensure_ascii=False)
    return text.encode()


def _toFlexi(source: str, sent: bytes) -> bytes:
    if source.startswith("fleximq"):
        return sent
    return bytes(msgpack.packb(sent if source == "blipmq" else sent.decode()))


def _toBytes(source: str, sent: bytes) -> bytes:
    if not source.startswith("fleximq"):
        return sent
    value = _read(sent)
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else sent


def _toText(source: str, sent: bytes) -> str:
    if source in ("minimq", "identity"):
        return sent.decode()
    value = sent if source == "blipmq" else _read(sent)
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return _textOrBase64(value)
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def _read(sent: bytes) -> Any:
    """Return the one value in a payload; all of its bytes where it is not exactly one."""
    if not sent:
        return b""
    try:
        return msgpack.unpackb(sent, strict_map_key=False, timestamp=0)
    except (ValueError, UnicodeDecodeError):
        return sent


def _textOrBase64(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


def _plain(value: Any) -> Any:
    """Return a value that JSON has, for one of MessagePack."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, msgpack.ExtType):
        return base64.b64encode(value.data).decode()
    if isinstance(value, msgpack.Timestamp):
        return _iso(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {_key(each): _plain(more) for each, more in value.items()}
    return value


def _key(key: Any) -> str:
    key = _plain(key)
    return key if isinstance(key, str) else json.dumps(key)


def _iso(stamp: msgpack.Timestamp) -> str:
    whole = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=stamp.seconds)
    fraction = f".{stamp.nanoseconds:09}".rstrip("0") if stamp.nanoseconds else ""
    return f"{whole:%Y-%m-%dT%H:%M:%S}{fraction}Z"
