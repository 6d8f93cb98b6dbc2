"""``/api/``: the state of the broker as JSON, and some actions of its operator.

Listings are paged like the broker's paths: ``limit`` rows with keys larger than ``after``, and ``next``, the key for
the next page. A topic is named only to requests with a right to use it.

Settings are shown without secrets. Commands to spawn, options of extensions and schemes of authentication may contain
passwords, so only their first word is shown; of files only the path is a setting, not the content.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from enum import Enum
from functools import partial
from operator import attrgetter
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from fleximq.broker.broker import Broker
from fleximq.broker.paths.arguments import Listing, number, page, text
from fleximq.broker.paths.rows import clientRow, groupRow, overview, topicPage
from fleximq.broker.queues.queue import Queue
from fleximq.config.option_table import OPTIONS
from fleximq.config.settings import Settings
from fleximq.errors import BadRequest, Conflict, Forbidden, NotFound
from fleximq.limits import DEAD, TOPIC_BYTES
from fleximq.rights import Action
from fleximq.web.request import HttpReply, Page, PageRequest, jsonReply, numberOf

#: Options that are shown in part, by name -> function of each of their values.
_PARTS: Mapping[str, Callable[[Any], Any]] = {
    "spawn": lambda line: line.split()[0],
    "extension": lambda chosen: chosen.name,
    "auth": lambda scheme: str(scheme).partition(":")[0],
}


def shownSettings(settings: Settings) -> dict[str, Any]:
    """Return the settings by option name, as values for JSON."""
    return {option.name: _shown(option.name, option.of(settings)) for option in OPTIONS}


def _shown(name: str, value: Any) -> Any:
    part = _PARTS.get(name)
    if part is not None:
        return [part(each) for each in value or ()]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return [_shown("", each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


_log = Logger("fleximq.web.api")

#: The default number of dead letters that one request returns to their topic.
LETTERS = 1000

#: The acts against clients, by path.
_ACTS = {"/api/clients/kick": "kick", "/api/bans/add": "ban", "/api/bans/remove": "unban"}

Answer = Callable[[PageRequest], Coroutine[Any, Any, HttpReply]]


class Api:
    """All paths below ``/api/``. ``settings``: returns the current settings."""

    def __init__(self, broker: Broker, settings: Callable[[], Settings]) -> None:
        self._broker = broker
        self._settings = settings

    def pages(self) -> dict[str, Page]:
        """Return the pages by path."""
        reading = {
            "/api/": self.index,
            "/api/about": self.about,
            "/api/clients": self.clients,
            "/api/topics": self.topics,
            "/api/queues": self.queues,
            "/api/subscriptions": self.subscriptions,
            "/api/groups": self.groups,
        }
        acting = {
            "/api/clients/disconnect": self.disconnect,
            "/api/queues/purge": self.purge,
            "/api/dead-letters/return": self.returnDeadLetters,
        }
        return {
            **{path: Page(answer) for path, answer in reading.items()},
            **{path: Page(partial(self.operate, act), Action.ADMIN, post=True) for path, act in _ACTS.items()},
            "/api/bans": Page(partial(self.operate, "bans"), Action.ADMIN),
            "/api/settings": Page(self.settings, Action.ADMIN),
            **{path: Page(answer, Action.ADMIN, post=True) for path, answer in acting.items()},
        }

    # -- reading -----------------------------------------------------------------------------------

    async def index(self, visit: PageRequest) -> HttpReply:
        """List the paths that this request may use."""
        pages = self.pages().items()
        allowed = [
            {"method": each.methods[0], "path": path}
            for path, each in pages
            if each.action is None or visit.may(each.action, path[1:])
        ]
        return jsonReply({"paths": allowed})

    async def about(self, visit: PageRequest) -> HttpReply:
        """Return version, uptime in seconds, the numbers of clients, topics and queues, and the counted events."""
        return jsonReply(overview(self._broker))

    async def clients(self, visit: PageRequest) -> HttpReply:
        """List the connected clients by id."""
        rows = self._broker.clients
        return jsonReply(await self._listed(visit, "clients", rows, "id", partial(clientRow, self._broker), 0))

    async def topics(self, visit: PageRequest) -> HttpReply:
        """List the topics by name."""
        listed: Deferred[dict[str, Any]] = Deferred()
        topicPage(self._broker, visit.sees, visit.arguments, listed.callback)
        return jsonReply(await listed)

    async def queues(self, visit: PageRequest) -> HttpReply:
        """List the work queues by topic, including those of dead letters."""

        def row(queue: Any) -> dict[str, Any]:
            return {
                "topic": queue.name,
                "dead_letters": queue.name.startswith(DEAD),
                "consumers_waiting": queue.waiting,
                **_load(queue, queue.queue, queue.durable),
            }

        def sees(queue: Any) -> bool:
            return visit.sees(queue.name)

        return jsonReply(await self._listed(visit, "queues", self._broker.queues, "name", row, sees=sees))

    async def subscriptions(self, visit: PageRequest) -> HttpReply:
        """List the polled subscriptions by id; their owners are not shown."""

        def row(each: Any) -> dict[str, Any]:
            return {
                "subscription": each.id,
                "topic": each.topic,
                "qos": each.qos,
                "connected": each.idleSince is None,
                **_load(each, each.queue, each.durable),
            }

        def sees(each: Any) -> bool:
            return visit.sees(each.topic)

        rows = self._broker.polledSubscriptions
        return jsonReply(await self._listed(visit, "subscriptions", rows, "id", row, 0, sees))

    async def groups(self, visit: PageRequest) -> HttpReply:
        """List the pipeline's consumer groups by name, with their lag."""
        broker = self._broker
        rows = broker.groups if broker.journal.onDisk else ()
        found = await self._listed(visit, "groups", rows, "group", partial(groupRow, broker))
        return jsonReply(found | {"end": broker.journal.end if broker.journal.onDisk else None})

    async def settings(self, visit: PageRequest) -> HttpReply:
        """Return the current settings by option name, without secrets."""
        return jsonReply({"settings": shownSettings(self._settings())})

    def _listed(
        self,
        visit: PageRequest,
        title: str,
        rows: Iterable[Any],
        key: str,
        show: Callable[[Any], Any],
        start: int | str = "",
        sees: Callable[[Any], bool] = lambda row: True,
    ) -> "Deferred[dict[str, Any]]":
        """Return one page of rows with keys larger than ``start``, or the argument ``after`` of the same type."""
        arguments = dict(visit.arguments)
        if isinstance(start, int) and "after" in arguments:
            arguments["after"] = numberOf(arguments["after"])
        listed: Deferred[dict[str, Any]] = Deferred()
        some = page(arguments, type(start), start)
        Listing(title, rows, attrgetter(key), show, *some, sees).answer(self._broker, listed.callback)
        return listed

    # -- acting ------------------------------------------------------------------------------------

    async def disconnect(self, visit: PageRequest) -> HttpReply:
        """Disconnect the client with this ``client_id``, with an error in its dialect."""
        id = number(visit.arguments, "client_id")
        client = next((each for each in self._broker.clients if each.id == id), None)
        if client is None:
            raise NotFound(f"there is no client {id}")
        if client.conversation is None:
            raise Conflict(f"client {id} cannot be disconnected")
        _acted(visit, "disconnects {name}", name=client.name)
        client.conversation.expel(Forbidden("disconnected by the operator"))
        return jsonReply({"disconnected": id})

    async def operate(self, act: str, visit: PageRequest) -> HttpReply:
        """Perform an act of :class:`fleximq.services.operator.Operator` with the arguments of the request."""
        return jsonReply(self._broker.operate(act, visit.arguments, visit.who))

    async def purge(self, visit: PageRequest) -> HttpReply:
        """Discard the messages in the queue of a ``topic``, or of a ``subscription`` with this id."""
        if ("topic" in visit.arguments) == ("subscription" in visit.arguments):
            raise BadRequest("name either a 'topic' or a 'subscription'")
        queue: Any
        if "topic" in visit.arguments:
            name = text(visit.arguments, "topic", TOPIC_BYTES + len(DEAD))
            queue = self._broker.queues.get(name)
        else:
            id = number(visit.arguments, "subscription")
            queue = next((each for each in self._broker.polledSubscriptions if each.id == id), None)
            name = "" if queue is None else queue.topic
        if queue is None or not visit.sees(name):
            raise NotFound("there is no such queue")
        _acted(visit, "purges the queue of {name}", name=name)
        done: Deferred[tuple[int, str | None]] = Deferred()
        self._broker.admin.purge(queue, lambda gone, reason: done.callback((gone, reason)))
        gone, reason = await done
        return jsonReply({"purged": gone, "reason": reason})

    async def returnDeadLetters(self, visit: PageRequest) -> HttpReply:
        """Move at most ``limit`` dead letters of a ``topic`` back: publish them to that topic again."""
        name = text(visit.arguments, "topic", TOPIC_BYTES + len(DEAD)).removeprefix(DEAD)
        most = number(visit.arguments, "limit", LETTERS)
        if not visit.sees(name) and not visit.sees(DEAD + name):
            raise NotFound(f"there are no dead letters of {name!r}")
        done: Deferred[tuple[int, str | None]] = Deferred()
        self._broker.admin.returnDeadLetters(name, most, lambda given, reason: done.callback((given, reason)))
        _acted(visit, "gives dead letters of {name} back", name=name)
        given, reason = await done
        return jsonReply({"returned": given, "reason": reason})


def _load(queue: Any, inner: Queue, kept: bool) -> Mapping[str, Any]:
    return {
        "messages": queue.depth,
        "in_flight": queue.inFlight,
        "returned": inner.returned,
        "bytes": queue.size,
        "kept": kept,
    }


def _acted(visit: PageRequest, what: str, **fields: object) -> None:
    _log.info(f"{{who}} {what}", who=visit.who, event="admin", path=visit.path, **fields)
