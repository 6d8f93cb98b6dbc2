"""Shared by the pages of the API: pages that answer as a path of the broker, their arguments, and the log of acts."""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from fleximq.broker.broker import Broker
from fleximq.broker.paths.arguments import Path
from fleximq.rights import Action
from fleximq.values.printable import shortened
from fleximq.web.api.shown_payload import withValue
from fleximq.web.request import Argument, HttpReply, Page, PageRequest, jsonReply

_log = Logger()

Answer = Callable[[PageRequest], Coroutine[Any, Any, HttpReply]]

#: The fields of answers that are lists of messages, whose payloads are also shown as values.
_MESSAGES = frozenset({"messages", "letters"})
#: The arguments of listings that are paged by a text, and by a number.
LIMIT = Argument("limit", "The maximum number of rows.", "integer")
PAGED = (LIMIT, Argument("after", "The key after which the rows begin: the ``next`` of another page."))
PAGED_BY_NUMBER = (LIMIT, PAGED[1]._replace(kind="integer"))


def pathPage(broker: Broker, path: Path, words: str, arguments: Sequence[Argument] = ()) -> Page:
    """Return a page that answers as a path of the broker."""
    return Page(partial(_ask, broker, path), words=words, arguments=arguments)


def actOf(broker: Broker, path: Path, words: str, arguments: Sequence[Argument] = ()) -> Page:
    """Return a page for a POST of an operator that acts as a path of the broker."""
    return actPage(partial(_ask, broker, path), words, arguments)


def actPage(act: Answer, words: str, arguments: Sequence[Argument] = ()) -> Page:
    """Return a page for a POST of an operator; each is logged."""
    return Page(partial(_logged, act), Action.ADMIN, post=True, words=words, arguments=arguments)


async def _ask(broker: Broker, path: Path, request: PageRequest) -> HttpReply:
    broker.checkPath(request.path.replace("/api/", "/broker/", 1))
    answered: Deferred[Any] = Deferred()
    asker: Any = request  # as the client, it has rights
    path(broker, asker, request.arguments, answered.callback)
    answer = await answered
    return jsonReply({name: _withValues(value) if name in _MESSAGES else value for name, value in answer.items()})


def _withValues(value: Any) -> Any:
    """Return a list of messages with their values; a number, of messages in a queue, is returned unchanged."""
    return [withValue(row) for row in value] if isinstance(value, list) else value


async def _logged(act: Answer, request: PageRequest) -> HttpReply:
    words = shortened(str(dict(request.arguments)))
    _log.info("{who} requests {path} with {words}", who=request.who, event="admin", path=request.path, words=words)
    return await act(request)
