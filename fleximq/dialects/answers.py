"""Answers of one connection in the order of its questions, though some have to wait until a publication is safe.

While nothing waits an answer goes straight to the outbox. Behind one that waits, all others wait too.
"""

from collections import deque
from collections.abc import Callable

from fleximq.dialects.outbox import Outbox


class _Place:
    """One answer in the line, and whether it may be sent."""

    __slots__ = ("chunk", "ready")

    def __init__(self, chunk: bytes, ready: bool) -> None:
        self.chunk = chunk
        self.ready = ready


class Answers:
    """Stands before the outbox of a connection that answers some questions later than others."""

    __slots__ = ("_line", "_outbox", "_whenSent")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._line: deque[_Place] = deque()
        self._whenSent: list[Callable[[], None]] = []

    @property
    def waiting(self) -> bool:
        """Whether there is an answer that may not be sent yet."""
        return bool(self._line)

    def take(self, chunk: bytes) -> None:
        """Send an answer, behind all that were taken before."""
        if self._line:
            self._line.append(_Place(chunk, True))
        else:
            self._outbox.take(chunk)

    def later(self, chunk: bytes) -> Callable[[], None]:
        """Keep the place of an answer; it is sent when what is returned has been called."""
        place = _Place(chunk, False)
        self._line.append(place)

        def release() -> None:
            place.ready = True
            self._send()

        return release

    def whenSent(self, call: Callable[[], None]) -> None:
        """Call once nothing waits any more; at once if nothing does."""
        if self._line:
            self._whenSent.append(call)
        else:
            call()

    def _send(self) -> None:
        line = self._line
        while line and line[0].ready:
            self._outbox.take(line.popleft().chunk)
        if not line and self._whenSent:
            calls, self._whenSent = self._whenSent, []
            for call in calls:
                call()
