"""What clients of the Identity dialect put into a message besides its body (Identity document, "Extensions").

Metadata stand behind the body, ``Hello!||timestamp=1234567890``, any number of them; bytes stand there as base64. The
broker forwards both as they are, so they are taken apart here, where somebody asks for it.
"""

import re
from base64 import b64decode
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

#: The column of metadata, and its type.
METADATA = pa.field("metadata", pa.map_(pa.string(), pa.string()))
_MARK = b"||"
_PAIR = re.compile(rb"([A-Za-z_][A-Za-z0-9_.-]*)=(.*)", re.DOTALL)


class Identity(NamedTuple):
    """What is understood: ``metadata`` become a column, ``base64`` bodies become their bytes, in this order."""

    metadata: bool = False
    base64: bool = False


#: Messages are taken as they are.
VERBATIM = Identity()


def metadataApart(values: pa.Array, where: Sequence[bool] | None, errors: dict[int, str]) -> tuple[pa.Array, pa.Array]:
    """Return bodies, and the metadata that stood behind them; null where there are none.

    :param where: which rows may have some; None is all of them.
    """
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
    """Return the body of a message and its metadata; of equal keys the last one counts.

    From the end on, parts behind ``||`` are metadata as long as they are ``key=value``: a body may have ``||`` in it.

    :raises UnicodeDecodeError: a value is not UTF-8.
    """
    pairs: dict[str, str] = {}
    while True:
        body, mark, last = message.rpartition(_MARK)
        pair = _PAIR.fullmatch(last) if mark else None
        if pair is None:
            return message, list(pairs.items())[::-1] or None
        pairs.setdefault(pair[1].decode(), pair[2].decode())
        message = body


def bodiesDecoded(values: pa.Array, where: Sequence[bool] | None, errors: dict[int, str]) -> pa.Array:
    """Return the bytes that bodies in base64 stand for."""
    bodies: list[bytes | None] = values.to_pylist()
    for place, body in enumerate(bodies):
        if body is not None and (where is None or where[place]):
            try:
                bodies[place] = b64decode(body, validate=True)
            except ValueError:
                errors[place] = "the body is not base64"
                bodies[place] = None
    return pa.array(bodies, pa.binary())
