"""Blocks clients that reconnect too often.

A client is flapping after too many disconnects within a minute, each of a connection shorter than a minute; so
long-lived clients of one address that disconnect together are not. Clients are counted by principal, else by address;
local clients without credentials are not counted.
"""

from collections import deque
from collections.abc import Callable, Hashable

#: Seconds within which disconnects are counted.
WINDOW = 60.0


class FlappingLimit:
    """Blocks a client for ``wait`` seconds after ``most`` disconnects within a minute, 0: never."""

    __slots__ = ("_kept", "_left", "_remembered", "_seconds", "most", "wait")

    def __init__(
        self, most: int = 0, wait: float = 0.0, seconds: Callable[[], float] = lambda: 0.0, remembered: int = 10_000
    ) -> None:
        self.most, self.wait, self._seconds, self._remembered = most, wait, seconds, remembered
        self._left: dict[Hashable, deque[float]] = {}
        self._kept: dict[Hashable, float] = {}

    def __len__(self) -> int:
        return len(self._left) + len(self._kept)

    def left(self, who: Hashable | None, lived: float) -> bool:
        """Count a disconnect after ``lived`` seconds; True if the client is blocked now."""
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
        """Return the seconds until the block of a client ends, 0 if it may connect."""
        until = self._kept.get(who)
        if until is None:
            return 0.0
        left = min(until - self._seconds(), self.wait)  # a reload may have made it shorter
        if left > 0:
            return left
        del self._kept[who]
        return 0.0

    def change(self, most: int, wait: float) -> None:
        """Apply new limits. Without a limit all blocks end."""
        self.most = most
        self.wait = wait
        if not most:
            self._left.clear()
            self._kept.clear()

    def _forget(self, now: float) -> None:
        """Drop expired entries: both tables are in order of their times while the settings stay."""
        while self._left:
            first, times = next(iter(self._left.items()))
            if len(self._left) <= self._remembered and times[-1] > now - WINDOW:
                break
            del self._left[first]
        while self._kept:
            first, until = next(iter(self._kept.items()))
            if len(self._kept) <= self._remembered and until > now:
                break
            del self._kept[first]
