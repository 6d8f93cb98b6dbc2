"""Single records, as a test's journal keeps them, made of runs and put together to batches."""

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from fleximq.broker.envelope import Envelope
from fleximq.values.message import Message
from fleximq.values.records import DIALECTS, OTHER_DIALECT, PublishedRun, StoredBatch


class Record(NamedTuple):
    """One message that was kept; ``time`` is in microseconds."""

    offset: int
    time: int
    topic: str
    publisher: tuple[int, str]
    dialect: int
    content: int
    header: bytes
    payload: bytes

    @property
    def message(self) -> Message:
        """The record as queues take it."""
        return batchOf([self]).message(0)


def published(envelope: Envelope, body: Any) -> PublishedRun:
    """Return a run as it is handed to a journal."""
    publisher = envelope.publisher
    run = envelope.source.run(body)
    return PublishedRun(envelope.topic.name, publisher.id, publisher.name, publisher.dialect, run)


def recordsOf(published: PublishedRun, offset: int, time: int) -> list[Record]:
    """Return the records of one run whose first has this offset."""
    topic, publisher, name, dialect, run = published
    number = len(run.payloads)
    headers = [run.headers] * number if isinstance(run.headers, bytes) else run.headers
    contents = [run.contents] * number if isinstance(run.contents, int) else run.contents
    shared = time, topic, (publisher, name), DIALECTS.get(dialect, OTHER_DIALECT)
    return [
        Record(offset + place, *shared, content, bytes(header), bytes(payload))
        for place, (content, header, payload) in enumerate(zip(contents, headers, run.payloads, strict=True))
    ]


def batchOf(records: Sequence[Record]) -> StoredBatch:
    """Return these records as the columns of one batch."""
    topics = list(dict.fromkeys(record.topic for record in records))
    publishers = list(dict.fromkeys(record.publisher for record in records))
    return StoredBatch(
        offsets=array("Q", [record.offset for record in records]),
        timestamps=array("q", [record.time for record in records]),
        topics=topics,
        topicOf=array("I", [topics.index(record.topic) for record in records]),
        publishers=publishers,
        publisherOf=array("I", [publishers.index(record.publisher) for record in records]),
        dialects=array("H", [record.dialect for record in records]),
        contents=array("H", [record.content for record in records]),
        _headers=[record.header for record in records],
        _payloads=[record.payload for record in records],
    )
