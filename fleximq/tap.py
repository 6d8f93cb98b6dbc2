"""What ``twistd fleximq`` runs: the command line's options, and the service made of them."""

from twisted.application.service import IService

from fleximq.options import Options
from fleximq.services.compose import compose
from fleximq.services.departure import Departure

__all__ = ["Options", "makeService"]


def makeService(options: Options) -> IService:
    """Return the broker with all its listeners, none of them open yet."""
    from twisted.internet import reactor

    return compose(reactor, options.settings, Departure(options.parent or {}))
