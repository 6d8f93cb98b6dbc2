"""Which bytes of a message are read in which format, as its dialect has it.

Without dialects, all payloads are bytes of the format that was asked for.
"""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fleximq.message import Content, Message
from fleximq.pipeline.payloads.identity import Identity, bodiesDecoded, metadataApart
from fleximq.wire.payloads import toBytes, toUtf8

#: Dialects whose payloads are MessagePack.
_PACKED = pa.array(["fleximq", "broker"])

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


def arePacked(format: str, dialects: pa.Array | None) -> bool:
    """Return whether there are payloads in MessagePack where another format was asked for."""
    return dialects is not None and format in ("json", "text") and bool(pc.any(pc.is_in(dialects, _PACKED)).as_py())


def divided(format: str, values: pa.Array, dialects: pa.Array | None) -> Divided:
    """Return payloads by their format.

    Where JSON or text was asked for and a FlexiMQ client has sent a str or a bin, its content is it. Other values of
    such clients are read as MessagePack for JSON, and are the text of their JSON for text.
    """
    own: Payloads = values.to_pylist()
    if not arePacked(format, dialects):
        return Divided(own, None)
    packed: Payloads = [None] * len(own)
    for place, isPacked in enumerate(pc.is_in(dialects, _PACKED).to_pylist()):
        payload = own[place]
        if isPacked and payload:
            message = Message(payload, Content.MESSAGEPACK)
            if format == "text":
                own[place] = toUtf8(message)
                continue
            content = toBytes(message)
            own[place], packed[place] = (None, payload) if content is payload else (content, None)
    return Divided(own, packed)
