"""The backlog of a durable queue: the first messages in memory, the others as offsets in the journal.

The part in memory is refilled with messages that the queue's recorder reads from the journal. A lost message leaves a
gap, since arrival numbers never change. Volatile messages (QoS0) stay in memory wherever they are in the queue.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile

from fleximq.broker.queues.backlog import Backlog, Dropped
from fleximq.broker.queues.message_place import placeAt
from fleximq.broker.queues.offset_ranges import FIRST_VOLATILE, GAP, OffsetRanges
from fleximq.broker.queues.run_deque import NO_MESSAGES, RunDeque
from fleximq.values.message import Message
from fleximq.values.message_cost import ANY, cost, costOf
from fleximq.values.message_run import MessageRun

#: So many neighbours are read without looking at what follows them.
_MANY = 256


@dataclass(slots=True, eq=False, repr=False)
class DurableBacklog(Backlog):
    """Messages in order of arrival; ``size`` is the cost of those in memory.

    ``volatile`` is how many of them are not in the journal, ``volatileGone`` how many such messages have left so far;
    ``volatileSize`` is the cost of those after the part in memory.

    :param room: new messages stay in memory while those there cost no more than this.
    :param withIds: returns messages with the ids that they have in this queue.
    """

    _room: int
    _withIds: Callable[[Sequence[Message]], Sequence[Message]] | None = None
    lastTag: int = 0
    size: int = 0
    volatile: int = 0
    volatileSize: int = 0
    volatileGone: int = 0
    _inMemory: RunDeque = NO_MESSAGES
    _gaps: int = 0
    _onDisk: OffsetRanges = field(default_factory=OffsetRanges)
    _onDiskGaps: int = 0
    _volatile: dict[int, Message] = field(default_factory=dict)
    _nextKey: int = FIRST_VOLATILE

    def __len__(self) -> int:
        return len(self._inMemory) + len(self._onDisk)

    def __iter__(self) -> Iterator[Message]:
        return (message for message in self._inMemory if message is not None)

    @property
    def gaps(self) -> int:
        return self._gaps + self._onDiskGaps

    @property
    def available(self) -> int:
        return len(self._inMemory)

    @property
    def onDisk(self) -> int:
        """The number of messages and gaps after the part in memory."""
        return len(self._onDisk)

    @property
    def isShort(self) -> bool:
        """Whether the part in memory should be refilled."""
        return bool(self._onDisk) and (not self._inMemory or (self.size - self.volatileSize) * 2 <= self._room)

    @property
    def journalTag(self) -> int:
        """``lastTag`` without volatile messages, as the journal counts."""
        return self.lastTag - self.volatileGone

    def append(self, messages: Sequence[Message]) -> int:
        """Add one run of messages with neighbouring offsets or none; return its cost in memory."""
        first = messages[0].offset
        if self._withIds is not None and not (first and self._onDisk):
            messages = self._withIds(messages)
        if not first:
            self.volatile += len(messages)
        if not self._onDisk:
            size = cost(messages)
            if self.size + size <= self._room:
                self._memory().extend(messages)
                self.size += size
                return size
        if first:
            self._onDisk.append(first, len(messages))
            return 0
        size = cost(messages)
        self._onDisk.append(self._nextKey, len(messages))
        for message in messages:
            self._volatile[self._nextKey] = message
            self._nextKey += 1
        self.size += size
        self.volatileSize += size
        return size

    def _memory(self) -> RunDeque:
        if self._inMemory is NO_MESSAGES:
            self._inMemory = RunDeque()
        return self._inMemory

    def restore(self, onDisk: OffsetRanges, lastTag: int) -> None:
        """Begin with messages that are all in the journal."""
        self._onDisk = onDisk
        self._onDiskGaps = onDisk.gaps()
        self.lastTag = lastTag

    def take(self, number: int, most: int = ANY) -> tuple[Sequence[int], Sequence[Message]]:
        first = self.lastTag + 1
        tags: Sequence[int]
        messages: Sequence[Message]
        if self._gaps:
            tags, messages = self._takeBetweenGaps(number, most)
        else:
            messages = self._inMemory.take(number, most)  # type: ignore[assignment]  # there are no gaps
            self.size -= cost(messages)
            self.lastTag += len(messages)
            tags = range(first, self.lastTag + 1)
        if self.volatile:
            self._left(sum(1 for message in messages if not message.offset))
        return tags, messages

    def _takeBetweenGaps(self, number: int, most: int) -> tuple[list[int], list[Message]]:
        tags: list[int] = []
        messages: list[Message] = []
        while self._inMemory and (self._inMemory[0] is None or (len(tags) < number and most > 0)):
            message = self._inMemory.popleft()
            self.lastTag += 1
            if message is None:
                self._gaps -= 1
                continue
            tags.append(self.lastTag)
            messages.append(message)
            most -= costOf(message)
            self.size -= costOf(message)
        return tags, messages

    def _left(self, volatile: int) -> None:
        """Count volatile messages that left: the journal's arrival numbers do not include them."""
        self.volatile -= volatile
        self.volatileGone += volatile

    def occupied(self, weight: int) -> int:
        """Return the cost of the volatile messages after the part in memory: the journal has no bound in bytes."""
        return self.volatileSize

    def dropLarge(self, run: Sequence[Message], size: int, others: int, excess: int) -> Dropped:
        return Dropped(0, 0)

    def drop(self, number: int, excess: int = 0) -> Dropped:
        before, most = self.size, self.volatileSize - max(0, excess)
        offsets: list[int] = []
        dropped = 0
        while len(self) and (dropped < number or self.volatileSize > most):
            dropped += self._dropOldest(offsets)
        return Dropped(dropped, before - self.size, offsets)

    def expire(self, until: int, most: int) -> Dropped:
        before = self.size
        offsets: list[int] = []
        dropped = 0
        for _ in range(min(until - self.lastTag, most, len(self))):
            dropped += self._dropOldest(offsets)
        return Dropped(dropped, before - self.size, offsets)

    def _dropOldest(self, offsets: list[int]) -> bool:
        """Drop the oldest message, add its offset if it has one; False if it is a gap."""
        self.lastTag += 1
        if self._inMemory:
            message = self._inMemory.popleft()
            if message is None:
                self._gaps -= 1
                return False
            offset = message.offset
        else:
            offset = self._onDisk.take(1)[0]
            if offset == GAP:
                self._onDiskGaps -= 1
                return False
            message = self._takeVolatile(offset)
            if message is not None:
                offset = 0
        if message is not None:
            self.size -= costOf(message)
        if offset:
            offsets.append(offset)
        else:
            self._left(1)
        return True

    def withdraw(self, number: int, offset: int, isIt: Callable[[Message], bool]) -> int | None:
        """Replace the message at this offset by a gap; None if it is not here."""
        if not offset:
            return None
        for place, message in enumerate(self._inMemory):
            if message is not None and message.offset == offset:
                self.remove(self.lastTag + place + 1)
                return costOf(message)
        if not self._onDisk.erase(offset):
            return None
        self._onDiskGaps += 1
        return 0

    def find(self, messageId: str) -> Message | None:
        return self._inMemory.find(messageId)

    def remove(self, tag: int) -> Message | None:
        """As :meth:`Backlog.remove`; volatile messages stay, since gaps count in the journal."""
        place = tag - self.lastTag - 1
        if place >= len(self._inMemory):
            key = self._onDisk.eraseAt(place - len(self._inMemory))
            self._onDiskGaps += key != GAP
            return None if key == GAP else placeAt(key)
        message = self._inMemory[place] if place >= 0 else None
        if message is None or not message.offset:
            return None
        self._inMemory.remove(place)
        self._gaps += 1
        self.size -= costOf(message)
        self._takeBetweenGaps(0, 0)
        return message

    def _takeVolatile(self, key: int) -> Message | None:
        message = self._volatile.pop(key, None) if key >= FIRST_VOLATILE else None
        if message is not None:
            self.volatileSize -= costOf(message)
        return message

    def wanted(self, most: int) -> Sequence[int]:
        """Return up to ``most`` offsets to read next; volatile messages and gaps before them move into memory."""
        first = self._onDisk.firstRange(most)
        if len(first) >= _MANY and GAP < first.start < FIRST_VOLATILE:
            return first
        for key in self._onDisk.peek(most):
            if GAP < key < FIRST_VOLATILE:
                break
            self._onDisk.take(1)
            message = self._takeVolatile(key)
            self._memory().append(message)
            if message is None:
                self._gaps += 1
                self._onDiskGaps -= 1
        return list(takewhile(lambda key: GAP < key < FIRST_VOLATILE, self._onDisk.peek(most)))

    def addRead(self, wanted: Sequence[int], messages: Sequence[Message]) -> tuple[int, list[int]]:
        """Add read messages to the part in memory; return their cost, and the offsets of lost messages.

        :param wanted: the result of :meth:`wanted`; messages dropped since are ignored.
        :param messages: those of them that were read, in order; missing ones before the last are lost, all if it is
            empty.
        """
        if isinstance(messages, MessageRun) and self._onDisk.takeRange(messages.offsets):
            self._memory().extend(messages)
            self.size += cost(messages)
            return cost(messages), []
        until = messages[-1].offset if messages else wanted[-1]
        keys = list(takewhile(lambda key: GAP < key <= until, self._onDisk.peek(len(wanted))))
        self._onDisk.take(len(keys))
        read: Sequence[Message | None] = messages
        lost = []
        if len(keys) != len(messages):
            found = {message.offset: message for message in messages}
            read = [found.get(key) for key in keys]
            lost = [key for key in keys if key not in found]
            messages = [message for message in read if message is not None]
        self._memory().extend(read)
        self._gaps += len(lost)
        size = cost(messages)
        self.size += size
        return size, lost

    def offsets(self) -> OffsetRanges:
        """Return the offsets of all messages in the journal, with gaps for lost ones."""
        offsets = OffsetRanges()
        for run in self._inMemory.parts():
            if isinstance(run, MessageRun):
                offsets.extend(run.offsets)
                continue
            for message in run:
                if message is None or message.offset:
                    offsets.append(GAP if message is None else message.offset)
        for part in self._onDisk.parts():
            if not self._volatile or (isinstance(part, range) and part[0] < FIRST_VOLATILE):
                offsets.extend(part)
            else:
                offsets.extend([key for key in part if key < FIRST_VOLATILE])
        return offsets

    def unread(self) -> Iterator[int]:
        """Iterate over the offsets that are only on disk now."""
        parts = [part if isinstance(part, range) else part[:] for part in self._onDisk.parts()]
        return (key for key in chain.from_iterable(parts) if GAP < key < FIRST_VOLATILE)

    def volatileTags(self) -> list[int]:
        """Return the tags of the volatile messages, in order."""
        numbers = chain((0 if each is None else each.offset or FIRST_VOLATILE for each in self._inMemory), self._onDisk)
        return [tag for tag, number in enumerate(numbers, self.lastTag + 1) if number >= FIRST_VOLATILE]

    def lowest(self) -> int:
        """Return the lowest offset, 0 if no message is in the journal."""
        if not len(self):
            return 0
        inMemory = (message.offset for message in self._inMemory if message is not None and message.offset)
        later = (key for key in self._onDisk if GAP < key < FIRST_VOLATILE)
        return next(inMemory, 0) or next(later, 0)

    def clear(self) -> None:
        self._inMemory = NO_MESSAGES
        self._onDisk.clear()
        self._volatile.clear()
        self._gaps = self._onDiskGaps = self.size = self.volatile = self.volatileSize = 0
