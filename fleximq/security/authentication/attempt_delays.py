"""Computes how long to delay the answers to wrong credentials; the delay of an address grows with each failure.

The delay runs for the address even if the peer disconnects. Right credentials are never delayed. The caller waits.
"""

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from twisted.internet.interfaces import IReactorTime

from fleximq.errors import NoCapacity

#: The first and the maximum delay of an answer, in seconds; the delay doubles with each failure.
FIRST_DELAY = 0.1
MAX_DELAY = 5.0
#: Seconds without a wrong attempt after which the failures of an address are forgotten.
FORGET_AFTER = 900.0
#: Maximum number of concurrent attempts of an address, delayed answers included.
MAX_CONCURRENT = 16
#: Maximum number of remembered addresses; those with the oldest last attempt are forgotten first.
MAX_ADDRESSES = 10_000
#: Number of addresses checked for expiry with each attempt.
EXPIRY_BATCH = 8


@dataclass(slots=True, eq=False)
class _AddressState:
    """The state of one address; ``held`` has the ends of its delayed answers."""

    failures: int = 0
    checking: int = 0
    touched: float = 0.0
    held: deque[float] = field(default_factory=deque)

    def refuseIfCrowded(self) -> None:
        if self.checking + len(self.held) >= MAX_CONCURRENT:
            raise NoCapacity("too many attempts from here wait for their answer, try again later")


class AttemptDelays:
    """Remembers the addresses of wrong attempts."""

    def __init__(self, clock: IReactorTime, most: int = MAX_ADDRESSES) -> None:
        self.clock = clock
        self._most = most
        self._addresses: OrderedDict[Hashable, _AddressState] = OrderedDict()

    def __len__(self) -> int:
        return len(self._addresses)

    def attempt(self, address: Hashable) -> "Attempt":
        """Return a new attempt of this address, not counted yet."""
        return Attempt(self, address)

    def touch(self, address: Hashable) -> _AddressState:
        """Return the state of an address, mark it as the latest, and forget expired and surplus ones."""
        now = self.clock.seconds()
        found = self._addresses.setdefault(address, _AddressState())
        self._addresses.move_to_end(address)
        if now - found.touched > FORGET_AFTER:
            found.failures = 0
        found.touched = now
        while found.held and found.held[0] <= now:
            found.held.popleft()
        for _ in range(min(EXPIRY_BATCH, len(self._addresses) - 1)):
            oldest, other = next(iter(self._addresses.items()))
            if other.checking:
                self._addresses.move_to_end(oldest)
            elif len(self._addresses) > self._most or now - other.touched > FORGET_AFTER:
                del self._addresses[oldest]
            else:
                break
        return found


class Attempt:
    """One attempt to authenticate.

    :meth:`enter` takes one of the few concurrent attempts of an address, :meth:`fail` holds it while the answer is
    delayed, and :meth:`leave` ends the attempt in any case.
    """

    def __init__(self, attempts: AttemptDelays, address: Hashable) -> None:
        self._attempts = attempts
        self._address = address
        self._entered: _AddressState | None = None

    def enter(self) -> None:
        """Count as a concurrent attempt, before checks that are expensive or can be guessed; raises NoCapacity."""
        if self._entered is None:
            state = self._attempts.touch(self._address)
            state.refuseIfCrowded()
            state.checking += 1
            self._entered = state

    def fail(self) -> float:
        """Count a wrong attempt, and return its delay in seconds; raises NoCapacity to refuse it at once instead."""
        state = self._entered or self._attempts.touch(self._address)
        self.leave()
        state.refuseIfCrowded()
        delay = min(MAX_DELAY, FIRST_DELAY * 2.0 ** min(state.failures, 30))
        state.failures += 1
        state.touched = self._attempts.clock.seconds()
        state.held.append(state.touched + delay)
        return delay

    def leave(self) -> None:
        """End the attempt; the delay of :meth:`fail` continues."""
        if self._entered is not None:
            self._entered.checking -= 1
            self._entered = None
