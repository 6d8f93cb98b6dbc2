"""A broker in memory and the web site on it, asked over connections in memory."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import formatEvent
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from fleximq.broker.broker import Broker
from fleximq.config.setting_origins import Origin
from fleximq.config.settings import Settings
from fleximq.interfaces import IRights
from fleximq.journal.memory_journal import MemoryJournal
from fleximq.limits import NO_LIMITS
from fleximq.rights import EVERYTHING
from fleximq.security.access_policy import AccessPolicy
from fleximq.security.principal import Admitted, Principal
from fleximq.security.web_sessions import WebSessions
from fleximq.services.tracing.traces import Traces
from fleximq.services.web_site import LagService
from fleximq.values.unadmitted_budget import UnadmittedBudget
from fleximq.web.api.api import Api, ApiParts
from fleximq.web.api.health_page import HealthInWords
from fleximq.web.api.history import History
from fleximq.web.api.recent_warnings import RecentWarnings
from fleximq.web.health_pages import Check, healthAnswer
from fleximq.web.metrics import Metrics
from fleximq.web.queue_survey import QueueSurveyor
from fleximq.web.request import Page
from fleximq.web.site import RequestRules, WebSite

JSON = "Content-Type: application/json"


@implementer(IRights)
class Granted:
    """Rights to just these names, whatever the action, or with ``action:`` before them for that alone."""

    limits = NO_LIMITS

    def __init__(self, *names: str) -> None:
        self.names = names

    def forClient(self, id: int) -> "Granted":
        """Return itself."""
        return self

    def may(self, action: str, name: str) -> bool:
        """Tell whether it is one of them."""
        return name in self.names or f"{action}:{name}" in self.names

    def mayMatch(self, action: str, pattern: str) -> bool:
        """Say no."""
        return False

    def mayAll(self, action: str) -> bool:
        """Say no."""
        return False


class Answer:
    """An HTTP answer, taken apart."""

    def __init__(self, raw: bytes) -> None:
        head, self.body = raw.split(b"\r\n\r\n", 1)
        status, *lines = head.decode().split("\r\n")
        self.code = int(status.split(" ")[1])
        self.fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}

    @property
    def value(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class SiteCase(SynchronousTestCase):
    """``broker`` and the pages on it; ``admitted`` is who asks."""

    def setUp(self) -> None:
        """A broker without anybody."""
        self.clock: Any = MemoryReactorClock()
        self.broker = self.makeBroker()
        self.lag = LagService(self.clock)
        self.lag.startService()
        self.admitted: Admitted | None = Admitted(Principal("ann"), EVERYTHING)
        self.renewed: Callable[[Admitted], Admitted] = lambda admitted: admitted
        self.checks = [Check("one", True, "fine")]
        self.sessions: WebSessions | None = WebSessions(self.clock.seconds)
        self.cors: Callable[[str | None], Sequence[str]] = lambda origin: ()
        self.audited: list[tuple[str, dict[str, Any]]] = []
        self.shown = Settings(spawn=("program --password hidden",))
        self.pages = self.makePages()

    def record(self, event: str, arguments: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """Record an event of the audit log."""
        self.audited.append((event, {**fields, "arguments": arguments}))

    def makeBroker(self) -> Broker:
        """Return the broker."""
        self.errors: list[Exception] = []
        return Broker(
            self.clock, MemoryJournal(), lambda digits: "0" * digits,
            lambda message: message.message_id or "x", self.errors.append,
        )  # fmt: skip

    def makePages(self) -> Mapping[str, Page]:
        """Return the pages."""
        metrics = Metrics(self.broker, QueueSurveyor(self.broker, self.clock), self.lag, lambda: 7, 2)
        health = partial(healthAnswer, [lambda: self.checks[0]], None)
        return {
            "/metrics": Page(metrics.answer),
            "/readyz": Page(health, None),
            **Api(self.makeParts()).pages(),
        }

    def makeParts(self) -> ApiParts:
        """Return the parts of the process that the API shows."""
        self.history = History(self.broker, lambda: self.lag.latest)
        self.lag.eachSecond.append(self.history.second)
        health = HealthInWords(self.broker, [lambda: self.checks[0]], self.history)
        self.origins: dict[str, Origin] = {}
        self.policy = AccessPolicy()
        self.traces = Traces(self.broker)
        self.warned = RecentWarnings(self.clock.seconds, formatEvent)
        return ApiParts(
            self.broker, lambda: self.shown, lambda: self.origins, self.policy, self.history, health, self.warned,
            lambda: None, self.traces,
        )  # fmt: skip

    def ask(self, line: str, *fields: str, body: object = None, host: str = "127.0.0.1:7890") -> Answer:
        """Return the answer to one request, after which the connection has to be closed.

        :param line: method and path.
        :param body: what is posted, as JSON unless it is bytes.
        """
        posted = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        length = [f"Content-Length: {len(posted)}"] if posted else []
        named = [f"Host: {host}"] if host else []
        site: Any = WebSite(
            self.clock,
            (),
            self.pages,
            lambda: self.admitted,
            lambda admitted: self.renewed(admitted),
            audit=self.record,
            sessions=self.sessions,
            rules=RequestRules(UnadmittedBudget(), cors=self.cors),
        )
        site.doStart()
        self.addCleanup(site.doStop)
        channel = site.buildProtocol(None)
        transport = StringTransport(hostAddress=IPv4Address("TCP", "127.0.0.1", 7890))
        channel.makeConnection(transport)
        channel.dataReceived(
            "\r\n".join((f"{line} HTTP/1.1", *named, *fields, *length, "", "")).encode("latin-1") + posted
        )
        for _ in range(100):
            if transport.disconnecting:
                break
            self.turn()
        self.assertTrue(transport.disconnecting)
        channel.connectionLost(None)
        return Answer(transport.value())

    def turn(self) -> None:
        """Let a turn of the reactor pass."""
        self.clock.advance(0)

    def post(self, path: str, value: object, *fields: str) -> Answer:
        """Return the answer to what is posted as JSON."""
        return self.ask(f"POST {path}", JSON, *fields, body=value)
