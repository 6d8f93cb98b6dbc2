"""FlexiMQ frames made and read by the letter of the document, for tests: nothing here is the broker's own code.

::

    frame("PUB", 1000, {"topic": "news"}, payload=b"\\x01")
    [heard] = cut(received)
    heard.kind, heard.sender, heard.header, heard.value
"""

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgpack

#: FlexiMQ document 3.1, in the order of the values.
NAMES = ("JOIN", "REQ", "REP", "NOTIF", "BCAST", "PUB", "SUB", "UNSUB", "PING", "PONG")
#: FlexiMQ document 2.2.1.
FIELDS = ("routing", "reqrep", "topic", "status", "auth", "keepalive")


class Heard(NamedTuple):
    """One frame; ``header`` is the map, ``payload`` the bytes, ``raw`` all of it."""

    kind: str
    sender: int
    header: Any
    payload: bytes
    reserved: bytes
    version: int
    raw: bytes

    @property
    def value(self) -> Any:
        """What the payload says in MessagePack, None where there is none."""
        return msgpack.unpackb(self.payload, strict_map_key=False) if self.payload else None

    @property
    def status(self) -> int | None:
        """The status in the header, None without."""
        status: int | None = self.header.get("status")
        return status


def frame(
    kind: str | int,
    client_id: int = 0,
    header: Any = None,
    payload: bytes = b"",
    version: int = 1,
    reserved: bytes = bytes(16),
) -> bytes:
    """Return a frame (document 2.1).

    :param header: a value for MessagePack, bytes that stand for themselves, or None for no header.
    """
    number = NAMES.index(kind) if isinstance(kind, str) else kind
    raw = b"" if header is None else header if isinstance(header, bytes) else msgpack.packb(header)
    return (
        bytes((version, number))
        + struct.pack(">I", client_id)
        + reserved
        + struct.pack(">I", len(raw))
        + raw
        + struct.pack(">Q", len(payload))
        + payload
    )


def cut(data: bytes) -> list[Heard]:
    """Return the frames that these bytes are; they must be whole."""
    return list(_cut(data))


def _cut(data: bytes) -> Iterator[Heard]:
    start = 0
    while start < len(data):
        version, number, sender, reserved, length = struct.unpack_from(">BBI16sI", data, start)
        middle = start + 26 + length
        header = msgpack.unpackb(data[start + 26 : middle], strict_map_key=False) if length else {}
        end = middle + 8 + struct.unpack_from(">Q", data, middle)[0]
        if end > len(data):
            raise ValueError(f"a frame ends {end - len(data)} bytes too late")
        yield Heard(NAMES[number], sender, header, data[middle + 8 : end], reserved, version, data[start:end])
        start = end
