"""``/api/``: the state of the broker as JSON, and some actions of its operator.

Listings are paged like the broker's paths: ``limit`` rows with keys larger than ``after``, and ``next``, the key for
the next page. A topic is named only to requests with a right to use it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.paths.arguments import Answer, Arguments, page
from fleximq.broker.paths.group_paths import groups
from fleximq.broker.paths.rows import overview
from fleximq.broker.paths.value_paths import values
from fleximq.config.setting_origins import Origin
from fleximq.config.settings import Settings
from fleximq.rights import Action
from fleximq.security.access_policy import AccessPolicy
from fleximq.web.api.answers import PAGED, pathPage
from fleximq.web.api.client_pages import clientPages
from fleximq.web.api.health_page import HealthInWords, healthPage
from fleximq.web.api.history import History, historyPage
from fleximq.web.api.journal_page import JournalInWords, journalPage
from fleximq.web.api.queue_pages import queuePages
from fleximq.web.api.recent_warnings import RecentWarnings, warningsPage
from fleximq.web.api.rights_page import RightsExplained, rightsPage
from fleximq.web.api.shown_settings import shownOrigins, shownSettings
from fleximq.web.api.topic_pages import topicPages
from fleximq.web.api.trace_pages import ITraces, tracePages
from fleximq.web.request import Argument, HttpReply, Page, PageRequest, jsonReply


def apiTable() -> dict[str, Page]:
    """Return the pages by path, for their descriptions only."""
    nothing: Any = None
    return Api(ApiParts(*[nothing] * len(fields(ApiParts)))).pages()


@dataclass(frozen=True, slots=True)
class ApiParts:
    """The parts of the process that the API shows. ``settings``: returns the current settings, ``origins`` where they
    come from, ``cluster`` the nodes of the cluster, or None.
    """

    broker: Broker
    settings: Callable[[], Settings]
    origins: Callable[[], Mapping[str, Origin]]
    security: AccessPolicy
    history: History
    health: HealthInWords
    warnings: RecentWarnings
    cluster: Callable[[], Mapping[str, Any] | None]
    traces: ITraces


class Api:
    """All paths below ``/api/``."""

    def __init__(self, parts: ApiParts) -> None:
        self._parts, self._broker = parts, parts.broker

    def pages(self) -> dict[str, Page]:
        """Return the pages by path."""
        reads, parts = partial(pathPage, self._broker), self._parts
        return {
            "/api/": Page(self.index, words="The paths that this request may use.", everywhere=True),
            "/api/about": Page(
                self.about, words="Version, uptime in seconds, totals, and all counts.", everywhere=True
            ),
            "/api/history": historyPage(parts.history),
            "/api/health": healthPage(parts.health),
            "/api/warnings": warningsPage(parts.warnings),
            "/api/journal": journalPage(JournalInWords(parts.broker, parts.settings, parts.history)),
            "/api/rights": rightsPage(RightsExplained(parts.broker, parts.security)),
            "/api/cluster": Page(
                self.cluster, words="The nodes of the cluster, its owner, and who lags behind.", everywhere=True
            ),
            "/api/values": reads(values, "The keys of stored values.", (*PAGED, Argument("prefix", "Of the keys."))),
            "/api/groups": reads(_groups, "Consumer groups of the pipeline by name, with their lag.", PAGED),
            "/api/settings": Page(
                self.settings,
                Action.ADMIN,
                words="The current settings, except possible secrets, and where each comes from.",
                everywhere=True,
            ),
            **queuePages(self._broker),
            **topicPages(self._broker),
            **clientPages(self._broker),
            **tracePages(parts.traces),
        }

    async def index(self, request: PageRequest) -> HttpReply:
        """List the paths that this request may use."""
        pages = self.pages().items()
        allowed = [
            {"method": each.methods[0], "path": path, "words": each.words}
            for path, each in pages
            if each.action is None or request.may(each.action, path[1:])
        ]
        return jsonReply({"paths": allowed})

    async def about(self, request: PageRequest) -> HttpReply:
        """Return version, uptime in seconds, the numbers of clients, topics and queues, and the counted events."""
        return jsonReply(overview(self._broker))

    async def settings(self, request: PageRequest) -> HttpReply:
        """Return the current settings by option name, without secrets."""
        settings = self._parts.settings()
        origins = shownOrigins(settings, self._parts.origins())
        return jsonReply({"settings": shownSettings(settings), "origins": origins})

    async def cluster(self, request: PageRequest) -> HttpReply:
        """Return the nodes of the cluster; of a single broker, null."""
        return jsonReply({"cluster": self._parts.cluster()})


def _groups(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer as ``/pipeline/groups``; without a journal there are none."""
    if broker.journal.onDisk:
        groups(broker, client, arguments, answer)
    else:
        page(arguments, str, "")
        answer({"groups": [], "next": None, "end": None})
