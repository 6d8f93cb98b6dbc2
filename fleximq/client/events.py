"""What a client hears from the broker, as values."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgpack


def unpacked(payload: bytes | memoryview) -> Any:
    """Return the value of a payload; no bytes are None.

    :raises ValueError: it is not one MessagePack value, or one that Python cannot hold.
    """
    if not payload:
        return None
    try:
        return msgpack.unpackb(payload, strict_map_key=False, timestamp=3)
    except (TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"the payload has no value in Python: {error}") from error


def wordsOf(payload: bytes | memoryview) -> str:
    """Return what the payload of an error says, "" where it is neither a text nor a map with one under ``error``."""
    try:
        value = unpacked(payload)
    except ValueError:
        return ""
    if isinstance(value, Mapping):
        value = value.get("error")
    return value if isinstance(value, str) else ""


class Joined(NamedTuple):
    """The broker let the client in and gave it this id."""

    id: int


class Delivery(NamedTuple):
    """A publication. ``payload`` is MessagePack as it came, ``header`` the whole map of its header."""

    topic: str
    payload: bytes
    publisher: int
    header: Mapping[str, Any]

    @property
    def value(self) -> Any:
        """The payload's value.

        :raises ValueError: it is not one MessagePack value.
        """
        return unpacked(self.payload)

    @property
    def offset(self) -> int | None:
        """Its place in the journal, for subscriptions that began with ``from``."""
        offset = self.header.get("offset")
        return offset if isinstance(offset, int) else None


class Request(NamedTuple):
    """Somebody asks this client; it is to answer the ``id``."""

    id: str
    path: str
    payload: bytes
    sender: int
    header: Mapping[str, Any]

    @property
    def value(self) -> Any:
        """The payload's value.

        :raises ValueError: it is not one MessagePack value.
        """
        return unpacked(self.payload)


class Reply(NamedTuple):
    """The answer to the request of this ``id``; the broker's own answers have the sender 1.

    A large payload is a view of the bytes that came.
    """

    id: str
    status: int
    payload: bytes | memoryview
    sender: int
    header: Mapping[str, Any]


class Refusal(NamedTuple):
    """The broker could not do what has no answer of its own; ``path`` is the path or topic concerned, or ""."""

    status: int
    words: str
    path: str
    payload: bytes


class Notification(NamedTuple):
    """A NOTIF to this client, or with ``path`` None a BCAST to everybody."""

    path: str | None
    payload: bytes
    sender: int
    header: Mapping[str, Any]

    @property
    def value(self) -> Any:
        """The payload's value.

        :raises ValueError: it is not one MessagePack value.
        """
        return unpacked(self.payload)


class Pinged(NamedTuple):
    """The broker wants a sign of life with this timestamp."""

    timestamp: int


class Ponged(NamedTuple):
    """All that was said before the PING with this timestamp is done and, where durable, on disk."""

    timestamp: int


Said = TypeVar("Said", Delivery, Request, Notification)


def readBy(unpack: Callable[[bytes], Any], kind: type[Said]) -> type[Said]:
    """Return this kind of event, with values that ``unpack`` reads from the payloads."""
    if unpack is unpacked:
        return kind
    return type(kind.__name__, (kind,), {"__slots__": (), "value": property(lambda self: unpack(self.payload))})


Event = Joined | Delivery | Request | Reply | Refusal | Notification | Pinged | Ponged
