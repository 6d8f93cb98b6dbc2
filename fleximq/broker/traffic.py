"""How much goes over connections: plain numbers, added to where a read or a write is worked through anyway.

A connection counts for itself; :class:`TrafficTotals` adds up those that are open when it is asked, and keeps the sums
of those that are gone. So a message costs nothing here, a run or a read one addition.
"""

from collections.abc import Iterable


class Traffic:
    """What went over one connection, or several: bytes, and messages.

    Messages in are whatever the dialect sends as one: a frame, a line, a text. Messages out are publications that were
    delivered or handed out; answers are not counted.
    """

    __slots__ = ("bytesIn", "bytesOut", "messagesIn", "messagesOut")

    def __init__(self) -> None:
        self.bytesIn = 0
        self.bytesOut = 0
        self.messagesIn = 0
        self.messagesOut = 0

    def add(self, other: "Traffic") -> None:
        """Add what went over others."""
        self.bytesIn += other.bytesIn
        self.bytesOut += other.bytesOut
        self.messagesIn += other.messagesIn
        self.messagesOut += other.messagesOut


class TrafficTotals:
    """The traffic of all connections since the start, by dialect."""

    def __init__(self) -> None:
        self._open: dict[str, dict[Traffic, None]] = {}
        self._gone: dict[str, Traffic] = {}

    def begin(self, dialect: str, traffic: Traffic) -> None:
        """Count in a connection that has just been made."""
        self._open.setdefault(dialect, {})[traffic] = None
        if dialect not in self._gone:
            self._gone[dialect] = Traffic()

    def end(self, dialect: str, traffic: Traffic) -> None:
        """Count in for good what went over a connection that is gone; a second time it does nothing."""
        if self._open.get(dialect, {}).pop(traffic, self) is None:
            self._gone[dialect].add(traffic)

    def connections(self) -> dict[str, int]:
        """Return how many connections are open, let in or not."""
        return {dialect: len(each) for dialect, each in self._open.items()}

    def totals(self) -> dict[str, Traffic]:
        """Return the sums by dialect. 0.2 us for each connection that is open."""
        return {dialect: _sum((gone, *self._open[dialect])) for dialect, gone in self._gone.items()}


def _sum(parts: Iterable[Traffic]) -> Traffic:
    whole = Traffic()
    for each in parts:
        whole.add(each)
    return whole
