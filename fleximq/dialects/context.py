"""What every connection of a listener has at hand."""

from dataclasses import dataclass, field

from twisted.internet.interfaces import IReactorTime

from fleximq.broker.broker import Broker
from fleximq.config.settings import Settings
from fleximq.dialects.connection.envelope_cache import CacheBudget
from fleximq.dialects.connection.log_limit import LogLimit
from fleximq.dialects.connection.slow_consumer import DISCONNECT, Policy
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.interfaces import IAdmission
from fleximq.security.rates.client_rates import Rates
from fleximq.security.rates.flapping import FlappingLimit


@dataclass(slots=True, eq=False)
class Context:
    """Handed to the factories of all dialects.

    ``policy`` rules the deliveries to slow consumers. ``admission`` decides who may come in. ``reserved`` is
    the client id that is kept for the one who is to connect, if only one is, whom the broker itself has started.
    ``envelopes`` bounds what connections remember of them together. ``rates`` says how much clients may send,
    ``flapping`` is told of those that leave, and ``seldom`` bounds what peers that do something wrong write to the log.
    """

    broker: Broker
    settings: Settings
    clock: IReactorTime
    turn: WriteTurn
    admission: IAdmission
    policy: Policy = DISCONNECT
    reserved: int | None = None
    envelopeBudget: CacheBudget = field(default_factory=CacheBudget)
    rates: Rates = field(default_factory=Rates)
    flapping: FlappingLimit = field(default_factory=FlappingLimit)
    logLimit: LogLimit = field(default_factory=LogLimit)
