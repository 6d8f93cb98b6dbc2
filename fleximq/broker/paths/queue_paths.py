"""The paths of queues: list them, look into one, purge and move one; the same by HTTP."""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import starmap
from operator import attrgetter
from typing import Any

from fleximq.broker.authorization import sees
from fleximq.broker.broker import Broker
from fleximq.broker.consumers.queue_owner import QueueOwner
from fleximq.broker.consumers.work_queue import WorkQueue
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.paths.arguments import Answer, Arguments, Listing, Path, answerStored, number, page, text
from fleximq.broker.queues.message_place import ONLY_IN_JOURNAL
from fleximq.broker.queues.queue import Queue
from fleximq.errors import BadRequest, NotFound
from fleximq.limits import DEAD, KIBIBYTE, SYSTEM, TOPIC_BYTES

#: The default and the maximum number of messages in one look, and the bytes of a payload that it shows.
PEEK, MAX_PEEK, _PAYLOAD = 10, 100, 64 * KIBIBYTE
#: The default number of messages that are moved at once: all.
_MOVED = (1 << 63) - 1
NAME_BYTES = TOPIC_BYTES + len(DEAD)


def queues(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/broker/queues``: the work queues by topic, including those of dead letters; with ``topic`` that one.

    ``contains`` is a part of the names, in any case of letters. ``dead_letters`` is ``only`` for those with dead
    letters, or ``none`` for all other queues.
    """
    name = text(arguments, "topic", NAME_BYTES) if "topic" in arguments else None
    part = text(arguments, "contains", NAME_BYTES).casefold() if arguments.get("contains") else ""
    dead = arguments.get("dead_letters")
    if dead not in (None, "only", "none"):
        raise BadRequest("'dead_letters' must be 'only' or 'none'")

    def shows(queue: WorkQueue) -> bool:
        if dead is not None and (
            queue.name.startswith(DEAD) != (dead == "only") or (dead == "only" and not queue.depth)
        ):
            return False
        return name in (None, queue.name) and part in queue.name.casefold() and sees(client, queue.name)

    some = page(arguments, str, "")
    Listing("queues", broker.queues, attrgetter("name"), partial(queueRow, broker), *some, shows).answer(broker, answer)


def queueRow(broker: Broker, queue: WorkQueue) -> dict[str, Any]:
    """Return the row of a work queue."""
    now = broker.clock.seconds()
    arriving, leaving = broker.queueRates.rates(queue, now)
    ages = {priority: broker.queueAges.ageOfOldest(lane, now) for priority, lane in queue.lanes.items()}
    return {
        "topic": queue.name,
        "dead_letters": queue.name.startswith(DEAD),
        "consumers": queue.consumers(now),
        "consumers_waiting": queue.distribution.waiting,
        "paused": queue.definition is not None and queue.definition.paused,
        "definition": None if queue.definition is None else queue.definition.dump(),
        "in_per_second": round(arriving, 3),
        "out_per_second": round(leaving, 3),
        "oldest_seconds": round(max(ages.values()), 3),
        "priorities": [
            {
                "priority": priority,
                "messages": lane.stored.depth,
                "in_flight": len(lane.stored.flying),
                "oldest_seconds": round(ages[priority], 3),
            }
            for priority, lane in queue.lanes.items()
            if lane.stored.depth or len(lane.stored.flying)
        ],
        **_load(queue),
        "delayed": sum(lane.stored.flying.delayed for lane in queue.lanes),
        "returned": sum(len(lane.stored.returned) for lane in queue.lanes),
    }


def subscriptions(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/broker/subscriptions``: the polled subscriptions by id; their owners are not shown."""

    def row(each: Any) -> dict[str, Any]:
        return {
            "subscription": each.id,
            "topic": each.topic,
            "qos": each.qos,
            "connected": each.idle is None,
            **_load(each),
        }

    some, rows = page(arguments, int, 0), broker.polledSubscriptions
    Listing("subscriptions", rows, attrgetter("id"), row, *some, lambda each: sees(client, each.topic)).answer(
        broker, answer
    )


def _load(owner: QueueOwner) -> dict[str, Any]:
    return {
        "messages": owner.depth,
        "in_flight": owner.inFlight,
        "returned": len(owner.queue.stored.returned),
        "bytes": owner.size,
        "kept": owner.durable,
    }


#: Fields of a row that may be long, and how many bytes of them an answer has, about.
_LONG = ("payload", "message_id", "correlation_id", "reply_to", "words")
_ANSWER = 1 << 20


def peek(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/broker/queues/peek``: the oldest ``messages`` that wait in the queue of a ``topic``; they stay there.

    At most ``limit``, fewer if the others are only on disk or an answer of :data:`_ANSWER` bytes is full. The client
    must have the right to consume from the topic.
    """
    name = text(arguments, "topic", NAME_BYTES)
    most = number(arguments, "limit", PEEK, MAX_PEEK, least=1)

    def look(queue: Queue) -> None:
        rows = fitting(starmap(messageRow, queue.stored.first(most)), most)
        answer({"waiting": queue.stored.depth, "messages": rows})

    lookInto(broker, client, name, look)


def lookInto(broker: Broker, client: ConnectedClient, name: str, look: Callable[[Queue], object]) -> None:
    """Call with the queue of a topic when its next messages are in memory.

    :raises NotPermitted: the client may not consume from it.
    :raises NotFound: there is none.
    """
    broker.queues.permitConsuming(client, name)
    found = broker.queues.get(name)
    if found is None:
        raise missing(name)
    found.queue.whenPrepared(partial(look, found.queue))


def fitting(rows: Iterable[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return the first ``most`` rows, fewer if an answer of :data:`_ANSWER` bytes is full."""
    found: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        found.append(row)
        size += sum(len(row.get(name) or b"") for name in _LONG)
        if len(found) >= most or size > _ANSWER:
            break
    return found


def missing(name: str) -> NotFound:
    """Return the error that there is no queue of this name."""
    kind = "are no dead letters" if name.startswith(DEAD) else "is no queue"
    return NotFound(f"there {kind} of {name.removeprefix(DEAD)!r}")


def messageRow(message: Any, deliveries: int) -> dict[str, Any]:
    """Return the row of a message; a payload that is too large, or only on disk, is None."""
    isOnDisk = message.payload is ONLY_IN_JOURNAL
    return {
        "message_id": message.message_id,
        "correlation_id": message.correlation_id,
        "reply_to": message.reply_to,
        "qos": message.qos,
        "offset": message.offset or None,
        "deliveries": deliveries,
        "bytes": None if isOnDisk else len(message.payload),
        "content": message.content.value,
        "payload": None if len(message.payload) > _PAYLOAD or isOnDisk else message.payload,
    }


def purge(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/broker/queues/purge``: discard the messages in the queue of a ``topic``, or of a ``subscription``."""
    if ("topic" in arguments) == ("subscription" in arguments):
        raise BadRequest("name either a 'topic' or a 'subscription'")
    queue: Any
    if "topic" in arguments:
        name = text(arguments, "topic", NAME_BYTES)
        queue = broker.queues.get(name)
    else:
        subscriptionId = number(arguments, "subscription")
        queue = next((each for each in broker.polledSubscriptions if each.id == subscriptionId), None)
        name = "" if queue is None else queue.topic
    if queue is None or not sees(client, name):
        raise missing(name) if name else NotFound("there is no such queue")
    stored = partial(answerStored, broker, answer) if queue.durable else answer
    broker.admin.purge(queue, lambda gone, reason: stored({"purged": gone, "reason": reason}))


def move(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/broker/queues/move``: put up to ``limit`` of the messages that wait in the queue of a ``topic`` into
    the queue ``to``.
    """
    name, to = text(arguments, "topic", NAME_BYTES), text(arguments, "to", TOPIC_BYTES)
    most = number(arguments, "limit", _MOVED)
    queue = broker.queues.get(name)
    if queue is None or not sees(client, name):
        raise missing(name)
    if to == name or to.startswith((DEAD, SYSTEM)):
        raise BadRequest("'to' must be another queue, and none of dead letters")

    def done(moved: int, reason: str | None) -> None:
        answerStored(broker, answer, {"moved": moved, "reason": reason})

    broker.admin.move(queue, to, most, done)


#: Paths that read, and those that act.
READING: dict[str, Path] = {
    "/broker/queues": queues,
    "/broker/queues/peek": peek,
    "/broker/subscriptions": subscriptions,
}
ACTING: dict[str, Path] = {"/broker/queues/purge": purge, "/broker/queues/move": move}
