"""How wrong credentials are slowed: each one from a place makes its answer, and those after it, come later.

The delay goes before the answer, and stands for the place whether the peer waits for it or not. Right credentials
are never delayed. Nothing here waits by itself: it counts, and says how long to wait.
"""

from collections import OrderedDict, deque
from collections.abc import Hashable

from twisted.internet.interfaces import IReactorTime

from fleximq.errors import NoCapacity

#: Seconds before the first wrong answer to a place, and the most there can be; the delay doubles each time.
FIRST_DELAY = 0.1
MAX_DELAY = 5.0
#: Seconds without a wrong attempt after which a place has a clean slate.
FORGET_AFTER = 900.0
#: How many attempts of a place are under way at a time, the wait before a wrong answer included.
MAX_CONCURRENT = 16
#: How many places are remembered; beyond that, those are forgotten whose last attempt is oldest.
MAX_ADDRESSES = 10_000
#: How many places are looked at for that with each attempt.
EXPIRY_BATCH = 8

_CROWDED = "too many attempts from here wait for their answer, try again later"


class AttemptDelays:
    """Remembers the places that wrong attempts came from."""

    def __init__(self, clock: IReactorTime, most: int = MAX_ADDRESSES) -> None:
        self._clock = clock
        self._most = most
        self._places: OrderedDict[Hashable, _Place] = OrderedDict()

    def __len__(self) -> int:
        """Return how many places are remembered."""
        return len(self._places)

    def attempt(self, place: Hashable) -> "Attempt":
        """Return a new attempt of this place, which counts for nothing yet."""
        return Attempt(self, place)

    def _of(self, place: Hashable) -> "_Place":
        """Return what is known of a place, which becomes the latest, and forget what is old or too much."""
        now = self._clock.seconds()
        found = self._places.setdefault(place, _Place())
        self._places.move_to_end(place)
        found.touch(now)
        for _ in range(min(EXPIRY_BATCH, len(self._places) - 1)):
            oldest, other = next(iter(self._places.items()))
            if other.checking:
                self._places.move_to_end(oldest)
            elif len(self._places) > self._most or now - other.touched > FORGET_AFTER:
                del self._places[oldest]
            else:
                break
        return found


class Attempt:
    """One try of somebody to come in.

    :meth:`enter` takes one of the few places that there are at a time, :meth:`fail` keeps it for as long as the answer
    is delayed, and :meth:`leave` ends the attempt in any case.
    """

    def __init__(self, attempts: AttemptDelays, place: Hashable) -> None:
        self._attempts = attempts
        self._place = place
        self._entered: _Place | None = None

    def enter(self) -> None:
        """Take part in what goes on at a time; for checks that cost something, or whose secrets could be guessed.

        :raises NoCapacity: too many are under way from here.
        """
        if self._entered is None:
            place = self._attempts._of(self._place)
            place.refuseIfCrowded()
            place.checking += 1
            self._entered = place

    def fail(self) -> float:
        """Count a wrong attempt, and return how many seconds its answer has to wait.

        :raises NoCapacity: too many wait already; then this one need not.
        """
        place = self._entered or self._attempts._of(self._place)
        self.leave()
        place.refuseIfCrowded()
        return place.fail(self._attempts._clock.seconds())

    def leave(self) -> None:
        """Leave; what :meth:`fail` has kept stays taken."""
        if self._entered is not None:
            self._entered.checking -= 1
            self._entered = None


class _Place:
    """What is known of one place; ``held`` has the times until which delayed answers take part."""

    __slots__ = ("checking", "failures", "held", "touched")

    def __init__(self) -> None:
        self.failures = 0
        self.checking = 0
        self.touched = 0.0
        self.held: deque[float] = deque()

    def touch(self, now: float) -> None:
        """Let go what is over."""
        if now - self.touched > FORGET_AFTER:
            self.failures = 0
        self.touched = now
        while self.held and self.held[0] <= now:
            self.held.popleft()

    def refuseIfCrowded(self) -> None:
        """Say so if no further attempt may be under way.

        :raises NoCapacity: it may not.
        """
        if self.checking + len(self.held) >= MAX_CONCURRENT:
            raise NoCapacity(_CROWDED)

    def fail(self, now: float) -> float:
        """Count a wrong attempt, and return the delay."""
        delay = min(MAX_DELAY, FIRST_DELAY * 2.0 ** min(self.failures, 30))
        self.failures += 1
        self.touched = now
        self.held.append(now + delay)
        return delay
