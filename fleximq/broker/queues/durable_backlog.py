"""What waits in a queue that is kept in the journal: the near end as messages, the far end as places there.

The near end is filled up again with what the queue reads back. A message that turns out to be lost leaves a hole, for
its arrival number stays its own. What came without a place in the journal (QoS0) stays in memory, wherever it stands.
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice

from fleximq.broker.queues.offset_ranges import FIRST_VOLATILE, GAP, OffsetRanges
from fleximq.broker.queues.waiting_messages import ANY, cost, costOf, measure
from fleximq.values.message import Message


class DurableBacklog:
    """Messages in order of arrival; ``size`` is the cost of those in memory.

    ``unkept`` is how many of them are not in the journal; who takes them out counts them down.

    :param room: the near end takes new messages while it costs no more than this.
    """

    __slots__ = ("_far", "_farHoles", "_holes", "_near", "_nextKey", "_room", "_unkept", "size", "unkept", "unkeptSize")

    def __init__(self, room: int) -> None:
        self.size = 0
        self.unkept = 0
        self.unkeptSize = 0
        self._room = room
        self._near: deque[Message | None] = deque()
        self._holes = 0
        self._far = OffsetRanges()
        self._farHoles = 0
        self._unkept: dict[int, Message] = {}
        self._nextKey = FIRST_VOLATILE

    def __len__(self) -> int:
        """Return the number of messages, holes included."""
        return len(self._near) + len(self._far)

    @property
    def holes(self) -> int:
        """The number of places whose messages are gone."""
        return self._holes + self._farHoles

    @property
    def near(self) -> int:
        """The number of messages and holes in memory."""
        return len(self._near)

    @property
    def far(self) -> int:
        """The number of places that are not in memory."""
        return len(self._far)

    @property
    def isShort(self) -> bool:
        """Whether the near end should be filled up."""
        return bool(self._far) and (not self._near or (self.size - self.unkeptSize) * 2 <= self._room)

    def append(self, messages: Sequence[Message]) -> int:
        """Put one run at the end, and return what it costs in memory.

        A run's messages have no places in the journal, or neighbouring ones.
        """
        first = messages[0].offset
        if not first:
            self.unkept += len(messages)
        if not self._far:
            size = cost(messages)
            if self.size + size <= self._room:
                self._near.extend(messages)
                self.size += size
                return size
        if first:
            self._far.append(first, len(messages))
            return 0
        return self._appendUnkept(messages)

    def _appendUnkept(self, messages: Sequence[Message]) -> int:
        size = cost(messages)
        self._far.append(self._nextKey, len(messages))
        for message in messages:
            self._unkept[self._nextKey] = message
            self._nextKey += 1
        self.size += size
        self.unkeptSize += size
        return size

    def restore(self, far: OffsetRanges) -> None:
        """Begin with messages that are all in the journal."""
        self._far = far
        self._farHoles = far.holes()

    def popleft(self) -> Message | None:
        """Take the oldest one out if it is in memory and no holes are; else return None, and try :meth:`popMany`."""
        if self._holes or not self._near:
            return None
        message = self._near.popleft()
        if message is not None:
            self.size -= costOf(message)
        return message

    def popMany(self, number: int, most: int = ANY) -> list[Message | None]:
        """Take the oldest ones out that are in memory, until ``number`` messages are taken, or they cost ``most``.

        Holes are taken out on the way, and do not count.
        """
        if self._holes:
            return self._popWithHoles(number, most)
        count, size = measure(islice(self._near, number), most)  # type: ignore[arg-type]  # there are no holes
        self.size -= size
        popleft = self._near.popleft
        return [popleft() for _ in range(count)]

    def _popWithHoles(self, number: int, most: int) -> list[Message | None]:
        taken: list[Message | None] = []
        while self._near and (self._near[0] is None or (number > 0 and most > 0)):
            message = self._near.popleft()
            taken.append(message)
            if message is None:
                self._holes -= 1
                continue
            number -= 1
            most -= costOf(message)
            self.size -= costOf(message)
        return taken

    def dropOldest(self) -> tuple[int, int]:
        """Throw the oldest away: returns its offset, 0 if it has none, and what memory it cost. There must be one."""
        if self._near:
            message = self._near.popleft()
            if message is None:
                self._holes -= 1
                return GAP, 0
            size = costOf(message)
            self.size -= size
            return message.offset, size
        key = self._far.take(1)[0]
        unkept = self._takeUnkept(key)
        if unkept is None:
            self._farHoles -= key == GAP
            return key, 0
        size = costOf(unkept)
        self.size -= size
        return 0, size

    def _takeUnkept(self, key: int) -> Message | None:
        message = self._unkept.pop(key, None) if key >= FIRST_VOLATILE else None
        if message is not None:
            self.unkeptSize -= costOf(message)
        return message

    def wanted(self, most: int) -> list[int]:
        """Return the offsets to read next, at most so many; what needs no reading comes near at once."""
        for key in self._far.peek(most):
            if GAP < key < FIRST_VOLATILE:
                break
            self._far.take(1)
            message = self._takeUnkept(key)
            self._near.append(message)
            if message is None:
                self._holes += 1
                self._farHoles -= 1
        wanted = []
        for key in self._far.peek(most):
            if not GAP < key < FIRST_VOLATILE:
                break
            wanted.append(key)
        return wanted

    def came(self, wanted: Sequence[int], messages: Sequence[Message]) -> tuple[int, list[int]]:
        """Put what was read at the near end: returns what it costs, and the offsets of those that are lost.

        :param wanted: what :meth:`wanted` returned; what was dropped meanwhile is passed over.
        :param messages: of these, in order; those that are missing before the last one are lost, all if there are none.
        """
        until = messages[-1].offset if messages else wanted[-1]
        due = 0
        for key in self._far.peek(len(wanted)):
            if not GAP < key <= until:
                break
            due += 1
        keys = self._far.take(due)
        if due == len(messages):
            self._near.extend(messages)
            size = cost(messages)
            self.size += size
            return size, []
        return self._cameInPart(keys, {message.offset: message for message in messages})

    def _cameInPart(self, keys: Sequence[int], messages: dict[int, Message]) -> tuple[int, list[int]]:
        lost = []
        size = 0
        for key in keys:
            message = messages.get(key)
            self._near.append(message)
            if message is None:
                self._holes += 1
                lost.append(key)
            else:
                size += costOf(message)
        self.size += size
        return size, lost

    def offsets(self) -> OffsetRanges:
        """Return the places of all that are in the journal, and holes for those that were."""
        offsets = OffsetRanges()
        for message in self._near:
            if message is None or message.offset:
                offsets.append(GAP if message is None else message.offset)
        for part in self._far.parts():
            if not self._unkept or (isinstance(part, range) and part[0] < FIRST_VOLATILE):
                offsets.extend(part)
            else:
                offsets.extend([key for key in part if key < FIRST_VOLATILE])
        return offsets

    def lowest(self) -> int:
        """Return the lowest offset in here, 0 if there is none."""
        near = (message.offset for message in self._near if message is not None and message.offset)
        far = (key for key in self._far if GAP < key < FIRST_VOLATILE)
        return next(near, 0) or next(far, 0)

    def clear(self) -> None:
        """Throw everything away."""
        self._near.clear()
        self._far.clear()
        self._unkept.clear()
        self._holes = self._farHoles = self.size = self.unkept = self.unkeptSize = 0
