"""So many lines of the log in a second, and no more: what peers do wrong must not flood it."""

#: Lines in a second.
LINES_PER_SECOND = 10


class LogLimit:
    """Lets the first lines of each second by, and counts the others."""

    __slots__ = ("_left", "_most", "_until", "_suppressed")

    def __init__(self, most: int = LINES_PER_SECOND) -> None:
        self._most = most
        self._left = most
        self._until = 0.0
        self._suppressed = 0

    def passes(self, now: float) -> int | None:
        """Return how many lines were left out since the last that was let by, None if this one is left out too.

        :param now: the clock's seconds.
        """
        if not self._until - 1.0 <= now < self._until:
            self._until = now + 1.0
            self._left = self._most
        if not self._left:
            self._suppressed += 1
            return None
        self._left -= 1
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed
