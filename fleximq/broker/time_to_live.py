"""After how long a topic's messages are not worth delivering any more."""

from collections.abc import Sequence
from functools import lru_cache

from fleximq.values.patterns import anyOf

#: So many topics' times are remembered.
_KNOWN = 4096


class TimesToLive:
    """The times to live of topics, by pattern; the first pattern that matches a topic counts.

    True if there are any patterns.

    :param lines: patterns and seconds.
    """

    def __init__(self, lines: Sequence[tuple[str, float]]) -> None:
        self._lines = [(anyOf((pattern,)), round(seconds * 1_000_000)) for pattern, seconds in lines]
        self.of = lru_cache(maxsize=_KNOWN)(self._of)

    def __bool__(self) -> bool:
        return bool(self._lines)

    def _of(self, topic: str) -> int | None:
        """Return for how many microseconds this topic's messages live; None for ever."""
        return next((lives for matches, lives in self._lines if matches(topic)), None)

    def seconds(self, topic: str) -> float | None:
        """Return for how many seconds this topic's messages live; None for ever."""
        lives = self.of(topic)
        return None if lives is None else lives / 1_000_000

    def expiresAt(self, topic: str, timestamp: int) -> int | None:
        """Return when a message of this topic and time is not delivered any more, None if it always is.

        Both times are microseconds since 1970. From the very moment on that is returned, it has expired.
        """
        lives = self.of(topic)
        return None if lives is None else timestamp + lives
