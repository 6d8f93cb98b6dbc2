"""Where waiting messages are stored until their time: in memory, or in the journal."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from fleximq.broker.envelope import Envelope
from fleximq.broker.schedules.due_messages import DueMessage, Publisher
from fleximq.broker.schedules.schedule_header import Publication, firedHeader, opensQueue, publishedHeader
from fleximq.broker.schedules.timetable import Entries, Timetable
from fleximq.errors import NotKept
from fleximq.values.header_pairs import headerPairs, runWithSender
from fleximq.values.records import DIALECTS, OTHER_DIALECT, Run

#: Reports the ids of new schedules and None, or no ids and the reason why they are not stored.
OnAdded = Callable[[Sequence[int], str | None], None]
#: Ids of schedules in memory are at least this, and below 2**53; offsets do not reach it.
FIRST_VOLATILE = 1 << 52


class WaitingMessage(NamedTuple):
    """A message as a listing shows it: id, due time, topic, the principal that scheduled it, and the bytes of its
    payload.
    """

    number: int
    due: int
    topic: str
    principal: str | None
    bytes: int


class WaitingMessages(Protocol):
    """A store of waiting messages; ``timetable`` has their due times. ``durable``: they are in the journal."""

    timetable: Timetable
    durable: bool

    def add(self, envelope: Envelope, run: Run, due: int, owner: int, added: OnAdded) -> None:
        """Store the messages of a run; raises NotKept."""

    def fetch(self, entries: Entries, found: Callable[[list[DueMessage]], None]) -> None:
        """Find the messages of these entries, in their order; lost ones are left out."""

    def find(self, number: int, found: Callable[["WaitingMessage | None"], None]) -> None:
        """Find a message that waits or has waited; None if it is unknown."""

    def ended(self, entries: Entries) -> None:
        """Forget messages that were cancelled or lost."""

    def published(self, messages: Sequence[DueMessage]) -> None:
        """Forget messages that were published."""


def runOf(envelope: Envelope, body: object) -> Run:
    """Return the run of an envelope as it will be published."""
    run = envelope.source.run(body)
    if envelope.publisher.sender:
        run = runWithSender(run, envelope.publisher.sender)
    if isinstance(run.headers, bytes):
        return run._replace(headers=publishedHeader(run.headers))
    return run._replace(headers=[publishedHeader(header) for header in run.headers])


class _Waiting(NamedTuple):
    due: int
    publication: Publication
    publisher: Publisher
    payload: bytes
    content: int


class MessagesInMemory(WaitingMessages):
    """Waiting messages in memory.

    :param first: the first id.
    :param most: the maximum number of bytes of headers and payloads.
    """

    durable = False

    def __init__(self, first: int, most: int) -> None:
        self.timetable = Timetable()
        self.mostBytes = most
        self._next = first
        self._bytes = 0
        self._waiting: dict[int, _Waiting] = {}

    def add(self, envelope: Envelope, run: Run, due: int, owner: int, added: OnAdded) -> None:
        count = len(run.payloads)
        headers = [run.headers] * count if isinstance(run.headers, bytes) else run.headers
        contents = [run.contents] * count if isinstance(run.contents, int) else run.contents
        size = sum(map(len, headers)) + sum(map(len, run.payloads))
        if self._bytes + size > self.mostBytes:
            raise NotKept(f"schedules in memory may have {self.mostBytes} bytes", range(count))
        self._bytes += size
        client = envelope.publisher
        publisher = Publisher(client.id, client.name, DIALECTS.get(client.dialect, OTHER_DIALECT))
        first, topic = self._next, envelope.topic.name
        for header, payload, content in zip(headers, run.payloads, contents, strict=True):
            publication = Publication(topic, client.principal, *headerPairs(header, ()), opensQueue(header))
            self._waiting[self._next] = _Waiting(due, publication, publisher, bytes(payload), content)
            self.timetable.add(due, self._next, owner)
            self._next += 1
        added(range(first, self._next), None)

    def fetch(self, entries: Entries, found: Callable[[list[DueMessage]], None]) -> None:
        found([self._due(*row) for row in entries.rows()])

    def _due(self, due: int, number: int, owner: int) -> DueMessage:
        _, publication, publisher, payload, content = self._waiting[number]
        header = firedHeader(publication, number, due)
        topic, opens = publication.topic, publication.opensQueue
        return DueMessage(number, due, owner, topic, publisher, header, payload, content, opens)

    def find(self, number: int, found: Callable[[WaitingMessage | None], None]) -> None:
        waiting = self._waiting.get(number)
        if waiting is None:
            found(None)
            return
        topic, principal = waiting.publication[:2]
        found(WaitingMessage(number, waiting.due, topic, principal, len(waiting.payload)))

    def ended(self, entries: Entries) -> None:
        for number in entries.numbers:
            self._forget(number)

    def published(self, messages: Sequence[DueMessage]) -> None:
        for message in messages:
            self._forget(message.number)

    def _forget(self, number: int) -> None:
        waiting = self._waiting.pop(number)
        self._bytes -= len(waiting.publication.pairs) + len(waiting.payload)
