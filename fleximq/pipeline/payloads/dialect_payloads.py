"""Selects the bytes of a message to decode, and their format, by its dialect. Clients of the Identity dialect add
metadata after the body, ``Hello!||timestamp=1234567890``, and send bytes as base64 (Identity document, "Extensions").
"""

import re
from base64 import b64decode
from collections.abc import Sequence
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


#: Messages stay as they are.
VERBATIM = Identity()


def _splitMetadata(values: pa.Array, where: Sequence[bool] | None, errors: dict[int, str]) -> tuple[pa.Array, pa.Array]:
    """Return bodies and their metadata, null without any; ``where``: which rows may have metadata, None for all."""
    marked = pc.fill_null(pc.match_substring(values, _MARK), False)
    if not pc.any(marked).as_py():
        return values, pa.nulls(len(values), METADATA.type)
    bodies: list[bytes | None] = values.to_pylist()
    found: list[list[tuple[str, str]] | None] = [None] * len(bodies)
    for place in pc.indices_nonzero(marked).to_pylist():
        body = bodies[place]
        if body is not None and (where is None or where[place]):
            try:
                bodies[place], found[place] = split(body)
            except UnicodeDecodeError:
                errors[place] = "its metadata are not UTF-8"
                bodies[place] = None
    return pa.array(bodies, pa.binary()), pa.array(found, METADATA.type)


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


def _decodeBase64(values: pa.Array, where: Sequence[bool] | None, errors: dict[int, str]) -> pa.Array:
    bodies: list[bytes | None] = values.to_pylist()
    for place, body in enumerate(bodies):
        if body is not None and (where is None or where[place]):
            try:
                bodies[place] = b64decode(body, validate=True)
            except ValueError:
                errors[place] = "the body is not base64"
                bodies[place] = None
    return pa.array(bodies, pa.binary())


#: Dialects with MessagePack payloads, used if the content type is unknown.
_PACKED = ("fleximq", "broker")
#: The mask of the content type in a content's code, and its value for MessagePack. No values of PyArrow: the first of
#: these imports pandas, which half of Spark's processes do not need.
_KIND = 0xFF
_MESSAGEPACK = contentOf(Message(b"", Content.MESSAGEPACK, qos=0))

Payloads = list[bytes | None]


def splitBodies(
    values: pa.Array, dialects: pa.Array | None, identity: Identity, errors: dict[int, str]
) -> tuple[pa.Array, pa.Array | None]:
    """Return bodies, and metadata if requested; a message that cannot be split is null and has an error."""
    where = None if dialects is None or not any(identity) else pc.equal(dialects, "identity").to_pylist()
    metadata = None
    if identity.metadata:
        values, metadata = _splitMetadata(values, where, errors)
    if identity.base64:
        values = _decodeBase64(values, where, errors)
    return values, metadata


def packedAt(format: str, dialects: pa.Array | None, contents: pa.Array | None) -> pa.Array | None:
    """Return which payloads are MessagePack although another format was requested, None if none is."""
    if format not in ("json", "text"):
        return None
    packed = None
    if contents is not None:
        kinds = pc.bit_wise_and(contents, pa.scalar(_KIND, pa.int32()))
        packed = pc.equal(kinds, pa.scalar(_MESSAGEPACK, pa.int32()))
    elif dialects is not None:
        packed = pc.is_in(dialects, pa.array(_PACKED))
    return packed if packed is not None and pc.any(packed).as_py() else None


def divided(format: str, values: pa.Array, packed: pa.Array | None) -> tuple[Payloads, Payloads]:
    """Return the payloads of the format, and those that are MessagePack instead (:func:`packedAt`), None at the others'
    indexes. For JSON and text, the content of a MessagePack str or bin is the payload; of other values the text of
    their JSON for text.
    """
    own: Payloads = values.to_pylist()
    others: Payloads = [None] * len(own)
    for place in [] if packed is None else pc.indices_nonzero(packed).to_pylist():
        payload = own[place]
        if payload:
            message = Message(payload, Content.MESSAGEPACK)
            if format == "text":
                own[place] = toUtf8(message)
                continue
            content = toBytes(message)
            own[place], others[place] = (None, payload) if content is payload else (content, None)
    return own, others
