"""Values shared by all connections of a listener."""

from dataclasses import dataclass, field
from typing import Any

from twisted.internet.interfaces import IReactorTime

from fleximq.broker.broker import Broker
from fleximq.config.settings import Settings
from fleximq.dialects.connection.envelope_cache import CacheBudget
from fleximq.dialects.connection.slow_consumer import DISCONNECT, Policy
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.interfaces import IAdmission
from fleximq.security.rates.client_rates import Rates
from fleximq.security.rates.flapping import FlappingLimit
from fleximq.values.log_limit import LogLimits
from fleximq.values.unadmitted_budget import UnadmittedBudget


@dataclass(slots=True, eq=False)
class ListenerContext:
    """Passed to the factories of all dialects.

    ``reserved`` is the client id of a spawned program, on a listener for that program alone. ``envelopeBudget`` bounds
    the envelope caches of all connections together, ``unadmitted`` the input of those that are not admitted yet.
    ``sessions`` are the open ones, which end when the broker stops; those of spawned programs have sets of their own.
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
    logLimits: LogLimits = field(default_factory=LogLimits)
    unadmitted: UnadmittedBudget = field(default_factory=UnadmittedBudget)
    sessions: set[Any] = field(default_factory=set)
