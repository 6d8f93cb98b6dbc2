"""Which header fields each FlexiMQ message type must, may and must not have.

The table of the FlexiMQ document, section 2.2.3, with the one exception of docs/dialects.rst: a JOIN may carry
``reqrep``, which section 4.2 expects.
"""

from enum import IntEnum
from typing import NamedTuple


class MessageType(IntEnum):
    """FlexiMQ document 3.1."""

    JOIN = 0
    REQ = 1
    REP = 2
    NOTIF = 3
    BCAST = 4
    PUB = 5
    SUB = 6
    UNSUB = 7
    PING = 8
    PONG = 9


class Rule(NamedTuple):
    """The fields a type requires and forbids, in the order of the document; all others are optional."""

    required: tuple[str, ...]
    forbidden: tuple[str, ...]


RULES: dict[int, Rule] = {
    MessageType.JOIN: Rule((), ("routing", "topic", "keepalive", "status")),
    MessageType.REQ: Rule(("routing", "reqrep"), ("topic", "auth", "keepalive")),
    MessageType.REP: Rule(("routing", "reqrep"), ("topic", "auth", "keepalive")),
    MessageType.NOTIF: Rule(("routing",), ("reqrep", "topic", "auth", "keepalive")),
    MessageType.BCAST: Rule((), ("routing", "reqrep", "topic", "auth", "keepalive")),
    MessageType.PUB: Rule(("topic",), ("reqrep", "auth", "keepalive")),
    MessageType.SUB: Rule(("topic",), ("routing", "reqrep", "status", "auth", "keepalive")),
    MessageType.UNSUB: Rule(("topic",), ("routing", "reqrep", "status", "auth", "keepalive")),
    MessageType.PING: Rule(("keepalive",), ("routing", "reqrep", "topic", "status", "auth")),
    MessageType.PONG: Rule(("keepalive",), ("routing", "reqrep", "topic", "status", "auth")),
}
