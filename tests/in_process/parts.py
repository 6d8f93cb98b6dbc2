"""Clients in the process of a broker that stands alone."""

from typing import Any

from twisted.internet.interfaces import IReactorTime

from fleximq.broker.broker import Broker
from fleximq.config.permission_options import tables
from fleximq.config.rate_options import Rate
from fleximq.config.settings import Settings
from fleximq.errors import SettingError
from fleximq.in_process.clients import InProcessClients
from fleximq.security.bans import Bans
from fleximq.security.permissions import Permissions
from fleximq.security.rates.client_rates import Allowance, RateRules, Rates
from fleximq.services.extension_service import ExtensionContext


def makeClients(
    broker: Broker,
    clock: IReactorTime,
    principals: Any = None,
    rate: Rate | None = None,
    refuses: bool = False,
    settings: Settings | None = None,
    bans: Bans | None = None,
) -> InProcessClients:
    """Return the maker of clients for a broker.

    :param principals: tables of permissions, as in a settings file; without them all clients have all rights.
    :param rate: limits the messages of each client.
    """
    permissions = Permissions(None, None if principals is None else tables("principals", principals))
    rates = Rates(RateRules(Allowance(rate), refuses=refuses), clock.seconds)
    return InProcessClients(
        broker, clock, lambda: settings or Settings(), permissions.rightsOf, rates, (bans or Bans()).isBanned
    )


def contextOf(broker: Broker, clock: Any) -> ExtensionContext:
    """Return the context of an extension of a broker that stands alone, without listeners."""
    return ExtensionContext(broker, Settings(), clock, makeClients(broker, clock), _noFactory)


def _noFactory(dialect: str) -> Any:
    raise SettingError("there are no listeners here")
