"""The consumers of one client: their unread jobs, and the settlements that are not sent yet. Without I/O.

Jobs are void when their connection ends: unread ones are dropped, and settling one raises NotSettled.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from fleximq.client.errors import NotSettled
from fleximq.client.events import Delivery
from fleximq.client.jobs import Job, Settle
from fleximq.errors import SettingError
from fleximq.status import Status
from fleximq.values.queue_keys import MOST_PREFETCH

#: The path of settlements, and of the answers to those that are refused.
SETTLE = "/queue/settle"
#: The keys of the field ``delivery`` in the header of a job.
_ABOUT = {"queue", "tag", "attempt"}


class JobBox:
    """The unread jobs of one consumer. ``topic`` is its queue; ``end`` and ``onNews`` are as in
    :class:`~fleximq.client.protocol.inbox.Box`. ``readers`` is the number of threads that wait for a job.
    """

    __slots__ = ("end", "isConfirmed", "onNews", "prefetch", "readers", "topic", "waiting")

    def __init__(self, queue: str, prefetch: int) -> None:
        self.topic = queue
        self.prefetch = prefetch
        self.isConfirmed = False
        self.readers = 0
        self.onNews: Callable[[], None] | None = None
        self.waiting: deque[Delivery] = deque()
        self.end: Exception | bool | None = None

    def finish(self, end: Exception | bool) -> None:
        """Get no more jobs; the first end holds."""
        self.end = self.end or end
        self.told()

    def told(self) -> None:
        """Call ``onNews``."""
        if self.onNews is not None:
            self.onNews()


class Consumers:
    """All consumers of one client, by queue. ``unsent`` is the number of settlements that :meth:`take` returns.

    :param settle: settles a job; the form calls :meth:`add` in it.
    """

    def __init__(self, settle: Settle) -> None:
        self.boxes: dict[str, JobBox] = {}
        #: Whether there has been any, so that deliveries may be jobs.
        self.areUsed = False
        self.unsent = 0
        self._settle = settle
        self._lists: dict[str, dict[str, list[Any]]] = {}
        #: Identifies the connection that deliveries are from.
        self._connection = object()

    def open(self, queue: str, prefetch: int) -> JobBox:
        """Return the box of a new consumer.

        :raises SettingError: the prefetch is out of range.
        :raises ValueError: the client consumes from this queue already.
        """
        if not 1 <= prefetch <= MOST_PREFETCH:
            raise SettingError(f"prefetch is {prefetch}, but must be between 1 and {MOST_PREFETCH}")
        if queue in self.boxes:
            raise ValueError(f"this client consumes from {queue!r} already; several threads or tasks may share that")
        box = self.boxes[queue] = JobBox(queue, prefetch)
        self.areUsed = True
        return box

    def close(self, box: JobBox, end: Exception | bool = True) -> bool:
        """Drop the unread jobs of a consumer, and forget it; return whether it was open."""
        box.waiting.clear()
        box.finish(end)
        if self.boxes.get(box.topic) is not box:
            return False
        del self.boxes[box.topic]
        return True

    def closeAll(self, end: Exception | bool = True) -> None:
        """Close all of them."""
        for box in tuple(self.boxes.values()):
            self.close(box, end)

    def put(self, delivery: Delivery) -> bool:
        """Add a job to its consumer, or return it to its queue if the consumer is halted; drop one without a consumer.
        False if the delivery is no job.
        """
        about = delivery.header.get("delivery")
        if not isinstance(about, dict) or about.keys() != _ABOUT:
            return False
        box = self.boxes.get(about["queue"])
        if box is None:
            return True
        if box.end is None:
            box.waiting.append(delivery)
            box.told()
        else:
            self._giveBack(delivery)
        return True

    def halt(self, box: JobBox) -> None:
        """Return the unread jobs of a consumer to its queue, and add no more; others can still be settled."""
        unread, box.waiting = box.waiting, deque()
        for delivery in unread:
            self._giveBack(delivery)
        box.finish(True)

    def _giveBack(self, delivery: Delivery) -> None:
        self.add(Job(delivery, self._connection, self._settle), "retry", (0,))

    def next(self, box: JobBox) -> Job | None:
        """Remove and return the next job of a consumer, or None."""
        return Job(box.waiting.popleft(), self._connection, self._settle) if box.waiting else None

    def add(self, job: Job, kind: str, more: Any) -> None:
        """Add a settlement; raises NotSettled if the job's connection has ended.

        :param kind: its list in the payload: ``ack``, ``retry``, ``reject`` or ``extend``.
        :param more: the values after the tag in that list; None: the list has only tags.
        """
        if job._connection is not self._connection:
            words = f"the connection of the job {job.tag} of {job.queue!r} has ended, and it is delivered again"
            raise NotSettled(Status.NOT_FOUND, words, job.queue)
        lists = self._lists.setdefault(job.queue, {})
        if kind != "extend" and "extend" in lists:
            # The broker settles before it extends.
            lists["extend"] = [each for each in lists["extend"] if each[0] != job.tag]
        lists.setdefault(kind, []).append(job.tag if more is None else (job.tag, *more))
        self.unsent += 1

    def take(self) -> Iterator[dict[str, Any]]:
        """Return the settlements to send, one for each queue."""
        lists, self._lists, self.unsent = self._lists, {}, 0
        return ({"queue": queue, **each} for queue, each in lists.items())

    def lose(self) -> None:
        """Drop everything that belongs to the connection that has ended."""
        self._connection = object()
        self._lists, self.unsent = {}, 0
        for box in self.boxes.values():
            box.waiting.clear()
