"""The variants of FlexiMQ that are in use, made and read by the letter of docs/reference/dialects.rst, for tests.

In *layout A*, the document's, the payload length stands behind the header, in *layout B* before it. A *positional*
header is an array of six; in an *inner* one the header is a map and its objects are arrays. Nothing here is the
broker's own code.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgpack

from tests.wire.flexi_frames import FIELDS, NAMES, Heard, cut, frame

#: Statuses as positional headers spell them.
STATUS_NAMES = {
    200: "Ok",
    201: "Created",
    202: "Accepted",
    204: "NoContent",
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "RequestTimeout",
    409: "Conflict",
    413: "PayloadTooLarge",
    429: "TooManyRequests",
    500: "InternalServerError",
    501: "NotImplemented",
    502: "BadGateway",
    503: "ServiceUnavailable",
    504: "GatewayTimeout",
    600: "ClientNotFound",
    601: "TopicNotFound",
    602: "InvalidRouting",
    603: "SubscriptionFailed",
    604: "AuthenticationFailed",
    605: "JoinRejected",
}
_INNER = {"reqrep": ("type", "id"), "keepalive": ("timestamp", "interval")}


def arrayOf(header: Mapping[str, Any]) -> list[Any]:
    """Return a header as an array of six.

    :raises KeyError: for a field that the array has no place for.
    """
    unknown = set(header) - set(FIELDS)
    if unknown:
        raise KeyError(unknown)
    return [_positional(name, header.get(name)) for name in FIELDS]


def _positional(name: str, value: Any) -> Any:
    if name == "routing" and isinstance(value, list):
        return [_entry(each) for each in value]
    if name == "auth" and isinstance(value, dict):
        return list(value.values())
    if name == "status" and value is not None:
        return STATUS_NAMES[value]
    if name in _INNER and isinstance(value, dict):
        return [value.get(each) for each in _INNER[name]]
    return value


def _entry(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    if "client_name" in entry:
        return [entry["client_name"], entry.get("path"), entry.get("client_id")]
    return [entry["client_id"], entry.get("path")]


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to write FlexiMQ."""

    name: str
    isB: bool = False
    positional: bool = False
    inner: bool = False

    def status(self, code: int) -> int | str:
        """Return a status as the variant reads it."""
        return STATUS_NAMES[code] if self.positional else code

    def frame(
        self, kind: str | int, client_id: int = 0, header: Any = None, payload: bytes = b"", **more: Any
    ) -> bytes:
        """Return a frame, see :func:`tests.wire.flexi_frames.frame`; a map in ``header`` becomes an array."""
        if self.positional and isinstance(header, dict):
            header = arrayOf(header)
        if self.inner and isinstance(header, dict):
            header = {name: _positional(name, value) for name, value in header.items()}
        whole = frame(kind, client_id, header, payload, **more)
        return inLayoutB(whole) if self.isB else whole

    def cut(self, data: bytes) -> list[Heard]:
        """Return the frames that these bytes are; they must be whole."""
        return cutLayoutB(data) if self.isB else cut(data)

    def take(self, data: bytes) -> tuple[Heard, bytes] | None:
        """Return the first frame and what follows it, None while it is not whole."""
        if len(data) < 34:
            return None
        (header,) = struct.unpack_from(">22xI", data)
        place = 26 if self.isB else 26 + header
        if len(data) < place + 8:
            return None
        end = 34 + header + struct.unpack_from(">Q", data, place)[0]
        return (self.cut(data[:end])[0], data[end:]) if len(data) >= end else None


def inLayoutB(whole: bytes) -> bytes:
    """Return one frame of layout A in layout B."""
    (header,) = struct.unpack_from(">22xI", whole)
    middle = 26 + header
    return whole[:26] + whole[middle : middle + 8] + whole[26:middle] + whole[middle + 8 :]


def cutLayoutB(data: bytes) -> list[Heard]:
    """Return the frames of layout B that these bytes are; they must be whole."""
    found = []
    start = 0
    while start < len(data):
        version, number, sender, reserved, header, payload = struct.unpack_from(">BBI16sIQ", data, start)
        middle = start + 34 + header
        end = middle + payload
        if end > len(data):
            raise ValueError(f"a frame ends {end - len(data)} bytes too late")
        fields = msgpack.unpackb(data[start + 34 : middle], strict_map_key=False) if header else {}
        found.append(Heard(NAMES[number], sender, fields, data[middle:end], reserved, version, data[start:end]))
        start = end
    return found


MAPS = Variant("Maps")
POSITIONAL = Variant("Positional", positional=True)
LAYOUT_B = Variant("LayoutB", isB=True)
POSITIONAL_B = Variant("PositionalB", isB=True, positional=True)
INNER = Variant("Inner", inner=True)
INNER_B = Variant("InnerB", isB=True, inner=True)
#: All that are understood.
VARIANTS = (MAPS, POSITIONAL, LAYOUT_B, POSITIONAL_B, INNER, INNER_B)
