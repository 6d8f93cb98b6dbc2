"""``/api/``: the state of the broker as JSON, and some actions of its operator.

Listings are paged like the broker's paths: ``limit`` rows with keys larger than ``after``, and ``next``, the key for
the next page. A topic is named only to requests with a right to use it. Settings are shown without secrets: of commands
to spawn, options of extensions and schemes of authentication only the first word.
"""

from collections.abc import Callable, Coroutine, Mapping
from enum import Enum
from functools import partial
from operator import attrgetter
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from fleximq.broker.broker import Broker
from fleximq.broker.paths import dead_letter_paths, queue_paths
from fleximq.broker.paths.arguments import Listing, Path, number, page
from fleximq.broker.paths.path_table import clients, performAct, topics
from fleximq.broker.paths.rows import groupRow, overview
from fleximq.broker.paths.schedule_paths import schedules
from fleximq.broker.paths.value_paths import values
from fleximq.config.option_table import OPTIONS
from fleximq.config.settings import Settings
from fleximq.errors import Conflict, Forbidden, NotFound
from fleximq.rights import Action
from fleximq.values.printable import shortened
from fleximq.web.request import HttpReply, Page, PageRequest, jsonReply, numberOf

#: Options that are shown in part, by name -> function of each of their values.
_PARTS: Mapping[str, Callable[[Any], Any]] = {
    "spawn": lambda line: line.split()[0],
    "extension": lambda chosen: chosen.name,
    "schedules": lambda table: table.name,
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


_log = Logger()

#: The acts against clients, by path.
_ACTS = {"/api/clients/kick": "kick", "/api/bans/add": "ban", "/api/bans/remove": "unban"}
#: The pages that answer as a path of the broker, and whether their keys are numbers.
_LISTS: Mapping[str, tuple[Path, bool]] = {
    "/api/clients": (clients, True),
    "/api/topics": (topics, False),
    "/api/queues": (queue_paths.queues, False),
    "/api/queues/peek": (queue_paths.peek, False),
    "/api/dead-letters": (dead_letter_paths.deadLetters, True),
    "/api/subscriptions": (queue_paths.subscriptions, True),
    "/api/schedules": (schedules, False),
    "/api/values": (values, False),
}

Answer = Callable[[PageRequest], Coroutine[Any, Any, HttpReply]]


class Api:
    """All paths below ``/api/``. ``settings``: returns the current settings."""

    def __init__(self, broker: Broker, settings: Callable[[], Settings]) -> None:
        self._broker = broker
        self._settings = settings

    def pages(self) -> dict[str, Page]:
        """Return the pages by path."""
        acts: dict[str, Answer] = {path: partial(self.performAct, act) for path, act in _ACTS.items()}
        acts["/api/clients/disconnect"] = self.disconnect
        for path, function in (queue_paths.ACTING | dead_letter_paths.ACTING).items():
            acts[path.replace("/broker/", "/api/")] = partial(self.ask, function, False)
        return {
            "/api/": Page(self.index),
            "/api/about": Page(self.about),
            "/api/groups": Page(self.groups),
            **{path: Page(partial(self.ask, *found)) for path, found in _LISTS.items()},
            "/api/bans": Page(partial(self.performAct, "bans"), Action.ADMIN),
            "/api/settings": Page(self.settings, Action.ADMIN),
            **{path: Page(partial(_logged, act), Action.ADMIN, post=True) for path, act in acts.items()},
        }

    # -- reading -----------------------------------------------------------------------------------

    async def index(self, request: PageRequest) -> HttpReply:
        """List the paths that this request may use."""
        pages = self.pages().items()
        allowed = [
            {"method": each.methods[0], "path": path}
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
        return jsonReply({"settings": shownSettings(self._settings())})

    async def ask(self, path: Path, isNumbered: bool, request: PageRequest) -> HttpReply:
        """Answer as a path of the broker."""
        arguments = dict(request.arguments)
        for name in arguments.keys() & {"after", "before"} if isNumbered else ():
            arguments[name] = numberOf(arguments[name])
        answered: Deferred[Any] = Deferred()
        asker: Any = request  # as the client, it has rights
        path(self._broker, asker, arguments, answered.callback)
        return jsonReply(await answered)

    # -- acting ------------------------------------------------------------------------------------

    async def disconnect(self, request: PageRequest) -> HttpReply:
        """Disconnect the client with this ``client_id``, with an error in its dialect."""
        clientId = number(request.arguments, "client_id")
        client = next((each for each in self._broker.clients if each.id == clientId), None)
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


async def _logged(act: Answer, request: PageRequest) -> HttpReply:
    words = shortened(str(dict(request.arguments)))
    _log.info("{who} requests {path} with {words}", who=request.who, event="admin", path=request.path, words=words)
    return await act(request)
