"""Scans all queues and topics of a broker, in slices over several reactor turns, and measures the age of queues.

Messages have no time stamps: each scan records how many messages a queue has received so far, and the first scan whose
count includes the oldest waiting message is taken as its arrival. So an age may be too small by one interval between
scans, or by more after more than :data:`NOTES` scans in which the queue received messages.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import nlargest, nsmallest
from typing import NamedTuple
from weakref import WeakKeyDictionary

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from fleximq.broker.broker import Broker
from fleximq.broker.queues.queue import Queue
from fleximq.limits import DEAD

#: The maximum number of records of one queue; beyond it, every second one is dropped.
NOTES = 64


class QueueAges:
    """The records of each queue."""

    def __init__(self) -> None:
        self._notes: WeakKeyDictionary[Queue, deque[tuple[int, float]]] = WeakKeyDictionary()

    def ageOfOldest(self, queue: Queue, now: float) -> float:
        """Return the minimum age of the oldest message in seconds, 0 for an empty queue."""
        oldest = queue.stored.oldest
        if oldest is None:
            self._notes.pop(queue, None)
            return 0.0
        notes = self._notes.setdefault(queue, deque())
        arrived = queue.stored.arrived
        if not notes or notes[-1][0] < arrived:
            notes.append((arrived, now))
        while len(notes) > 1 and notes[0][0] < oldest:
            notes.popleft()
        if len(notes) > NOTES:
            self._notes[queue] = deque([*list(notes)[:-1:2], notes[-1]])
        return now - notes[0][1]


#: The number of queues or topics in one reactor turn, less than 2 ms.
SLICE = 1000

WORK, LETTERS, SUBSCRIPTION = "work", "dead", "subscription"


class QueueRow(NamedTuple):
    """One queue, with the age of its oldest message."""

    messages: int
    kind: str
    topic: str
    oldest: float


@dataclass(slots=True)
class Sums:
    """The sums over one kind of queue; ``oldest`` is the largest age in seconds."""

    queues: int = 0
    messages: int = 0
    inFlight: int = 0
    bytes: int = 0
    oldest: float = 0.0


@dataclass(slots=True)
class QueueSurvey:
    """The result: sums by kind of queue, the longest queues, the busiest topics, the number of all publications, and
    the topics with the oldest stored messages, with the ages of these in seconds.
    """

    sums: dict[str, Sums] = field(default_factory=lambda: {kind: Sums() for kind in (WORK, LETTERS, SUBSCRIPTION)})
    longest: Sequence[QueueRow] = ()
    busiest: Sequence[tuple[int, str]] = ()
    published: int = 0
    oldest: Sequence[tuple[str, float]] = ()


class QueueSurveyor:
    """Makes surveys, and stores the ages between them. ``clock``: schedules the slices."""

    def __init__(self, broker: Broker, clock: IReactorTime) -> None:
        self._broker = broker
        self._clock = clock
        self._ages = QueueAges()

    async def survey(self, top: int, sees: Callable[[str], bool]) -> QueueSurvey:
        """Scan all queues and topics; ``top`` of each are named if ``sees`` admits their topic."""
        found = QueueSurvey()
        await self._queues(found, top, sees)
        await self._topics(found, top, sees)
        await self._stored(found, top, sees)
        return found

    async def _queues(self, found: QueueSurvey, top: int, sees: Callable[[str], bool]) -> None:
        broker = self._broker
        longest: list[QueueRow] = []
        queues: list[tuple[str, str, Queue, int, int]] = []
        for place, each in enumerate((*broker.queues, *broker.polledSubscriptions), 1):
            if hasattr(each, "topic"):
                kind, topic = SUBSCRIPTION, each.topic
            else:
                kind, topic = LETTERS if each.name.startswith(DEAD) else WORK, each.name
            queues.append((kind, topic, each.queue, each.depth, each.size))
            if place % SLICE == 0:
                longest = self._count(found, queues, longest, top, sees)
                queues = []
                await self._pause()
        found.longest = self._count(found, queues, longest, top, sees)

    def _count(
        self,
        found: QueueSurvey,
        queues: Sequence[tuple[str, str, Queue, int, int]],
        longest: list[QueueRow],
        top: int,
        sees: Callable[[str], bool],
    ) -> list[QueueRow]:
        """Add queues to the sums, and return the longest queues so far."""
        now = self._clock.seconds()
        for kind, topic, queue, depth, size in queues:
            sums = found.sums[kind]
            sums.queues += 1
            sums.messages += depth
            sums.inFlight += len(queue.stored.flying)
            sums.bytes += size
            oldest = self._ages.ageOfOldest(queue, now)
            sums.oldest = max(sums.oldest, oldest)
            if top and depth and (len(longest) < top or depth > longest[-1].messages) and sees(topic):
                longest = nlargest(top, [*longest, QueueRow(depth, kind, topic, oldest)])
        return longest

    async def _topics(self, found: QueueSurvey, top: int, sees: Callable[[str], bool]) -> None:
        topics = self._broker.topics
        found.published = topics.publishedBefore
        busiest: list[tuple[int, str]] = []
        for place, topic in enumerate(tuple(topics), 1):
            found.published += topic.published
            isBusy = top and topic.published and (len(busiest) < top or topic.published > busiest[-1][0])
            if isBusy and sees(topic.name):
                busiest = nlargest(top, [*busiest, (topic.published, topic.name)])
            if place % SLICE == 0:
                await self._pause()
        found.busiest = busiest

    async def _stored(self, found: QueueSurvey, top: int, sees: Callable[[str], bool]) -> None:
        bounds = self._broker.journal.bounds()
        oldest: list[tuple[int, str]] = []
        for place, name in enumerate(tuple(bounds) if top else (), 1):
            kept = bounds.get(name)
            if kept is not None and (len(oldest) < top or kept.firstTime < oldest[-1][0]) and sees(name):
                oldest = nsmallest(top, [*oldest, (kept.firstTime, name)])
            if place % SLICE == 0:
                await self._pause()
        now = self._broker.microseconds()
        found.oldest = [(name, max(0, now - time) / 1_000_000) for time, name in oldest]

    def _pause(self) -> "Deferred[None]":
        later: Deferred[None] = Deferred()
        self._clock.callLater(0, later.callback, None)
        return later
