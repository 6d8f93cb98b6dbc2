"""Builds the complete broker from its settings, as one service; the only module that knows every room."""

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from twisted.application.service import MultiService

from fleximq.broker.broker import Broker
from fleximq.config.settings import Settings
from fleximq.dialects.connection.slow_consumer import policyOf
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.dialects.context import Context
from fleximq.dialects.registry import Registry, installed
from fleximq.endpoints.listen import Listen, ListenDefaults, WebListen
from fleximq.errors import SettingError
from fleximq.in_process.clients import InProcessClients
from fleximq.journal.broker_journal import BrokerJournal
from fleximq.journal.memory_journal import MemoryJournal
from fleximq.security.access_policy import AccessPolicy
from fleximq.security.listener_principal import ListenerAdmission
from fleximq.security.rates.rate_limits import RateLimitedAdmission, RateLimits
from fleximq.services.audit_log import AuditLog
from fleximq.services.broker_service import BrokerService, makeBroker
from fleximq.services.extension_service import ExtensionContext, ExtensionService
from fleximq.services.journal_service import JournalService, journalFolder, restore
from fleximq.services.network.connection_limit import ConnectionLimit
from fleximq.services.network.connections import OpenConnections
from fleximq.services.network.listener_factory import ListenerDialects, dialectsOf, factoryOf
from fleximq.services.network.listeners import ListenerService, prepareCertificates
from fleximq.services.network.open_files import OpenFilesService, Shortage, withinOpenFiles
from fleximq.services.network.proxy_protocol import ProxiedFactory
from fleximq.services.operator import Operator
from fleximq.services.process.busy_poll import BusyPollService, processors
from fleximq.services.process.child_service import ChildService
from fleximq.services.process.clock_steps import ClockStepService
from fleximq.services.process.service_manager import NotifySocket, Readiness, WatchdogService, watchdogInterval
from fleximq.services.process.startup_failure import StartupFailure
from fleximq.services.process.wakeup import Wakeup
from fleximq.services.reload import Reload, follow, originsOf, prepareSecurity
from fleximq.services.web_site import Health, LagService, listenersOf, siteFactory
from fleximq.startup.configuration_check import configurationOf
from fleximq.values.log_limit import LogLimits
from fleximq.values.unadmitted_budget import UnadmittedBudget

if TYPE_CHECKING:
    from fleximq.journal.journal_folder import JournalFolder
    from fleximq.services.cluster_service import ClusterNode

#: The dialects of a listener for HTTP only.
_NO_DIALECTS = ListenerDialects({}, {}, {}, ())


