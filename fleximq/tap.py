"""What ``twistd fleximq`` runs: the command line's options, and the service made of them."""

from twisted.application.service import IService

from fleximq.errors import SettingError
from fleximq.options import Options
from fleximq.services.compose import compose
from fleximq.services.departure import Departure
from fleximq.services.garbage import GarbageService

__all__ = ["Options", "makeService"]


def makeService(options: Options) -> IService:
    """Return the broker with all its listeners, none of them open yet.

    :raises SystemExit: with a sentence, for a plug-in that is named but cannot be loaded.
    """
    from twisted.internet import reactor

    try:
        whole = compose(reactor, options.settings, Departure(options.parent or {}))
    except SettingError as error:
        raise SystemExit(f"fleximq: {error}") from None
    GarbageService().setServiceParent(whole)
    return whole
