"""The one place that knows every room: settings in, the whole broker out, as one service."""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from twisted.application.service import MultiService
from twisted.internet.interfaces import IProtocolFactory

from fleximq.dialects.blipmq import BlipFactory
from fleximq.dialects.context import Context
from fleximq.dialects.fleximq import FlexiFactory
from fleximq.dialects.fleximq_ws import FlexiWebSocketFactory
from fleximq.dialects.identity_ws import IdentityFactory
from fleximq.dialects.minimq import MiniFactory
from fleximq.dialects.origins import Origins
from fleximq.dialects.turn import Turn
from fleximq.endpoints.listen import Listen
from fleximq.security.protection import Protection
from fleximq.services.broker import BrokerService, makeBroker
from fleximq.services.departure import Departure
from fleximq.services.entrance import Entrance
from fleximq.services.listeners import ListenerService
from fleximq.settings import Settings


def compose(reactor: Any, settings: Settings, depart: Callable[[str], NoReturn] | None = None) -> MultiService:
    """Return a service that is the broker with all its listeners; nothing is open before it starts.

    :param depart: called with a sentence if a listener cannot be opened; by default it ends the process.
    :raises SettingError: for a listener that cannot be understood.
    """
    whole = MultiService()
    turn = Turn(reactor)
    broker = makeBroker(reactor, settings, turn)
    BrokerService(broker).setServiceParent(whole)
    for listen in [Listen.parse(text) for text in settings.listen]:
        protection = Protection(settings.allowAnonymous, listen.proxied)
        context = Context(broker, settings, reactor, turn, protection.refusal)
        factory = _entrance(reactor, context, protection).factoryFor(listen)
        ListenerService(reactor, listen, factory, depart or Departure({})).setServiceParent(whole)
    return whole


def _entrance(reactor: Any, context: Context, protection: Protection) -> Entrance:
    settings = context.settings
    return Entrance(
        reactor,
        _streams(context),
        _webSockets(context),
        protection,
        Origins(frozenset(settings.allowedOrigin), namesTrusted=settings.allowAnonymous),
        settings.handshakeTimeout,
        context.broker.observers.counted,
    )


def _streams(context: Context) -> Mapping[str, IProtocolFactory]:
    """Return the dialects that are spoken on a stream."""
    return {"fleximq": FlexiFactory(context), "blipmq": BlipFactory(context), "minimq": MiniFactory(context)}


def _webSockets(context: Context) -> Mapping[str, IProtocolFactory]:
    """Return the dialects that are spoken over WebSocket."""
    return {"fleximq": FlexiWebSocketFactory(context), "identity": IdentityFactory(context)}
