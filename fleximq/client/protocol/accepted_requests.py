"""The requests that a client has accepted and not answered yet, without I/O.

Other clients choose their number and size, and the served functions may be slow. So each is counted until it is
answered, and beyond a limit further ones are refused. Reading is not paused for them: the broker would disconnect the
service as a slow consumer, and the answers to its own requests would wait as well.
"""

from collections import deque
from typing import NamedTuple

from fleximq.client.events import Request
from fleximq.client.protocol.received_header import memoryOf
from fleximq.limits import MEBIBYTE

#: The limit is at least this, so that a small ``prefetch`` does not refuse small requests.
_LEAST_BYTES = MEBIBYTE


class Accepted(NamedTuple):
    """A request, and the bytes that it counts."""

    request: Request
    size: int


class AcceptedRequests:
    """The accepted requests of one client; used by one thread at a time.

    :param most: accept no more while the unanswered requests count more bytes than this, or than 1 MiB.
    """

    def __init__(self, most: int) -> None:
        self.size = 0
        self._most = max(most, _LEAST_BYTES)
        self._waiting: deque[Accepted] = deque()

    @property
    def waiting(self) -> int:
        """The number of requests that :meth:`take` can return."""
        return len(self._waiting)

    def accept(self, request: Request) -> bool:
        """Add a request; False if it must be refused."""
        if self.size > self._most:
            return False
        accepted = Accepted(request, memoryOf(request))
        self._waiting.append(accepted)
        self.size += accepted.size
        return True

    def take(self) -> Accepted | None:
        """Return the next request to answer, or None; call :meth:`answered` afterwards."""
        return self._waiting.popleft() if self._waiting else None

    def answered(self, accepted: Accepted) -> None:
        """Release a request that was answered."""
        self.size -= accepted.size

    def dropWaiting(self) -> None:
        """Release the requests that wait: their connection has ended, and the broker has told their requesters."""
        self.size -= sum(each.size for each in self._waiting)
        self._waiting.clear()
