"""The waiting messages of a durable queue: the first ones in memory, the others as offsets in the journal.

The part in memory is refilled with messages that the queue reads from the journal. A lost message leaves a gap, since
arrival numbers never change. Volatile messages (QoS0) stay in memory wherever they are in the queue.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile

from fleximq.broker.queues.offset_ranges import FIRST_VOLATILE, GAP, OffsetRanges
from fleximq.broker.queues.waiting import NEVER_USED
from fleximq.values.message import Message
from fleximq.values.message_cost import ANY, cost, costOf, measure


@dataclass(slots=True, eq=False, repr=False)
class DurableBacklog:
    """Messages in order of arrival; ``size`` is the cost of those in memory.

    ``volatile`` is how many of them are not in the journal; the caller subtracts the ones it takes out.

    :param room: new messages stay in memory while those there cost no more than this.
    """

    _room: int
    size: int = 0
    volatile: int = 0
    volatileSize: int = 0
    _inMemory: deque[Message | None] = field(default_factory=lambda: NEVER_USED)
    _gaps: int = 0
    _onDisk: OffsetRanges = field(default_factory=OffsetRanges)
    _onDiskGaps: int = 0
    _volatile: dict[int, Message] = field(default_factory=dict)
    _nextKey: int = FIRST_VOLATILE

    def __len__(self) -> int:
        return len(self._inMemory) + len(self._onDisk)

    def __iter__(self) -> Iterator[Message]:
        """Iterate over the messages in memory, oldest first."""
        return (message for message in self._inMemory if message is not None)

    @property
    def gaps(self) -> int:
        """The number of lost messages."""
        return self._gaps + self._onDiskGaps

    @property
    def inMemory(self) -> int:
        """The number of messages and gaps in memory."""
        return len(self._inMemory)

    @property
    def onDisk(self) -> int:
        """The number of messages that are not in memory."""
        return len(self._onDisk)

    @property
    def isShort(self) -> bool:
        """Whether the part in memory should be refilled."""
        return bool(self._onDisk) and (not self._inMemory or (self.size - self.volatileSize) * 2 <= self._room)

    def append(self, messages: Sequence[Message]) -> int:
        """Append one run, whose messages have neighbouring offsets or none; return its cost in memory."""
        first = messages[0].offset
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

    def _memory(self) -> deque[Message | None]:
        if self._inMemory is NEVER_USED:
            self._inMemory = deque()
        return self._inMemory

    def restore(self, onDisk: OffsetRanges) -> None:
        """Begin with messages that are all in the journal."""
        self._onDisk = onDisk
        self._onDiskGaps = onDisk.gaps()

    def popMany(self, number: int, most: int = ANY) -> list[Message | None]:
        """Remove and return the oldest messages in memory, at most ``number``, until they cost ``most``; gaps between
        them are returned too, and do not count.
        """
        if not self._gaps:
            count, size = measure(islice(self._inMemory, number), most)  # type: ignore[arg-type]  # there are no gaps
            self.size -= size
            popleft = self._inMemory.popleft
            return [popleft() for _ in range(count)]
        taken: list[Message | None] = []
        while self._inMemory and (self._inMemory[0] is None or (number > 0 and most > 0)):
            message = self._inMemory.popleft()
            taken.append(message)
            if message is None:
                self._gaps -= 1
                continue
            number -= 1
            most -= costOf(message)
            self.size -= costOf(message)
        return taken

    def dropOldest(self) -> tuple[int, int]:
        """Drop the oldest message, which must exist; return its offset, 0 if it has none, and its cost in memory."""
        if self._inMemory:
            message = self._inMemory.popleft()
            if message is None:
                self._gaps -= 1
                return GAP, 0
            size = costOf(message)
            self.size -= size
            return message.offset, size
        key = self._onDisk.take(1)[0]
        volatile = self._takeVolatile(key)
        if volatile is None:
            self._onDiskGaps -= key == GAP
            return key, 0
        size = costOf(volatile)
        self.size -= size
        return 0, size

    def remove(self, offset: int) -> int | None:
        """Replace the message at this offset by a gap; return its cost in memory, None if it is not here."""
        for place, message in enumerate(self._inMemory):
            if message is not None and message.offset == offset:
                self._inMemory[place] = None
                self._gaps += 1
                self.size -= costOf(message)
                return costOf(message)
        if not self._onDisk.erase(offset):
            return None
        self._onDiskGaps += 1
        return 0

    def _takeVolatile(self, key: int) -> Message | None:
        message = self._volatile.pop(key, None) if key >= FIRST_VOLATILE else None
        if message is not None:
            self.volatileSize -= costOf(message)
        return message

    def wanted(self, most: int) -> list[int]:
        """Return up to ``most`` offsets to read next; volatile messages and gaps before them move into memory."""
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

    def addLoaded(self, wanted: Sequence[int], messages: Sequence[Message]) -> tuple[int, list[int]]:
        """Add read messages to the part in memory; return their cost, and the offsets of lost messages.

        :param wanted: the result of :meth:`wanted`; messages dropped since are ignored.
        :param messages: those of them that were read, in order; missing ones before the last are lost, all if it is
            empty.
        """
        until = messages[-1].offset if messages else wanted[-1]
        keys = list(takewhile(lambda key: GAP < key <= until, self._onDisk.peek(len(wanted))))
        self._onDisk.take(len(keys))
        loaded: Sequence[Message | None] = messages
        lost = []
        if len(keys) != len(messages):
            found = {message.offset: message for message in messages}
            loaded = [found.get(key) for key in keys]
            lost = [key for key in keys if key not in found]
            messages = [message for message in loaded if message is not None]
        self._memory().extend(loaded)
        self._gaps += len(lost)
        size = cost(messages)
        self.size += size
        return size, lost

    def offsets(self) -> OffsetRanges:
        """Return the offsets of all messages in the journal, with gaps for lost ones."""
        offsets = OffsetRanges()
        for message in self._inMemory:
            if message is None or message.offset:
                offsets.append(GAP if message is None else message.offset)
        for part in self._onDisk.parts():
            if not self._volatile or (isinstance(part, range) and part[0] < FIRST_VOLATILE):
                offsets.extend(part)
            else:
                offsets.extend([key for key in part if key < FIRST_VOLATILE])
        return offsets

    def lowest(self) -> int:
        """Return the lowest offset, 0 if no message is in the journal."""
        if not len(self):
            return 0
        inMemory = (message.offset for message in self._inMemory if message is not None and message.offset)
        far = (key for key in self._onDisk if GAP < key < FIRST_VOLATILE)
        return next(inMemory, 0) or next(far, 0)

    def clear(self) -> None:
        """Remove all messages."""
        self._inMemory = NEVER_USED
        self._onDisk.clear()
        self._volatile.clear()
        self._gaps = self._onDiskGaps = self.size = self.volatile = self.volatileSize = 0
