"""Makes the listeners of a broker, which share limits, rights, credentials and the web site."""

from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.interfaces import IProtocolFactory

from fleximq.broker.broker import Broker
from fleximq.dialects.connection.slow_consumer import policyOf
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.fleximq.delegate import Delegate, buildDelegate
from fleximq.endpoints.listen import Listen, ListenDefaults
from fleximq.security.access_policy import AccessPolicy
from fleximq.security.listener_principal import ListenerAdmission
from fleximq.security.rates.rate_limits import RateLimitedAdmission, RateLimits
from fleximq.services.host import Host, Inputs, ListenerPlace
from fleximq.services.network.connection_limit import ConnectionLimit
from fleximq.services.network.connections import OpenConnections
from fleximq.services.network.listener_factory import ListenerDialects, dialectsOf, factoryOf
from fleximq.services.network.listeners import ListenerService, prepareCertificates
from fleximq.services.network.node_listener import BuildDelegate
from fleximq.services.network.open_files import Shortage, withinOpenFiles
from fleximq.services.network.proxy_protocol import ProxiedFactory
from fleximq.services.process.child_service import ChildService
from fleximq.services.reload import Participant, follow, originsOf, prepareQueues, prepareSchemas, prepareSecurity
from fleximq.services.web_site import Health, LagService, SiteParts, listenersOf, siteFactory
from fleximq.values.log_limit import LogLimits
from fleximq.values.unadmitted_budget import UnadmittedBudget
from fleximq.web.api.recent_warnings import RecentWarnings

#: The dialects of a listener for HTTP only.
_NO_DIALECTS = ListenerDialects({}, {}, {}, ())


