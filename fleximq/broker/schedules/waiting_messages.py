"""Where waiting messages are stored until their time: in memory, or in the journal."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fleximq.broker.envelope import Envelope
from fleximq.broker.schedules.due_messages import DueMessage, Publisher
from fleximq.broker.schedules.schedule_header import Publication, firedHeader, opensQueue, publishedHeader
from fleximq.broker.timetable import Entries, Timetable
from fleximq.errors import NotKept
from fleximq.values.header_pairs import headerPairs, mapHead, runWithSender
from fleximq.values.records import OTHER_DIALECT, PUBLISHER_CODES, Run, idsOf

#: Reports the ids of new schedules and None, or no ids and the reason why they are not stored.
OnAdded = Callable[[Sequence[int], str | None], None]
#: Receives messages in the order of the entries, without lost ones, and how many of the entries were read.
OnFetched = Callable[[list[DueMessage], int], None]
#: Ids of schedules in memory are at least this, and below 2**53; offsets do not reach it.
FIRST_VOLATILE = 1 << 52


#: Maximum number of messages that are read at a time. A frame of the journal is decoded for a few of its messages, so
#: more at a time are faster if they were not stored in the order of their due times.
MOST_AT_ONCE = 50_000


class WaitingMessage(NamedTuple):
    """A message as a listing shows it: id, due time, topic, the principal that scheduled it, the bytes of its payload,
    and its own ids, None without one.
    """

    number: int
    due: int
    topic: str
    principal: str | None
    bytes: int
    messageId: str | None
    correlationId: str | None


def waitingMessage(number: int, due: int, publication: Publication, size: int) -> WaitingMessage:
    """Return a message with a payload of this size for a listing."""
    messageId, correlationId, _ = idsOf(mapHead(publication.number) + publication.pairs)
    return WaitingMessage(number, due, publication.topic, publication.principal, size, messageId, correlationId)


class WaitingMessages(ABC):
    """A store of waiting messages.

    ``timetable`` has the due times of those that wait. Others are out of it, each with due time and owner by its
    number: those in ``firing`` are being published, those in ``refused`` wait for another attempt. ``reading``: due
    messages are being read.
    """

    #: Whether the messages are in the journal.
    durable: bool

    def __init__(self) -> None:
        self.timetable = Timetable()
        self.firing: dict[int, tuple[int, int]] = {}
        self.refused: dict[int, tuple[int, int]] = {}
        self.reading = False
        self._most = MOST_AT_ONCE

    def __len__(self) -> int:
        return len(self.timetable) + len(self.firing) + len(self.refused)

    @abstractmethod
    def add(self, envelope: Envelope, run: Run, due: int, owner: int, added: OnAdded) -> None:
        """Store the messages of a run; raises NotKept."""

    @abstractmethod
    def fetch(self, entries: Entries, found: OnFetched) -> None:
        """Read the messages of the first of these entries, as many as fit at once and at least one; ``found`` is called
        with them, perhaps after this returns.
        """

    @abstractmethod
    def find(self, numbers: Sequence[int], found: Callable[[list[WaitingMessage]], None]) -> None:
        """Find messages that wait or have waited, in this order; unknown ones are left out."""

    @abstractmethod
    def ended(self, entries: Entries) -> None:
        """Forget messages that were cancelled or lost."""

    @abstractmethod
    def published(self, messages: Sequence[DueMessage]) -> None:
        """Forget messages that were published."""

    def takeDue(self, now: int) -> Entries:
        """Move due messages from the timetable to ``firing``: as many as :meth:`fetch` can probably read at once."""
        taken = self.timetable.takeDue(now, self._most)
        self.firing.update((number, (due, owner)) for due, number, owner in taken.rows())
        return taken

    def fetched(self, entries: Entries, number: int) -> None:
        """Move messages that were not read, those after the first ``number``, from ``firing`` to the timetable."""
        self._most = number if number < entries.size else min(2 * self._most, MOST_AT_ONCE)
        entries = entries.part(number)
        for number in entries.numbers:
            del self.firing[number]
        self.timetable.addAll(entries)

    def retry(self) -> None:
        """Move refused messages to the timetable."""
        refused, self.refused = self.refused, {}
        for number, (due, owner) in refused.items():
            self.timetable.add(due, number, owner)

    def cancel(self, due: int, number: int) -> int | None:
        """Remove a message that waits, and return its owner; None if it does not wait, or is being published."""
        owner = self.timetable.remove(due, number)
        if owner is None and number in self.refused:
            _, owner = self.refused.pop(number)
        if owner is not None:
            self.ended(Entries.one(due, number, owner))
        return owner


def publishedRun(envelope: Envelope, body: object) -> Run:
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
        super().__init__()
        self._mostBytes = most
        self._next = first
        self._bytes = 0
        self._waiting: dict[int, _Waiting] = {}

    def add(self, envelope: Envelope, run: Run, due: int, owner: int, added: OnAdded) -> None:
        count = len(run.payloads)
        headers = [run.headers] * count if isinstance(run.headers, bytes) else run.headers
        contents = [run.contents] * count if isinstance(run.contents, int) else run.contents
        client, topic, first = envelope.publisher, envelope.topic.name, self._next
        publisher = Publisher(client.id, client.name, PUBLISHER_CODES.get(client.dialect, OTHER_DIALECT))
        new = [
            _Waiting(
                due,
                Publication(topic, client.principal, *headerPairs(header, frozenset()), opensQueue(header)),
                publisher,
                bytes(payload),
                content,
            )
            for header, payload, content in zip(headers, run.payloads, contents, strict=True)
        ]
        size = sum(map(_sizeOf, new))
        if self._bytes + size > self._mostBytes:
            raise NotKept(f"schedules in memory may have {self._mostBytes} bytes", range(count))
        self._bytes += size
        self._next += count
        for number, waiting in enumerate(new, first):
            self._waiting[number] = waiting
            self.timetable.add(due, number, owner)
        added(range(first, self._next), None)

    def fetch(self, entries: Entries, found: OnFetched) -> None:
        found([self._due(*row) for row in entries.rows()], entries.size)

    def _due(self, due: int, number: int, owner: int) -> DueMessage:
        _, publication, publisher, payload, content = self._waiting[number]
        header = firedHeader(publication, number, due)
        topic, opens = publication.topic, publication.opensQueue
        return DueMessage(number, due, owner, topic, publisher, header, payload, content, opens)

    def find(self, numbers: Sequence[int], found: Callable[[list[WaitingMessage]], None]) -> None:
        known = ((number, self._waiting[number]) for number in numbers if number in self._waiting)
        found([waitingMessage(number, each.due, each.publication, len(each.payload)) for number, each in known])

    def ended(self, entries: Entries) -> None:
        for number in entries.numbers:
            self._bytes -= _sizeOf(self._waiting.pop(number))

    def published(self, messages: Sequence[DueMessage]) -> None:
        for message in messages:
            self._bytes -= _sizeOf(self._waiting.pop(message.number))


#: Approximate bytes of memory of a waiting message, in addition to header and payload.
_WAITING_BYTES = 400


def _sizeOf(waiting: _Waiting) -> int:
    return _WAITING_BYTES + len(waiting.publication.pairs) + len(waiting.payload)
