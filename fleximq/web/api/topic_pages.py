"""The pages of topics: list them, the busiest ones, one with its subscribers, and its messages in the journal."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any

from twisted.internet.defer import Deferred

from fleximq.broker.authorization import sees
from fleximq.broker.broker import Broker
from fleximq.broker.consumers.polled_subscription import PolledSubscription
from fleximq.broker.consumers.work_queue import WorkQueue
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.paths.arguments import PAGE, Answer, Arguments, Listing, number, page, text
from fleximq.broker.paths.path_table import topics
from fleximq.broker.paths.rows import boundsRow, topicRow
from fleximq.broker.topics.topic_table import Topic
from fleximq.errors import NotFound
from fleximq.limits import TOPIC_BYTES
from fleximq.values.patterns import anyOf, covers, isPattern
from fleximq.web.api.answers import LIMIT, PAGED, PAGED_BY_NUMBER, pathPage
from fleximq.web.api.stored_messages import StoredMessages
from fleximq.web.request import Argument, HttpReply, Page, PageRequest, jsonReply

#: Seconds over which rates are measured.
SECONDS = 1.0
_SLICE = 1000
#: Most queues in the page of one topic.
_QUEUES = 100
_CONTAINS = Argument("contains", "A part of the names.")


def topicPages(broker: Broker) -> dict[str, Page]:
    """Return the pages by path."""
    rates, stored = TopicRates(broker), StoredMessages(broker)
    topic = Argument("topic", "The name of the topic.")
    return {
        "/api/topics": pathPage(
            broker,
            topics,
            "Topics by name, with subscribers, publications and queue.",
            (*PAGED, Argument("prefix", "The beginning of the names."), _CONTAINS),
        ),
        "/api/topics/busiest": Page(
            rates.answer,
            words="The topics of this node with the most publications in one second, which it measures.",
            arguments=(LIMIT, _CONTAINS),
        ),
        "/api/topics/detail": pathPage(
            broker,
            topicDetail,
            "One topic: its row, what the journal has of it, its queues, and its subscribers by client id.",
            (topic, *PAGED_BY_NUMBER),
        ),
        "/api/topics/messages": Page(
            stored.answer,
            words="Messages of a topic in the journal, decoded: the last ones, or from an offset or a time on.",
            arguments=(
                topic,
                LIMIT,
                Argument("from", "The first offset, or a time in ISO 8601 with its zone, or ``first``."),
                Argument("before", "The offset before which to go backwards.", "integer"),
                Argument("contains", "A part of the payload or the header."),
            ),
        ),
    }


def topicDetail(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer with the row of a ``topic``, its bounds in the journal, its queues, and a page of its subscribers."""
    name, some = text(arguments, "topic", TOPIC_BYTES), page(arguments, int, 0)
    topic, stored = broker.topics.find(name), broker.journal.bounds().get(name)
    if (topic is None and stored is None) or not sees(client, name):
        raise NotFound(f"there is no topic {name!r}")
    members = {} if topic is None else broker.topics.subscribers(topic)
    queues = [each.name for each in members if isinstance(each, WorkQueue) and sees(client, each.name)]
    isRetained = bool(broker.rules.retain) and anyOf(broker.rules.retain)(name)
    detail = {
        **topicRow(broker, broker.topics.seen(name)),
        "stored": None if stored is None else {**boundsRow(stored), "messages": stored.count},
        "retained": stored.last if isRetained and stored is not None else None,
        "queues": queues[:_QUEUES],
        "polled": sum(isinstance(each, PolledSubscription) for each in members),
    }

    def listens(each: ConnectedClient) -> bool:
        return any(held.subscriber in members for held in each.subscriptions.values())

    rows = Listing("listening", broker.clients, attrgetter("id"), partial(_subscriberRow, name), *some, listens)
    rows.answer(broker, lambda found: answer(detail | found))


def _subscriberRow(topic: str, client: ConnectedClient) -> dict[str, Any]:
    names = client.subscriptions
    found = topic if topic in names else next((each for each in names if isPattern(each) and covers(each, topic)), None)
    return {
        "client_id": client.id,
        "dialect": client.dialect,
        "name": client.service or client.name,
        "principal": client.principal,
        "address": client.address,
        "subscription": found,
    }


@dataclass(eq=False, repr=False)
class TopicRates:
    """Measures how many messages are published to each topic in :data:`SECONDS`, once for all requests meanwhile."""

    _broker: Broker
    _waiting: list[Callable[[Sequence[tuple[int, Topic]]], None]] = field(default_factory=list)

    async def answer(self, request: PageRequest) -> HttpReply:
        """Return the busiest topics that the request may see."""
        most = number(request.arguments, "limit", PAGE, 1000, least=1)
        part = text(request.arguments, "contains", TOPIC_BYTES) if request.arguments.get("contains") else ""
        measured: Deferred[Sequence[tuple[int, Topic]]] = Deferred()
        self._waiting.append(measured.callback)
        if len(self._waiting) == 1:
            self._broker.slices.run(self._measure())
        wanted = (each for each in await measured if part in each[1].name and request.sees(each[1].name))
        busiest = islice(wanted, most)
        rows = [{**topicRow(self._broker, topic), "per_second": count / SECONDS} for count, topic in busiest]
        return jsonReply({"topics": rows})

    def _measure(self) -> Iterator[None]:
        topics = tuple(self._broker.topics)
        before = array("Q")
        for start in range(0, len(topics), _SLICE):
            before.extend([topic.published for topic in topics[start : start + _SLICE]])
            yield
        self._broker.deadlines.callLater(SECONDS, lambda: self._broker.slices.run(self._compare(topics, before)))

    def _compare(self, topics: Sequence[Topic], before: "array[int]") -> Iterator[None]:
        found: list[tuple[int, Topic]] = []
        for start in range(0, len(topics), _SLICE):
            for topic, count in zip(topics[start : start + _SLICE], before[start : start + _SLICE], strict=True):
                if topic.published > count:
                    found.append((topic.published - count, topic))
            yield
        found.sort(key=itemgetter(0), reverse=True)
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call(found)
