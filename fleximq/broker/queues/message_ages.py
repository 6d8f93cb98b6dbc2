"""The ages of a queue's messages: one time for all that arrive within a hundredth of their time to live."""

from collections import deque
from collections.abc import Iterator

#: Steps of the time to live; a message may live one step longer.
STEPS = 100
# Sums of floats are not exact.
_TOLERANCE = 1e-6


class MessageAges:
    """Arrival numbers with the time of each; ``timeToLive`` is the seconds after which a message has expired."""

    __slots__ = ("_expired", "_timeToLive", "_marks")

    def __init__(self, timeToLive: float) -> None:
        self._timeToLive = timeToLive
        self._marks: deque[tuple[int, float]] = deque()
        self._expired = 0

    def __iter__(self) -> Iterator[tuple[int, float]]:
        """Iterate over arrival numbers and when each was the latest."""
        return iter(self._marks)

    def add(self, number: int, time: float) -> None:
        """Record that all messages up to this arrival number have arrived by now."""
        marks = self._marks
        if len(marks) > 1 and time - marks[-2][1] < self._timeToLive / STEPS:
            marks[-1] = number, time
        else:
            marks.append((number, time))

    def before(self, now: float) -> int:
        """Return the arrival number up to which all messages have expired, 0 for none."""
        marks = self._marks
        while marks and marks[0][1] <= now - self._timeToLive + _TOLERANCE:
            self._expired, _ = marks.popleft()
        return self._expired
