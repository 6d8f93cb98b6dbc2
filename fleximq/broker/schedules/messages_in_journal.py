"""Waiting messages in the journal: records of a reserved topic, and their due times in memory.

The publication of a message is a record that names its schedule, so it also proves that the schedule has fired: a
crash leaves both or neither. The end of a cancelled schedule is a state record. Retention removes the records of ended
schedules, see :meth:`MessagesInJournal.needed`. Hot: 1.5 us for each due message.
"""

import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import ge
from typing import Any

from fleximq.broker.envelope import Envelope
from fleximq.broker.owners import Owners
from fleximq.broker.schedules.due_messages import DueMessage, Publisher
from fleximq.broker.schedules.schedule_header import (
    SCHEDULES,
    dueOf,
    firedHeader,
    publicationOf,
    waitingColumns,
    waitingHeader,
)
from fleximq.broker.schedules.waiting_messages import (
    OnAdded,
    OnFetched,
    WaitingMessage,
    WaitingMessages,
    waitingMessage,
)
from fleximq.broker.timetable import Entries
from fleximq.errors import NotKept, NotRecorded
from fleximq.interfaces import IJournal
from fleximq.values.records import Run, StoredBatch
from fleximq.values.state_records import SchedulesEnded

#: The bytes of records that are read at a time.
_CHUNK = 8 << 20


