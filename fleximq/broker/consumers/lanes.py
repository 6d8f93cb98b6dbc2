"""The lanes of one work queue: a queue for each priority that its messages have had.

Messages of a higher priority are delivered before all others. The lane of the usual priority exists from the start, so
that a queue without priorities is one :class:`~fleximq.broker.queues.queue.Queue`. The tag of a delivery is, as one
number, the message's tag in its lane, the last four bits of the number of earlier deliveries, and the priority. So each
delivery of a message has another tag: one that is settled late does not settle the next.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter

from fleximq.broker.envelope import QueueDelivery, RunDeliveries
from fleximq.broker.queues.queue import ONCE, Queue
from fleximq.values import message_loops
from fleximq.values.message import Message
from fleximq.values.message_cost import ANY, cost
from fleximq.values.message_run import MessageRun
from fleximq.values.publication_head import PRIORITIES, PRIORITY

#: There are ten priorities, from 0 to 9.
_PRIORITIES = len(PRIORITIES)
_ATTEMPTS = 16
#: The distance of the tags of the first deliveries of neighbours.
STEP = _ATTEMPTS * _PRIORITIES
_new = tuple.__new__
# In C, since many messages are delivered by it.
_delivery = partial(_new, QueueDelivery)

#: Tags, messages, and how often each was delivered; the latter may go on for ever.
Taken = tuple[Sequence[int], Sequence[Message], Iterable[int]]


def laneKey(name: str, priority: int) -> str:
    """Return the key in the journal of a lane of another priority than the usual one."""
    return f"q{priority}:{name}"


def priorityIn(key: str) -> int:
    """Return the priority of the lane with a key in the journal."""
    return PRIORITY if key[1:2] == ":" else int(key[1:2])


class Lanes:
    """The lanes by priority, ``first`` being the one of the usual priority.

    :param make: makes the lane of a priority.
    """

    __slots__ = ("_make", "_order", "_watched", "first")

    def __init__(self, first: Queue, make: Callable[[int], Queue]) -> None:
        self.first = first
        self._make = make
        # At most ten, so that a search costs less than the memory of a dict or a set for each queue.
        self._order: Sequence[tuple[int, Queue]] = ((PRIORITY, first),)
        self._watched: Sequence[Queue] = ()

    def __iter__(self) -> Iterator[Queue]:
        """Iterate over the lanes, highest priority first."""
        return (lane for _, lane in self._order)

    def items(self) -> Sequence[tuple[int, Queue]]:
        """Return the priority and the lane of each, highest priority first."""
        return self._order

    def of(self, priority: int) -> Queue:
        """Return the lane of a priority, made if need be: then all of them share the bounds of the queue."""
        lane = self._find(priority)
        if lane is None:
            lane = self._make(priority)
            self._order = sorted([*self._order, (priority, lane)], key=itemgetter(0), reverse=True)
            bounds = [each.bounds for _, each in reversed(self._order)]
            for each in bounds:
                each.lanes = bounds
        return lane

    def _find(self, priority: int) -> Queue | None:
        return next((lane for each, lane in self._order if each == priority), None)

    @property
    def available(self) -> int:
        """How many messages can be taken now: not those of a lower priority than one that must be read first."""
        if len(self._order) == 1:
            return self.first.available()
        available = 0
        for _, lane in self._order:
            if lane.preparing:
                break
            available += lane.available()
        return available

    def take(
        self, holder: object, number: int, most: int = ANY, lease: float | None = None, consumer: str = ""
    ) -> Iterator[tuple[int, Queue, Taken]]:
        """Deliver up to ``number`` messages, until they cost ``most`` bytes; yield the priority and the lane of each
        part of them, and what :meth:`fleximq.broker.queues.queue.Queue.take` returns, which explains the others.
        """
        for priority, lane in self._order:
            taken = lane.take(holder, number, most, lease, consumer)
            if taken[0]:
                yield priority, lane, taken
                number -= len(taken[0])
            # Some of it may be ready by now, since it was read from disk meanwhile: before all of lower priorities.
            if number <= 0 or lane is self._order[-1][1] or lane.preparing or lane.available():
                return  # without adding up the cost, which takes a third of the time of a run
            most -= cost(taken[1]) if most != ANY else 0
            if most <= 0:
                return

    def divided(self, tags: Iterable[int]) -> Iterator[tuple[Queue, list[int]]]:
        """Yield the lanes that tags of deliveries mean, each with its own tags."""
        if len(self._order) == 1:
            mine = message_loops.quotients(tags, STEP, _PRIORITIES, PRIORITY)
            if mine:
                yield self.first, mine
            return
        found: dict[int, list[int]] = {}
        for tag in tags:
            found.setdefault(tag % _PRIORITIES, []).append(tag // STEP)
        for priority, mine in found.items():
            lane = self._find(priority)
            if lane is not None:
                yield lane, mine

    def acknowledgeRuns(self, tags: range) -> list[int]:
        """Acknowledge deliveries that were made in runs; return the tags that are unknown."""
        first = tags.start // STEP
        unknown = self.first.acknowledgeRange(range(first, first + len(tags)))
        return [_outer(PRIORITY, tag, 1) for tag in unknown]

    def outer(self, lane: Queue, tag: int, attempts: int) -> int:
        """Return the tag by which a consumer settles a delivery of the message with this tag of a lane."""
        return _outer(self.priority(lane), tag, attempts)

    def priority(self, lane: Queue) -> int:
        """Return the priority of a lane."""
        [priority] = [each for each, other in self._order if other is lane]
        return priority

    def isOneOf(self, lane: Queue, tags: frozenset[int], outer: int) -> bool:
        """Return whether a tag of a consumer means a message with one of these tags of a lane."""
        return self._find(outer % _PRIORITIES) is lane and outer // STEP in tags

    def watch(self, call: Callable[[], object]) -> None:
        """Call once for each lane, when it may have more messages; a no-op for lanes where that is expected already."""
        for lane in self:
            if lane in self._watched:
                continue
            self._watched = (*self._watched, lane)
            if lane.preparing:
                lane.whenPrepared(partial(self._watchEnded, lane, call))
            else:
                lane.whenReady(partial(self._watchEnded, lane, call))

    def _watchEnded(self, lane: Queue, call: Callable[[], object]) -> None:
        self._watched = tuple(each for each in self._watched if each is not lane)
        call()


def innerDeliveries(taken: Taken) -> list[QueueDelivery]:
    """Return deliveries with the tags of their lane."""
    tags, messages, attempts = taken
    if attempts is ONCE:
        return message_loops.firstDeliveries(QueueDelivery, tags, 1, 0, messages)
    return [*map(_delivery, zip(tags, messages, attempts, strict=False))]


def outerDeliveries(priority: int, taken: Taken) -> Sequence[QueueDelivery]:
    """Return deliveries of the lane of a priority with the tags by which consumers settle them."""
    tags, messages, attempts = taken
    if attempts is ONCE:
        if isinstance(messages, MessageRun) and isinstance(tags, range) and priority == PRIORITY:
            return RunDeliveries(range(_outer(PRIORITY, tags.start, 1), _outer(PRIORITY, tags.stop, 1), STEP), messages)
        return message_loops.firstDeliveries(QueueDelivery, tags, STEP, priority, messages)
    attempts = [*islice(attempts, len(tags))]
    outer = [_outer(priority, *each) for each in zip(tags, attempts, strict=True)]
    return [*map(_delivery, zip(outer, messages, attempts, strict=True))]


def _outer(priority: int, tag: int, attempts: int) -> int:
    return tag * STEP + (attempts - 1) % _ATTEMPTS * _PRIORITIES + priority
