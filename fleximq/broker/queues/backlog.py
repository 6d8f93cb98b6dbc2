"""Messages of a queue that were never delivered: the interface of backlogs, and one in memory.

The backlog decides which message is next, and its tag: a message's tag is its arrival number, the queue never computes
one. Messages leave it by :meth:`Backlog.take`, and without a delivery by :meth:`Backlog.drop`, :meth:`Backlog.expire`,
:meth:`Backlog.withdraw` and :meth:`Backlog.remove`. Those removed from the middle leave gaps, so that no tag changes.
Priorities and keys are not its part: a priority is a queue of its own (:mod:`fleximq.broker.consumers.lanes`), and the
order of keys begins after the backlog (:mod:`fleximq.broker.queues.key_order`).
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from fleximq.broker.queues.run_deque import NO_MESSAGES, RunDeque
from fleximq.values.message import Message
from fleximq.values.message_cost import ANY, OVERHEAD, cost, costOf, measure

#: In place of each deque that was never used, since an empty one takes 760 bytes: immutable.
NEVER_USED: deque[Any] = deque(maxlen=0)


class Dropped(NamedTuple):
    """Messages that left undelivered: their number, their cost in memory, and the offsets of those in the journal."""

    number: int
    size: int
    offsets: Sequence[int] = ()


class Backlog(Protocol):
    """Messages that were never delivered; its length is their number with the gaps that lost and removed ones leave.

    ``lastTag`` is the tag of the latest message that left, 0 before; ``gaps`` is the number of gaps.
    """

    __slots__ = ()
    lastTag: int

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Message]:
        """Iterate over the messages in memory, next one first."""

    @property
    def gaps(self) -> int:
        """The number of gaps."""

    @property
    def available(self) -> int:
        """The number of messages and gaps in memory; others must be read first."""

    def append(self, messages: Sequence[Message]) -> int:
        """Add one run, which is not empty; return its cost in memory."""

    def take(self, number: int, most: int = ANY) -> tuple[Sequence[int], Sequence[Message]]:
        """Remove and return the next ``number`` messages in memory, until they cost ``most`` bytes, with their tags,
        which ascend.
        """

    def occupied(self, weight: int) -> int:
        """Return the bytes that count against the bound of a queue of this weight."""

    def dropLarge(self, run: Sequence[Message], size: int, others: int, excess: int) -> Dropped:
        """Drop the messages of the run just added, of cost ``size``, that are too large even after all others have
        left; the bound is exceeded by ``excess`` bytes, and ``others`` bytes outside of the backlog could leave.
        """

    def drop(self, number: int, excess: int = 0) -> Dropped:
        """Drop the oldest messages, ``number`` and then more until ``excess`` bytes of the bound are free."""

    def expire(self, until: int, most: int) -> Dropped:
        """Drop messages up to the tag ``until``; after ``most`` messages and gaps the rest stays for the next call."""

    def withdraw(self, number: int, offset: int, isIt: Callable[[Message], bool]) -> int | None:
        """Remove the message at this offset, or without an offset the latest one with a tag up to ``number`` that
        ``isIt`` accepts; return its cost in memory, None if it is not here.
        """

    def find(self, messageId: str) -> Message | None:
        """Return the first message in memory with this id; None if there is none."""

    def remove(self, tag: int) -> Message | None:
        """Remove and return the message with this tag, or its place in the journal; None if it is not here."""

    def clear(self) -> None:
        """Remove all messages."""


class MemoryBacklog(Backlog):
    """Messages in memory, first in first out. Removing one from the middle of a million takes 20 us."""

    __slots__ = ("_messages", "gaps", "lastTag")
    gaps: int

    def __init__(self) -> None:
        self._messages = NO_MESSAGES
        self.lastTag = 0
        self.gaps = 0

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return (message for message in self._messages if message is not None)

    @property
    def available(self) -> int:
        return len(self._messages)

    def append(self, messages: Sequence[Message]) -> int:
        if self._messages is NO_MESSAGES:
            self._messages = RunDeque()
        self._messages.extend(messages)
        return cost(messages)

    def take(self, number: int, most: int = ANY) -> tuple[Sequence[int], Sequence[Message]]:
        waiting = self._messages
        if self.gaps:
            return takeBetweenGaps(self, waiting, number, most)
        messages = waiting.take(number, most)
        first = self.lastTag + 1
        self.lastTag += len(messages)
        return range(first, self.lastTag + 1), messages  # type: ignore[return-value]

    def occupied(self, weight: int) -> int:
        return weight

    def dropLarge(self, run: Sequence[Message], size: int, others: int, excess: int) -> Dropped:
        waiting = self._messages
        if others + OVERHEAD * (len(waiting) - self.gaps) >= excess + size:  # the usual case, at any cost of the others
            return Dropped(0, 0)
        room = others + cost([*self]) - excess
        fitting = [message for message in run if costOf(message) <= room]
        waiting.withdraw(len(run))
        if fitting:
            waiting.extend(fitting)
        return Dropped(len(run) - len(fitting), size - cost(fitting))

    def drop(self, number: int, excess: int = 0) -> Dropped:
        if excess > 0:
            number = max(number, measure(self, excess)[0])
        return self._dropped(self.take(number)[1]) if self.gaps else self._dropOldest(max(0, number))

    def expire(self, until: int, most: int) -> Dropped:
        return self._dropOldest(max(0, min(until - self.lastTag, most)))

    def _dropOldest(self, number: int) -> Dropped:
        """Drop so many messages and gaps."""
        dropped = self._messages.take(number)
        self.lastTag += len(dropped)
        if self.gaps:
            self.gaps -= dropped.count(None)
            skipGaps(self, self._messages)
            return self._dropped([message for message in dropped if message is not None])
        return self._dropped(dropped)  # type: ignore[arg-type]  # there are no gaps

    def _dropped(self, messages: Sequence[Message]) -> Dropped:
        return Dropped(len(messages), cost(messages))

    def withdraw(self, number: int, offset: int, isIt: Callable[[Message], bool]) -> int | None:
        place = self._messages.last(number - self.lastTag, isIt)
        message = None if place is None else self.remove(self.lastTag + place + 1)
        return None if message is None else costOf(message)

    def find(self, messageId: str) -> Message | None:
        return self._messages.find(messageId)

    def remove(self, tag: int) -> Message | None:
        place = tag - self.lastTag - 1
        message = self._messages.remove(place) if 0 <= place < len(self._messages) else None
        if message is not None:
            self.gaps += 1
            skipGaps(self, self._messages)
        return message

    def clear(self) -> None:
        self._messages = NO_MESSAGES
        self.gaps = 0


class _WithGaps(Protocol):
    """The part of a backlog that changes when gaps leave."""

    lastTag: int
    gaps: int


def skipGaps(backlog: _WithGaps, waiting: RunDeque) -> None:
    """Remove the gaps before the first message."""
    while waiting and waiting[0] is None:
        waiting.popleft()
        backlog.lastTag += 1
        backlog.gaps -= 1


def takeBetweenGaps(backlog: _WithGaps, waiting: RunDeque, number: int, most: int) -> tuple[list[int], list[Message]]:
    """Remove and return the next messages in memory with their tags, and the gaps before and after them."""
    tags: list[int] = []
    messages: list[Message] = []
    skipGaps(backlog, waiting)
    while waiting and len(tags) < number and most > 0:
        message = waiting.popleft()
        backlog.lastTag += 1
        if message is not None:
            tags.append(backlog.lastTag)
            messages.append(message)
            most -= costOf(message)
        skipGaps(backlog, waiting)
    return tags, messages
