"""The QoS0 messages of a polled subscription: each is delivered once, between the tracked messages of its queue."""

from collections import deque
from collections.abc import Sequence
from itertools import islice

from fleximq.broker.queues.backlog import NEVER_USED
from fleximq.broker.queues.message_ages import MessageAges
from fleximq.values.message import Message
from fleximq.values.message_cost import ANY, costOf, measure


class UntrackedMessages:
    """Messages in order of arrival; ``size`` is their cost.

    Neighbours that arrived after the same tracked message form a run; ``after`` is the tag of that message for the
    first run: it is delivered before.

    :param timeToLive: seconds after which a message expires; None: never.
    """

    __slots__ = ("_ages", "_gone", "_messages", "_runs", "size")

    def __init__(self, timeToLive: float | None) -> None:
        self._messages: deque[Message] = NEVER_USED
        self._runs: deque[tuple[int, int]] = NEVER_USED  # the tag before each run, and the number of its messages
        self._ages = None if timeToLive is None else MessageAges(timeToLive)
        self._gone = 0
        self.size = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def after(self) -> int:
        """The tag of the tracked message before the first run; there must be one."""
        return self._runs[0][0]

    def add(self, messages: Sequence[Message], size: int, after: int, now: float) -> None:
        """Add messages of this cost that arrived after the tracked one with the tag ``after``."""
        if self._messages is NEVER_USED:
            self._messages, self._runs = deque(), deque()
        self._messages.extend(messages)
        self.size += size
        self._runs.append((after, len(messages)))
        if self._ages is not None:
            self._ages.add(self._gone + len(self._messages), now)

    def take(self, number: int, most: int = ANY) -> list[Message]:
        """Remove and return up to ``number`` messages of the first run, until they cost ``most`` bytes."""
        count, size = measure(islice(self._messages, min(number, self._runs[0][1])), most)
        taken = [self._messages.popleft() for _ in range(count)]
        self.size -= size
        self._left(count)
        return [message if message.qos == 0 else message._replace(qos=0) for message in taken]

    def dropOldest(self) -> None:
        """Drop the first message; there must be one."""
        self.size -= costOf(self._messages.popleft())
        self._left(1)

    def _left(self, number: int) -> None:
        """Shorten the first run by so many messages."""
        self._gone += number
        tag, count = self._runs[0]
        if count > number:
            self._runs[0] = tag, count - number
        else:
            self._runs.popleft()

    def isNextTooOld(self, now: float) -> bool:
        """Tell whether the first message has expired."""
        return bool(self._messages) and self._ages is not None and self._gone < self._ages.before(now)

    def expire(self, now: float, most: int) -> int:
        """Drop up to ``most`` messages that are too old; return how many."""
        expired = 0
        while expired < most and self.isNextTooOld(now):
            self.dropOldest()
            expired += 1
        return expired

    def clear(self) -> None:
        """Drop all messages."""
        self._messages = self._runs = NEVER_USED
        self.size = 0
