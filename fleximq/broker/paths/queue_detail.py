"""The paths of one queue: its consumers, and the deliveries that they have not settled."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from fleximq.broker.authorization import sees
from fleximq.broker.broker import Broker
from fleximq.broker.consumers.queue_consumer import QueueConsumer
from fleximq.broker.consumers.work_queue import WorkQueue
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.paths.arguments import Answer, Arguments, Listing, number, page, text
from fleximq.broker.paths.queue_paths import MAX_PEEK, NAME_BYTES, PEEK, fitting, messageRow, missing, queueRow
from fleximq.broker.queues.queue import Queue


def queueDetail(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer with the row of the queue of a ``topic``, its sources, dead letters, and a page of its consumers by id."""
    name = text(arguments, "topic", NAME_BYTES)
    some = page(arguments, int, 0)
    queue = broker.queues.get(name)
    if queue is None or not sees(client, name):
        raise missing(name)
    letterTopic = broker.queues.letterTopic(name)
    letters = broker.queues.get(letterTopic)

    def row(consumer: QueueConsumer) -> dict[str, Any]:
        return _consumerRow(broker, consumer)

    consumers = Listing("consuming", queue.distribution.consumers.values(), _idOf, row, *some).atOnce()
    detail = {
        **queueRow(broker, queue),
        "sources": list(queue.sources),
        "dead_letter_topic": letterTopic,
        "dead_letters_waiting": 0 if letters is None else letters.depth,
        "asking": queue.distribution.asking,
    }
    answer(detail | consumers)


def _idOf(consumer: QueueConsumer) -> int:
    return consumer.client.id


def _consumerRow(broker: Broker, consumer: QueueConsumer) -> dict[str, Any]:
    client = consumer.client
    return {
        "client_id": client.id,
        "dialect": client.dialect,
        "name": consumer.name,
        "principal": client.principal,
        "address": client.address,
        "since": round(broker.clock.seconds() - consumer.since, 3),
        "prefetch": consumer.prefetch,
        "unsettled": len(consumer.unsettled),
        "unsettled_bytes": consumer.size,
        "paused": consumer.isPaused,
    }


def flying(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer with messages of the queue of a ``topic`` that are not settled: first those of consumers with a prefetch,
    or of the one with this ``client_id`` alone; then the others, such as those that wait for a retry.

    :raises NotPermitted: the client may not consume from it.
    """
    name = text(arguments, "topic", NAME_BYTES)
    most = number(arguments, "limit", PEEK, MAX_PEEK, least=1)
    one = number(arguments, "client_id") if "client_id" in arguments else None
    broker.queues.permitConsuming(client, name)
    queue = broker.queues.get(name)
    if queue is None:
        raise missing(name)
    answer({"in_flight": queue.inFlight, "messages": fitting(_flying(queue, one, most), most)})


def _flying(queue: WorkQueue, one: int | None, most: int) -> Iterator[dict[str, Any]]:
    shown: set[tuple[Queue, int]] = set()
    for consumer in list(queue.distribution.consumers.values()):
        if one in (None, consumer.client.id):
            for lane, tags in queue.lanes.divided(list(islice(consumer.unsettled, most))):
                shown.update((lane, tag) for tag in tags)
                yield from (_row(queue, lane, tag, consumer) for tag in tags)
    for lane in queue.lanes if one is None else ():
        for tag in lane.stored.flying.tags(most):
            if (lane, tag) not in shown:
                yield _row(queue, lane, tag, None)


def _row(queue: WorkQueue, lane: Queue, tag: int, consumer: QueueConsumer | None) -> dict[str, Any]:
    delivery = lane.stored.flying.get(tag)
    who = {"client_id": None if consumer is None else consumer.client.id}
    if delivery is None:  # its lease ended, or it was taken back
        return who
    _, message, attempts = delivery
    return {
        **messageRow(message, attempts),
        **who,
        "priority": queue.lanes.priority(lane),
        "delayed": lane.stored.flying.isDelayed(tag),
    }
