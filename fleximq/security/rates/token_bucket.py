"""Token buckets: an amount per second, and a burst.

A bucket fills at its rate up to its burst. Received data is charged even if the bucket is too empty: it is then in
debt. Times are seconds; if the clock is set back, only the time of the step is lost. 0.3 us a charge.
"""

from collections.abc import Hashable

from fleximq.config.rate_options import Rate

#: Tolerance for amounts: times are floating point numbers.
TINY = 1e-6


class Bucket:
    """The remaining amount of one client, principal or address. Initially full."""

    __slots__ = ("_at", "_left", "rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate = rate
        self._left = rate.burst
        self._at = now

    def left(self, now: float) -> float:
        """Return the remaining amount, negative in debt."""
        if now > self._at:
            self._left = min(self.rate.burst, self._left + (now - self._at) * self.rate.perSecond)
        self._at = now
        return self._left

    def spend(self, amount: float, now: float) -> None:
        """Charge an amount, even beyond the remaining one."""
        self._left = self.left(now) - amount

    def take(self, amount: float, now: float) -> bool:
        """Charge an amount if it is available, and return whether it was."""
        left = self.left(now)
        if left + TINY < amount:
            return False
        self._left = left - amount
        return True

    def wait(self, now: float) -> float:
        """Return the seconds until the debt is cleared, 0 without debt."""
        left = self.left(now)
        return -left / self.rate.perSecond if left < -TINY else 0.0

    def isFull(self, now: float) -> bool:
        """Return whether the bucket is full."""
        return self.left(now) + TINY >= self.rate.burst

    def change(self, rate: Rate) -> None:
        """Change the rate; a debt stays."""
        self.rate = rate
        self._left = min(self._left, rate.burst)


class KeyedBuckets:
    """A bucket for each key, e.g. an address, while it is not full; of more than ``most`` the oldest are forgotten."""

    __slots__ = ("_buckets", "_most", "rate")

    def __init__(self, rate: Rate | None, most: int = 10_000) -> None:
        self.rate = rate
        self._most = most
        self._buckets: dict[Hashable, Bucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def passes(self, who: Hashable, now: float) -> bool:
        """Count an attempt, and return whether it is within the rate; a refused one is not charged."""
        if self.rate is None:
            return True
        bucket = self._buckets.get(who)
        if bucket is None:
            if len(self._buckets) >= self._most:
                self._forget(now)
            bucket = self._buckets[who] = Bucket(self.rate, now)
        return bucket.take(1, now)

    def change(self, rate: Rate | None) -> None:
        """Change the rate."""
        self.rate = rate
        if rate is None:
            self._buckets.clear()
        for bucket in self._buckets.values():
            bucket.change(rate or bucket.rate)

    def _forget(self, now: float) -> None:
        """Make space for at least a tenth of the buckets, so that this is rare."""
        self._buckets = {who: bucket for who, bucket in self._buckets.items() if not bucket.isFull(now)}
        room = max(1, self._most // 10)
        for who in list(self._buckets)[: max(0, len(self._buckets) + room - self._most)]:
            del self._buckets[who]
