"""Clients in the process of a broker that stands alone."""

from typing import Any

from twisted.internet.interfaces import IReactorTime

from fleximq.broker.broker import Broker
from fleximq.config.permission_options import tables
from fleximq.config.rate_options import Rate
from fleximq.config.settings import Settings
from fleximq.in_process.clients import InProcessClients
from fleximq.security.permissions import Permissions
from fleximq.security.rates.client_rates import Allowance, RateRules, Rates


def makeClients(
    broker: Broker,
    clock: IReactorTime,
    principals: Any = None,
    rate: Rate | None = None,
    refuses: bool = False,
    settings: Settings | None = None,
) -> InProcessClients:
    """Return the maker of clients for a broker.

    :param principals: tables of permissions, as in a settings file; without them all clients have all rights.
    :param rate: limits the messages of each client.
    """
    permissions = Permissions(None, None if principals is None else tables("principals", principals))
    rates = Rates(RateRules(Allowance(rate), refuses=refuses), clock.seconds)
    return InProcessClients(broker, clock, lambda: settings or Settings(), permissions.rightsOf, rates)
