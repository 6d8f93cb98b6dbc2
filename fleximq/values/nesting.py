"""The limit of nested arrays and maps in the input of clients: one for headers, arguments and JSON.

msgpack reads and packs up to 1,024 levels. The limit is lower, since values are packed again inside others,
converted to JSON and traversed recursively: that cannot fail for input within it.
"""

from typing import Any

import msgpack

#: Arrays and maps inside each other.
NESTING = 256
#: All bytes that begin no array or map in MessagePack.
_OTHERS = bytes(byte for byte in range(256) if not 0x80 <= byte <= 0x9F and not 0xDC <= byte <= 0xDF)


class NestedTooDeeply(ValueError):
    """A value is nested deeper than :data:`NESTING`."""

    def __init__(self) -> None:
        super().__init__(f"nested deeper than {NESTING} levels")


def unpack(packed: bytes, **options: Any) -> Any:
    """Return a MessagePack value, as ``msgpack.unpackb``, and raise what that raises, or NestedTooDeeply.

    Input with few arrays and maps is not traversed: each level needs a byte.
    """
    value = msgpack.unpackb(packed, **options)
    if mayBeDeep(packed):
        checkNesting(value)
    return value


def mayBeDeep(packed: bytes) -> bool:
    """Return whether these bytes may be a MessagePack value deeper than :data:`NESTING`; False for most."""
    return len(packed) > NESTING and len(packed.translate(None, _OTHERS)) > NESTING


def checkNesting(value: Any) -> None:
    """Raise NestedTooDeeply for a value of lists and dicts that is; linear, and without recursion."""
    level = [value]
    for _ in range(NESTING + 1):
        level = [each for each in level if isinstance(each, list | dict)]
        if not level:
            return
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    raise NestedTooDeeply
