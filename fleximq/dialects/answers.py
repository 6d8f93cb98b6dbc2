"""Answers of one connection in the order of its requests: one that follows an answer awaiting a commit is queued."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fleximq.dialects.outbox import Chunk, Outbox

#: Estimated memory of a queue entry without its bytes.
_ENTRY_BYTES = 256
#: The queue of answers that never had any; a deque of its own would take 600 bytes of each connection.
_NO_ANSWERS: "deque[_PendingAnswer]" = deque(maxlen=0)


@dataclass(slots=True, eq=False)
class _PendingAnswer:
    """One queued answer, in chunks, and whether it may be sent."""

    chunks: Sequence[Chunk]
    size: int
    ready: bool


class Answers:
    """Queues answers before the outbox; ``size`` is the number of bytes in the queue."""

    __slots__ = ("_queue", "_outbox", "_whenSent", "size")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._queue = _NO_ANSWERS
        self._whenSent: tuple[Callable[[], None], ...] = ()
        self.size = 0

    @property
    def waiting(self) -> bool:
        """Whether an answer is queued."""
        return bool(self._queue)

    def take(self, chunk: Chunk) -> None:
        """Send an answer after all earlier ones."""
        if self._queue:
            self._append((chunk,), True)
        else:
            self._outbox.take(chunk)

    def later(self, chunks: Sequence[bytes]) -> Callable[[], None]:
        """Reserve the place of an answer; its chunks may change until the returned function releases it."""
        entry = self._append(chunks, False)

        def release() -> None:
            entry.ready = True
            self._send()

        return release

    def whenSent(self, call: Callable[[], None]) -> None:
        """Call once the queue is empty; at once if it is."""
        if self._queue:
            self._whenSent = (*self._whenSent, call)
        else:
            call()

    def _append(self, chunks: Sequence[Chunk], ready: bool) -> _PendingAnswer:
        entry = _PendingAnswer(chunks, _ENTRY_BYTES + sum(map(len, chunks)), ready)
        if self._queue is _NO_ANSWERS:
            self._queue = deque()
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
            calls, self._whenSent = self._whenSent, ()
            for call in calls:
                call()