def compose(
    reactor: Any,
    settings: Settings,
    abortStart: Callable[[str], NoReturn] | None = None,
    registry: Registry | None = None,
    abortRun: Callable[[str, Any], None] | None = None,
    environment: Mapping[str, str] = os.environ,
    reload: Reload | None = None,
    wall: Callable[[], float] = time.time,
) -> MultiService:
    """Return a service with the broker and all its listeners; no port or file is open before it starts.

    :param abortStart: called with a sentence if the journal or a listener cannot be opened, and ``abortRun``, with the
        reactor too, if that happens after the start; by default both end the process.
    :param registry: the plug-ins; by default the installed ones.
    :param environment: variables that spawned programs inherit, and the address of the service manager.
    :param reload: holds the same settings, and gets the participants of a reload; by default the settings never change.
    :param wall: returns the seconds since 1970; those of the reactor are for durations only.
    :raises SettingError: a listener or extension is invalid, or plug-ins conflict.
    """
    registry = (registry or installed()).without(settings.disableDialect)
    reload = reload or Reload(settings, lambda: settings)
    contexts: list[Context] = []
    defaults = ListenDefaults.of(settings, registry.dialects)
    startupFailure = StartupFailure({})
    abortStart = abortStart or startupFailure
    abortRun = abortRun or startupFailure.duringRun
    wakeup = Wakeup(reactor)
    node = _node(reactor, settings, wakeup)
    turn = WriteTurn(reactor) if node is None else node.turn
    folder = journalFolder(wakeup, settings, turn, lambda event, number: broker.observers.counted(event, number))
    journal = _journal(folder, node)
    if node is not None:
        abortStart = node.abort
    if settings.auditLog is not None:
        reload.auditLog = AuditLog(reactor, settings.auditLog, abortStart, wall)
    make = Broker if node is None else node.makeBroker
    broker = makeBroker(reactor, settings, turn, journal, list(registry.dialects), wall, make, reload.auditLog)
    whole, beat = MultiService(), None
    if node is None and folder is not None:
        whole = stored = JournalService(
            reactor, folder, journal, broker.checkpointer, partial(restore, broker), abortStart, wakeup,
            startupFailure.duringStop,
        )  # fmt: skip
        beat = stored.beat
    if isinstance(reload.auditLog, AuditLog):
        reload.auditLog.setServiceParent(whole)
    counted = broker.observers.counted
    policy = policyOf(settings.slowConsumer, reactor, counted)
    connections = OpenConnections(reactor)
    rateLimits = RateLimits.of(settings, reactor)
    origins = originsOf(settings)
    joined = lambda: len(broker.clients) + (0 if node is None else len(node.ports.forwarding.joined))  # noqa: E731
    connectionLimit = ConnectionLimit(reactor, withinOpenFiles(settings), joined, counted, rateLimits, broker.audit)
    security = AccessPolicy.of(settings, reactor, counted)
    logLimits, unadmitted = LogLimits(), UnadmittedBudget(settings.limits.unadmittedBytes)
    timeout = (lambda seconds: seconds) if node is None else node.drainTimeout
    brokerService = BrokerService(broker, connections, lambda: timeout(reload.settings.drainTimeout))
    brokerService.setServiceParent(whole)
    lag, shortage = LagService(reactor), Shortage(reactor)
    OpenFilesService(settings).setServiceParent(whole if node is None else node.ports)
    early = brokerService if node is None else node.ports  # also runs while a node follows
    lag.setServiceParent(early)
    ClockStepService(reactor, wall).setServiceParent(early)
    if settings.busyPoll and processors() >= 2:
        BusyPollService(reactor, turn, journal, settings.busyPoll / 1e6).setServiceParent(early)
    places = [whole] if node is None else [node.ports, whole]
    health = Health(
        broker, lag, lambda: listenersOf(places), lambda: connections.stopping, None if node is None else node.ready
    )
    site = siteFactory(
        reactor, broker, lambda: reload.settings, security, lag, health, lambda: connectionLimit.waiting, logLimits,
        unadmitted, node,
    )  # fmt: skip
    for chosen in settings.extension:
        configuration = configurationOf(chosen, registry)
        clients = InProcessClients(broker, reactor, lambda: reload.settings, security.rightsOf, rateLimits.rates)
        extensionContext = ExtensionContext(broker, settings, reactor, clients)
        extension = registry.extensions[chosen.name]
        ExtensionService(extension, configuration, extensionContext, abortStart).setServiceParent(brokerService)

    def contextFor(proxied: bool, sessions: set[Any], principal: str | None = None) -> Context:
        own = None if principal is None else ListenerAdmission(principal, security.rightsOf)
        admission = RateLimitedAdmission(own or security.admissionFor(proxied), rateLimits, counted)
        return Context(
            broker, settings, reactor, turn, admission, policy, rates=rateLimits.rates, flapping=rateLimits.flapping,
            logLimits=logLimits, unadmitted=unadmitted, sessions=sessions,
        )  # fmt: skip

    def listenOn(listen: Listen, parent: MultiService, speaks: bool = True) -> None:
        listen.checkPassed()
        context = contextFor(listen.proxied, connections.sessions, listen.principal)
        contexts.append(context)
        dialects = dialectsOf(registry, context, listen.dialect) if speaks else _NO_DIALECTS
        behindProxy = RateLimitedAdmission(security.admissionFor(proxied=True), rateLimits, counted)
        factory = factoryOf(listen, dialects, context, behindProxy, origins, site)
        if listen.proxied:  # the connection limit counts by the address that the proxy names
            deadline = settings.handshakeTimeout
            factory = ProxiedFactory(factory, connectionLimit.enterFrom, reactor, deadline, counted, logLimits)
        factory = connectionLimit.limited(factory, listen.proxied)
        opening = reactor
        if node is not None and speaks and not listen.isStdio:
            opening, parent = node.ports.sharing(listen, connectionLimit), node.ports
        refused = lambda: connectionLimit.refused  # noqa: E731
        service = ListenerService(opening, listen, factory, abortStart, abortRun, refused, shortage.left)
        service.setServiceParent(parent)

    # A node of a cluster is ready when it follows: its listeners are open from then on.
    outer = owned = whole
    if node is not None:
        outer = cluster = node.serving(whole, partial(restore, broker))
        owned = cluster.owned
    for listen in [Listen.parse(text, defaults) for text in settings.listen]:
        listenOn(listen, owned)
    for place in [WebListen.parse(text, defaults) for text in settings.http]:
        # It stays open as long as the broker, so that health checks see the broker stop.
        listenOn(place, early, speaks=False)
    for line in settings.spawn:
        child = ChildService(reactor, line, contextFor(False, set()), environment, security.rightsOf)
        contexts.append(child.context)
        child.setServiceParent(owned)
    listeners = [each for each in places[0] if isinstance(each, ListenerService)]
    socket, pause = NotifySocket(environment), watchdogInterval(environment)
    if socket.exists and pause is not None:
        WatchdogService(reactor, pause, socket.alive, beat).setServiceParent(outer)
    readiness = Readiness(reactor, socket, listeners)
    readiness.setServiceParent(outer)

    reload.readiness = readiness
    reload.participants += [
        partial(prepareCertificates, listenersOf(places)),
        partial(prepareSecurity, security, broker, reactor),  # it ends clients whose certificates are refused now
        rateLimits.prepare,
        lambda settings: partial(follow, broker, connectionLimit, unadmitted, origins, contexts, settings),
    ]
    broker.operator = Operator(broker, rateLimits.bans, reload)
    return outer


def _journal(folder: "JournalFolder | None", node: "ClusterNode | None") -> Any:
    """Return the journal of a broker with this folder."""
    if folder is None:
        return MemoryJournal()
    return BrokerJournal() if node is None else node.makeJournal(folder)


def _node(reactor: Any, settings: Settings, wakeup: Wakeup) -> "ClusterNode | None":
    if not settings.cluster:
        return None
    try:
        from fleximq.services.cluster_service import ClusterNode  # not loaded by a broker of its own
    except ImportError as error:
        raise SettingError(f"cluster needs {error.name}: pip install '.[cluster]' in a clone adds it") from error
    return ClusterNode(reactor, settings, wakeup)
