"""Answers of one connection in the order of its questions, though some have to wait until a publication is safe.

While nothing waits an answer goes straight to the outbox. Behind one that waits, all others wait too.
"""

from collections import deque
from collections.abc import Callable, Sequence

from fleximq.dialects.outbox import Chunk, Outbox

#: What a place in the line takes besides the bytes of its answer.
_ENTRY_BYTES = 256


class _PendingAnswer:
    """One answer in the line, in pieces, and whether it may be sent."""

    __slots__ = ("chunks", "ready", "size")

    def __init__(self, chunks: Sequence[Chunk], size: int, ready: bool) -> None:
        self.chunks = chunks
        self.size = size
        self.ready = ready


class Answers:
    """Stands before the outbox of a connection that answers some questions later than others.

    ``size`` is what the line takes, in bytes; the peer cannot have read any of it.
    """

    __slots__ = ("_queue", "_outbox", "_whenSent", "size")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._queue: deque[_PendingAnswer] = deque()
        self._whenSent: list[Callable[[], None]] = []
        self.size = 0

    @property
    def waiting(self) -> bool:
        """Whether there is an answer that may not be sent yet."""
        return bool(self._queue)

    def take(self, chunk: Chunk) -> None:
        """Send an answer, behind all that were taken before."""
        if self._queue:
            self._append((chunk,), True)
        else:
            self._outbox.take(chunk)

    def later(self, *chunks: bytes) -> Callable[[], None]:
        """Keep the place of an answer; it is sent when what is returned has been called."""
        return self.laterList(chunks)

    def laterList(self, chunks: Sequence[bytes]) -> Callable[[], None]:
        """Keep the place of an answer whose pieces may be changed until it is sent."""
        entry = self._append(chunks, False)

        def release() -> None:
            entry.ready = True
            self._send()

        return release

    def whenSent(self, call: Callable[[], None]) -> None:
        """Call once nothing waits any more; at once if nothing does."""
        if self._queue:
            self._whenSent.append(call)
        else:
            call()

    def _append(self, chunks: Sequence[Chunk], ready: bool) -> _PendingAnswer:
        entry = _PendingAnswer(chunks, _ENTRY_BYTES + sum(map(len, chunks)), ready)
        self._queue.append(entry)
        self.size += entry.size
        return entry

    def _send(self) -> None:
        queue = self._queue
        while queue and queue[0].ready:
            entry = queue.popleft()
            self.size -= entry.size
            self._outbox.take(b"".join(entry.chunks))
        if not queue and self._whenSent:
            calls, self._whenSent = self._whenSent, []
            for call in calls:
                call()
