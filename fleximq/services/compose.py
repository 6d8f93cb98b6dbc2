"""Builds the complete broker from its settings, as one service; the only module that knows every room.

The parts are made in the order in which they need each other. Each service is added to its parent in the order in which
it starts; a parent stops its services in the opposite order. A single broker and a node of a cluster differ only in
their :class:`~fleximq.services.host.Host`.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from twisted.application.service import MultiService

from fleximq.config.settings import Settings
from fleximq.dialects.registry import Registry, installed
from fleximq.endpoints.listen import Listen, ListenDefaults, WebListen
from fleximq.errors import SettingError
from fleximq.in_process.clients import InProcessClients
from fleximq.journal.memory_journal import MemoryJournal
from fleximq.services.audit_log import AuditLog
from fleximq.services.broker_service import BrokerService, makeBroker
from fleximq.services.extension_service import ExtensionContext, ExtensionService
from fleximq.services.host import Host, Inputs, SingleHost
from fleximq.services.journal_service import journalFolder
from fleximq.services.listener_set import ListenerSet
from fleximq.services.network.listeners import ListenerService
from fleximq.services.network.open_files import OpenFilesService
from fleximq.services.operator import Operator
from fleximq.services.process.busy_poll import BusyPollService, processors
from fleximq.services.process.clock_steps import ClockStepService
from fleximq.services.process.log_lines import textOf
from fleximq.services.process.log_observer import LogObserverService
from fleximq.services.process.service_manager import NotifySocket, Readiness, WatchdogService, watchdogInterval
from fleximq.services.process.startup_failure import StartupFailure
from fleximq.services.reload import Reload
from fleximq.services.web_site import LagService
from fleximq.startup.configuration_check import configurationOf
from fleximq.web.api.recent_warnings import RecentWarnings


def compose(
    reactor: Any,
    settings: Settings,
    abortStart: Callable[[str], NoReturn] | None = None,
    registry: Registry | None = None,
    abortRun: Callable[[str, Any], None] | None = None,
    environment: Mapping[str, str] = os.environ,
    reload: Reload | None = None,
    wall: Callable[[], float] = time.time,
    failStop: Callable[[str], None] | None = None,
    ownsProcess: bool = True,
) -> MultiService:
    """Return a service with the broker and all its listeners; no port or file is open before it starts.

    :param abortStart: called with a sentence if the journal or a listener cannot be opened at the start; it must raise.
        By default it, ``abortRun`` and ``failStop`` end the process with this sentence.
    :param abortRun: called with a sentence and the reactor if a listener cannot be opened after the start.
    :param failStop: called with a sentence if the journal cannot store the last state at the stop.
    :param registry: the plug-ins; by default the installed ones.
    :param environment: variables that spawned programs inherit, and the address of the service manager.
    :param reload: holds the same settings, and gets the participants of a reload; by default the settings never change.
    :param wall: returns the seconds since 1970; those of the reactor are for durations only.
    :param ownsProcess: whether the broker may handle signals, and raise the limit on open files.
    :raises SettingError: a listener or extension is invalid, or plug-ins conflict.
    """
    failure = StartupFailure({})
    inputs = Inputs(
        reactor,
        settings,
        (registry or installed()).without(settings.disableDialect),
        reload or Reload(settings, lambda: settings),
        abortStart or failure,
        abortRun or failure.duringRun,
        failStop or failure.duringStop,
        environment,
        wall,
        ownsProcess,
    )
    host = _nodeOf(inputs) if settings.cluster else SingleHost(inputs)
    return _Composition(inputs, host).service()


def _nodeOf(inputs: Inputs) -> Host:
    try:
        from fleximq.services.cluster_service import ClusterNode  # a single broker does not load it
    except ImportError as error:
        raise SettingError(f"cluster needs {error.name}: pip install '.[cluster]' in a clone adds it") from error
    return ClusterNode(inputs)


class _Composition:
    """The parts that a single broker and a node of a cluster have in common; :meth:`service` adds them to the host."""

    def __init__(self, inputs: Inputs, host: Host) -> None:
        reactor, settings, reload = inputs.reactor, inputs.settings, inputs.reload
        self._inputs, self._host = inputs, host
        if settings.auditLog is not None:
            reload.auditLog = AuditLog(reactor, settings.auditLog, host.abortStart, inputs.wall)
        folder = journalFolder(host.wakeup, settings, host.turn, self._counted)
        self._journal = MemoryJournal() if folder is None else host.makeJournal(folder)
        dialects = list(inputs.registry.dialects)
        self._broker = makeBroker(
            reactor, settings, host.turn, self._journal, dialects, inputs.wall, host.makeBroker, reload.auditLog
        )
        host.hold(self._broker)
        self._listeners = ListenerSet(inputs, host, self._broker)

    def _counted(self, event: str, number: int) -> None:
        # The journal gets this before the broker exists, and counts its first event when it is opened.
        self._broker.observers.counted(event, number)

    def service(self) -> MultiService:
        """Return the service that contains all others."""
        inputs, host = self._inputs, self._host
        if isinstance(inputs.reload.auditLog, AuditLog):
            inputs.reload.auditLog.setServiceParent(host.served)
        brokerService = self._brokerService()
        early = host.early(brokerService)
        self._addProcess(early)
        self._addExtensions(brokerService)
        whole = host.serve()
        self._addListeners(early)
        self._addManager(whole)
        inputs.reload.participants += self._listeners.participants()
        self._broker.operator = Operator(self._broker, self._listeners.rateLimits.bans, inputs.reload)
        return whole

    def _brokerService(self) -> BrokerService:
        host, reload = self._host, self._inputs.reload
        timeout = lambda: host.drainTimeout(reload.settings.drainTimeout)  # noqa: E731
        service = BrokerService(self._broker, self._listeners.connections, timeout)
        service.setServiceParent(host.served)
        return service

    def _addProcess(self, early: MultiService) -> None:
        """Add the services for open files, the event loop's delay, steps of the clock, and the busy poll."""
        reactor, settings, wall = self._inputs.reactor, self._inputs.settings, self._inputs.wall
        lag, warned = LagService(reactor), RecentWarnings(reactor.seconds, textOf)
        self._listeners.makeSite(lag, warned)
        if self._inputs.ownsProcess:
            OpenFilesService(settings).setServiceParent(early)
        for service in (lag, LogObserverService(warned), ClockStepService(reactor, wall)):
            service.setServiceParent(early)
        if settings.busyPoll and processors() >= 2:
            seconds = settings.busyPoll / 1e6
            BusyPollService(reactor, self._host.turn, self._journal, seconds).setServiceParent(early)

    def _addExtensions(self, brokerService: MultiService) -> None:
        reactor, settings, registry = self._inputs.reactor, self._inputs.settings, self._inputs.registry
        reload, listeners = self._inputs.reload, self._listeners
        rightsOf, limits = listeners.security.rightsOf, listeners.rateLimits
        for chosen in settings.extension:
            configuration = configurationOf(chosen, registry)
            clients = InProcessClients(
                self._broker, reactor, lambda: reload.settings, rightsOf, limits.rates, limits.bans.isBanned
            )
            context = ExtensionContext(self._broker, settings, reactor, clients, listeners.factory)
            extension = registry.extensions[chosen.name]
            service = ExtensionService(extension, configuration, context, self._host.abortStart)
            service.setServiceParent(brokerService)

    def _addListeners(self, early: MultiService) -> None:
        settings, listeners = self._inputs.settings, self._listeners
        defaults = ListenDefaults.of(settings, self._inputs.registry.dialects)
        for text in settings.listen:
            listeners.listen(Listen.parse(text, defaults))
        for text in settings.http:
            listeners.listenForWeb(WebListen.parse(text, defaults), early)
        for line in settings.spawn:
            listeners.spawn(line)
        self._host.acceptDelegates(listeners.delegates)

    def _addManager(self, whole: MultiService) -> None:
        """Add the services that notify the service manager of this process."""
        reactor, environment = self._inputs.reactor, self._inputs.environment
        socket, pause = NotifySocket(environment), watchdogInterval(environment)
        if socket.exists and pause is not None:
            WatchdogService(reactor, pause, socket.alive, self._host.beat).setServiceParent(whole)
        listeners = [each for each in self._host.listening[0] if isinstance(each, ListenerService)]
        readiness = Readiness(reactor, socket, listeners)
        readiness.setServiceParent(whole)
        self._inputs.reload.readiness = readiness
