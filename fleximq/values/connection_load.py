"""The traffic of one connection, its unread output, and the reasons for which it is slow."""

from typing import NamedTuple


class ConnectionLoad(NamedTuple):
    """The load of one connection: bytes and messages since it began; ``unread`` bytes of output, and ``mark``, the
    number of them above which it is too slow, 0 if that is not known.

    ``slow`` has a phrase for each reason of a delay: its peer does not read, or the broker does not read from it.
    """

    bytesIn: int
    bytesOut: int
    messagesIn: int
    messagesOut: int
    unread: int = 0
    mark: int = 0
    slow: tuple[str, ...] = ()
