"""Messages of a queue that were never delivered, and their cost.

:mod:`fleximq.broker.queues.durable_backlog` has similar methods and leaves most messages on disk.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from fleximq.values.message import Message
from fleximq.values.message_cost import ANY, costOf, measure

#: In place of each deque that was never used, since an empty one takes 760 bytes; nothing may be added to it.
NEVER_USED: deque[Any] = deque(maxlen=0)

#: Additional cost of a message in flight: measured 350 to 460.
IN_FLIGHT_OVERHEAD = 448


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
