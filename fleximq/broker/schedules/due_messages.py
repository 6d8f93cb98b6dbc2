"""Publishes messages whose time has come: one run for neighbouring messages of a topic and publisher.

Hot: 1.5 us for each message, plus what a publication of the run costs.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from fleximq.broker.envelope import ConnectedClient, Envelope, OnDecided
from fleximq.broker.publishing.transactions import RecordSource
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.errors import BrokerError, NotKept
from fleximq.values.publication_head import priorityOf
from fleximq.values.records import CONTENTS, DIALECTS, OTHER_DIALECT, SCHEDULED, StoredBatch

_RECORDS = RecordSource()
_NAMES = {code: name for name, code in DIALECTS.items()}
#: Publishes a run, as :meth:`fleximq.broker.broker.Broker.publish` does.
Publish = Callable[[Envelope, Any, int, OnDecided | None], None]


class Publisher(NamedTuple):
    """Client id, sender name and dialect's code of the client that made a schedule."""

    id: int
    name: str
    dialect: int

    def client(self) -> ConnectedClient:
        """Return the publisher as the publisher of a run; it may be connected no more."""
        dialect = self.name.partition("-")[0] if self.dialect == OTHER_DIALECT else _NAMES.get(self.dialect, "")
        return ConnectedClient(self.id, dialect, self.name)


class DueMessage(NamedTuple):
    """A message to publish now. ``number`` and ``due`` are those of its schedule, ``owner`` the index of its principal;
    ``header`` and ``content`` are as the journal stores them. ``opensQueue``: its topic gets a queue if it has none.
    """

    number: int
    due: int
    owner: int
    topic: str
    publisher: Publisher
    header: bytes
    payload: bytes
    content: int
    opensQueue: bool = False


#: Receives messages of one run, and None after their publication, else the reason why they are not published.
OnPublished = Callable[[Sequence[DueMessage], str | None], None]

_together = attrgetter("publisher", "opensQueue", "content")


class DuePublisher:
    """Publishes due messages.

    :param publish: publishes a run.
    :param produce: publishes a run to a topic that gets a queue if it has none.
    """

    def __init__(self, topics: TopicTable, publish: Publish, produce: Publish) -> None:
        self._topics = topics
        self._publish = publish
        self._produce = produce

    def publish(self, messages: Sequence[DueMessage], durable: bool, done: OnPublished) -> None:
        """Publish messages; those of one topic in this order.

        :param durable: store them in the journal, and call ``done`` after the commit.
        :param done: called once for each message, perhaps before this returns.
        """
        byTopic: dict[str, list[DueMessage]] = {}
        for message in messages:
            byTopic.setdefault(message.topic, []).append(message)
        for mine in byTopic.values():
            for run in _runs(mine):
                self._publishRun(run, durable, done)

    def _publishRun(self, run: list[DueMessage], durable: bool, done: OnPublished) -> bool:
        """Publish a run, and return whether any of it was accepted. A queue takes a run whole or not at all, so one
        that it refuses is divided.
        """
        first = run[0]
        publish = self._produce if first.opensQueue else self._publish

        def decided(reason: str | None, places: Sequence[int]) -> None:
            done([run[place] for place in places], reason)

        refused: Sequence[int] = ()
        reason = ""
        try:
            publish(self._envelopeOf(first, durable), _batchOf(run), len(run), decided if durable else None)
        except NotKept as error:
            refused, reason = error.refused, error.reason
        except BrokerError as error:
            refused, reason = range(len(run)), str(error)
        if first.opensQueue and len(refused) == len(run) > 1:
            return self._divide(run, durable, done, reason)
        if not durable:
            gone = set(refused)
            decided(None, [place for place in range(len(run)) if place not in gone])
        if refused:
            decided(reason, refused)
        return len(refused) < len(run)

    def _divide(self, run: list[DueMessage], durable: bool, done: OnPublished, reason: str) -> bool:
        half = len(run) // 2
        if self._publishRun(run[:half], durable, done):
            self._publishRun(run[half:], durable, done)
            return True
        done(run[half:], reason)
        return False

    def _envelopeOf(self, first: DueMessage, durable: bool) -> Envelope:
        qos = CONTENTS[first.content][1]
        return Envelope(self._topics.get(first.topic), first.publisher.client(), _RECORDS, qos, durable)


def _runs(messages: Sequence[DueMessage]) -> Iterator[list[DueMessage]]:
    """Yield runs of neighbours; the messages of a run have one priority, since a queue takes it into one lane."""
    for _, run in groupby(messages, lambda each: (_together(each), priorityOf(each.header))):
        yield list(run)


def _batchOf(run: Sequence[DueMessage]) -> StoredBatch:
    """Return the body of a run; it gets its offsets with its commit."""
    publisher, topic = run[0].publisher, run[0].topic
    none = [0] * len(run)
    return StoredBatch(
        none,
        none,
        [topic],
        none,
        [(publisher.id, publisher.name)],
        none,
        [publisher.dialect] * len(run),
        [run[0].content | SCHEDULED] * len(run),
        [each.header for each in run],
        [each.payload for each in run],
    )
