"""Answers of one connection in the order of its questions, though some have to wait until a publication is safe.

While nothing waits an answer goes straight to the outbox. Behind one that waits, all others wait too.
"""

from collections import deque
from collections.abc import Callable, Sequence

from fleximq.dialects.outbox import Chunk, Outbox

#: What a place in the line takes besides the bytes of its answer.
_PLACE_BYTES = 256


class _Place:
    """One answer in the line, in pieces, and whether it may be sent."""

    __slots__ = ("pieces", "ready", "size")

    def __init__(self, pieces: Sequence[Chunk], size: int, ready: bool) -> None:
        self.pieces = pieces
        self.size = size
        self.ready = ready


class Answers:
    """Stands before the outbox of a connection that answers some questions later than others.

    ``size`` is what the line takes, in bytes; the peer cannot have read any of it.
    """

    __slots__ = ("_line", "_outbox", "_whenSent", "size")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._line: deque[_Place] = deque()
        self._whenSent: list[Callable[[], None]] = []
        self.size = 0

    @property
    def waiting(self) -> bool:
        """Whether there is an answer that may not be sent yet."""
        return bool(self._line)

    def take(self, chunk: Chunk) -> None:
        """Send an answer, behind all that were taken before."""
        if self._line:
            self._append((chunk,), True)
        else:
            self._outbox.take(chunk)

    def later(self, *pieces: bytes) -> Callable[[], None]:
        """Keep the place of an answer; it is sent when what is returned has been called."""
        return self.laterList(pieces)

    def laterList(self, pieces: Sequence[bytes]) -> Callable[[], None]:
        """Keep the place of an answer whose pieces may be changed until it is sent."""
        place = self._append(pieces, False)

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

    def _append(self, pieces: Sequence[Chunk], ready: bool) -> _Place:
        place = _Place(pieces, _PLACE_BYTES + sum(map(len, pieces)), ready)
        self._line.append(place)
        self.size += place.size
        return place

    def _send(self) -> None:
        line = self._line
        while line and line[0].ready:
            place = line.popleft()
            self.size -= place.size
            self._outbox.take(b"".join(place.pieces))
        if not line and self._whenSent:
            calls, self._whenSent = self._whenSent, []
            for call in calls:
                call()
