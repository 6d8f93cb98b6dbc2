"""Clients that come and go all the time have to stay away for a while.

A client counts as flapping when it has left so many times within a minute, each time after less than a minute: who
leaves after a long time, be it together with a thousand others of the same address, is not. What it is counted by is
its principal, else its address; clients of this machine without credentials are not counted.
"""

from collections import deque
from collections.abc import Callable, Hashable

#: Seconds within which departures add up.
WINDOW = 60.0


class FlappingLimit:
    """Counts departures.

    :param most: so many within a minute are too many; 0: none are.
    :param wait: seconds for which such a client is not let in.
    :param seconds: the clock.
    :param remembered: so many peers are remembered; when there are more at a time, those who left first are forgotten.
    """

    __slots__ = ("_kept", "_left", "_remembered", "_seconds", "most", "wait")

    def __init__(
        self,
        most: int = 0,
        wait: float = 0.0,
        seconds: Callable[[], float] = lambda: 0.0,
        remembered: int = 10_000,
    ) -> None:
        self.most = most
        self.wait = wait
        self._seconds = seconds
        self._remembered = remembered
        self._left: dict[Hashable, deque[float]] = {}
        self._kept: dict[Hashable, float] = {}

    def __len__(self) -> int:
        return len(self._left) + len(self._kept)

    def left(self, who: Hashable | None, lived: float) -> bool:
        """Count that a client has gone after so many seconds; True if it has to stay away now."""
        if not self.most or who is None or lived >= WINDOW:
            return False
        now = self._seconds()
        times = self._left.pop(who, None) or deque()
        times.append(now)
        while times[0] <= now - WINDOW:
            times.popleft()
        if len(times) >= self.most:
            self._kept.pop(who, None)
            self._kept[who] = now + self.wait
            self._forget(now)
            return True
        self._left[who] = times
        self._forget(now)
        return False

    def waits(self, who: Hashable | None) -> float:
        """Return for how many seconds more a client has to stay away, 0 if it may come."""
        if not self._kept:
            return 0.0
        until = self._kept.get(who)
        if until is None:
            return 0.0
        left = min(until - self._seconds(), self.wait)  # the clock may have been set back
        if left > 0:
            return left
        del self._kept[who]
        return 0.0

    def change(self, most: int, wait: float) -> None:
        """Go on by other numbers. Without any, nobody has to stay away."""
        self.most = most
        self.wait = wait
        if not most:
            self._left.clear()
            self._kept.clear()

    def _forget(self, now: float) -> None:
        """Let go of what no longer matters: both are in order of their times, as long as the settings stay."""
        _drop(self._left, lambda times: times[-1] <= now - WINDOW, self._remembered)
        _drop(self._kept, lambda until: until <= now, self._remembered)


def _drop(
    found: dict[Hashable, "deque[float]"] | dict[Hashable, float], isOver: Callable[..., bool], most: int
) -> None:
    while found:
        first = next(iter(found))
        if len(found) <= most and not isOver(found[first]):
            return
        del found[first]
