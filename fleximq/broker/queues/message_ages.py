"""When the messages of a queue arrived, and which of them are too old."""

from collections import deque
from collections.abc import Iterator

#: Steps of the time to live; a message may live one step longer.
STEPS = 100
# Sums of floats are not exact.
_TOLERANCE = 1e-6


class MessageAges:
    """Finds the messages that are too old by their arrival numbers.

    All messages that arrive within a hundredth of the time to live share one time.
    """

    __slots__ = ("_expired", "_timeToLive", "_marks")

    def __init__(self, timeToLive: float) -> None:
        self._timeToLive = timeToLive
        self._marks: deque[tuple[int, float]] = deque()
        self._expired = 0

    def __iter__(self) -> Iterator[tuple[int, float]]:
        """Iterate over arrival numbers and when each was the latest."""
        return iter(self._marks)

    def __len__(self) -> int:
        return len(self._marks)

    def firstEnd(self) -> float:
        """Return when the next messages expire; there must be some."""
        return self._marks[0][1] + self._timeToLive

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
