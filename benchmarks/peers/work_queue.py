"""What the scenes of work queues have to know of a broker: how jobs are enqueued, confirmed, delivered and settled.

A consumer reads bytes until :meth:`WorkQueue.whole` says that jobs are complete, finds their tags with one regular
expression, and settles all of them in as few messages as the protocol allows. So a consumer costs about the same with
every broker, and each broker is used in the way that is fastest for it.
"""

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, TypeVar

from benchmarks.peers.line import Line
from benchmarks.peers.peer import Peer, Who

Kind = TypeVar("Kind", bound="WorkQueue")


class WorkQueue(Peer):
    """A broker with one queue; it is in memory unless ``isSynced``, and then on the disk before it confirms."""

    isSynced: ClassVar[bool] = False
    #: The bytes of a delivery after its payload.
    suffix: ClassVar[bytes] = b"\r\n"

    # A broker may have work queues and nothing else.

    def subscribe(self, line: Line, topics: Sequence[bytes]) -> None:
        raise NotImplementedError(f"{self.broker} has no subscriptions")

    def publication(self, who: Who, topic: bytes, payload: bytes) -> bytes:
        raise NotImplementedError(f"{self.broker} has no publications")

    def delivery(self, who: Who, topic: bytes, payload: bytes, place: int = 0) -> bytes:
        raise NotImplementedError(f"{self.broker} has no publications")

    @abstractmethod
    def open(self, line: Line, queue: bytes) -> None:
        """Make the queue."""

    def producing(self, line: Line) -> None:
        """Make a connection ready to enqueue; most are."""
        return

    @abstractmethod
    def enqueued(self, who: Who, queue: bytes, payload: bytes) -> bytes:
        """Return what a producer sends for one job."""

    def closing(self, who: Who) -> bytes:
        """Return what follows a block of jobs so that it is confirmed; nothing where each job is."""
        return b""

    @abstractmethod
    def confirmed(self, line: Line, count: int) -> None:
        """Return when the next ``count`` jobs of a connection are confirmed."""

    @abstractmethod
    def work(self, line: Line, queue: bytes, prefetch: int) -> None:
        """Become a consumer with at most so many unsettled jobs, and ask for the first."""

    @abstractmethod
    def jobs(self, size: int) -> re.Pattern[bytes]:
        """Return a pattern whose only group is the tag of a job with so many bytes."""

    def whole(self, said: bytes, ending: bytes, prefetch: int) -> int:
        """Return how many bytes of ``said`` have complete jobs that can be settled; each job has ``ending`` last."""
        place = said.rfind(ending)
        return place + len(ending) if place >= 0 else 0

    @abstractmethod
    def settled(self, who: Who, queue: bytes, tags: Sequence[bytes], prefetch: int) -> bytes:
        """Return what acknowledges these jobs, and asks for as many more where a consumer has to ask."""

    def finish(self, line: Line, rest: bytes, last: Sequence[bytes]) -> None:
        """Return when a consumer's settled jobs are settled; ``rest`` was read after the ``last`` of them."""
        self.barrier(line)


class Fetched(WorkQueue):
    """A broker whose consumers ask for jobs, and whose connections answer nothing else while they wait for one."""

    @abstractmethod
    def acknowledged(self, count: int) -> bytes:
        """Return the answer to the acknowledgement of so many jobs."""

    def finish(self, line: Line, rest: bytes, last: Sequence[bytes]) -> None:
        """Read that answer."""
        if left := len(self.acknowledged(len(last))) - len(rest):
            line.read(left)


def synced(kind: type[Kind]) -> type[Kind]:
    """Return the same peer with a durable queue."""
    return type(f"Synced{kind.__name__}", (kind,), {"isSynced": True})
