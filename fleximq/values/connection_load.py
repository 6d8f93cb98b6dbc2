"""What one connection has carried, what its peer has not read, and why it is slow."""

from typing import NamedTuple


class ConnectionLoad(NamedTuple):
    """The load of one connection: bytes and messages since it began, bytes that wait until its peer reads them, and
    the bytes above which it is too slow; 0 if that is not known.

    ``slow`` are phrases about what holds it up: its peer does not read, or the broker does not read from it.
    """

    bytesIn: int
    bytesOut: int
    messagesIn: int
    messagesOut: int
    unread: int = 0
    mark: int = 0
    slow: tuple[str, ...] = ()
