"""Rate limits for connections, and for all connections of one principal together.

:class:`Rates` gives each admitted client a :class:`Meter`, or None if no rate is limited. All connections of a
principal share one set of buckets. It is deleted after the last connection, unless it still has a debt: reconnecting
clears none.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fleximq.config.rate_options import Rate
from fleximq.security.rates.token_bucket import TINY, Bucket

#: Maximum number of departed principals that are remembered with their debts.
MAX_DEPARTED = 1_000


class Allowance(NamedTuple):
    """Messages, bytes and subscriptions per second; None is no limit."""

    messages: Rate | None = None
    bytes: Rate | None = None
    subscriptions: Rate | None = None


class RateRules(NamedTuple):
    """The allowances of each client and of each principal; ``refuses``: excess messages are refused."""

    client: Allowance = Allowance()
    principal: Allowance = Allowance()
    refuses: bool = False

    @property
    def on(self) -> bool:
        """Whether any rate is limited."""
        return any((*self.client, *self.principal))

    def replaced(self, rates: "RatesByOption") -> "RateRules":
        """Return these rules with a principal's own rates."""
        if not rates:
            return self
        own = dict(rates)
        client, principal = (
            Allowance(*map(own.get, names, allowance))
            for names, allowance in ((_CLIENT, self.client), (_PRINCIPAL, self.principal))
        )
        return RateRules(client, principal, self.refuses)


#: The options that limit a client, and all clients of a principal, in the order of an allowance.
_CLIENT = ("max-message-rate", "max-byte-rate", "max-subscribe-rate")
_PRINCIPAL = ("principal-message-rate", "principal-byte-rate", "principal-subscribe-rate")

#: Returns the rates of one principal's own, by option; they replace those of the rules.
OwnRates = Callable[[], "RatesByOption"]
#: Rates by option, as a mapping or as pairs.
RatesByOption = Mapping[str, Rate | None] | tuple[tuple[str, Rate | None], ...]


class _Purse:
    """The buckets of one allowance, in its order; None for an unlimited rate."""

    __slots__ = ("buckets", "users")

    def __init__(self, allowance: Allowance, now: float) -> None:
        self.users = 1
        self.buckets = [None if rate is None else Bucket(rate, now) for rate in allowance]

    def isFull(self, now: float) -> bool:
        return all(bucket is None or bucket.isFull(now) for bucket in self.buckets)

    def change(self, allowance: Allowance, now: float) -> None:
        for place, rate in enumerate(allowance):
            bucket = self.buckets[place]
            if bucket is None or rate is None:
                self.buckets[place] = None if rate is None else Bucket(rate, now)
            else:
                bucket.change(rate)


