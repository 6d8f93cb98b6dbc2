"""The web site of the broker: metrics, health and the API.

Liveness and readiness are checks; for them and the metrics the delay of the event loop is measured each second.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import InitVar, dataclass
from functools import partial
from typing import Any, Protocol

from twisted.application.service import Service
from twisted.internet.interfaces import IDelayedCall, IProtocolFactory, IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from fleximq.broker.broker import Broker
from fleximq.config.setting_origins import Origin
from fleximq.config.settings import Settings
from fleximq.dialects.http.operations.route_table import ROUTES
from fleximq.dialects.http.routing.origins import Origins
from fleximq.interfaces import IAdmission
from fleximq.rights import Action
from fleximq.security.access_policy import AccessPolicy
from fleximq.security.peer_address import peerAddress
from fleximq.security.principal import Admitted
from fleximq.security.web_sessions import WebSessions
from fleximq.services.network.listeners import ListenerService
from fleximq.services.tracing.traces import Traces
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.histogram import Histogram
from fleximq.values.log_limit import LogLimits
from fleximq.values.unadmitted_budget import UnadmittedBudget
from fleximq.web.api.api import Api, ApiParts
from fleximq.web.api.health_page import HealthInWords
from fleximq.web.api.history import History
from fleximq.web.api.recent_warnings import RecentWarnings
from fleximq.web.health_pages import Check, Look, healthAnswer
from fleximq.web.metrics import IReactorLag, Metrics
from fleximq.web.openapi import openApiPage
from fleximq.web.queue_survey import QueueSurveyor
from fleximq.web.request import HttpRefusal, HttpReply, Page, PageRequest
from fleximq.web.sign_in import SignIn
from fleximq.web.site import RequestRules, WebSite
from fleximq.web.welcome_page import WelcomeEntry

_log = Logger()

#: Seconds between two measurements.
INTERVAL = 1.0
#: The bounds of the histogram, in seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class ClusterState(Protocol):
    """The state of a node of a cluster, as its web pages show it."""

    def ready(self) -> Check:
        """Check whether the node can own the journal, or follow."""

    async def freshen(self) -> None:
        """Prepare :meth:`ready`."""

    def values(self) -> Mapping[str, float]:
        """Return the metrics of the node, by name."""

    def overview(self) -> Mapping[str, Any]:
        """Return the nodes of the cluster, as this node knows them."""

    def refusal(self) -> str:
        """Return why the node answers only requests about itself, "" if it answers all."""


@implementer(IReactorLag)
class LagService(Service):
    """Measures the delay of the event loop each second; ``histogram`` has the results. ``eachSecond``: called then."""

    def __init__(self, clock: IReactorTime) -> None:
        self.histogram = Histogram(BUCKETS)
        self.eachSecond: list[Callable[[], object]] = []
        self._clock = clock
        self._measured = 0.0
        self._due = 0.0
        self._call: IDelayedCall | None = None

    @property
    def latest(self) -> float:
        """The latest delay in seconds: of the last timer, or of the current one if it is overdue."""
        late = self._clock.seconds() - self._due if self._call is not None else 0.0
        return max(self._measured, late)

    def startService(self) -> None:
        super().startService()
        self._again()

    def stopService(self) -> None:
        super().stopService()
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _again(self) -> None:
        self._due = self._clock.seconds() + INTERVAL
        self._call = self._clock.callLater(INTERVAL, self._check)

    def _check(self) -> None:
        self._measured = max(0.0, self._clock.seconds() - self._due)
        self.histogram.add(self._measured)
        self._again()
        for call in self.eachSecond:
            call()


#: Delays of the event loop, in seconds, above which the broker is not ready, or not alive.
READY_LAG, LIVE_LAG = 1.0, 30.0


@dataclass(eq=False, repr=False)
class Health:
    """The health checks: extensions may add to the lists ``live`` and ``ready``; ``node`` is one of a cluster."""

    _broker: Broker
    _lag: LagService
    _listeners: Callable[[], Iterable[Any]]
    _stopping: Callable[[], bool] = lambda: False
    node: InitVar[ClusterState | None] = None

    def __post_init__(self, node: ClusterState | None) -> None:
        self.live: list[Look] = [lambda: self._late(LIVE_LAG)]
        self.ready: list[Look] = [self._journal, self._listening, self._draining, lambda: self._late(READY_LAG)]
        self.ready += [] if node is None else [node.ready]

    def _late(self, maximum: float) -> Check:
        late = self._lag.latest
        return Check("event loop", late <= maximum, f"{late:.3f} seconds late, at most {maximum:g} are good")

    def _journal(self) -> Check:
        health = self._broker.journalHealth()
        if health is None:
            return Check("journal", True, "there is none")
        good = health["state"] == "ok"
        words = "recovered and writable" if good else f"read-only: {health['reason']}"
        if health.get("retries"):
            words += "; the broker tries again by itself"
        return Check("journal", good, words)

    def _listening(self) -> Check:
        closed = [str(each.listen) for each in self._listeners() if each.port is None]
        words = f"not open: {', '.join(closed)}" if closed else "all are open"
        return Check("listeners", not closed, words)

    def _draining(self) -> Check:
        stopping = self._stopping()
        return Check("draining", not stopping, "the broker is about to stop" if stopping else "no")


def listenersOf(service: Iterable[Any]) -> list[ListenerService]:
    """Return all listeners inside a service."""
    listeners: list[ListenerService] = []
    for each in service:
        if isinstance(each, ListenerService):
            listeners.append(each)
        elif hasattr(each, "__iter__"):
            listeners += listenersOf(each)
    return listeners


@dataclass(frozen=True, slots=True)
class SiteParts:
    """The parts of the process that the pages show, and that their requests need.

    :param settings: returns the current settings, and ``sources`` where they come from.
    :param admission: checks those who sign in, and whether they are still admitted.
    :param waiting: returns the number of connections that have not joined yet.
    :param unadmitted: charged for requests.
    :param origins: those whose pages may load the JavaScript client from the broker.
    :param warned: has the latest warnings of the log.
    :param node: that of a cluster; one that does not own the journal refuses requests that are not about itself.
    """

    broker: Broker
    settings: Callable[[], Settings]
    sources: Callable[[], Mapping[str, Origin]]
    security: AccessPolicy
    admission: IAdmission
    lag: LagService
    health: Health
    waiting: Callable[[], int]
    logLimits: LogLimits
    unadmitted: UnadmittedBudget
    origins: Origins
    warned: RecentWarnings
    node: ClusterState | None = None


def siteFactory(reactor: Any, parts: SiteParts) -> Callable[[tuple[WelcomeEntry, ...]], IProtocolFactory]:
    """Return a function that makes the site of a listener with its dialects; all sites have the same pages."""
    broker, settings, security, node = parts.broker, parts.settings, parts.security, parts.node
    lag, health, admission = parts.lag, parts.health, parts.admission
    sessions = None if settings().noConsole else WebSessions(reactor.seconds)
    security.sessions = sessions

    def values() -> Mapping[str, float]:
        return {"console_sessions": len(sessions or ()), **({} if node is None else node.values())}

    metrics = Metrics(broker, QueueSurveyor(broker, reactor), lag, parts.waiting, settings().metricsTop, values)
    pages = {
        "/metrics": Page(metrics.answer, Action.READ),
        "/healthz": Page(partial(healthAnswer, health.live, None), None),
        "/readyz": Page(partial(healthAnswer, health.ready, None if node is None else node.freshen), None),
    }
    history = History(broker, lambda: lag.latest)
    lag.eachSecond.append(history.second)
    inWords = HealthInWords(broker, health.ready, history, None if node is None else node.freshen)
    cluster = (lambda: None) if node is None else node.overview
    traces = Traces(broker)
    shown = ApiParts(broker, settings, parts.sources, security, history, inWords, parts.warned, cluster, traces)
    api = Api(shown).pages()
    pages |= {path: page if node is None or page.everywhere else _ofOwner(page, node) for path, page in api.items()}

    if sessions is not None:
        pages |= SignIn(sessions, admission, security.accepts, broker.audit, broker.wall, pages).pages()
    pages["/openapi.json"] = openApiPage(pages, ROUTES if "http" in broker.dialects else ())

    def refused(peer: object, code: int) -> None:
        """Count and log a request that was not received in time or within the budget."""
        broker.observers.counted(CountedEvent(EventFamily.REFUSED_CONNECTIONS, f"HTTP {code}"), 1)
        more = parts.logLimits[f"HTTP {code}"].ending(reactor.seconds())
        if more is not None:
            _log.warn("Refusing HTTP from {peer} with {code}{more}", peer=peerAddress(peer), code=code, more=more)

    def nobody() -> Admitted | None:
        """Return the rights of requests without credentials; None if credentials are required."""
        return None if security.required else Admitted(None, security.rightsOf(None))

    rules = RequestRules(parts.unadmitted, settings().handshakeTimeout, refused, parts.origins.corsFields)
    return lambda entries: WebSite(reactor, entries, pages, nobody, admission.renewed, rules, broker.audit, sessions)


def _ofOwner(page: Page, node: ClusterState) -> Page:
    """Return a page that only the owner of the journal answers."""

    async def answer(request: PageRequest) -> HttpReply:
        reason = node.refusal()
        if reason:
            raise HttpRefusal(503, reason)
        return await page.answer(request)

    return page._replace(answer=answer)
