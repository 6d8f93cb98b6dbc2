"""Unread deliveries of all subscriptions, without I/O. The broker sends each message once, even if several match.

Hot: adding a single delivery costs 0.2 us, in a run 0.04 us, and taking one 0.2 us.
"""

from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Any

from fleximq.client.errors import SubscribeFailed
from fleximq.client.events import BROKER, Delivery, Gap, Notification, Refusal
from fleximq.client.protocol.received_header import EVENT_BYTES, LargeHeader, memoryOf
from fleximq.client.settings import PREFETCH_BYTES
from fleximq.limits import GIBIBYTE, TOPIC_BYTES
from fleximq.status import Status
from fleximq.values.patterns import anyOf, isPattern, overlap

#: A subscription with more unread bytes is ended.
MAX_BOX_BYTES = GIBIBYTE
#: Limit of the cache of boxes by topic; it is cleared when full. Longer topics are not in it.
_TOPICS, _TOPIC_BYTES = 10_000, 2 * TOPIC_BYTES


class Box:
    """The unread deliveries of one subscription.

    ``end`` is None while it is active, then an error, or True if it was closed. Until a subscription with a start
    ``isConfirmed``, deliveries without an offset will be repeated with one. ``last`` is the last offset received.
    ``gaps``: see :meth:`Inbox.putGaps`. ``onNews`` is called on each change, if it is set.
    """

    __slots__ = tuple("isConfirmed end gaps hasStart last matches size start onNews topic waiting".split())

    def __init__(self, topic: str, start: object = None, gaps: bool = False) -> None:
        self.topic = topic
        self.start = start
        self.hasStart = start is not None
        self.gaps = gaps and not self.hasStart
        self.isConfirmed = not self.hasStart
        self.last: int | None = None
        self.onNews: Callable[[], None] | None = None
        self.waiting: deque[Any] = deque()
        self.size = 0
        self.end: Exception | bool | None = None
        #: Returns whether a topic matches.
        self.matches: Callable[[str], bool] = anyOf([topic]) if isPattern(topic) else topic.__eq__

    def resumeStart(self) -> object:
        """Return the start with which a new subscription continues this one."""
        return self.start if self.last is None else self.last + 1


class BoxReader:
    """A subscription that reads from a box."""

    _box: Box

    def __repr__(self) -> str:
        return f"<Subscription to {self._box.topic or 'notifications'}, {self.waiting} waiting>"

    @property
    def topic(self) -> str:
        """The topic or pattern; "" for notifications."""
        return self._box.topic

    @property
    def waiting(self) -> int:
        """The number of unread deliveries."""
        return len(self._box.waiting)


