"""What waits in a queue and was never handed out: the seam behind which a queue stores its far end.

Here it is a deque in memory. What the queue asks of it is little enough for something that keeps only the near
messages in memory and reads the others back from where they were written.
"""

from collections import deque
from collections.abc import Sequence

from fleximq.message import Message

#: Bytes that a message costs besides its payload, for the bounds of queues.
OVERHEAD = 64


def cost(messages: Sequence[Message]) -> int:
    """Return what these messages count against a queue's bytes: their payloads and :data:`OVERHEAD` each."""
    return sum([len(message.payload) for message in messages]) + OVERHEAD * len(messages)


class Backlog:
    """Messages in order of arrival; ``size`` is their :func:`cost`. All methods are O(1) a message."""

    __slots__ = ("_messages", "size")

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self.size = 0

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self._messages)

    def append(self, messages: Sequence[Message], size: int) -> None:
        """Put these at the end; ``size`` is their cost, which the caller knows already."""
        self._messages.extend(messages)
        self.size += size

    def popleft(self) -> Message | None:
        """Take the oldest one out, or return None if there is none."""
        if not self._messages:
            return None
        message = self._messages.popleft()
        self.size -= len(message.payload) + OVERHEAD
        return message

    def popMany(self, number: int) -> list[Message]:
        """Take the oldest ones out, ``number`` of them or as many as there are."""
        popleft = self._messages.popleft
        messages = [popleft() for _ in range(min(number, len(self._messages)))]
        self.size -= cost(messages)
        return messages

    def dropOldest(self) -> int:
        """Throw the oldest message away and return its cost; 0 if there is none."""
        message = self.popleft()
        return 0 if message is None else len(message.payload) + OVERHEAD

    def clear(self) -> None:
        """Throw everything away."""
        self._messages.clear()
        self.size = 0
