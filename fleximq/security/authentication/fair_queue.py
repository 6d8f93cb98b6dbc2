"""A bounded queue for limited concurrent work, fair per address.

Addresses take turns, so one with much queued work delays only itself. If the queue is full, the address with the most
work in it loses its last entry to an address with less.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, maybeDeferred

from fleximq.errors import NoCapacity

#: Maximum length of the queue.
MAX_WAITING = 1000


class _Work(NamedTuple):
    place: Hashable
    call: Callable[[], Any]
    done: Deferred[Any]

    def refuse(self) -> None:
        self.done.errback(NoCapacity("too many credentials wait to be checked, try again later"))


class FairQueue:
    """Runs work, at most ``atOnce`` pieces concurrently."""

    def __init__(self, atOnce: int, most: int = MAX_WAITING) -> None:
        self._atOnce = atOnce
        self._most = most
        self._running = 0
        self._waiting: OrderedDict[Hashable, deque[_Work]] = OrderedDict()
        self._count = 0
        self._starting = False

    def __len__(self) -> int:
        return self._count

    def run(self, place: Hashable, call: Callable[[], Any]) -> Deferred[Any]:
        """Return a Deferred of the result of work, which fails with NoCapacity if the queue is full.

        Cancelling removes queued work; running work continues, and counts until it ends.
        """
        done: Deferred[Any] = Deferred(lambda _: self._remove(work))
        work = _Work(place, call, done)
        if self._count >= self._most and not self._makeRoom(place):
            work.refuse()
            return done
        self._waiting.setdefault(place, deque()).append(work)
        self._count += 1
        self._start()
        return done

    def _start(self) -> None:
        if self._starting:
            return
        self._starting = True
        try:
            while self._waiting and self._running < self._atOnce:
                work = self._next()
                self._running += 1
                maybeDeferred(work.call).addBoth(self._ended, work)
        finally:
            self._starting = False

    def _next(self) -> _Work:
        """Remove the first work of the next address; the address moves to the end."""
        place, works = self._waiting.popitem(last=False)
        work = works.popleft()
        if works:
            self._waiting[place] = works
        self._count -= 1
        return work

    def _ended(self, result: Any, work: _Work) -> None:
        self._running -= 1
        if not work.done.called:
            work.done.callback(result)
        self._start()

    def _makeRoom(self, place: Hashable) -> bool:
        """Refuse the last work of the address with the most in the queue, unless that is the requester."""
        works = max(self._waiting.values(), key=len)
        if len(works) <= len(self._waiting.get(place, ())) + 1:
            return False
        work = works[-1]
        self._remove(work)
        work.refuse()
        return True

    def _remove(self, work: _Work) -> None:
        """Remove work, if it is still queued."""
        works = self._waiting.get(work.place)
        if works is not None and work in works:
            works.remove(work)
            self._count -= 1
            if not works:
                del self._waiting[work.place]
