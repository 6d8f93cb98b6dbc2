"""The story of a dead letter: why its message died, and what was before.

It is a map under the key ``death`` of the letter's header, after the publisher's own pairs, so that the journal stores
it with the letter (docs/reference/dialects.rst, "Dead letters").
"""

from functools import lru_cache
from typing import Any, NamedTuple

import msgpack

from fleximq.values.death_reason import DeathReason
from fleximq.values.header_pairs import SHORT, headerPairs, mapHead

#: The header's key of the story.
DEATH = "death"
#: The longest words of a consumer that rejects a message, in bytes of UTF-8.
WORDS_BYTES = 4096

_OWN = frozenset({DEATH})
_MESSAGE_ID, _TOPIC, _EXPIRES = "message_id", "topic", "expires_in"
_PACKED_DEATH, _PACKED_ID = msgpack.packb(DEATH), msgpack.packb(_MESSAGE_ID)


class Death(NamedTuple):
    """Why a message died in a queue.

    :param queue: the name of the queue, of a BlipMQ subscription its topic; ``subscription`` is then its id, else 0.
    :param topic: the topic that the message was published to.
    :param attempts: the number of its deliveries.
    :param first: when the first of them ended without an acknowledgement, in milliseconds since 1970; ``last``: when
        the message died.
    :param consumer: the name of the client with the last delivery, "" if it is not known.
    :param words: those of the consumer that rejected it, "" without any.
    """

    queue: str
    reason: DeathReason
    attempts: int = 0
    first: int = 0
    last: int = 0
    consumer: str = ""
    words: str = ""
    topic: str = ""
    subscription: int = 0

    def dump(self) -> dict[str, Any]:
        """Return the map of the header; what is not known is left out."""
        fields = self._asdict() | {"reason": self.reason.value}
        optional = "consumer", "words", "topic", "subscription"
        return {name: value for name, value in fields.items() if value or name not in optional}


def storyIn(pairs: bytes, death: Death, messageId: str | None, most: int, expires: bool = True) -> bytes:
    """Return a header with this story as its last pair, and with this id; the story replaces an earlier one.

    :param most: maximum size in bytes: the words, and then the publisher's own pairs, are left out if it is exceeded.
    :param expires: leave the publisher's ``expires_in`` in it.
    """
    last = b"" if messageId is None else _PACKED_ID + msgpack.packb(messageId)
    unwanted = _OWN | ({_MESSAGE_ID} if last else set()) | (set() if expires else {_EXPIRES})
    for own, story in ((pairs, death), (pairs, death._replace(words="")), (b"", death._replace(words=""))):
        count, kept = headerPairs(own, unwanted)
        parts = mapHead(count + 1 + bool(last)), kept, last, _PACKED_DEATH, msgpack.packb(story.dump())
        if sum(map(len, parts)) <= most:
            break
    return b"".join(parts)


def returnedPairs(pairs: bytes, topic: str) -> bytes:
    """Return the header of a dead letter without the story, and with the topic that the message was published to."""
    count, kept = headerPairs(pairs, _OWN | {_TOPIC})
    return b"".join((mapHead(count + 1), kept, msgpack.packb(_TOPIC), msgpack.packb(topic)))


def storyOf(pairs: bytes) -> Death | None:
    """Return the story in a header; None without one."""
    if _PACKED_DEATH not in pairs:
        return None
    return (_storyOf if len(pairs) <= SHORT else _storyOf.__wrapped__)(pairs)


@lru_cache(maxsize=256)
def _storyOf(pairs: bytes) -> Death | None:
    try:
        found = msgpack.unpackb(pairs, strict_map_key=False, timestamp=1, object_pairs_hook=list)
        fields = dict(next(value for key, value in found if key == DEATH))
        return Death(**{**fields, "reason": DeathReason(fields["reason"])})
    except (ValueError, TypeError, KeyError, StopIteration, OverflowError, RecursionError):
        return None  # a publisher's own key of this name


def shortWords(words: str) -> str:
    """Return the first :data:`WORDS_BYTES` bytes of a consumer's words, without half a character."""
    return words.encode()[:WORDS_BYTES].decode(errors="ignore")
