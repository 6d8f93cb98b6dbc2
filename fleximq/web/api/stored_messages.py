"""``/api/topics/messages``: messages of one topic in the journal, decoded; from an offset or a time on, or backwards.

The journal's thread reads them. Each request reads a bounded part of the journal; the answer says where to continue.
Going backwards, the journal is read forwards in windows that grow while they have too few messages, and shrink if they
have too many bytes.
"""

from collections import deque
from collections.abc import Iterator, Sequence
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
from fleximq.web.api.shown_payload import SHOWN, valueOf, withValue
from fleximq.web.request import HttpReply, PageRequest, jsonReply

#: The default and the maximum number of messages in an answer, and about how many bytes of payloads it has.
MESSAGES, MOST_MESSAGES, ANSWER = 20, 100, MEBIBYTE
#: Bytes of one read, how many reads find a window, and how many one request makes.
PORTION, WINDOW_READS, READS = MEBIBYTE, 8, 32
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


class _Reach(NamedTuple):
    """Where the reading of a range ended: at ``offset``, at the range's end if it ``isComplete``."""

    offset: int
    isComplete: bool


class _Search:
    """Reads the messages of one topic that contain some bytes; ``left`` is how many reads it may still make."""

    def __init__(self, journal: IJournal, topic: str, sought: bytes) -> None:
        self._journal, self._topic, self._sought = journal, topic, sought
        self.left = READS

    async def read(self, start: int, end: int, reads: int, into: "deque[_Record] | list[_Record]", most: int) -> _Reach:
        """Add the messages from an offset up to another, until there are ``most``; at most so many reads."""
        while start < end:
            if not (reads and self.left):
                return _Reach(start, False)
            reads, self.left = reads - 1, self.left - 1
            batches, following = await self._portion(start)
            for record in self._wanted(batches):
                if record.offset >= end:
                    break
                into.append(record)
                if len(into) == most:
                    return _Reach(record.offset + 1, True)
            if following == start:
                raise NoCapacity("the journal cannot be read")
            start = following
        return _Reach(end, True)

    def _portion(self, start: int) -> "Deferred[tuple[Sequence[StoredBatch], int]]":
        found: Deferred[tuple[Sequence[StoredBatch], int]] = Deferred()
        self._journal.read(start, self._topic.__eq__, PORTION, lambda *answer: found.callback(answer))
        return found

    def _wanted(self, batches: Sequence[StoredBatch]) -> Iterator[_Record]:
        for batch in batches:
            publishers = [batch.publishers[place] for place in batch.publisherOf]
            columns = batch.offsets, batch.timestamps, publishers, batch.dialects, batch.contents
            for values in zip(*columns, batch.headers, batch.payloads, strict=True):
                record = _Record(*values)
                if self._sought in record.payload or self._sought in record.header:
                    yield record


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
            first = await _offsetOf(journal, start)
            records, reached = [], max(first, bounds.first)
            reach = await search.read(reached, end, READS, records, most)
            following, isComplete = reach
        rows = _fitting(records, fromEnd=start is None)
        if rows and len(rows) < len(records):
            following, reached = rows[-1]["offset"] + 1, rows[0]["offset"]
            isComplete = False
        earlier = None if reached <= bounds.first else reached
        return {"messages": rows, "before": earlier, "next": following, "complete": isComplete, "end": end, **shown}


async def _backwards(search: _Search, bounds: TopicBounds, most: int, before: int) -> tuple[list[_Record], int]:
    """Return the last ``most`` messages before an offset, and the offset before which to continue."""
    found: list[_Record] = []
    high = min(before, bounds.last + 1)
    apart = (bounds.last + 1 - bounds.first) / bounds.count
    width = max(1, round(apart * min(most, WINDOW_READS * PORTION // (2 * (bounds.bytes // bounds.count + 64)) + 1)))
    while high > bounds.first and len(found) < most and search.left:
        low = max(bounds.first, high - width)
        window: deque[_Record] = deque(maxlen=most - len(found))
        reach = await search.read(low, high, WINDOW_READS, window, -1)
        if reach.isComplete:
            found = [*window, *found]
            high, width = low, width * _FACTOR
        elif high - low == 1:
            raise NoCapacity("the journal cannot be read")
        else:
            width = max(1, (high - low) // _FACTOR)
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
    try:
        moment = datetime.fromisoformat(words)
        if moment.tzinfo is not None and 1970 < moment.year < 3000:
            return moment
    except ValueError:
        pass
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
