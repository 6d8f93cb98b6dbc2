"""The head of a publication: what a queue and its consumers need of a FlexiMQ header, besides the ids.

All messages of a run share one object. Messages of other dialects have no head; their fields are those of the message.
"""

from functools import lru_cache
from typing import NamedTuple

import msgpack

from fleximq.limits import DEAD, FEED, SUBSCRIPTION_FEED

#: The priorities of messages, and the one of a message without it: higher ones are delivered first.
PRIORITIES = range(10)
PRIORITY = 4
#: The keys of a PUB that queues read: most headers have none of them and need not be decoded.
_KEYS = (b"priority", b"expires_in", b"key")
#: Longer headers are not cached.
_SHORT = 1024
#: Maximum of ``expires_in``: times of the journal are below 2**63 microseconds.
_MOST_EXPIRES = 1 << 52


class Head(NamedTuple):
    """``pairs`` is the header as the journal stores it: a MessagePack map without the topic, no bytes for an empty one.

    ``publisher`` is the client id of the publisher, ``expires`` the milliseconds after which the message expires (0:
    never), and ``key`` groups the messages that a queue delivers in order.
    """

    topic: str
    pairs: bytes = b""
    publisher: int = 0
    priority: int = PRIORITY
    expires: int = 0
    key: str | bytes | None = None


#: The topics that feed one queue alone: their records have the topic of the publication in the header.
_FEEDS = FEED, SUBSCRIPTION_FEED


def headOf(topic: str, pairs: bytes, publisher: int) -> Head:
    """Return the head with the fields that a header has; those of a wrong type count as absent, as do all in the topics
    of dead letters, which do not expire again and have no priority. Mostly it is one object for all that are equal:
    queues do once what is the same for neighbours with one head.
    """
    return (_headOf if len(pairs) <= _SHORT else _headOf.__wrapped__)(topic, pairs, publisher)


@lru_cache(maxsize=1024)
def _headOf(topic: str, pairs: bytes, publisher: int) -> Head:
    if topic.startswith(_FEEDS):
        topic = _originOf(pairs, topic)
    if topic.startswith(DEAD) or not (_KEYS[0] in pairs or _KEYS[1] in pairs or _KEYS[2] in pairs):
        return Head(topic, pairs, publisher)
    return Head(topic, pairs, publisher, *(_fields if len(pairs) <= _SHORT else _fields.__wrapped__)(pairs))


def _originOf(pairs: bytes, feed: str) -> str:
    try:
        fields = msgpack.unpackb(pairs, timestamp=1)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return feed
    topic = fields.get("topic") if isinstance(fields, dict) else None
    return topic if isinstance(topic, str) else feed


def priorityOf(pairs: bytes) -> int:
    """Return the priority in a header; 0.1 us for one without."""
    if _KEYS[0] not in pairs:
        return PRIORITY
    return (_fields if len(pairs) <= _SHORT else _fields.__wrapped__)(pairs)[0]


@lru_cache(maxsize=1024)
def _fields(pairs: bytes) -> tuple[int, int, str | bytes | None]:
    """Return priority, milliseconds until the message expires, and key."""
    try:
        fields = msgpack.unpackb(pairs, timestamp=1)
    except (ValueError, TypeError, OverflowError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        return PRIORITY, 0, None
    priority, expires, key = fields.get("priority"), fields.get("expires_in"), fields.get("key")
    return (
        priority if type(priority) is int and priority in PRIORITIES else PRIORITY,
        expires if type(expires) is int and 0 < expires <= _MOST_EXPIRES else 0,
        key if isinstance(key, str | bytes) else None,
    )
