"""Decodes a few payloads, so that tests can say what becomes of them."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from fleximq.pipeline.payloads.ddl import parsed
from fleximq.pipeline.payloads.decoder import Decoded, Decoder
from fleximq.pipeline.payloads.dialect_payloads import VERBATIM, Identity
from fleximq.values.message import Content, Message
from fleximq.values.records import contentOf


def binary(payloads: Sequence[bytes | None]) -> pa.BinaryArray:
    """Return payloads as a column."""
    return pa.array(payloads, pa.binary())


def texts(found: Sequence[str | None] | None) -> pa.StringArray | None:
    """Return a column of texts."""
    return None if found is None else pa.array(found, pa.string())


def codes(contents: Sequence[Content]) -> pa.Int32Array:
    """Return the column ``content``."""
    return pa.array([contentOf(Message(b"", content)) for content in contents], pa.int32())


def decode(
    payloadFormat: str,
    ddl: str | None,
    *payloads: bytes | None,
    identity: Identity = VERBATIM,
    dialects: Sequence[str] | None = None,
) -> Decoded:
    """Return what a decoder says."""
    decoder = Decoder(payloadFormat, None if ddl is None else parsed(ddl), identity)
    return decoder.decode(binary(payloads), texts(dialects))


def rowsOf(decoded: Decoded) -> list[dict[str, Any] | str | None]:
    """Return for each row its values, or its error; None for one that has neither."""
    rows: list[dict[str, Any] | None] = decoded.columns.to_pylist()
    errors = [None] * len(rows) if decoded.errors is None else decoded.errors.to_pylist()
    return [row if error is None else error for row, error in zip(rows, errors, strict=True)]


def valueOf(payloadFormat: str, dataType: str, payload: bytes) -> Any:
    """Return the value of the field ``a`` of this type in a payload, or the error."""
    [row] = rowsOf(decode(payloadFormat, f"a {dataType}", payload))
    return row["a"] if isinstance(row, dict) else row
