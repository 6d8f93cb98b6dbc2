"""Builds the web site: metrics, health and the API of one broker."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IProtocolFactory
from twisted.logger import Logger

from fleximq.broker.broker import Broker
from fleximq.config.settings import Settings
from fleximq.rights import Action
from fleximq.security.access_policy import AccessPolicy
from fleximq.security.peer_address import peerAddress
from fleximq.security.principal import Admitted
from fleximq.services.health import Health, LagService
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.log_limit import LogLimits
from fleximq.values.unadmitted_budget import UnadmittedBudget
from fleximq.web.api import Api
from fleximq.web.health_pages import HealthPage
from fleximq.web.metrics import Metrics
from fleximq.web.queue_survey import QueueSurveyor
from fleximq.web.request import HttpRefusal, HttpReply, Page, PageRequest
from fleximq.web.site import RequestRules, WebSite
from fleximq.web.welcome_page import WelcomeEntry

if TYPE_CHECKING:
    from fleximq.services.cluster_service import ClusterNode

_log = Logger()


def siteFactory(
    reactor: Any,
    broker: Broker,
    settings: Callable[[], Settings],
    security: AccessPolicy,
    lag: LagService,
    health: Health,
    waiting: Callable[[], int],
    logLimits: LogLimits,
    unadmitted: UnadmittedBudget,
    node: "ClusterNode | None" = None,
) -> Callable[[tuple[WelcomeEntry, ...]], IProtocolFactory]:
    """Return a function that makes the site of a listener with its dialects; all sites have the same pages.

    :param settings: returns the current settings.
    :param waiting: returns the number of connections that have not joined yet.
    :param unadmitted: charged for requests.
    :param node: that of a cluster; one that does not own the journal refuses requests that are not about itself.
    """
    surveyor, ofNode = QueueSurveyor(broker, reactor), None if node is None else node.values
    metrics = Metrics(broker, surveyor, lag, waiting, settings().metricsTop, ofNode)
    pages = {
        "/metrics": Page(metrics.answer, Action.READ),
        "/healthz": Page(HealthPage(health.live).answer, None),
        "/readyz": Page(HealthPage(health.ready, None if node is None else node.freshen).answer, None),
    }
    api = Api(broker, settings).pages()
    pages |= api if node is None else {path: _ofOwner(page, node) for path, page in api.items()}

    def refused(peer: object, code: int) -> None:
        """Count and log a request that was not received in time or within the budget."""
        broker.observers.counted(CountedEvent(EventFamily.REFUSED_CONNECTIONS, f"HTTP {code}"), 1)
        more = logLimits[f"HTTP {code}"].ending(reactor.seconds())
        if more is not None:
            _log.warn("Refusing HTTP from {peer} with {code}{more}", peer=peerAddress(peer), code=code, more=more)

    def nobody() -> Admitted | None:
        """Return the rights of requests without credentials; None if credentials are required."""
        return None if security.required else Admitted(None, security.rightsOf(None))

    rules = RequestRules(unadmitted, settings().handshakeTimeout, refused)
    return lambda entries: WebSite(reactor, entries, pages, nobody, security.renewed, rules, broker.audit)


def _ofOwner(page: Page, node: "ClusterNode") -> Page:
    """Return a page that only the owner of the journal answers."""

    async def answer(request: PageRequest) -> HttpReply:
        reason = node.refusal()
        if reason:
            raise HttpRefusal(503, reason)
        return await page.answer(request)

    return page._replace(answer=answer)
