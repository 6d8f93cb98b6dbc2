"""The paths ``/queue/...`` of clients that use queues: define, list, settle, pause."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from fleximq.broker.authorization import permitPath, sees
from fleximq.broker.broker import Broker
from fleximq.broker.consumers.work_queue import WorkQueue
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.paths.arguments import Answer, Arguments, Listing, Path, answerStored, array, page, text
from fleximq.broker.paths.settlement import SETTLE, readSettlement, settled
from fleximq.errors import BadRequest
from fleximq.limits import DEAD, HEADER_BYTES, TOPIC_BYTES
from fleximq.rights import Action
from fleximq.values.queue_definition import MAX_SOURCES, QueueDefinition

DEFINE, PAUSE = "/queue/define", "/queue/pause"
_NAME_BYTES = TOPIC_BYTES + len(DEAD)


def define(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/queue/define`` when it is on disk: the definition of a ``queue``, which is made if need be.

    The other arguments are the keys of :class:`~fleximq.values.queue_definition.QueueDefinition`. A different
    definition is a Conflict unless ``replace`` is true. That, and ``paused``, needs the right to ``admin``.
    """
    keys = dict(arguments)
    name, mayReplace = text(keys, "queue", _NAME_BYTES), keys.pop("replace", False)
    del keys["queue"]
    if not isinstance(mayReplace, bool):
        raise BadRequest("'replace' must be true or false")
    if mayReplace or keys.get("paused"):
        permitPath(client, Action.ADMIN, DEFINE)
    defined = broker.defineQueue(client, QueueDefinition.read(name, keys), mayReplace)
    answerStored(broker, answer, {"queue": name, **defined.dump()})


def bind(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/queue/bind`` when it is on disk: the definition of a ``queue`` with ``sources`` added."""
    _bind(broker, client, arguments, answer, _sources(arguments), ())


def unbind(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/queue/unbind`` when it is on disk: the definition of a ``queue`` without these ``sources``."""
    _bind(broker, client, arguments, answer, (), _sources(arguments))


def _bind(
    broker: Broker,
    client: ConnectedClient,
    arguments: Arguments,
    answer: Answer,
    added: Sequence[str],
    removed: Sequence[str],
) -> None:
    name = text(arguments, "queue", _NAME_BYTES)
    answerStored(broker, answer, {"queue": name, **broker.bindQueue(client, name, added, removed).dump()})


def _sources(arguments: Arguments) -> list[str]:
    found = array(arguments, "sources", MAX_SOURCES)
    if not all(isinstance(each, str) for each in found):
        raise BadRequest("'sources' must be an array of topics and patterns")
    return found


def delete(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/queue/delete`` when it is on disk: how many messages of the ``queue`` were ``deleted`` with it."""
    deleted = broker.deleteQueue(client, text(arguments, "queue", _NAME_BYTES))
    answerStored(broker, answer, {"deleted": deleted})


def cancel(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/queue/cancel`` when it is on disk: whether the message of a ``queue`` with this ``message_id`` waited
    there and is removed.
    """
    name, messageId = text(arguments, "queue", _NAME_BYTES), text(arguments, "message_id", HEADER_BYTES)
    broker.cancelMessage(client, name, messageId, lambda found: answerStored(broker, answer, {"cancelled": found}))


def queues(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/queue/list``: the queues that the client may see, by name, with definition, consumers and messages."""

    def shows(queue: WorkQueue) -> bool:
        return sees(client, queue.name)

    row = partial(_row, broker.clock.seconds())
    Listing("queues", broker.queues, attrgetter("name"), row, *page(arguments, str, ""), shows).answer(broker, answer)


def _row(now: float, queue: WorkQueue) -> Mapping[str, Any]:
    return {
        "queue": queue.name,
        "definition": None if queue.definition is None else queue.definition.dump(),
        "sources": list(queue.sources),
        "consumers": queue.consumers(now),
        "messages": queue.depth,
        "in_flight": queue.inFlight,
        "bytes": queue.size,
        "durable": queue.durable,
    }


def pause(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/queue/pause`` when it is on disk: stop the deliveries of a ``queue``, or resume them with ``paused``
    false.
    """
    name, isPaused = text(arguments, "queue", _NAME_BYTES), arguments.get("paused", True)
    if not isinstance(isPaused, bool):
        raise BadRequest("'paused' must be true or false")
    broker.pauseQueue(client, name, isPaused)
    answerStored(broker, answer, {"queue": name, "paused": isPaused})


#: All paths, and those of them that need rights to queues and topics, and not to the path.
WORK_QUEUE_PATHS: dict[str, Path] = {
    DEFINE: define,
    "/queue/bind": bind,
    "/queue/unbind": unbind,
    "/queue/delete": delete,
    "/queue/list": queues,
    "/queue/cancel": cancel,
    SETTLE: settled,
    PAUSE: pause,
}
OWN_RIGHTS = frozenset({define, bind, unbind, delete, cancel, settled})
#: Readers of the arguments of paths that take many.
WORK_QUEUE_READERS: dict[Path, Callable[[bytes], Any]] = {settled: readSettlement}
