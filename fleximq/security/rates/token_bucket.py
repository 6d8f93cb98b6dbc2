"""Token buckets: how much may come in a second, and how much at once.

A bucket fills at its rate up to its burst. What came already can be charged even if there is not so much in it: the
bucket is in debt then, and says how long until it is not. Times are those of a clock that is passed in, in seconds;
where it goes back, nothing is lost but the time that it goes back over. 0.3 us a charge.
"""

from collections.abc import Hashable

from fleximq.config.rate_options import Rate

#: What is missing by so little is there: times are floating point numbers.
TINY = 1e-6


class Bucket:
    """What one client, principal or address may still send. It is full at first."""

    __slots__ = ("_at", "_left", "rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate = rate
        self._left = rate.burst
        self._at = now

    def left(self, now: float) -> float:
        """Return how much there is, negative in debt."""
        if now > self._at:
            self._left = min(self.rate.burst, self._left + (now - self._at) * self.rate.perSecond)
        self._at = now
        return self._left

    def spend(self, amount: float, now: float) -> None:
        """Charge what came, whether there is so much or not."""
        self._left = self.left(now) - amount

    def take(self, amount: float, now: float) -> bool:
        """Charge this if there is so much; else nothing is charged."""
        left = self.left(now)
        if left + TINY < amount:
            return False
        self._left = left - amount
        return True

    def wait(self, now: float) -> float:
        """Return the seconds until it is out of debt, 0 if it is in none."""
        left = self.left(now)
        return -left / self.rate.perSecond if left < -TINY else 0.0

    def isFull(self, now: float) -> bool:
        """Tell whether it is as good as new."""
        return self.left(now) + TINY >= self.rate.burst

    def change(self, rate: Rate) -> None:
        """Go on at another rate; a debt stays."""
        self.rate = rate
        self._left = min(self._left, rate.burst)


class KeyedBuckets:
    """A bucket for everybody who comes, as long as it differs from a new one.

    :param rate: how often one may come; None: as often as it likes.
    :param most: so many are remembered. When there are more at a time, those who came first are forgotten.
    """

    __slots__ = ("_buckets", "_most", "rate")

    def __init__(self, rate: Rate | None, most: int = 10_000) -> None:
        self.rate = rate
        self._most = most
        self._buckets: dict[Hashable, Bucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def passes(self, who: Hashable, now: float) -> bool:
        """Count one more who comes, and tell whether it is within the rate; one who is not is not counted."""
        if self.rate is None:
            return True
        bucket = self._buckets.get(who)
        if bucket is None:
            if len(self._buckets) >= self._most:
                self._forget(now)
            bucket = self._buckets[who] = Bucket(self.rate, now)
        return bucket.take(1, now)

    def change(self, rate: Rate | None) -> None:
        """Go on at another rate."""
        self.rate = rate
        if rate is None:
            self._buckets.clear()
        for bucket in self._buckets.values():
            bucket.change(rate or bucket.rate)

    def _forget(self, now: float) -> None:
        """Make room: a tenth of it at least, so that this is not done for each who comes."""
        self._buckets = {who: bucket for who, bucket in self._buckets.items() if not bucket.isFull(now)}
        room = max(1, self._most // 10)
        for who in list(self._buckets)[: max(0, len(self._buckets) + room - self._most)]:
            del self._buckets[who]
