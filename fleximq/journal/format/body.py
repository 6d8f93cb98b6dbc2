"""MessagePack in the bodies of frames: one value, then zero bytes up to a multiple of 8. Pure; ignores unknown keys."""

from typing import Any

import msgpack

from fleximq.journal.format.frame import HEADER_BYTES, Frame, FrameError, FrameHeader, FrameKind, padding

U64 = 0xFFFFFFFFFFFFFFFF


class FrameFields:
    """The map in a frame's body."""

    def __init__(self, header: FrameHeader, frame: Any, kind: FrameKind) -> None:
        fields = readBody(header, frame, kind)
        if not isinstance(fields, dict):
            raise FrameError(f"the body of a {kind.name} must be a map")
        self._fields = fields

    def get(self, name: str, expected: type) -> Any:
        """Return a field of this type; ``object`` accepts any."""
        if name not in self._fields:
            raise FrameError(f"the field {name!r} is missing")
        value = self._fields[name]
        if not isinstance(value, expected):
            raise FrameError(f"the field {name!r} is of a wrong type")
        return value

    def text(self, name: str) -> str:
        """Return a text field."""
        value: str = self.get(name, str)
        return value

    def integer(self, name: str) -> int:
        """Return an integer field."""
        value = self.get(name, int)
        if not isInteger(value):
            raise FrameError(f"the field {name!r} is of a wrong type")
        return int(value)

    def number(self, name: str) -> int:
        """Return an integer field that is 0 or larger."""
        value = self.integer(name)
        if not isNumber(value):
            raise FrameError(f"the field {name!r} is no number from 0 on")
        return value


def frameOf(kind: FrameKind, body: Any, offset: int, time: int, count: int = 0) -> Frame:
    """Return a frame with this value as its body."""
    packed = msgpack.packb(body)
    return Frame(kind, [packed + padding(len(packed))], count=count, baseOffset=offset, firstTime=time, lastTime=time)


def readBody(header: FrameHeader, frame: Any, kind: FrameKind) -> Any:
    """Return the MessagePack value that is the body of a frame."""
    if header.kind != kind:
        raise FrameError(f"a frame of kind {header.kind} is no {kind.name}")
    value, rest = unpackFirst(memoryview(frame)[HEADER_BYTES:])
    if len(rest) >= 8 or any(rest):
        raise FrameError("something stands behind the value of the body")
    return value


def unpackFirst(packed: Any) -> tuple[Any, bytes]:
    """Return the first MessagePack value in these bytes, and the bytes after it. Raises FrameError."""
    try:
        return msgpack.unpackb(packed, strict_map_key=False), b""
    except msgpack.ExtraData as more:
        return more.unpacked, bytes(more.extra)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise FrameError("the body is no MessagePack value") from None


def unpackMap(packed: Any) -> dict[str, Any]:
    """Return the MessagePack map that is all of these bytes. Raises FrameError if there is none, or more."""
    value, rest = unpackFirst(packed)
    if rest or not isinstance(value, dict):
        raise FrameError("what should be a MessagePack map is none")
    return value


def isNumber(value: Any, most: int = U64) -> bool:
    """Test for an integer from 0 to ``most`` inclusive."""
    return isInteger(value) and 0 <= value <= most


def isInteger(value: Any) -> bool:
    """Test for an integer; booleans are not integers."""
    return isinstance(value, int) and not isinstance(value, bool)