class MessagesInJournal(WaitingMessages):
    """Waiting messages in the journal."""

    durable = True

    def __init__(self, journal: IJournal, owners: Owners) -> None:
        super().__init__()
        self._journal = journal
        self._owners = owners

    def add(self, envelope: Envelope, run: Run, due: int, owner: int, added: OnAdded) -> None:
        client, count = envelope.publisher, len(run.payloads)
        waiting = partial(waitingHeader, topic=envelope.topic.name, principal=client.principal, due=due)
        headers = run.headers
        stored = run._replace(
            headers=waiting(headers) if isinstance(headers, bytes) else [waiting(header) for header in headers]
        )

        def committed(offset: int, reason: str | None) -> None:
            if reason is not None:
                added((), reason)
                return
            numbers = range(offset, offset + count)
            self.timetable.addAll(Entries(array("Q", [due]) * count, array("Q", numbers), array("H", [owner]) * count))
            added(numbers, None)

        try:
            client.lastRun = self._journal.append(SCHEDULES, client.id, client.name, client.dialect, stored, committed)
        except NotKept as error:
            raise NotRecorded(error.reason, range(count)) from error

    def ended(self, entries: Entries) -> None:
        self._journal.appendState(SchedulesEnded(entries.numbers, entries.dues))

    def published(self, messages: Sequence[DueMessage]) -> None:
        """Do nothing: the publications are the proof."""

    # -- reading ---------------------------------------------------------------------------------------

    def fetch(self, entries: Entries, found: OnFetched) -> None:
        offsets = entries.numbers
        inOrder = not any(map(ge, offsets, offsets[1:]))
        ascending = offsets if inOrder else array("Q", sorted(offsets))
        rows = dict(zip(offsets, zip(entries.dues, entries.owners, strict=True), strict=True))

        def read(batches: Sequence[StoredBatch], number: int) -> None:
            if number < entries.size and not inOrder:
                # The first ones by due time may be missing; half as many as fit by number probably fit.
                self.fetch(entries.part(0, max(1, number // 2)), found)
                return
            messages = [message for batch in batches for message in _messages(batch, rows)]
            if not inOrder:
                byNumber = {message.number: message for message in messages}
                messages = [byNumber[offset] for offset in offsets if offset in byNumber]
            found(messages, number)

        self._journal.fetchRecords(ascending, _CHUNK, read)

    def find(self, numbers: Sequence[int], found: Callable[[list[WaitingMessage]], None]) -> None:
        known: dict[int, WaitingMessage] = {}

        def look(rest: "array[int]") -> None:
            def read(batches: Sequence[StoredBatch], number: int) -> None:
                known.update((row.number, row) for batch in batches for row in _waitingIn(batch))
                if number < len(rest):
                    look(rest[number:])
                else:
                    found([known[each] for each in numbers if each in known])

            self._journal.fetchRecords(rest, _CHUNK, read)

        look(array("Q", sorted(numbers)))

    # -- restarts --------------------------------------------------------------------------------------

    def needed(self) -> "array[int]":
        """Return the offsets of the records that are needed, in any order."""
        offsets = array("Q")
        for block in self.timetable.blocks():
            offsets.extend(block.numbers)
        for others in (self.firing, self.refused):
            offsets.extend(others)
        return offsets

    def snapshot(self) -> dict[str, Any]:
        """Return the entries for a restart, as MessagePack values."""
        blocks = self.timetable.blocks()
        columns = [b"".join([_packed(column) for column in each]) for each in zip(*blocks, strict=True)]
        others = [[number, *row] for each in (self.firing, self.refused) for number, row in each.items()]
        return {"waiting": columns, "firing": others, "owners": list(self._owners.names)}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue with the entries of a :meth:`snapshot`."""
        if snapshot["waiting"]:
            entries = Entries(*(_unpacked(*pair) for pair in zip("QQH", snapshot["waiting"], strict=True)))
            self.timetable.load(entries)
        for number, due, owner in snapshot["firing"]:
            self.timetable.add(due, number, owner)
        self._owners.load(snapshot["owners"], self.timetable.counts())

    def stored(self, batch: StoredBatch) -> None:
        """Add the waiting records of a batch that was stored after the snapshot."""
        if SCHEDULES not in batch.topics:
            return
        mine = batch.only(SCHEDULES.__eq__)
        dues, principals = waitingColumns(mine.headers)
        owners = {principal: self._owners.add(principal, number) for principal, number in Counter(principals).items()}
        columns = array("Q", mine.offsets), array("H", [owners[principal] for principal in principals])
        self.timetable.addAll(Entries(dues, *columns))

    def forget(self, due: int, number: int) -> None:
        """Remove an entry that was published or cancelled after the snapshot."""
        owner = self.timetable.remove(due, number)
        if owner is not None:
            self._owners.release(owner)


def _messages(batch: StoredBatch, rows: Mapping[int, tuple[int, int]]) -> Iterator[DueMessage]:
    """Yield the records of a batch as messages to publish; ``rows`` has due time and owner by offset."""
    publishers = [(publisher, code) for publisher, code in zip(batch.publisherOf, batch.dialects, strict=True)]
    known = {pair: Publisher(*batch.publishers[pair[0]], pair[1]) for pair in set(publishers)}
    columns = zip(batch.offsets, publishers, batch.headers, batch.payloads, batch.contents, strict=True)
    for offset, pair, header, payload, content in columns:
        publication = publicationOf(header)
        due, owner = rows[offset]
        fired = firedHeader(publication, offset, due)
        topic, opens = publication.topic, publication.opensQueue
        yield DueMessage(offset, due, owner, topic, known[pair], fired, payload, content, opens)


def _waitingIn(batch: StoredBatch) -> Iterator[WaitingMessage]:
    """Yield the waiting records of a batch; it may have records of other topics."""
    if SCHEDULES not in batch.topics:
        return
    mine = batch.only(SCHEDULES.__eq__)
    for offset, header, payload in zip(mine.offsets, mine.headers, mine.payloads, strict=True):
        yield waitingMessage(offset, dueOf(header), publicationOf(header), len(payload))


def _packed(column: "array[int]") -> bytes:
    """Return numbers as bytes, the lowest first."""
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


def _unpacked(typeCode: str, packed: bytes) -> "array[int]":
    column: array[int] = array(typeCode, packed)
    if sys.byteorder == "big":
        column.byteswap()
    return column
