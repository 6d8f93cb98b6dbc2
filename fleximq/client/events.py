"""Events that a client receives from the broker, as values."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from fleximq.client.payloads import unpacked
from fleximq.values.header_pairs import SENDER

#: FlexiMQ document 4.1.1: the client id of the broker.
BROKER = 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: In milliseconds since 1970.
_YEAR_10000 = 253_402_300_800_000


class Joined(NamedTuple):
    """The broker accepted the JOIN and assigned this id."""

    id: int


class Value(NamedTuple):
    """A value that the broker stores under a key. ``payload`` is the encoded value; ``revision`` is another number, a
    larger one, whenever the value is changed.
    """

    revision: int
    payload: bytes

    @property
    def value(self) -> Any:
        """The value; raises ValueError if it cannot be decoded."""
        return unpacked(self.payload)


class Delivery(NamedTuple):
    """A publication. ``payload`` is the encoded value, ``header`` the complete map of its header."""

    topic: str
    payload: bytes
    publisher: int
    header: Mapping[str, Any]

    @property
    def value(self) -> Any:
        """The payload's value; raises ValueError if it cannot be decoded."""
        return unpacked(self.payload)

    @property
    def offset(self) -> int | None:
        """The offset in the journal, for subscriptions with a start."""
        offset = self.header.get("offset")
        return offset if isinstance(offset, int) else None

    @property
    def time(self) -> datetime | None:
        """When the broker stored it, in UTC, for subscriptions with a start; else None."""
        stored = self.header.get("stored_at")
        if self.offset is None or not isinstance(stored, int) or not 0 <= stored < _YEAR_10000:
            return None
        return _EPOCH + timedelta(milliseconds=stored)

    @property
    def sender(self) -> str | None:
        """The principal of the publisher, if the broker says so (``--sender``); None for anonymous ones."""
        sender = self.header.get(SENDER)
        return sender if isinstance(sender, str) else None


class Gap(Delivery):
    """Messages may be missing here, since the connection was lost; for subscriptions with ``gaps``.

    ``topic`` is the topic or pattern of the subscription, ``value`` is None.
    """

    __slots__ = ()


class Request(NamedTuple):
    """A request to this client; the answer carries the same ``id``."""

    id: str
    path: str
    payload: bytes
    sender: int
    header: Mapping[str, Any]

    @property
    def value(self) -> Any:
        """The payload's value; raises ValueError if it cannot be decoded."""
        return unpacked(self.payload)


class Reply(NamedTuple):
    """The answer to the request with this ``id``; the broker's own answers have the sender 1.

    A large payload is a view of the received bytes.
    """

    id: str
    status: int
    payload: bytes | memoryview
    sender: int
    header: Mapping[str, Any]


class Refusal(NamedTuple):
    """An error for a message without an answer, e.g. a PUB; ``path`` is the path or topic concerned, or ""."""

    status: int
    words: str
    path: str
    payload: bytes


class Notification(NamedTuple):
    """A NOTIF to this client, or with ``path`` None a BCAST to all clients."""

    path: str | None
    payload: bytes
    sender: int
    header: Mapping[str, Any]

    @property
    def value(self) -> Any:
        """The payload's value; raises ValueError if it cannot be decoded."""
        return unpacked(self.payload)


class Pinged(NamedTuple):
    """A PING of the broker; the PONG must carry this timestamp."""

    timestamp: int


class Ponged(NamedTuple):
    """Everything sent before the PING with this timestamp is processed and, where durable, on disk."""

    timestamp: int


Event = Joined | Delivery | Request | Reply | Refusal | Notification | Pinged | Ponged
