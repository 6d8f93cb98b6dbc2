"""``/api/``: the state of the broker as JSON, and some actions of its operator.

Listings are paged like the broker's paths: ``limit`` rows with keys larger than ``after``, and ``next``, the key for
the next page. A topic is named only to requests with a right to use it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from fleximq.broker.broker import Broker
from fleximq.broker.paths.arguments import Listing, page
from fleximq.broker.paths.rows import groupRow, overview
from fleximq.broker.paths.value_paths import values
from fleximq.config.settings import Settings
from fleximq.rights import Action
from fleximq.web.api.answers import PAGED, pathPage
from fleximq.web.api.client_pages import clientPages
from fleximq.web.api.health_page import HealthInWords, healthPage
from fleximq.web.api.history import History, historyPage
from fleximq.web.api.queue_pages import queuePages
from fleximq.web.api.shown_settings import shownSettings
from fleximq.web.api.topic_pages import topicPages
from fleximq.web.request import Argument, HttpReply, Page, PageRequest, jsonReply


def apiTable() -> dict[str, Page]:
    """Return the pages by path, for their descriptions only."""
    nothing: Any = None
    return Api(ApiParts(nothing, nothing, nothing, nothing)).pages()


@dataclass(frozen=True, slots=True)
class ApiParts:
    """The parts of the process that the API shows. ``settings``: returns the current settings."""

    broker: Broker
    settings: Callable[[], Settings]
    history: History
    health: HealthInWords


class Api:
    """All paths below ``/api/``."""

    def __init__(self, parts: ApiParts) -> None:
        self._parts, self._broker = parts, parts.broker

    def pages(self) -> dict[str, Page]:
        """Return the pages by path."""
        reads = partial(pathPage, self._broker)
        return {
            "/api/": Page(self.index, words="The paths that this request may use.", everywhere=True),
            "/api/about": Page(
                self.about, words="Version, uptime in seconds, totals, and all counts.", everywhere=True
            ),
            "/api/history": historyPage(self._parts.history),
            "/api/health": healthPage(self._parts.health),
            "/api/values": reads(values, "The keys of stored values.", (*PAGED, Argument("prefix", "Of the keys."))),
            "/api/groups": Page(
                self.groups, words="Consumer groups of the pipeline by name, with their lag.", arguments=PAGED
            ),
            "/api/settings": Page(
                self.settings, Action.ADMIN, words="The current settings, except possible secrets.", everywhere=True
            ),
            **queuePages(self._broker),
            **topicPages(self._broker),
            **clientPages(self._broker),
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

    async def groups(self, request: PageRequest) -> HttpReply:
        """List the pipeline's consumer groups by name, with their lag."""
        broker = self._broker
        rows = broker.groups if broker.journal.onDisk else ()
        some = page(request.arguments, str, "")
        found = Listing("groups", rows, attrgetter("group"), partial(groupRow, broker), *some).atOnce()
        return jsonReply(found | {"end": broker.journal.end if broker.journal.onDisk else None})

    async def settings(self, request: PageRequest) -> HttpReply:
        """Return the current settings by option name, without secrets."""
        return jsonReply({"settings": shownSettings(self._parts.settings())})
