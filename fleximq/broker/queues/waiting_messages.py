"""Messages of a queue that were never delivered, and their cost.

:mod:`fleximq.broker.queues.durable_backlog` has similar methods and leaves most messages on disk.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from fleximq.values.message import Message

#: In place of each deque that was never used, since an empty one takes 760 bytes; nothing may be added to it.
NEVER_USED: deque[Any] = deque(maxlen=0)

#: Bytes that a message costs in addition to its contents, for the bounds of queues. Measured on CPython 3.11: 170 in a
#: backlog, 216 with an id.
OVERHEAD = 256
#: Additional cost of a message in flight: measured 350 to 460.
IN_FLIGHT_OVERHEAD = 448
#: More than any cost.
ANY = 1 << 62


def measure(messages: Iterable[Message], most: int = ANY) -> tuple[int, int]:
    """Return how many of the first messages it takes to cost ``most``, and their cost. 0.07 us a message.

    A message costs its payload, its ids and :data:`OVERHEAD`.
    """
    count = size = 0
    for payload, _, _, id, correlation, replyTo, _, _, _ in messages:
        if size >= most:
            break
        count += 1
        size += len(payload) + OVERHEAD
        if id is not None:
            size += len(id) if id.isascii() else 4 * len(id)
        if correlation is not None:
            size += _widest(correlation)
        if replyTo is not None:
            size += _widest(replyTo)
    return count, size


def cost(messages: Sequence[Message]) -> int:
    """Return the cost of these messages in a queue's bytes."""
    return measure(messages)[1]


def weigh(messages: Sequence[Message]) -> int:
    """Return the bytes of these messages: their cost without :data:`OVERHEAD`."""
    return measure(messages)[1] - OVERHEAD * len(messages)


def costOf(message: Message) -> int:
    """Return the cost of one message; twice as fast for it as :func:`measure`."""
    payload, _, _, id, correlation, replyTo, _, _, _ = message
    size = len(payload) + OVERHEAD
    if id is not None:
        size += len(id) if id.isascii() else 4 * len(id)
    if correlation is not None:
        size += _widest(correlation)
    if replyTo is not None:
        size += _widest(replyTo)
    return size


def _widest(id: str) -> int:
    """Return the most bytes that a text takes in memory."""
    return len(id) if id.isascii() else 4 * len(id)


class WaitingMessages:
    """Messages in order of arrival; ``size`` is their :func:`cost`. All methods are O(1) a message."""

    __slots__ = ("_messages", "size")

    def __init__(self) -> None:
        self._messages: deque[Message] = NEVER_USED
        self.size = 0

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        """Iterate over the messages, oldest first."""
        return iter(self._messages)

    def append(self, messages: Sequence[Message], size: int) -> None:
        """Append messages of this cost."""
        if self._messages is NEVER_USED:
            self._messages = deque()
        self._messages.extend(messages)
        self.size += size

    def popMany(self, number: int, most: int = ANY) -> list[Message]:
        """Remove and return up to ``number`` of the oldest messages, until they cost ``most``."""
        count, size = measure(islice(self._messages, number), most)
        self.size -= size
        popleft = self._messages.popleft
        return [popleft() for _ in range(count)]

    def dropOldest(self) -> int:
        """Drop the oldest message and return its cost; 0 if there is none."""
        size = costOf(self._messages.popleft()) if self._messages else 0
        self.size -= size
        return size

    def clear(self) -> None:
        """Drop all messages."""
        self._messages = NEVER_USED
        self.size = 0
