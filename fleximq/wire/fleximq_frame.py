"""Encodes the broker's own FlexiMQ frames, and splits single frames."""

from collections.abc import Mapping
from struct import Struct
from typing import Any

import msgpack

from fleximq.wire.fleximq_header import MessageType, packHeader
from fleximq.wire.fleximq_scanner import VERSION

_fixed = Struct(">BBI16xI")
_beginning = Struct(">BBI")
_payloadLength = Struct(">Q")
#: The bytes of a frame before HeaderLength.
BEGINNING_BYTES = 22
#: The place of the reserved bytes, which are zero in each forwarded frame.
RESERVED = slice(6, BEGINNING_BYTES)
NO_RESERVED = bytes(16)


#: Returns version, type and client id of an envelope.
readPrefix = _beginning.unpack_from


def encodeFrame(kind: int, client_id: int, header: bytes = b"", payload: bytes = b"") -> bytes:
    """Return one frame (FlexiMQ document 2.1) of already encoded parts."""
    return b"".join(
        (_fixed.pack(VERSION, kind, client_id, len(header)), header, _payloadLength.pack(len(payload)), payload)
    )


def encodeMessage(kind: MessageType, client_id: int, fields: Mapping[str, Any], payload: bytes = b"") -> bytes:
    """Return one frame with this map as header; ``payload`` is MessagePack."""
    return encodeFrame(kind, client_id, packHeader(fields), payload)


def encodeFrameHead(kind: MessageType, client_id: int, fields: Mapping[str, Any], payloadBytes: int) -> bytes:
    """Return one frame with this map as header, without its payload of ``payloadBytes`` bytes."""
    return encodeFrame(kind, client_id, packHeader(fields))[: -_payloadLength.size] + _payloadLength.pack(payloadBytes)


def words(text: str) -> bytes:
    """Return a text for a person as a payload."""
    return msgpack.packb(text)  # type: ignore[no-any-return]


def withZeroReserved(frame: bytes) -> bytes:
    """Return a frame with its reserved bytes set to zero."""
    return frame[: RESERVED.start] + NO_RESERVED + frame[RESERVED.stop :]


def payloadOf(frame: bytes, envelopeBytes: int) -> bytes:
    """Return the payload of one complete frame."""
    return frame[envelopeBytes + _payloadLength.size :]


def frameOf(envelope: bytes, payload: bytes) -> bytes:
    """Return the frame of an envelope and a payload."""
    return b"".join((envelope, _payloadLength.pack(len(payload)), payload))
