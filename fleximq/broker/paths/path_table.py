"""The table of the broker's own request paths.

Each path takes a map of arguments and answers with a MessagePack value. Listings are paged: ``limit`` (1 to 1,000, 100
by default) entries ``after`` a key; ``next`` in the answer is the key after which to continue, or nil.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from fleximq.broker.authorization import permitPath, sees
from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.paths import dead_letter_paths, queue_paths, value_paths
from fleximq.broker.paths.arguments import Answer, Arguments, Listing, Path, page, seenNames, text
from fleximq.broker.paths.group_paths import GROUP_PATHS, lag
from fleximq.broker.paths.journal_paths import JOURNAL_PATHS, READERS
from fleximq.broker.paths.rows import clientRow, loadOf, overview, shownTo, topicRow, whoIs
from fleximq.broker.paths.schedule_paths import SCHEDULE_ACTS, SCHEDULE_PATHS
from fleximq.broker.paths.value_paths import VALUE_PATHS, VALUE_READERS
from fleximq.broker.paths.work_queue_paths import OWN_RIGHTS, PAUSE, WORK_QUEUE_PATHS, WORK_QUEUE_READERS
from fleximq.broker.topics.names import isBrokerTopic
from fleximq.errors import BadRequest, BrokerError, NotFound
from fleximq.limits import KIBIBYTE, TOPIC_BYTES
from fleximq.rights import Action
from fleximq.values.nesting import NestedTooDeeply, unpack
from fleximq.values.printable import shortened

#: Maximum bytes of the arguments of most paths.
ARGUMENT_BYTES = 64 * KIBIBYTE
#: Unknown paths of more characters are not compared with the known ones.
_HINTED = 64
#: The last character: no name with a prefix is after the prefix with it.
_LAST = "\U0010ffff"


def about(broker: Broker, client: ConnectedClient, arguments: Arguments) -> dict[str, Any]:
    """Answer ``/broker/about``: :func:`overview`, the installed dialects, and the time in milliseconds."""
    return {**overview(broker), "dialects": list(broker.dialects), "time": int(broker.wall() * 1000)}


def _ownClients(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    some, filters = page(arguments, int, 0), _clientFilters(arguments)
    part, isSlow = filters.pop("contains", ""), filters.pop("slow", False)

    def shows(each: ConnectedClient) -> bool:
        names = each.name, each.service, each.principal or "", each.address
        return (
            not each.isDelegate
            and all(getattr(each, name) == value for name, value in filters.items())
            and any(part in name for name in names)
            and not (isSlow and not loadOf(each).slow)
        )

    rows = Listing("clients", broker.clients, attrgetter("id"), partial(clientRow, broker), *some, shows)
    rows.answer(broker, answer)


def _clientFilters(arguments: Arguments) -> dict[str, Any]:
    """Return the arguments that select clients."""
    names = "dialect", "principal", "contains"
    found: dict[str, Any] = {name: text(arguments, name, TOPIC_BYTES) for name in names if arguments.get(name)}
    if not isinstance(arguments.get("slow", False), bool):
        raise BadRequest("'slow' must be true or false")
    return found | ({"slow": True} if arguments.get("slow") else {})


def _ownTopics(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    after, limit = page(arguments, str, "")
    filters = _topicFilters(arguments)
    prefix, part = filters.get("prefix", ""), filters.get("contains", "")
    before = prefix and prefix + _LAST

    def listed(names: list[str], nextName: str | None) -> None:
        stored = broker.journal.bounds()
        there = [name for name in names if broker.topics.find(name) is not None or name in stored]
        answer({"topics": [topicRow(broker, broker.topics.seen(name)) for name in there], "next": nextName})

    def names(most: int, start: str) -> list[str]:
        """Return those of the table and those that only the journal has, as after a restart."""
        start = max(start, prefix)
        stored = [each for each in broker.journal.topics(most, start, before) if not isBrokerTopic(each)]
        return sorted({*broker.topics.names.page(most, start, before), *stored})[:most]

    seenNames(broker, lambda name: part in name and sees(client, name), names, after, limit, listed)


def _topicFilters(arguments: Arguments) -> dict[str, Any]:
    """Return the arguments that select topics."""
    return {name: text(arguments, name, TOPIC_BYTES) for name in ("prefix", "contains") if arguments.get(name)}


def _noFilters(arguments: Arguments) -> dict[str, Any]:
    return {}


class NodeListing(NamedTuple):
    """A listing of one broker, whose rows are in the order of ``key``; ``filters`` reads the arguments that select
    rows.
    """

    key: str
    first: Any
    own: Path
    filters: Callable[[Arguments], dict[str, Any]] = _noFilters


#: The listings that all nodes of a mesh answer together; ``first`` is smaller than all keys.
LISTINGS = {
    "clients": NodeListing("client_id", 0, _ownClients, _clientFilters),
    "topics": NodeListing("topic", "", _ownTopics, _topicFilters),
}


def _ofAllNodes(title: str) -> Path:
    def path(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
        _, first, own, filters = LISTINGS[title]
        after, limit = page(arguments, type(first), first)
        some = {"after": after, "limit": limit, **filters(arguments)}  # other nodes get only arguments that were read
        own(broker, client, some, broker.withOtherNodes(title, client, some, answer))

    return path


_allClients = _ofAllNodes("clients")
#: Answers ``/broker/topics``: every topic by name that the client has a right to, its subscribers, messages and queue.
topics = _ofAllNodes("topics")


def clients(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/broker/clients``: the connected clients, by id."""

    def answered(page: Any) -> None:
        answer({**page, "clients": [shownTo(client, row) for row in page["clients"]]})

    _allClients(broker, client, arguments, answered)


