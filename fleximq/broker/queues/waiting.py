"""Messages of a queue that were never delivered, with their cost and ages, and its waiting consumers.

:mod:`fleximq.broker.queues.durable_backlog` has methods similar to :class:`WaitingMessages` and leaves most on disk.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from fleximq.values.message import Message
from fleximq.values.message_cost import ANY, costOf, measure

#: In place of each deque that was never used, since an empty one takes 760 bytes; nothing may be added to it.
NEVER_USED: deque[Any] = deque(maxlen=0)

#: Additional cost of a message in flight: measured 350 to 460.
IN_FLIGHT_OVERHEAD = 448
#: Steps of the time to live; a message may live one step longer.
STEPS = 100
# Sums of floats are not exact.
_TOLERANCE = 1e-6


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

    def remove(self, last: int, isIt: Callable[[Message], bool]) -> int | None:
        """Remove the message with the index ``last`` or the latest before it that ``isIt`` accepts; return its index,
        None without one.
        """
        for place in range(min(last, len(self._messages) - 1), -1, -1):
            message = self._messages[place]
            if isIt(message):
                del self._messages[place]
                self.size -= costOf(message)
                return place
        return None

    def clear(self) -> None:
        """Drop all messages."""
        self._messages = NEVER_USED
        self.size = 0


class MessageAges:
    """Finds the messages that are too old by their arrival numbers.

    All messages that arrive within a hundredth of the time to live share one time.
    """

    __slots__ = ("_expired", "_timeToLive", "_marks")

    def __init__(self, timeToLive: float) -> None:
        self._timeToLive = timeToLive
        self._marks: deque[tuple[int, float]] = deque()
        self._expired = 0

    def __iter__(self) -> Iterator[tuple[int, float]]:
        """Iterate over arrival numbers and when each was the latest."""
        return iter(self._marks)

    def __len__(self) -> int:
        return len(self._marks)

    def firstEnd(self) -> float:
        """Return when the next messages expire; there must be some."""
        return self._marks[0][1] + self._timeToLive

    def add(self, number: int, time: float) -> None:
        """Record that all messages up to this arrival number have arrived by now."""
        marks = self._marks
        if len(marks) > 1 and time - marks[-2][1] < self._timeToLive / STEPS:
            marks[-1] = number, time
        else:
            marks.append((number, time))

    def removed(self, number: int) -> None:
        """Record that the message with this arrival number was removed, so that later ones have lower numbers."""
        self._marks = deque((last - (last >= number), time) for last, time in self._marks)
        self._expired -= self._expired >= number

    def before(self, now: float) -> int:
        """Return the arrival number up to which all messages have expired, 0 for none."""
        marks = self._marks
        while marks and marks[0][1] <= now - self._timeToLive + _TOLERANCE:
            self._expired, _ = marks.popleft()
        return self._expired


class WaitingConsumers:
    """Callbacks, each called once, in the order in which they were added; ``onError`` receives their exceptions."""

    __slots__ = ("_calls", "_onError", "_toWake", "_waking")

    def __init__(self, onError: Callable[[Exception], None]) -> None:
        self._calls: OrderedDict[object, Callable[[], None]] = OrderedDict()
        self._onError = onError
        self._toWake = 0
        self._waking = False

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Add a callback; return a function that removes it, a no-op after the callback was called."""
        place = object()
        self._calls[place] = callback

        def cancel() -> None:
            self._calls.pop(place, None)

        return cancel

    def wake(self, available: Callable[[], int]) -> None:
        """Call one callback for each message; if a callback calls this method, the outer call continues the work.

        :param available: returns how many messages can be taken now; asked before each call, since one may take
            several.
        """
        self._toWake = available()
        if self._waking:
            return
        self._waking = True
        try:
            while self._calls and self._toWake > 0 and available() > 0:
                self._toWake -= 1
                _, callback = self._calls.popitem(last=False)
                try:
                    callback()
                except Exception as error:
                    self._onError(error)
        finally:
            self._waking = False

    def clear(self) -> None:
        """Remove all callbacks without calling them."""
        self._calls.clear()
