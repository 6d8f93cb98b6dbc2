"""What came for subscriptions and was not taken yet, without any I/O.

Hot: a delivery alone costs 0.2 us here, in a run 0.04 us, and taking it 0.2 us.

The broker sends a client each publication once, however many of its subscriptions match. Here it is found out which.
"""

import re
from collections import deque
from collections.abc import Callable
from itertools import chain, zip_longest
from typing import Any

from fleximq.client.errors import Answered, ClientError, Overrun, SubscribeFailed
from fleximq.client.events import Delivery, Notification, Refusal
from fleximq.client.settings import PREFETCH_BYTES
from fleximq.limits import GIBIBYTE
from fleximq.status import Status
from fleximq.values.patterns import anyOf

#: A subscription is ended when more bytes than this wait for it.
MAX_BOX_BYTES = GIBIBYTE
#: About what a delivery costs in memory besides its payload.
DELIVERY_BYTES = 128
#: For so many topics it is remembered who takes them; when there are more, all are forgotten.
_TOPICS = 10_000
_levels = re.compile(r"[./]").split


class Box:
    """What waits for one subscription.

    ``end`` is why nothing more comes, None while it does: an error, or True where that was wanted. ``begun`` tells of a
    subscription that begins in the past whether it is there: what comes before without an offset comes again with one.
    ``last`` is the last offset that came. ``onNews`` is called when there is news, if it is set.
    """

    __slots__ = ("isConfirmed", "end", "hasStart", "last", "matches", "size", "start", "onNews", "topic", "waiting")

    def __init__(self, topic: str, start: object = None) -> None:
        self.topic = topic
        self.start = start
        self.hasStart = start is not None
        self.isConfirmed = not self.hasStart
        self.last: int | None = None
        self.onNews: Callable[[], None] | None = None
        self.waiting: deque[Any] = deque()
        self.size = 0
        self.end: ClientError | bool | None = None
        #: Tells whether what is published to a topic belongs here.
        self.matches: Callable[[str], bool] = anyOf([topic]) if _isPattern(topic) else topic.__eq__

    def resumeStart(self) -> object:
        """Return where a subscription has to begin that goes on with this one."""
        return self.start if self.last is None else self.last + 1


