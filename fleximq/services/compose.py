"""The one place that knows every room: settings in, the whole broker out, as one service."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

from twisted.application.service import MultiService

from fleximq.broker.broker import Broker
from fleximq.checking import configurationOf
from fleximq.dialects.context import Context
from fleximq.dialects.origins import Origins
from fleximq.dialects.registry import Registry, installed
from fleximq.dialects.slow_consumer import policyOf
from fleximq.dialects.turn import Turn
from fleximq.endpoints.listen import Ground, Listen
from fleximq.security.door import Security
from fleximq.security.protection import Protection
from fleximq.services.bell import Bell
from fleximq.services.broker import BrokerService, makeBroker
from fleximq.services.children import ChildService
from fleximq.services.departure import Departure
from fleximq.services.entrance import Entrance
from fleximq.services.extensions import ExtensionContext, ExtensionService
from fleximq.services.gate import Gate
from fleximq.services.guests import Guests
from fleximq.services.journal import JournalService, makeJournal, restore
from fleximq.services.listeners import ListenerService
from fleximq.services.notify_socket import NotifySocket
from fleximq.services.readiness import Readiness
from fleximq.services.spoken import speak
from fleximq.services.watchdog import WatchdogService, pauseOf
from fleximq.settings import Settings


def compose(
    reactor: Any,
    settings: Settings,
    depart: Callable[[str], NoReturn] | None = None,
    registry: Registry | None = None,
    departLate: Callable[[str, Any], None] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> MultiService:
    """Return a service that is the broker with all its listeners; nothing is open before it starts.

    :param depart: called with a sentence if the journal or a listener cannot be opened; by default it ends the process.
    :param departLate: called with a sentence and the reactor if that turns out when it runs; by default as well.
    :param registry: which plug-ins there are; by default those that are installed.
    :param environment: what spawned programs inherit of it, and where the service manager is told how things are.
    :raises SettingError: for a listener or an extension that cannot be understood, and for plug-ins that collide.
    """
    registry = registry or installed()
    ground = Ground.of(settings, registry.dialects)
    departure = Departure({})
    depart = depart or departure
    departLate = departLate or departure.late
    turn = Turn(reactor)
    bell = Bell(reactor)
    journal = makeJournal(bell, settings, turn, lambda event, number: broker.observers.counted(event, number))
    broker = makeBroker(reactor, settings, turn, journal)
    whole = _whole(reactor, journal, broker, depart, bell)
    policy = policyOf(settings.slowConsumer, reactor, broker.observers.counted)
    guests = Guests(reactor)
    gate = Gate(reactor, settings.limits, lambda: len(broker.clients), broker.observers.counted)
    security = Security.of(settings, reactor, broker.observers.counted)
    brokerService = BrokerService(broker, guests, lambda: settings.drainTimeout)
    brokerService.setServiceParent(whole)
    for chosen in settings.extension:
        configuration = configurationOf(chosen, registry)
        surroundings = ExtensionContext(broker, settings, reactor)
        extension = registry.extensions[chosen.name]
        ExtensionService(extension, configuration, surroundings, depart).setServiceParent(brokerService)
    for listen in [Listen.parse(text, ground) for text in settings.listen]:
        protection = Protection(settings.allowAnonymous, listen.proxied)
        context = Context(broker, settings, reactor, turn, security.admissionFor(protection), policy)
        spoken = guests.of(speak(registry, context, listen.dialect))
        factory = gate.before(_entrance(reactor, context, security, protection).factoryFor(listen, spoken))
        ListenerService(reactor, listen, factory, depart, departLate).setServiceParent(whole)
    for line in settings.spawn:
        context = Context(broker, settings, reactor, turn, security.admissionFor(Protection()), policy)
        ChildService(reactor, line, context, environment, security.rightsOf).setServiceParent(whole)
    _tellServiceManager(reactor, whole, journal, NotifySocket(environment), pauseOf(environment))
    return whole


def _tellServiceManager(
    reactor: Any, whole: MultiService, journal: Any, socket: NotifySocket, pause: float | None
) -> None:
    """Let the service manager know when all that is there so far has started, and as long as it is well."""
    listeners = [each for each in whole if isinstance(each, ListenerService)]
    if socket.exists and pause is not None:
        beat = journal.beat if journal.onDisk else None
        WatchdogService(reactor, pause, socket.alive, beat).setServiceParent(whole)
    Readiness(reactor, socket, listeners).setServiceParent(whole)


def _whole(reactor: Any, journal: Any, broker: Broker, depart: Callable[[str], NoReturn], bell: Bell) -> MultiService:
    """Return the service that holds all others."""
    if journal.onDisk:
        return JournalService(reactor, journal, partial(restore, broker, journal), depart, bell)
    return MultiService()


def _entrance(reactor: Any, context: Context, security: Security, protection: Protection) -> Entrance:
    settings = context.settings
    return Entrance(
        reactor,
        context.admission,
        security.admissionFor(protection.behindProxy()),
        Origins(frozenset(settings.allowedOrigin), namesTrusted=settings.allowAnonymous or bool(settings.auth)),
        settings.handshakeTimeout,
        context.broker.observers.counted,
    )