class Meter:
    """The rates of one connection. ``refuses``: its session refuses excess messages instead of waiting."""

    __slots__ = ("_bytes", "_leave", "_messages", "_purses", "_seconds", "_subscriptions", "refuses")

    def __init__(
        self, purses: Sequence[_Purse], refuses: bool, seconds: Callable[[], float], leave: Callable[["Meter"], None]
    ) -> None:
        self._purses, self._seconds, self._leave, self.refuses = purses, seconds, leave, refuses
        self.renew()

    def renew(self) -> None:
        """Read the buckets again after a change of the rules."""
        self._messages, self._bytes, self._subscriptions = (
            [bucket for bucket in buckets if bucket is not None]
            for buckets in zip(*(purse.buckets for purse in self._purses), strict=True)
        )

    def spend(self, messages: int, size: int) -> None:
        """Charge received messages."""
        now = self._seconds()
        for bucket in self._messages:
            bucket.spend(messages, now)
        for bucket in self._bytes:
            bucket.spend(size, now)

    def spendSubscription(self) -> None:
        """Charge one request for a subscription."""
        now = self._seconds()
        for bucket in self._subscriptions:
            bucket.spend(1, now)

    def wait(self) -> float:
        """Return the seconds to pause reading, 0 for none."""
        now = self._seconds()
        return max((each.wait(now) for each in (*self._messages, *self._bytes, *self._subscriptions)), default=0.0)

    def admits(self, messages: int, size: int) -> int:
        """Return how many of these messages, of so many bytes in total, are within the rates, and charge those.

        Each is assumed to have the mean size. For one larger than a burst, earlier messages decide.
        """
        now = self._seconds()
        room = messages
        for bucket in self._messages:
            room = min(room, int(bucket.left(now) + TINY))
        for bucket in self._bytes:
            left = bucket.left(now)
            room = min(room, math.ceil(left * messages / size) if left > 0 and size else messages * (left > 0))
        if room <= 0:
            return 0
        self.spend(room, size * room // messages)
        return room

    def admitsSubscription(self) -> bool:
        """Return whether one more subscription is within the rate, and charge it if it is."""
        now = self._seconds()
        if any(bucket.left(now) + TINY < 1 for bucket in self._subscriptions):
            return False
        self.spendSubscription()
        return True

    def close(self) -> None:
        """The connection is closed."""
        self._leave(self)


class Rates:
    """Creates meters. ``seconds``: the clock."""

    def __init__(self, rules: RateRules | None = None, seconds: Callable[[], float] = lambda: 0.0) -> None:
        self.rules = rules or RateRules()
        self._seconds = seconds
        self._meters: dict[Meter, tuple[_Purse, str | None, OwnRates]] = {}
        self._principals: dict[str, _Purse] = {}
        self._gone: dict[str, None] = {}

    def meter(self, principal: str | None, ownRates: OwnRates = dict) -> Meter | None:
        """Return the meter of an admitted client; None if no rate is limited."""
        own, rules = ownRates(), self.rules
        if own:
            rules = rules.replaced(own)
        if not rules.on:
            return None
        purse = _Purse(rules.client, self._seconds())
        shared = [] if principal is None else [self._sharedBy(principal, rules.principal)]
        meter = Meter([purse, *shared], self.rules.refuses, self._seconds, self._closed)
        self._meters[meter] = purse, principal, ownRates
        return meter

    def change(self, rules: RateRules) -> None:
        """Apply new rules. A client admitted without limits has none until it reconnects."""
        self.rules = rules
        now = self._seconds()
        replaced = {meter: rules.replaced(ownRates()) for meter, (_, _, ownRates) in self._meters.items()}
        ofPrincipals = {self._meters[meter][1]: each.principal for meter, each in replaced.items()}
        for principal, shared in self._principals.items():
            shared.change(ofPrincipals.get(principal, rules.principal), now)
        for meter, (own, _, _) in self._meters.items():
            own.change(replaced[meter].client, now)
            meter.refuses = rules.refuses
            meter.renew()

    @property
    def principals(self) -> int:
        """The number of remembered principals."""
        return len(self._principals)

    def _sharedBy(self, principal: str, allowance: Allowance) -> _Purse:
        shared = self._principals.get(principal)
        if shared is None:
            shared = self._principals[principal] = _Purse(allowance, self._seconds())
        else:
            shared.users += 1
            self._gone.pop(principal, None)
        return shared

    def _closed(self, meter: Meter) -> None:
        _, principal, _ = self._meters.pop(meter, (None, None, None))
        if principal is None:
            return
        shared = self._principals[principal]
        shared.users -= 1
        if not shared.users:
            self._gone[principal] = None
            self._forget()

    def _forget(self) -> None:
        """Forget departed principals without debt; if there are too many others, the earliest departed."""
        now = self._seconds()
        first = next(iter(self._gone))
        last = next(reversed(self._gone))
        for principal in {first, last} if len(self._gone) <= MAX_DEPARTED else list(self._gone):
            if self._principals[principal].isFull(now) or len(self._gone) > MAX_DEPARTED:
                del self._principals[principal], self._gone[principal]
