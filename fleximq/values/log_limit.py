"""Limits log lines per second, so that misbehaving peers cannot flood the log."""

#: Default limit, and those of other kinds of lines: of clients that stay.
LINES_PER_SECOND = 10
_LINES_OF = {"client joined": 100, "client left": 100}


class LogLimit:
    """Passes the first lines of each second and counts the others."""

    __slots__ = ("_left", "_maximum", "_until", "_suppressed")

    def __init__(self, maximum: int = LINES_PER_SECOND) -> None:
        self._maximum = maximum
        self._left = maximum
        self._until = 0.0
        self._suppressed = 0

    def passes(self, now: float) -> int | None:
        """Return the number of lines suppressed since the last passed one, None if this one is suppressed too."""
        if not self._until - 1.0 <= now < self._until:
            self._until = now + 1.0
            self._left = self._maximum
        if not self._left:
            self._suppressed += 1
            return None
        self._left -= 1
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed

    def ending(self, now: float) -> str | None:
        """Return the end of a line, which says how many lines were left out; None if this line is left out too."""
        suppressed = self.passes(now)
        return f" ({suppressed} more lines left out)" if suppressed else None if suppressed is None else ""


class LogLimits(dict[str, LogLimit]):
    """A limit for each kind of line, made when it is first looked up, so that one kind does not hide another."""

    def __missing__(self, kind: str) -> LogLimit:
        self[kind] = limit = LogLimit(_LINES_OF.get(kind, LINES_PER_SECOND))
        return limit