def reload(broker: Broker, client: ConnectedClient, arguments: Arguments) -> Any:
    """Answer ``/broker/reload``: read the settings again; name those ``changed``, and those that need a ``restart``.
    Raises Conflict if they are invalid, and unchanged, with one sentence per line.
    """
    return broker.operator.reload()


def performAct(broker: Broker, act: str, arguments: Arguments, by: str, answer: Answer) -> None:
    """Perform an operator's act, ``kick``, ``ban`` or ``unban``, at all nodes of a mesh, or list the ``bans``."""
    read, own = broker.operator.perform(act, arguments, by)
    if act != "bans":
        answer = broker.withOtherNodes(act, broker.brokerClient, {**read, "by": by}, answer)
    answer(own)


def _operate(act: str) -> Path:
    return lambda broker, client, arguments, answer: performAct(
        broker, act, arguments, client.principal or client.name, answer
    )


def _atOnce(tell: Callable[[Broker, ConnectedClient, Arguments], Any]) -> Path:
    """Return a path that answers with the function's result."""
    return lambda broker, client, arguments, answer: answer(tell(broker, client, arguments))


PATHS: dict[str, Path] = {
    "/broker/about": _atOnce(about),
    "/broker/clients": clients,
    "/broker/topics": topics,
    "/broker/reload": _atOnce(reload),
    **{f"/broker/{act}": _operate(act) for act in ("kick", "ban", "unban", "bans")},
    **queue_paths.READING,
    **queue_paths.ACTING,
    **dead_letter_paths.READING,
    **dead_letter_paths.ACTING,
    **JOURNAL_PATHS,
    **GROUP_PATHS,
    **WORK_QUEUE_PATHS,
    **SCHEDULE_PATHS,
    **VALUE_PATHS,
}
_READERS = READERS | WORK_QUEUE_READERS | VALUE_READERS
#: Paths that need rights to names in their arguments, which they check themselves.
_OWN_RIGHTS = frozenset({lag, *OWN_RIGHTS, *SCHEDULE_ACTS, *value_paths.OWN_RIGHTS})


#: Paths that affect other clients, and the list of bans; they need the right to ``admin``.
CHANGING = frozenset(
    {
        "/broker/reload", "/broker/kick", "/broker/ban", "/broker/unban", "/broker/bans", "/journal/reopen",
        "/pipeline/forget", PAUSE, *queue_paths.ACTING, *dead_letter_paths.ACTING,
    }
)  # fmt: skip


def find(client: ConnectedClient, path: str) -> Path:
    """Return the function of a path; raises NotFound if it does not exist, NotPermitted if the client may not request
    it.
    """
    tell = PATHS.get(path)
    if tell is None:
        raise NotFound(f"the broker has no path {shortened(path)!r}{_hint(client, path)}")
    if tell not in _OWN_RIGHTS:
        permitPath(client, _needed(path), path)
    return tell


def _needed(path: str) -> Action:
    return Action.ADMIN if path in CHANGING else Action.READ


def _hint(client: ConnectedClient, path: str) -> str:
    """Return a question for the path that resembles this one most, if the client may request it. About 0.1 ms."""
    nearest = get_close_matches(path, PATHS, 1, 0.8) if len(path) <= _HINTED else ()
    return f", did you mean {nearest[0]}?" if nearest and client.rights.may(_needed(nearest[0]), nearest[0]) else ""


def readArguments(broker: Broker, client: ConnectedClient, path: str, packed: bytes) -> Any:
    """Return a path's arguments from their MessagePack; None for no bytes.

    :raises NotFound: the path does not exist; NotPermitted: the client may not request it.
    :raises NoCapacity: this node of a mesh cannot answer it.
    :raises BadRequest: they are not MessagePack, or too large.

    As MessagePack can take a hundred times its bytes in memory, only paths with readers of their own take
    more than :data:`ARGUMENT_BYTES`. Keys of maps are strings or bytes, so that none can be chosen to collide.
    """
    broker.checkPath(path)
    read = _READERS.get(find(client, path), unpack)
    if read is unpack and len(packed) > ARGUMENT_BYTES:
        raise BadRequest(f"a request to the broker has at most {ARGUMENT_BYTES} bytes of payload")
    try:
        return read(packed) if packed else None
    except msgspec.ValidationError as error:
        raise BadRequest(f"an argument has a wrong type: {error}") from None
    except NestedTooDeeply as error:
        raise BadRequest(f"the payload is {error}") from None
    except (ValueError, TypeError, OverflowError, RecursionError, msgspec.DecodeError):
        raise BadRequest("the payload is not MessagePack") from None


def answer(broker: Broker, client: ConnectedClient, path: str, arguments: Any, answer: Callable[[Any], None]) -> None:
    """Answer a path's request, now or later.

    :param arguments: a map, or None for an empty one.
    :raises NotFound: the path does not exist.
    :raises NotPermitted: the client may not request it.
    :raises BadRequest: the arguments are not a map, or one has a wrong type or value.
    """
    function = find(client, path)
    if arguments is not None and not isinstance(arguments, Mapping):
        raise BadRequest("the payload of a broker path is a map or empty")
    if path not in CHANGING or path == "/broker/bans":
        function(broker, client, arguments or {}, answer)
        return
    audit = partial(broker.audit, "admin", arguments, **whoIs(client), path=path)

    def answered(value: Any) -> None:
        audit(**({"error": str(value)} if isinstance(value, BrokerError) else {}))
        answer(value)

    try:
        function(broker, client, arguments or {}, answered)
    except BrokerError as error:
        audit(error=str(error))
        raise
