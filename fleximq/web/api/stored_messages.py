"""``/api/topics/messages``: messages of one topic in the journal, decoded; from an offset or a time on, or backwards.

The journal's thread reads them. Each request reads a bounded part of the journal; the answer says where to continue.
Going backwards, the journal is read forwards in windows that grow while they have too few messages, and shrink if they
have too many bytes.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred

from fleximq.broker.authorization import permit
from fleximq.broker.broker import Broker
from fleximq.broker.paths.arguments import journalOf, number, text
from fleximq.errors import BadRequest, Forbidden, NoCapacity
from fleximq.interfaces import IJournal
from fleximq.limits import KIBIBYTE, MEBIBYTE, SYSTEM, TOPIC_BYTES
from fleximq.rights import Action
from fleximq.values.records import CONTENTS, DIALECTS, StoredBatch, TopicBounds
from fleximq.values.zoned_time import zonedTime
from fleximq.web.api.shown_payload import SHOWN, valueOf, withValue
from fleximq.web.request import HttpReply, PageRequest, jsonReply

#: The default and the maximum number of messages in an answer, and about how many bytes of payloads it has.
MESSAGES, MOST_MESSAGES, ANSWER = 20, 100, MEBIBYTE
#: Bytes of one read, how many reads find a window, and how many one request makes.
PORTION, WINDOW_READS, READS = 256 * KIBIBYTE, 16, 64
#: So many requests read at once.
READERS = 4
#: Growth of a window without enough messages, and its reduction if it is too large.
_FACTOR = 8
#: The longest text that messages are searched for.
_SOUGHT = KIBIBYTE
_NAMES = {code: name for name, code in DIALECTS.items()}


class _Record(NamedTuple):
    """One record of a batch."""

    offset: int
    time: int
    publisher: tuple[int, str]
    dialect: int
    content: int
    header: bytes
    payload: bytes

    def row(self) -> dict[str, Any]:
        """Return the row of the message."""
        try:
            header = valueOf(self.header) or {}
        except (ValueError, RecursionError):
            header = {}
        return withValue(
            {
                "offset": self.offset,
                "time": self.time // 1000,
                "publisher_id": self.publisher[0],
                "publisher": self.publisher[1],
                "dialect": _NAMES.get(self.dialect, self.publisher[1].rpartition("-")[0]),
                "header": header,
                "bytes": len(self.payload),
                "content": CONTENTS[self.content][0].value,
                "payload": self.payload if len(self.payload) <= SHOWN else None,
            }
        )


class _Search:
    """Reads the messages of one topic that contain some bytes; ``left`` is how many reads it may still make."""

    def __init__(self, journal: IJournal, topic: str, sought: bytes) -> None:
        self._journal, self._topic, self._sought = journal, topic, sought
        self.left = READS

    async def firsts(self, start: int, end: int, most: int) -> tuple[list[_Record], int]:
        """Return the first messages from an offset up to another, and the offset from which to continue."""
        found: list[_Record] = []
        while start < end and self.left:
            batches, following = await self._portion(start)
            for batch in batches:
                found += _records(self._wanted(batch, end), most - len(found))
                if len(found) == most:
                    return found, found[-1].offset + 1
            start = following
        return found, min(start, end)

    async def lasts(self, start: int, end: int, most: int) -> list[_Record] | None:
        """Return the last messages from an offset up to another; None if that takes too many reads."""
        found: list[_Record] = []
        for _ in range(WINDOW_READS):
            if not self.left:
                return None
            batches, start = await self._portion(start)
            for batch in batches:
                found = [*found, *_records(self._wanted(batch, end), -most)][-most:]
            if start >= end:
                return found
        return None

    def _portion(self, start: int) -> "Deferred[tuple[Sequence[StoredBatch], int]]":
        """Read from an offset on; the result has the offset from which to continue. Raises NoCapacity."""
        self.left -= 1
        found: Deferred[tuple[Sequence[StoredBatch], int]] = Deferred()

        def read(batches: Sequence[StoredBatch], following: int) -> None:
            if following == start:
                found.errback(NoCapacity("the journal cannot be read"))
            else:
                found.callback((batches, following))

        self._journal.read(start, self._topic.__eq__, PORTION, read)
        return found

    def _wanted(self, batch: StoredBatch, end: int) -> StoredBatch:
        """Return the records before an offset that contain the bytes."""
        batch, sought = batch.pick(range(bisect_left(batch.offsets, end))), self._sought
        if not sought:
            return batch
        columns = zip(batch.payloads, batch.headers, strict=True)
        return batch.pick([place for place, (one, other) in enumerate(columns) if sought in one or sought in other])


def _records(batch: StoredBatch, most: int) -> list[_Record]:
    """Return the first records of a batch, or the last ones if ``most`` is negative."""
    batch = batch.pick(range(most) if most >= 0 else range(max(0, len(batch) + most), len(batch)))
    publishers = [batch.publishers[place] for place in batch.publisherOf]
    columns = batch.offsets, batch.timestamps, publishers, batch.dialects, batch.contents, batch.headers, batch.payloads
    return [_Record(*values) for values in zip(*columns, strict=True)]


@dataclass(eq=False, repr=False)
class StoredMessages:
    """The page."""

    _broker: Broker
    _reading: int = 0

    async def answer(self, request: PageRequest) -> HttpReply:
        """Return messages in the order of their offsets, and the offsets where earlier and later ones are found."""
        arguments, client = request.arguments, request
        topic = text(arguments, "topic", TOPIC_BYTES)
        most = number(arguments, "limit", MESSAGES, MOST_MESSAGES, least=1)
        sought = text(arguments, "contains", _SOUGHT).encode() if arguments.get("contains") else b""
        start = _startOf(arguments["from"]) if "from" in arguments else None
        before = number(arguments, "before") if "before" in arguments else None
        if start is not None and before is not None:
            raise BadRequest("name either 'from' or 'before'")
        if topic.startswith(SYSTEM):
            raise Forbidden("these messages are the broker's own")
        asker: Any = client  # has rights
        permit(asker, Action.SUBSCRIBE, topic)
        journal = journalOf(self._broker)
        if self._reading >= READERS:
            raise NoCapacity(f"{READERS} requests read the journal already")
        self._reading += 1
        try:
            found = await self._found(journal, topic, most, sought, start, before)
        finally:
            self._reading -= 1
        permit(asker, Action.SUBSCRIBE, topic)
        return jsonReply(found)

    async def _found(
        self, journal: IJournal, topic: str, most: int, sought: bytes, start: int | datetime | None, before: int | None
    ) -> dict[str, Any]:
        bounds = journal.bounds().get(topic)
        end = journal.end
        shown = {"first": bounds.first, "last": bounds.last} if bounds is not None else {"first": None, "last": None}
        if bounds is None:
            return {"messages": [], "before": None, "next": end, "complete": True, "end": end, **shown}
        search = _Search(journal, topic, sought)
        if start is None:
            records, reached = await _backwards(search, bounds, most, end if before is None else min(before, end))
            following, isComplete = (records[-1].offset + 1 if records else end), reached <= bounds.first
        else:
            reached = max(await _offsetOf(journal, start), bounds.first)
            records, following = await search.firsts(reached, end, most)
            isComplete = following >= end
        rows = _fitting(records, fromEnd=start is None)
        if rows and len(rows) < len(records):
            following, reached = rows[-1]["offset"] + 1, rows[0]["offset"]
            isComplete = False
        earlier = None if reached <= bounds.first else reached
        return {"messages": rows, "before": earlier, "next": following, "complete": isComplete, "end": end, **shown}


async def _backwards(search: _Search, bounds: TopicBounds, most: int, before: int) -> tuple[list[_Record], int]:
    """Return the last ``most`` messages before an offset, and the offset before which to continue."""
    found: list[_Record] = []
    high = begun = min(before, bounds.last + 1)
    apart = (bounds.last + 1 - bounds.first) / bounds.count
    width = max(1, round(apart * min(most, WINDOW_READS * PORTION // (2 * (bounds.bytes // bounds.count + 64)) + 1)))
    while high > bounds.first and len(found) < most and search.left:
        low = max(bounds.first, high - width)
        window = await search.lasts(low, high, most - len(found))
        if window is not None:
            found = [*window, *found]
            high, width = low, width * _FACTOR
        elif high - low == 1:
            raise NoCapacity("the journal cannot be read")
        else:
            width = max(1, (high - low) // _FACTOR)
    if high == begun and high > bounds.first:
        raise NoCapacity("earlier messages are too far apart; name an offset with 'from'")
    return found, found[0].offset if len(found) == most else high


async def _offsetOf(journal: IJournal, start: int | datetime) -> int:
    if isinstance(start, int):
        return start
    found: Deferred[int] = Deferred()
    journal.offsetAt(max(0, round(start.timestamp() * 1_000_000)), found.callback)
    return await found


def _startOf(value: Any) -> int | datetime:
    """Return the offset or the time that ``from`` names; raises BadRequest."""
    words = str(value)
    if words == "first":
        return 0
    if words.isdecimal() and len(words) < 20:
        return int(words)
    moment = zonedTime(words)
    if moment is not None and 1970 < moment.year < 3000:
        return moment
    raise BadRequest("'from' must be 'first', an offset, or a time in ISO 8601 with its zone")


def _fitting(records: Sequence[_Record], fromEnd: bool) -> list[dict[str, Any]]:
    """Return the rows of as many records as an answer has space for, the last ones if ``fromEnd``."""
    rows: list[dict[str, Any]] = []
    size = 0
    for record in reversed(records) if fromEnd else records:
        rows.append(record.row())
        size += min(len(record.payload), SHOWN) + len(record.header)
        if size > ANSWER:
            break
    return rows[::-1] if fromEnd else rows