class Inbox:
    """The boxes of one client, with unread deliveries of ``bufferedBytes``.

    It is ``full`` above ``pauseAbove`` bytes, and calls ``relieved`` when it no longer is. ``maximum`` is the limit in
    bytes for one box; ``overrun`` is called with each open box over it, which it may close.
    """

    def __init__(
        self,
        relieved: Callable[[], None],
        overrun: Callable[[Box], None],
        pauseAbove: int = PREFETCH_BYTES,
        maximum: int = MAX_BOX_BYTES,
    ) -> None:
        self.bufferedBytes = 0
        self._relieved = relieved
        self._overrun = overrun
        self._pauseAbove = pauseAbove
        self._maximum = maximum
        self._boxes: dict[str, list[Box]] = {}
        self._receivers: dict[str, tuple[Box, ...]] = {}
        self._direct: list[Box] = []

    @property
    def boxes(self) -> dict[str, Box]:
        """One box for each topic or pattern; those with a start first."""
        found = {box.topic: box for box in chain.from_iterable(self._boxes.values())}
        return dict(sorted(found.items(), key=lambda item: not item[1].hasStart))

    @property
    def full(self) -> bool:
        """Whether reading should pause."""
        return self.bufferedBytes > self._pauseAbove

    def open(self, topic: str, start: object = None, gaps: bool = False) -> Box:
        """Return a new box for a topic or pattern.

        :raises ValueError: it has a start and overlaps another one with a start, or it has the same name as another one
            and either has a start. Since the broker sends each message once, their order would be wrong.
        """
        hasStart = start is not None
        for box in chain.from_iterable(self._boxes.values()):
            repeats = box.topic == topic and (hasStart or box.hasStart)
            both = hasStart and box.hasStart and (isPattern(box.topic) or isPattern(topic))
            if repeats or (both and overlap(box.topic, topic)):
                raise ValueError(f"there is already a subscription to {box.topic!r}; use another client for this one")
        box = Box(topic, start, gaps)
        self._boxes.setdefault(topic, []).append(box)
        self._receivers.clear()
        return box

    def openDirect(self) -> Box:
        """Return a new box for notifications and broadcasts."""
        box = Box("")
        self._direct.append(box)
        return box

    def close(self, box: Box, end: Exception | bool = True) -> bool:
        """Close a box; return True if it was the last one of its name."""
        box.end = box.end or end
        if box.onNews is not None:
            box.onNews()
        several = self._direct if box in self._direct else self._boxes.get(box.topic, [])
        if box not in several:
            return False
        several.remove(box)
        self._receivers.clear()
        self._release(box.size)
        isLast = not several and several is not self._direct
        if isLast:
            del self._boxes[box.topic]
        return isLast

    def closeAll(self, end: Exception | bool = True) -> None:
        """Close all boxes."""
        for box in (*chain.from_iterable(self._boxes.values()), *self._direct):
            self.close(box, end)

    def putGaps(self) -> None:
        """Tell boxes without a start that messages may be missing from here on, once until the next delivery."""
        for box in chain.from_iterable(self._boxes.values()):
            if box.gaps and not (box.waiting and isinstance(box.waiting[-1], Gap)):
                self._add(box, Gap(box.topic, b"", BROKER, {}))

    def put(self, delivery: Delivery) -> None:
        """Add a delivery to its boxes, then report those over their limit."""
        receivers = self._receivers.get(delivery.topic)
        if receivers is None:
            receivers = self._receiversOf(delivery.topic)
        isOverrun = False
        for box in receivers:
            if box.hasStart:
                offset = delivery.offset
                if offset is not None:
                    box.last = offset
                elif not box.isConfirmed:
                    continue
            self._add(box, delivery)
            if box.size > self._maximum:
                isOverrun = True
        if isOverrun:
            for box in receivers:
                if box.size > self._maximum and box.end is None:
                    self._overrun(box)

    def _add(self, box: Box, delivery: Delivery | Notification) -> None:
        header = delivery.header  # as memoryOf, without the call
        size = len(delivery.payload) + (
            EVENT_BYTES * (len(header) or 1) if type(header) is not LargeHeader else header.size
        )
        box.waiting.append(delivery)
        box.size += size
        self.bufferedBytes += size
        if box.onNews is not None:
            box.onNews()

    def putRun(self, run: list[Delivery]) -> None:
        """Add deliveries of one topic, as :meth:`put` each."""
        if len(run) == 1:
            self.put(run[0])
            return
        topic = run[0].topic
        receivers = self._receivers.get(topic)
        if receivers is None:
            receivers = self._receiversOf(topic)
        size = sum(len(each.payload) for each in run) + (memoryOf(run[0]) - len(run[0].payload)) * len(run)
        if any(box.hasStart or box.size + size > self._maximum for box in receivers):
            for each in run:
                self.put(each)
            return
        for box in receivers:
            box.waiting.extend(run)
            box.size += size
            self.bufferedBytes += size
            if box.onNews is not None:
                box.onNews()

    def putDirect(self, said: Notification) -> None:
        """Add a notification; boxes over their limit drop it."""
        size = memoryOf(said)
        for box in self._direct:
            if box.size + size <= self._maximum:
                self._add(box, said)

    def take(self, box: Box) -> Any:
        """Remove and return the next delivery of a box, or None."""
        if not box.waiting:
            return None
        delivery = box.waiting.popleft()
        if box.end is None:
            header = delivery.header
            size = len(delivery.payload) + (
                EVENT_BYTES * (len(header) or 1) if type(header) is not LargeHeader else header.size
            )
            box.size -= size
            self._release(size)
        return delivery

    def _release(self, size: int) -> None:
        bufferedBytes = self.bufferedBytes
        self.bufferedBytes = bufferedBytes - size
        if bufferedBytes > self._pauseAbove >= bufferedBytes - size:
            self._relieved()

    def refused(self, refusal: Refusal) -> bool:
        """Close the boxes of a subscription that the broker has ended; False if the refusal is not about one."""
        # Refused publications also name a topic, with other statuses; 503 if the journal refused them. The refusal of a
        # new subscription names none.
        boxes = self._boxes.get(refusal.path, ()) if refusal.path else ()
        hasStart = any(box.hasStart for box in boxes) and refusal.status != Status.SERVICE_UNAVAILABLE
        if not (hasStart or (boxes and refusal.status == Status.SUBSCRIPTION_FAILED)):
            return False
        self.endTopic(refusal.path, SubscribeFailed(*refusal))
        return True

    def endTopic(self, topic: str, error: Exception) -> None:
        """Close all boxes of a name."""
        for box in tuple(self._boxes.get(topic, ())):
            self.close(box, error)

    def _receiversOf(self, topic: str) -> tuple[Box, ...]:
        receivers = tuple(box for box in chain.from_iterable(self._boxes.values()) if box.matches(topic))
        if len(self._receivers) >= _TOPICS:
            self._receivers.clear()
        if len(topic) <= _TOPIC_BYTES:
            self._receivers[topic] = receivers
        return receivers
