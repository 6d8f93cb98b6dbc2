"""Messages of one queue, first in first out, in which the messages of one run stay together as one part."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice

from fleximq.values import message_loops
from fleximq.values.message import Message
from fleximq.values.message_cost import ANY, cost, measure
from fleximq.values.message_run import MessageRun, asOne

#: Shorter runs are single messages: they take less memory.
FEW = 4

_Single = deque[Message | None]


class RunDeque:
    """Messages, and gaps in place of those that were removed from the middle: None.

    Adding and taking a run or its parts costs the same for any number of messages, except a copy of the references to
    their payloads. O(number of parts) to reach the middle.
    """

    __slots__ = ("_count", "_parts", "_start")

    def __init__(self) -> None:
        self._parts: deque[MessageRun | _Single] = deque()
        self._start = 0  # of the first part, if that is a run
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message | None]:
        return chain.from_iterable(self.parts())

    def parts(self) -> Iterator[Sequence[Message | None]]:
        """Iterate over all of them in runs and others; callers must not change these."""
        for place, part in enumerate(self._parts):
            yield part[self._start :] if not place and isinstance(part, MessageRun) and self._start else part

    def __getitem__(self, index: int) -> Message | None:
        place, index = self._find(index)
        return self._parts[place][index]

    def _find(self, index: int) -> tuple[int, int]:
        """Return the part with an index, and the index in it."""
        index += self._start
        for place, part in enumerate(self._parts):
            if index < len(part):
                return place, index
            index -= len(part)
        raise IndexError(index)

    def extend(self, messages: Sequence[Message | None]) -> None:
        """Add messages and gaps."""
        self._count += len(messages)
        if isinstance(messages, MessageRun) and len(messages) >= FEW:
            self._parts.append(messages)
        elif self._parts and isinstance(last := self._parts[-1], deque):
            last.extend(messages)
        else:
            self._parts.append(deque(messages))

    def append(self, message: Message | None) -> None:
        """Add a message or a gap."""
        self.extend((message,))

    def remove(self, index: int) -> Message | None:
        """Replace a message by a gap, and return it."""
        place, index = self._find(index)
        part = self._parts[place]
        if isinstance(part, MessageRun):
            start = 0 if place else self._start
            part = self._parts[place] = deque(part[start:])
            index -= start
            if not place:
                self._start = 0
        message, part[index] = part[index], None
        return message

    def withdraw(self, number: int) -> None:
        """Remove the last messages, which were added together."""
        self._count -= number
        last = self._parts[-1]
        if isinstance(last, MessageRun):
            self._parts.pop()
            return
        for _ in range(number):
            last.pop()
        if not last:
            self._parts.pop()

    def last(self, end: int, isIt: Callable[[Message], bool]) -> int | None:
        """Return the index of the last message before ``end`` that ``isIt`` accepts; None if there is none."""
        index = self._count
        for part in reversed(self._parts):
            for message in [*part][::-1]:
                index -= 1
                if 0 <= index < end and message is not None and isIt(message):
                    return index
        return None

    def find(self, messageId: str) -> Message | None:
        """Return the first message with this id; None if there is none. The messages of a run are one step."""
        start = self._start
        for part in self._parts:
            if isinstance(part, MessageRun):
                if part.messageId == messageId:
                    return part[start]
            else:
                for each in part:
                    if each is not None and each.message_id == messageId:
                        return each
            start = 0
        return None

    def popleft(self) -> Message | None:
        """Remove and return the first one."""
        return self.take(1)[0]

    def take(self, number: int, most: int = ANY) -> Sequence[Message | None]:
        """Remove and return the first ones, up to ``number``, until they cost ``most`` bytes; there are no gaps among
        them unless ``most`` is :data:`ANY`.
        """
        number = min(number, self._count)
        parts: list[Sequence[Message | None]] = []
        while number > 0 and most > 0:
            part = self._takePart(number, most)
            parts.append(part)
            number -= (count := len(part))
            self._count -= count
            if number and most != ANY:
                most -= cost(part)  # type: ignore[arg-type]  # there are no gaps
        return parts[0] if len(parts) == 1 else asOne(parts)  # type: ignore[arg-type]  # a run has no gaps

    def _takePart(self, number: int, most: int) -> Sequence[Message | None]:
        part, start = self._parts[0], self._start
        if isinstance(part, MessageRun):
            size = len(part.payloads)
            end = min(start + number, size)
            found = part if end - start == size else part.part(start, end)
            if most < cost(found):
                found = found.part(0, measure(found, most)[0])
                end = start + len(found)
            self._start = end
            if end == size:
                self._parts.popleft()
                self._start = 0
            elif 2 * end >= size:  # otherwise the payloads of the messages that were taken would stay in memory
                self._parts[0] = part.part(end, size)
                self._start = 0
            return found
        number = min(number, len(part))
        if most != ANY:
            number, _ = measure(islice(part, number), most)  # type: ignore[arg-type]  # there are no gaps
        single = message_loops.popFirst(part, number)
        if not part:
            self._parts.popleft()
        return single


#: In place of each that was never used: stays empty.
NO_MESSAGES = RunDeque()
