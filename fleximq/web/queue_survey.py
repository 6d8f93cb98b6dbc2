"""Scans all queues and topics of a broker, in slices over several reactor turns, and measures the age of queues."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import nlargest, nsmallest
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from fleximq.broker.broker import Broker
from fleximq.broker.consumers.queue_owner import QueueOwner
from fleximq.broker.consumers.work_queue import WorkQueue
from fleximq.limits import DEAD

#: The number of queues or topics in one reactor turn, less than 2 ms.
SLICE = 1000

WORK, LETTERS, SUBSCRIPTION = "work", "dead", "subscription"


class QueueRow(NamedTuple):
    """One queue, with the age of its oldest message and its consumers."""

    messages: int
    kind: str
    topic: str
    oldest: float
    consumers: int


@dataclass(slots=True)
class Sums:
    """The sums over one kind of queue; ``oldest`` is the largest age in seconds, ``unattended`` are the messages that
    wait in queues without a consumer.
    """

    queues: int = 0
    messages: int = 0
    inFlight: int = 0
    bytes: int = 0
    oldest: float = 0.0
    consumers: int = 0
    unattended: int = 0


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
    """Makes surveys. ``clock``: schedules the slices."""

    def __init__(self, broker: Broker, clock: IReactorTime) -> None:
        self._broker = broker
        self._clock = clock

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
        owners: list[QueueOwner] = []
        for place, each in enumerate((*broker.queues, *broker.polledSubscriptions), 1):
            owners.append(each)
            if place % SLICE == 0:
                longest = self._count(found, owners, longest, top, sees)
                owners = []
                await self._pause()
        found.longest = self._count(found, owners, longest, top, sees)

    def _count(
        self,
        found: QueueSurvey,
        owners: Sequence[QueueOwner],
        longest: list[QueueRow],
        top: int,
        sees: Callable[[str], bool],
    ) -> list[QueueRow]:
        """Add queues to the sums, and return the longest queues so far."""
        now, ages = self._clock.seconds(), self._broker.queueAges
        for each in owners:
            if isinstance(each, WorkQueue):
                kind, consumers = LETTERS if each.name.startswith(DEAD) else WORK, each.consumers(now)
                oldest = max(ages.ageOfOldest(lane, now) for lane in each.lanes)
            else:
                kind, consumers = SUBSCRIPTION, int(each.idle is None)
                oldest = ages.ageOfOldest(each.queue, now)
            sums, topic, depth = found.sums[kind], each.queue.name, each.depth
            sums.queues += 1
            sums.messages += depth
            sums.inFlight += each.inFlight
            sums.bytes += each.size
            sums.oldest = max(sums.oldest, oldest)
            sums.consumers += consumers
            sums.unattended += 0 if consumers else depth
            if top and depth and (len(longest) < top or depth > longest[-1].messages) and sees(topic):
                longest = nlargest(top, [*longest, QueueRow(depth, kind, topic, oldest, consumers)])
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
