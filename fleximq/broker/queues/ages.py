"""How old the messages of a queue are: not each of them, but those that came within a hundredth of their time to live.

Messages have arrival numbers, so the age of all is told by a few of them.
"""

from collections import deque
from collections.abc import Iterator

#: The time to live is told apart in so many steps; a message may live one step longer.
STEPS = 100
# Sums of floats are not exact.
_TOLERANCE = 1e-6


class Ages:
    """Arrival numbers with the time of each.

    :param lives: seconds after which a message has expired.
    """

    __slots__ = ("_expired", "_lives", "_marks")

    def __init__(self, lives: float) -> None:
        self._lives = lives
        self._marks: deque[tuple[int, float]] = deque()
        self._expired = 0

    def __iter__(self) -> Iterator[tuple[int, float]]:
        """Iterate over arrival numbers and when each was the latest."""
        return iter(self._marks)

    def add(self, number: int, time: float) -> None:
        """Note that all messages up to this arrival number have come by now."""
        marks = self._marks
        if len(marks) > 1 and time - marks[-2][1] < self._lives / STEPS:
            marks[-1] = number, time
        else:
            marks.append((number, time))

    def before(self, now: float) -> int:
        """Return the arrival number up to which all messages have expired, 0 for none."""
        marks = self._marks
        while marks and marks[0][1] <= now - self._lives + _TOLERANCE:
            self._expired, _ = marks.popleft()
        return self._expired