class Inbox:
    """The boxes of one client. ``bufferedBytes`` is how many bytes wait in all that are open.

    :param relieved: called when it was ``full`` and is no longer.
    :param full: while more bytes than this wait, it is.
    :param maximum: the maximum bytes that may wait in one box.
    """

    def __init__(self, relieved: Callable[[], None], full: int = PREFETCH_BYTES, maximum: int = MAX_BOX_BYTES) -> None:
        self.bufferedBytes = 0
        self._relieved = relieved
        self._full = full
        self._maximum = maximum
        self._boxes: dict[str, list[Box]] = {}
        self._receivers: dict[str, tuple[Box, ...]] = {}
        self._direct: list[Box] = []

    @property
    def boxes(self) -> dict[str, Box]:
        """One box of each name, those first that begin in the past."""
        found = {box.topic: box for box in chain.from_iterable(self._boxes.values())}
        return dict(sorted(found.items(), key=lambda item: not item[1].hasStart))

    @property
    def full(self) -> bool:
        """Whether so much waits that no more should be read without need."""
        return self.bufferedBytes > self._full

    def open(self, topic: str, start: object = None) -> Box:
        """Return a new box for a topic or pattern, whose subscription begins where ``start`` says, None for now.

        :raises ValueError: there is one that begins in the past and has topics in common with this one, which begins
            in the past as well, or has its name. The broker sends each message once, so neither would be in order.
        """
        hasStart = start is not None
        for box in chain.from_iterable(self._boxes.values()):
            if box.topic == topic and (hasStart or box.hasStart) or hasStart and box.hasStart and _overlap(box, topic):
                raise ValueError(f"a subscription to {box.topic!r} is there already, so this needs another client")
        box = Box(topic, start)
        self._boxes.setdefault(topic, []).append(box)
        self._receivers.clear()
        return box

    def openDirect(self) -> Box:
        """Return a new box for what comes to this client itself: notifications and broadcasts."""
        box = Box("")
        self._direct.append(box)
        return box

    def close(self, box: Box, end: ClientError | bool = True) -> bool:
        """Let nothing more into a box; True if it was the last one of its name."""
        box.end = box.end or end
        if box.onNews is not None:
            box.onNews()
        if box in self._direct:
            self._direct.remove(box)
            self._release(box.size)
            return False
        others = self._boxes.get(box.topic, [])
        if box not in others:
            return False
        others.remove(box)
        self._receivers.clear()
        self._release(box.size)
        if others:
            return False
        del self._boxes[box.topic]
        return True

    def closeAll(self) -> None:
        """Let nothing more into any box."""
        self.endAll(True)

    def endAll(self, end: ClientError | bool) -> None:
        """Let nothing more into any box, for this reason."""
        for box in (*chain.from_iterable(self._boxes.values()), *self._direct):
            self.close(box, end)

    def put(self, delivery: Delivery) -> Box | None:
        """Put a delivery where it belongs; return a box that had to be closed because it bufferedBytes too much."""
        receivers = self._receivers.get(delivery.topic)
        if receivers is None:
            receivers = self._receiversOf(delivery.topic)
        overrun = None
        for box in receivers:
            if box.hasStart:
                offset = delivery.offset
                if offset is not None:
                    box.last = offset
                elif not box.isConfirmed:
                    continue
            size = len(delivery.payload) + DELIVERY_BYTES
            box.waiting.append(delivery)
            box.size += size
            self.bufferedBytes += size
            if box.size > self._maximum:
                overrun = box
            if box.onNews is not None:
                box.onNews()
        return overrun

    def putRun(self, run: list[Delivery]) -> Box | None:
        """Put deliveries of one topic where they belong; return a box as :meth:`put` does."""
        if len(run) == 1:
            return self.put(run[0])
        topic = run[0].topic
        receivers = self._receivers.get(topic)
        if receivers is None:
            receivers = self._receiversOf(topic)
        size = sum(len(each.payload) for each in run) + DELIVERY_BYTES * len(run)
        if any(box.hasStart or box.size + size > self._maximum for box in receivers):
            overrun = None
            for each in run:
                overrun = self.put(each) or overrun
                if overrun is not None:
                    break
            return overrun
        for box in receivers:
            box.waiting.extend(run)
            box.size += size
            self.bufferedBytes += size
            if box.onNews is not None:
                box.onNews()
        return None

    def putDirect(self, said: Notification) -> None:
        """Put what came to this client itself where it belongs; beyond what is too much it is dropped."""
        size = len(said.payload) + DELIVERY_BYTES
        for box in self._direct:
            if box.size + size <= self._maximum:
                box.waiting.append(said)
                box.size += size
                self.bufferedBytes += size
                if box.onNews is not None:
                    box.onNews()

    def take(self, box: Box) -> Any:
        """Return what is next in a box, if there is anything."""
        if not box.waiting:
            return None
        delivery = box.waiting.popleft()
        if box.end is None:
            size = len(delivery.payload) + DELIVERY_BYTES
            box.size -= size
            self._release(size)
        return delivery

    def _release(self, size: int) -> None:
        bufferedBytes = self.bufferedBytes
        self.bufferedBytes = bufferedBytes - size
        if bufferedBytes > self._full >= bufferedBytes - size:
            self._relieved()

    def overrun(self, box: Box) -> None:
        """Close a box that holds too much, and all others of its name."""
        error = Overrun(f"the subscription to {box.topic} was ended, for {box.size} bytes waited to be taken")
        self.endTopic(box.topic, error)

    def refused(self, refusal: Refusal) -> bool:
        """Close the box that the broker has ended by itself; False if it speaks of something else.

        What is refused to a publisher names a topic, too, with 503.
        """
        boxes = self._boxes.get(refusal.path, ())
        if refusal.status == Status.SERVICE_UNAVAILABLE or not any(box.hasStart for box in boxes):
            return False
        self.endTopic(refusal.path, SubscribeFailed(refusal.status, refusal.words, refusal.path, refusal.payload))
        return True

    def endTopic(self, topic: str, error: Answered | Overrun) -> None:
        """Close all boxes of a name, for this reason."""
        for box in tuple(self._boxes.get(topic, ())):
            self.close(box, error)

    def _receiversOf(self, topic: str) -> tuple[Box, ...]:
        receivers = tuple(box for box in chain.from_iterable(self._boxes.values()) if box.matches(topic))
        if len(self._receivers) >= _TOPICS:
            self._receivers.clear()
        self._receivers[topic] = receivers
        return receivers


def _isPattern(name: str) -> bool:
    levels = _levels(name)
    return "*" in levels or levels[-1] == "#"


def _overlap(box: Box, topic: str) -> bool:
    """Tell whether there can be a topic that belongs into a box and to this topic or pattern."""
    if not _isPattern(topic):
        return box.matches(topic)
    if not _isPattern(box.topic):
        return anyOf([topic])(box.topic)
    one, other = _levels(box.topic), _levels(topic)
    for place, (here, there) in enumerate(zip_longest(one, other)):
        if (here == "#" and place == len(one) - 1) or (there == "#" and place == len(other) - 1):
            return True
        if here is None or there is None or (here != there and "*" not in (here, there)):
            return False
    return True
