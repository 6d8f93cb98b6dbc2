"""The rate limits of the whole broker, built from the settings and changed on reload."""

from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.interfaces import IReactorTime

from fleximq.config.rate_options import OverRate
from fleximq.config.settings import Settings
from fleximq.interfaces import IAdmission
from fleximq.security.bans import Bans
from fleximq.security.rates.admission_rate import RateLimitedAdmission
from fleximq.security.rates.client_rates import Allowance, RateRules, Rates
from fleximq.security.rates.flapping import FlappingLimit
from fleximq.security.rates.token_bucket import KeyedBuckets


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
        """Return a function that applies other settings. A client without any limit gets one when it reconnects."""
        rules = rulesOf(settings)

        def change() -> None:
            self.rates.change(rules)
            self.connects.change(settings.connectRate)
            self.joins.change(settings.joinRate)
            self.flapping.change(settings.maxDisconnects, settings.flappingWait)

        return change

    def limited(self, admission: IAdmission, counted: Callable[[str, int], object]) -> IAdmission:
        """Return an admission that refuses too frequent joins and passes the others to this one."""
        return RateLimitedAdmission(admission, self.joins, self.flapping, self.clock.seconds, counted, self.bans)


def rulesOf(settings: Settings) -> RateRules:
    """Return the limits of clients and principals in these settings."""
    return RateRules(
        Allowance(settings.messageRate, settings.byteRate, settings.subscribeRate),
        Allowance(settings.principalMessageRate, settings.principalByteRate, settings.principalSubscribeRate),
        settings.overRate is OverRate.REFUSE,
    )
