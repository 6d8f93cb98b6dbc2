"""``/api/``: the state of the broker as JSON, and some actions of its operator.

Listings are paged like the broker's paths: ``limit`` rows with keys larger than ``after``, and ``next``, the key for
the next page. A topic is named only to requests with a right to use it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from twisted.internet.defer import Deferred

from fleximq.broker.broker import Broker
from fleximq.broker.paths.arguments import Listing, number, page
from fleximq.broker.paths.path_table import clients, performAct
from fleximq.broker.paths.rows import groupRow, overview
from fleximq.broker.paths.value_paths import values
from fleximq.config.settings import Settings
from fleximq.errors import Conflict, Forbidden, NotFound
from fleximq.rights import Action
from fleximq.web.api.answers import PAGED, PAGED_BY_NUMBER, actPage, pathPage
from fleximq.web.api.health_page import HealthInWords, healthPage
from fleximq.web.api.history import History, historyPage
from fleximq.web.api.queue_pages import queuePages
from fleximq.web.api.shown_settings import shownSettings
from fleximq.web.api.topic_pages import topicPages
from fleximq.web.request import Argument, HttpReply, Page, PageRequest, jsonReply

_CLIENT = Argument("client_id", "The id of the client.", "integer")
_PRINCIPAL, _ADDRESS = Argument("principal", "A principal."), Argument("address", "The address of peers.")


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
        reads, act = partial(pathPage, self._broker), self.performAct
        return {
            "/api/": Page(self.index, words="The paths that this request may use.", everywhere=True),
            "/api/about": Page(
                self.about, words="Version, uptime in seconds, totals, and all counts.", everywhere=True
            ),
            "/api/history": historyPage(self._parts.history),
            "/api/health": healthPage(self._parts.health),
            "/api/clients": reads(clients, "Connected clients by id.", PAGED_BY_NUMBER),
            "/api/values": reads(values, "The keys of stored values.", (*PAGED, Argument("prefix", "Of the keys."))),
            "/api/groups": Page(
                self.groups, words="Consumer groups of the pipeline by name, with their lag.", arguments=PAGED
            ),
            "/api/bans": Page(
                partial(act, "bans"), Action.ADMIN, words="Banned principals and addresses.", arguments=PAGED
            ),
            "/api/settings": Page(
                self.settings, Action.ADMIN, words="The current settings, except possible secrets.", everywhere=True
            ),
            **queuePages(self._broker),
            **topicPages(self._broker),
            "/api/clients/disconnect": actPage(
                self.disconnect, "Disconnect a client with an error in its dialect.", (_CLIENT,)
            ),
            "/api/clients/kick": actPage(
                partial(act, "kick"),
                "Disconnect a client, or those of a principal or an address.",
                (_CLIENT, _PRINCIPAL, _ADDRESS),
            ),
            "/api/bans/add": actPage(
                partial(act, "ban"),
                "Ban a principal or an address, and disconnect its clients.",
                (
                    _PRINCIPAL,
                    _ADDRESS,
                    Argument("seconds", "The duration of the ban.", "integer"),
                    Argument("reason", "Why, for the list of bans."),
                ),
            ),
            "/api/bans/remove": actPage(
                partial(act, "unban"), "End the ban of a principal or an address.", (_PRINCIPAL, _ADDRESS)
            ),
        }

    # -- reading -----------------------------------------------------------------------------------

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

    # -- acting ------------------------------------------------------------------------------------

    async def disconnect(self, request: PageRequest) -> HttpReply:
        """Disconnect the client with this ``client_id``, with an error in its dialect."""
        clientId = number(request.arguments, "client_id")
        client = self._broker.clients.find(clientId)
        if client is None:
            asked, answered = {"client_id": clientId, "by": request.who}, Deferred[Any]()
            self._broker.withOtherNodes("kick", self._broker.brokerClient, asked, answered.callback)(
                {"disconnected": 0}
            )
            if not (await answered)["disconnected"]:
                raise NotFound(f"there is no client {clientId}")
        elif client.conversation is None:
            raise Conflict(f"client {clientId} cannot be disconnected")
        else:
            client.conversation.expel(Forbidden("disconnected by the operator"))
        return jsonReply({"disconnected": clientId})

    async def performAct(self, act: str, request: PageRequest) -> HttpReply:
        """Perform an act of :class:`fleximq.services.operator.Operator` with the arguments of the request."""
        answered: Deferred[Any] = Deferred()
        performAct(self._broker, act, request.arguments, request.who, answered.callback)
        return jsonReply(await answered)
