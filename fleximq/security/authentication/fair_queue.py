"""A line for work that may be done only so often at a time, in which every place has its turn.

A place that has much in the line waits behind itself, not before others. The line is bounded: where it is full, the
place with the most in it gives way to one that has less.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred

from fleximq.errors import NoCapacity

#: How many may stand in a line.
MAX_WAITING = 1000

_FULL = "too many credentials wait to be checked, try again later"


class FairQueue:
    """Does work, ``atOnce`` pieces of it at a time."""

    def __init__(self, atOnce: int, most: int = MAX_WAITING) -> None:
        self._atOnce = atOnce
        self._most = most
        self._running = 0
        self._waiting: OrderedDict[Hashable, deque[_Work]] = OrderedDict()
        self._count = 0
        self._starting = False

    def __len__(self) -> int:
        """Return how many stand in the line."""
        return self._count

    def run(self, place: Hashable, call: Callable[[], Any]) -> Deferred[Any]:
        """Do this when it is its turn, and give what comes of it.

        Who cancels leaves the line; what has begun already goes on, and counts until it ends.

        :param call: does the work; may return a Deferred. It fails with NoCapacity if the line is full.
        """
        work = _Work(place, call, self._leave)
        if self._count >= self._most and not self._makeRoom(place):
            work.refuse()
            return work.done
        self._waiting.setdefault(place, deque()).append(work)
        self._count += 1
        self._start()
        return work.done

    def _start(self) -> None:
        if self._starting:
            return
        self._starting = True
        try:
            while self._waiting and self._running < self._atOnce:
                self._begin(self._next())
        finally:
            self._starting = False

    def _next(self) -> "_Work":
        """Take out the first of the place whose turn it is; the place goes to the end."""
        place, works = self._waiting.popitem(last=False)
        work = works.popleft()
        if works:
            self._waiting[place] = works
        self._count -= 1
        return work

    def _begin(self, work: "_Work") -> None:
        self._running += 1
        maybeDeferred(work.call).addBoth(self._ended, work)

    def _ended(self, result: Any, work: "_Work") -> None:
        self._running -= 1
        if not work.done.called:
            work.done.callback(result)
        self._start()

    def _leave(self, work: "_Work") -> None:
        """Take out somebody who does not want to wait any more, if it still stands here."""
        works = self._waiting.get(work.place)
        if works is not None and work in works:
            self._takeOut(works, work)

    def _makeRoom(self, place: Hashable) -> bool:
        """Refuse the last of the place with the most in the line, unless that is the one that asks."""
        longest = max(self._waiting, key=lambda each: len(self._waiting[each]))
        works = self._waiting[longest]
        if len(works) <= len(self._waiting.get(place, ())) + 1:
            return False
        work = works[-1]
        self._takeOut(works, work)
        work.refuse()
        return True

    def _takeOut(self, works: "deque[_Work]", work: "_Work") -> None:
        works.remove(work)
        self._count -= 1
        if not works:
            del self._waiting[work.place]


class _Work:
    """One piece of work in the line."""

    __slots__ = ("call", "done", "place")

    def __init__(self, place: Hashable, call: Callable[[], Any], leave: Callable[["_Work"], None]) -> None:
        self.place = place
        self.call = call
        self.done: Deferred[Any] = Deferred(lambda _: leave(self))

    def refuse(self) -> None:
        """Say that the line is full."""
        self.done.errback(NoCapacity(_FULL))
