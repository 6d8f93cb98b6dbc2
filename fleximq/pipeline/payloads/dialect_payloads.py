"""Selects the bytes of a message to decode, and their format, by its dialect. Clients of the Identity dialect add
metadata after the body, ``Hello!||timestamp=1234567890``, and send bytes as base64 (Identity document, "Extensions").
"""

import re
from base64 import b64decode
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fleximq.values.message import Content, Message
from fleximq.values.records import contentOf
from fleximq.wire.payload_conversion import toBytes, toUtf8

#: The column of metadata, and its type.
METADATA = pa.field("metadata", pa.map_(pa.string(), pa.string()))
_MARK = b"||"
_PAIR = re.compile(rb"([A-Za-z_][A-Za-z0-9_.-]*)=(.*)", re.DOTALL)


class Identity(NamedTuple):
    """The extensions to decode: ``metadata`` become a column, ``base64`` bodies become bytes, in this order."""

    metadata: bool = False
    base64: bool = False


VERBATIM = Identity()


def split(message: bytes) -> tuple[bytes, list[tuple[str, str]] | None]:
    """Return the body of a message and its metadata: parts after ``||``, from the end on, as long as they are
    ``key=value``; of equal keys the last one counts. Raises UnicodeDecodeError if a value is not UTF-8.
    """
    pairs: dict[str, str] = {}
    while True:
        body, mark, last = message.rpartition(_MARK)
        pair = _PAIR.fullmatch(last) if mark else None
        if pair is None:
            return message, list(pairs.items())[::-1] or None
        pairs.setdefault(pair[1].decode(), pair[2].decode())
        message = body


#: Dialects with MessagePack payloads, used if the content type is unknown.
_PACKED = ("fleximq", "broker")
#: The mask of the content type in a content's code, and its value for MessagePack. No values of PyArrow: the first of
#: these imports pandas, which half of Spark's processes do not need.
KIND = 0xFF
MESSAGEPACK = contentOf(Message(b"", Content.MESSAGEPACK, qos=0))

Payloads = list[bytes | None]


def splitBodies(
    values: pa.Array, dialects: pa.Array | None, identity: Identity, errors: dict[int, str]
) -> tuple[pa.Array, pa.Array | None]:
    """Return bodies, and metadata if requested; a message that cannot be split is null and has an error."""
    if not any(identity):
        return values, None
    if not identity.base64 and not pc.any(pc.match_substring(values, _MARK)).as_py():
        return values, pa.nulls(len(values), METADATA.type)
    where = None if dialects is None else pc.equal(dialects, "identity").to_pylist()
    bodies: Payloads = values.to_pylist()
    metadata: list[list[tuple[str, str]] | None] = [None] * len(bodies)
    for place, body in enumerate(bodies):
        if body is None or (where is not None and not where[place]):
            continue
        fault = "its metadata are not UTF-8"
        try:
            if identity.metadata:
                body, metadata[place] = split(body)
            fault = "the body is not base64"
            bodies[place] = b64decode(body, validate=True) if identity.base64 else body
        except ValueError:
            bodies[place], errors[place] = None, fault
    found = pa.array(metadata, METADATA.type) if identity.metadata else None
    return pa.array(bodies, pa.binary()), found


def packedAt(payloadFormat: str, dialects: pa.Array | None, contents: pa.Array | None) -> pa.Array | None:
    """Return which payloads are MessagePack although another format was requested, None if none is."""
    if payloadFormat in ("messagepack", "raw"):
        return None
    packed = None
    if contents is not None:
        kinds = pc.bit_wise_and(contents, pa.scalar(KIND, pa.int32()))
        packed = pc.equal(kinds, pa.scalar(MESSAGEPACK, pa.int32()))
    elif dialects is not None:
        packed = pc.is_in(dialects, pa.array(_PACKED))
    return packed if packed is not None and pc.any(packed).as_py() else None


def divided(payloadFormat: str, values: pa.Array, packed: pa.Array | None) -> tuple[Payloads, Payloads]:
    """Return the payloads of the format, and those that are MessagePack instead (:func:`packedAt`), None at the others'
    indexes. A MessagePack str or bin is split off as its content, for text any other value as its JSON.
    """
    own: Payloads = values.to_pylist()
    others: Payloads = [None] * len(own)
    for place in [] if packed is None else pc.indices_nonzero(packed).to_pylist():
        payload = own[place]
        if payload:
            message = Message(payload, Content.MESSAGEPACK)
            if payloadFormat == "text":
                own[place] = toUtf8(message)
                continue
            content = toBytes(message)
            own[place], others[place] = (None, payload) if content is payload else (content, None)
    return own, others