class ListenerSet:
    """Makes the listeners and spawned programs of one broker, and adds them to the services of its host.

    ``connections`` are the open connections of all of them, ``security`` decides their rights, and ``rateLimits`` has
    their rates and bans. Call :meth:`makeSite` before any listener or factory is made.
    """

    def __init__(self, inputs: Inputs, host: Host, broker: Broker) -> None:
        reactor, settings, counted = inputs.reactor, inputs.settings, broker.observers.counted
        self._inputs, self._host, self._broker, self._counted = inputs, host, broker, counted
        self.connections = OpenConnections(reactor)
        self.rateLimits = RateLimits.of(settings, reactor)
        self.security = AccessPolicy.of(settings, reactor, counted)
        self._policy = policyOf(settings.slowConsumer, reactor, counted)
        self._origins = originsOf(settings)
        self._logLimits, self._unadmitted = LogLimits(), UnadmittedBudget(settings.limits.unadmittedBytes)
        self._shortage = Shortage(reactor)
        self._contexts: list[ListenerContext] = []
        self._limit = ConnectionLimit(
            reactor,
            withinOpenFiles(settings),
            lambda: len(broker.clients) + host.forwarded(),
            counted,
            self.rateLimits,
            broker.audit,
        )

    def makeSite(self, lag: LagService, warned: RecentWarnings) -> None:
        """Make the web site of all listeners; ``lag`` measures the delay of the event loop, ``warned`` has the latest
        warnings of the log.
        """
        inputs, host, broker = self._inputs, self._host, self._broker
        stopping = lambda: self.connections.stopping  # noqa: E731
        admission = RateLimitedAdmission(self.security.admissionFor(), self.rateLimits, self._counted)
        parts = SiteParts(
            broker=broker,
            settings=lambda: inputs.reload.settings,
            sources=lambda: inputs.reload.origins(),
            security=self.security,
            admission=admission,
            lag=lag,
            health=Health(broker, lag, self._present, stopping, host.state),
            waiting=lambda: self._limit.waiting,
            logLimits=self._logLimits,
            unadmitted=self._unadmitted,
            origins=self._origins,
            warned=warned,
            node=host.state,
        )
        self._site = siteFactory(inputs.reactor, parts)

    def _present(self) -> list[ListenerService]:
        return listenersOf(self._host.listening)

    def listen(self, listen: Listen) -> None:
        """Add a listener for dialects; raises SettingError if the host does not serve it, or a dialect is unknown."""
        self._add(listen, self._host.placeOf(listen, self._limit), lambda context: self._dialects(listen, context))

    def listenForWeb(self, listen: Listen, parent: MultiService) -> None:
        """Add a listener for HTTP only; ``parent`` is the service that starts it."""
        self._add(listen, ListenerPlace(parent), lambda context: _NO_DIALECTS)

    def _add(
        self, listen: Listen, place: ListenerPlace, dialectsFor: Callable[[ListenerContext], ListenerDialects]
    ) -> None:
        listen.checkPassed()
        service = ListenerService(
            self._inputs.reactor,
            listen,
            self._factory(listen, dialectsFor),
            self._host.abortStart,
            self._inputs.abortRun,
            lambda: self._limit.refused,
            self._shortage.left,
            place.wrapPort,
        )
        service.setServiceParent(place.parent)

    def factory(self, dialect: str = "") -> IProtocolFactory:
        """Return a factory of connections for an endpoint that the caller opens.

        :param dialect: the only dialect of its connections; "": all dialects and HTTP.
        :raises SettingError: the dialect does not exist.
        """
        inputs = self._inputs
        listen = Listen(dialect or None, "tcp:0", ListenDefaults.of(inputs.settings, inputs.registry.dialects))
        return self._factory(listen, partial(self._dialects, listen))

    def _factory(self, listen: Listen, dialectsFor: Callable[[ListenerContext], ListenerDialects]) -> IProtocolFactory:
        inputs, counted, limit = self._inputs, self._counted, self._limit
        context = self._contextFor(listen.proxied, self.connections.sessions, listen.principal)
        behindProxy = RateLimitedAdmission(self.security.admissionFor(proxied=True), self.rateLimits, counted)
        factory = factoryOf(listen, dialectsFor(context), context, behindProxy, self._origins, self._site)
        if listen.proxied:  # the connection limit counts by the address that the proxy names
            deadline = inputs.settings.handshakeTimeout
            factory = ProxiedFactory(factory, limit.enterFrom, inputs.reactor, deadline, counted, self._logLimits)
        return limit.limited(factory, listen.proxied)

    def _dialects(self, listen: Listen, context: ListenerContext) -> ListenerDialects:
        return dialectsOf(self._inputs.registry, context, listen.dialect)

    def delegates(self) -> BuildDelegate:
        """Return a function that builds the protocol of a client of another node, see :class:`Host`."""
        context = self._contextFor(True, self.connections.sessions)
        return lambda description, address: buildDelegate(context, Delegate.of(description), address)

    def spawn(self, line: str) -> None:
        """Add a program that is a client by its standard input and output."""
        inputs = self._inputs
        context = self._contextFor(False, set())
        child = ChildService(inputs.reactor, line, context, inputs.environment, self.security.rightsOf)
        child.setServiceParent(self._host.owned)

    def _contextFor(self, proxied: bool, sessions: set[Any], principal: str | None = None) -> ListenerContext:
        inputs, security, limits = self._inputs, self.security, self.rateLimits
        own = None if principal is None else ListenerAdmission(principal, security.rightsOf)
        admission = RateLimitedAdmission(own or security.admissionFor(proxied), limits, self._counted)
        context = ListenerContext(
            self._broker, inputs.settings, inputs.reactor, self._host.turn, admission, self._policy, rates=limits.rates,
            flapping=limits.flapping, logLimits=self._logLimits, unadmitted=self._unadmitted, sessions=sessions,
        )  # fmt: skip
        self._contexts.append(context)
        return context

    def participants(self) -> list[Participant]:
        """Return the functions that prepare a reload of the settings, in the order of their calls."""
        broker, reactor = self._broker, self._inputs.reactor
        followed = broker, self._limit, self._unadmitted, self._origins, self._contexts
        return [
            partial(prepareCertificates, self._present()),
            partial(prepareSecurity, self.security, broker, reactor),  # it ends clients that are refused now
            self.rateLimits.prepare,
            partial(prepareQueues, broker),
            partial(prepareSchemas, broker),
            lambda settings: partial(follow, *followed, settings),
        ]
