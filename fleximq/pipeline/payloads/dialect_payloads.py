"""Which bytes of a message are read in which format, as its dialect has it.

Where neither contents nor dialects are known, all payloads are bytes of the format that was asked for.
"""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fleximq.pipeline.payloads.identity import Identity, bodiesDecoded, metadataApart
from fleximq.values.message import Content, Message
from fleximq.values.records import contentOf
from fleximq.wire.payload_conversion import toBytes, toUtf8

#: Dialects whose payloads are MessagePack, where nothing else says what they are.
_PACKED = pa.array(["fleximq", "broker"])
#: The part of a content's code that says what the bytes are, and what it is for MessagePack.
_KIND = pa.scalar(0xFF, pa.int32())
_MESSAGEPACK = pa.scalar(contentOf(Message(b"", Content.MESSAGEPACK, qos=0)), pa.int32())

Payloads = list[bytes | None]


class Divided(NamedTuple):
    """Payloads in the format that was asked for, and those that are MessagePack all the same; None at other places.

    ``packed`` is None where there are none at all.
    """

    own: Payloads
    packed: Payloads | None


def takenApart(
    values: pa.Array, dialects: pa.Array | None, identity: Identity, errors: dict[int, str]
) -> tuple[pa.Array, pa.Array | None]:
    """Return bodies, and metadata if these are asked for; what cannot be taken apart is null and has an error."""
    where = None
    if dialects is not None and any(identity):
        where = pc.equal(dialects, "identity").to_pylist()
    metadata = None
    if identity.metadata:
        values, metadata = metadataApart(values, where, errors)
    if identity.base64:
        values = bodiesDecoded(values, where, errors)
    return values, metadata


def packedAt(format: str, dialects: pa.Array | None, contents: pa.Array | None) -> pa.Array | None:
    """Return where payloads are MessagePack though another format was asked for; None where there are none."""
    if format not in ("json", "text"):
        return None
    packed = None
    if contents is not None:
        packed = pc.equal(pc.bit_wise_and(contents, _KIND), _MESSAGEPACK)
    elif dialects is not None:
        packed = pc.is_in(dialects, _PACKED)
    return packed if packed is not None and pc.any(packed).as_py() else None


def divided(format: str, values: pa.Array, packed: pa.Array | None) -> Divided:
    """Return payloads by their format; ``packed`` is what :func:`packedAt` has found.

    Where JSON or text was asked for and a payload is a str or bin of MessagePack, its content is it. Other values are
    read as MessagePack for JSON, and are the text of their JSON for text.
    """
    own: Payloads = values.to_pylist()
    if packed is None:
        return Divided(own, None)
    others: Payloads = [None] * len(own)
    for place in pc.indices_nonzero(packed).to_pylist():
        payload = own[place]
        if payload:
            message = Message(payload, Content.MESSAGEPACK)
            if format == "text":
                own[place] = toUtf8(message)
                continue
            content = toBytes(message)
            own[place], others[place] = (None, payload) if content is payload else (content, None)
    return Divided(own, others)
