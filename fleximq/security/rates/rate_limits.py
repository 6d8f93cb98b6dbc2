"""The rate limits and bans of the whole broker, and the admission that applies them to attempts to join.

Addresses are refused before credentials are checked, so that a flood of attempts costs no checks.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from fleximq.config.rate_options import OverRate
from fleximq.config.settings import Settings
from fleximq.errors import JoinRejected
from fleximq.interfaces import IAdmission
from fleximq.security.bans import Bans
from fleximq.security.peer_address import addressKey, clientKey
from fleximq.security.principal import ANONYMOUS, Admitted
from fleximq.security.rates.client_rates import Allowance, RateRules, Rates
from fleximq.security.rates.flapping import FlappingLimit
from fleximq.security.rates.token_bucket import KeyedBuckets
from fleximq.values.counted_event import CountedEvent, EventFamily

#: The events counted for refused attempts.
JOINING_TOO_OFTEN = CountedEvent(EventFamily.REFUSED_CONNECTIONS, "too many attempts to join a second from one address")
FLAPS = CountedEvent(EventFamily.REFUSED_CONNECTIONS, "came and went too often")
BANNED = CountedEvent(EventFamily.REFUSED_CONNECTIONS, "banned")


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Limits for the messages of clients and principals, for connections and joins, and for flapping; the bans."""

    clock: IReactorTime
    rates: Rates
    connects: KeyedBuckets
    joins: KeyedBuckets
    flapping: FlappingLimit
    bans: Bans

    @classmethod
    def of(cls, settings: Settings, clock: IReactorTime) -> "RateLimits":
        """Return the limits in these settings."""
        return cls(
            clock,
            Rates(rulesOf(settings), clock.seconds),
            KeyedBuckets(settings.connectRate),
            KeyedBuckets(settings.joinRate),
            FlappingLimit(settings.maxDisconnects, settings.flappingWait, clock.seconds),
            Bans(clock.seconds),
        )

    def prepare(self, settings: Settings) -> Callable[[], None]:
        """Return a function that applies other settings. A client that had no limit so far gets it with its next
        connection.
        """
        rules = rulesOf(settings)

        def change() -> None:
            self.rates.change(rules)
            self.connects.change(settings.connectRate)
            self.joins.change(settings.joinRate)
            self.flapping.change(settings.maxDisconnects, settings.flappingWait)

        return change


def rulesOf(settings: Settings) -> RateRules:
    """Return the limits of clients and principals in these settings."""
    return RateRules(
        Allowance(settings.messageRate, settings.byteRate, settings.subscribeRate),
        Allowance(settings.principalMessageRate, settings.principalByteRate, settings.principalSubscribeRate),
        settings.overRate is OverRate.REFUSE,
    )


@implementer(IAdmission)
@dataclass(eq=False)
class RateLimitedAdmission:
    """Forwards attempts within the limits, and counts refusals. Local peers without credentials have no rates."""

    inner: IAdmission
    limits: RateLimits
    counted: Callable[[str, int], object]

    @property
    def required(self) -> bool:
        return bool(self.inner.required)

    def refusal(self, address: Any) -> str | None:
        """Return the sentence that refuses a peer regardless of its credentials, as its address is banned, or None."""
        place = addressKey(address)
        return (None if place is None else self._banned(place)) or self.inner.refusal(address)

    def admit(self, credentials: Any, address: Any) -> "Admitted | Deferred[Admitted]":
        """Count an attempt, then admit as the inner admission does, see :class:`fleximq.interfaces.IAdmission`."""
        place = addressKey(address)
        if place is not None:
            self._checkWaits(place)
            if not self.limits.joins.passes(place, self.limits.clock.seconds()):
                self.counted(JOINING_TOO_OFTEN, 1)
                raise JoinRejected("this address tries to join too often")
        admitted: Admitted | Deferred[Admitted] = self.inner.admit(credentials, address)
        if not isinstance(admitted, Admitted):
            return admitted.addCallback(self._checkAdmitted, place)
        return self._checkPrincipal(admitted, self._checkWaits)

    def renewed(self, admitted: Any) -> Any:
        """Return the inner admission's result, unless the principal was banned; see :class:`IAdmission`."""
        return self._checkPrincipal(self.inner.renewed(admitted), self._checkBan)

    def _checkAdmitted(self, admitted: Admitted, place: Any) -> Admitted:
        self._checkBan(place)  # it may have been banned while its credentials were checked
        return self._checkPrincipal(admitted, self._checkWaits)

    def _checkPrincipal(self, admitted: Admitted, check: Callable[[Any], None]) -> Admitted:
        """Check a principal's key, a common one for anonymous clients; an error gets the name of the principal."""
        principal = admitted.principal
        try:
            check(clientKey(ANONYMOUS if principal is None else principal.name, None))
        except JoinRejected as error:
            error.principal = None if principal is None else principal.name
            raise
        return admitted

    def _banned(self, who: Any) -> str | None:
        left = self.limits.bans.waits(who)
        if not left:
            return None
        self.counted(BANNED, 1)
        return f"this client is banned for another {math.ceil(left)} s"

    def _checkBan(self, who: Any) -> None:
        sentence = self._banned(who)
        if sentence is not None:
            raise JoinRejected(sentence)

    def _checkWaits(self, who: Any) -> None:
        self._checkBan(who)
        left = self.limits.flapping.waits(who)
        if left:
            self.counted(FLAPS, 1)
            raise JoinRejected(f"this client came and went too often and has to wait for {math.ceil(left)} s")
