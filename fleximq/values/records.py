"""Records that broker and journal exchange: runs to store, and stored batches.

A *record* is a message in the journal: its bytes, its header without the topic, and its offset. The columns of a batch
are split into single values only on demand.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, islice, pairwise, repeat
from typing import Any, NamedTuple

import msgpack

from fleximq.values import message_loops
from fleximq.values.message import Content, Message
from fleximq.values.message_cost import costOf
from fleximq.values.message_run import MessageRun, areSingle
from fleximq.values.publication_head import PRIORITY, Head, headOf, priorityOf

#: The codes of a record's dialect (docs/reference/journal-format.rst, "Dialects").
DIALECTS = {"broker": 0, "fleximq": 1, "blipmq": 2, "minimq": 3, "identity": 4}
#: The code of the records of a publisher's dialect: publications by HTTP have the headers and payloads of FlexiMQ.
PUBLISHER_CODES = DIALECTS | {"http": DIALECTS["fleximq"]}
#: The dialect is a plug-in's; its name is the part of the publisher's name before the hyphen.
OTHER_DIALECT = 0xFFFF

# The header's key, in bytes.
_EXPIRES = b"expires_in"
# Messages of other dialects have no head.
_FLEXIMQ = DIALECTS["fleximq"]

#: Flags of a record's content, above its low byte; the last one for a publication of a schedule.
QOS1, LEGACY, LINE, SCHEDULED = 0x100, 0x200, 0x400, 0x800
_KINDS = (Content.MESSAGEPACK, Content.BYTES, Content.TEXT)
_CODES = {kind: code for code, kind in enumerate(_KINDS)}
#: Content code -> content, qos, legacy, line.
CONTENTS: dict[int, tuple[Content, int, bool, bool]] = {
    code | qos * QOS1 | legacy * LEGACY | line * LINE | scheduled: (kind, qos, bool(legacy), bool(line))
    for code, kind in enumerate(_KINDS)
    for qos in (0, 1)
    for legacy in (0, 1)
    for line in (0, 1)
    for scheduled in (0, SCHEDULED)
}
#: The ids that a header can carry, in the order of :class:`fleximq.values.message.Message`.
_IDS = ("message_id", "correlation_id", "reply_to")
_NO_IDS = (None, None, None)
#: By length: the MessagePack of a header with only a message_id, up to its text.
_ONLY_ID: list[bytes] = [msgpack.packb({"message_id": "x" * length})[: -length or None] for length in range(256)]
#: Ids of longer headers are not cached.
_REPEATED = 4096
# Making a NamedTuple through its own constructor costs twice as much.
_new = tuple.__new__


class Run(NamedTuple):
    """The messages of one run in the journal's form.

    ``headers`` are MessagePack maps without the topic, no bytes for an empty one; ``contents`` are codes, see
    :func:`contentOf`. Either is one value if all messages have the same.
    """

    headers: bytes | Sequence[bytes]
    payloads: "Sequence[bytes] | Blobs"
    contents: int | Sequence[int]


class PublishedRun(NamedTuple):
    """A run with its topic, and the id, sender name and dialect of its publisher."""

    topic: str
    publisher: int
    name: str
    dialect: str
    run: Run


#: Receives the offset of a run's first message after its commit (0 in memory), or 0 and the reason of a refusal.
OnCommitted = Callable[[int, str | None], None]
#: Receives the token of staged records, or None and the reason of a refusal.
OnStaged = Callable[[str | None, str | None], None]


def ownQuery(principal: str | None, query: str) -> str:
    """Return the name under which the journal stores a query, so that each principal has its own queries.

    Anonymous clients with unrestricted rights share theirs under the plain name. Neither part contains a line break.
    """
    return f"{principal or ''}\n{query}"


def splitQuery(name: str) -> tuple[str | None, str]:
    """Return the principal of a stored query, "" for anonymous clients and None for a shared query, and its name."""
    principal, isOwn, query = name.partition("\n")
    return (principal, query) if isOwn else (None, name)


class TopicBounds(NamedTuple):
    """The records of a topic in the journal: first and last offset, their times (microseconds since 1970), and their
    number and bytes of headers and payloads.
    """

    first: int
    last: int
    firstTime: int
    lastTime: int
    count: int  # type: ignore[assignment]  # tuple.count is not used
    bytes: int


class SegmentState(NamedTuple):
    """One file of the journal: the positions where it begins and ends, its bytes on disk, the offsets of its first
    record and after its last one, the time of its latest record in microseconds since 1970 (None without any), and how
    many damaged ranges it has.
    """

    base: int
    end: int
    bytes: int
    first: int
    next: int
    latest: int | None
    lost: int


class BacklogSize(NamedTuple):
    """About how much is stored from an offset on; ``bytes`` are those of headers and payloads."""

    records: int
    bytes: int


class Blobs:
    """Adjacent byte strings, split on demand; ``ends`` are the position where ``blob`` begins, and the end of each."""

    __slots__ = ("_blob", "_ends")

    def __init__(self, blob: bytes, ends: Sequence[int]) -> None:
        self._blob = blob
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends) - 1

    @property
    def size(self) -> int:
        """The number of bytes in all of them."""
        return len(self._blob)

    def cut(self) -> list[bytes]:
        """Return the strings as a list."""
        blob, ends = self._blob, self._ends
        if not blob:
            return [b""] * (len(ends) - 1)
        if ends[0]:
            first = ends[0]
            ends = [end - first for end in ends]
        return [blob[start:end] for start, end in pairwise(ends)]

    def __contains__(self, part: object) -> bool:
        """Return whether the bytes of all together contain some."""
        return isinstance(part, bytes) and part in self._blob

    def joined(self, start: int, stop: int) -> memoryview:
        """Return the strings from one index up to another as one."""
        first = self._ends[0]
        return memoryview(self._blob)[self._ends[start] - first : self._ends[stop] - first]

    def endsAfter(self, end: int, start: int) -> Sequence[int]:
        """Return where the strings from one index on end if they follow each other from the position ``end``."""
        ends = self._ends[start:]
        by = end - ends[0]
        if isinstance(ends, range):
            return range(ends[1] + by, ends[-1] + by + 1, ends.step)
        return [each + by for each in ends[1:]]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.cut())

    def __getitem__(self, place: int) -> bytes:
        start = self._ends[0]
        return self._blob[self._ends[place] - start : self._ends[place + 1] - start]

    def mention(self, word: bytes) -> bool:
        """Tell whether a word is in one of the strings, or crosses two."""
        return word in self._blob

    @property
    def areAlike(self) -> bool:
        """Whether all strings are equal."""
        ends, count = self._ends, len(self)
        size = ends[1] - ends[0]
        alike = size * count == len(self._blob) and self._blob == self[0] * count
        return alike and (not size or [*ends] == [*range(ends[0], ends[-1] + 1, size)])

    def within(self, place: int, most: int) -> int:
        """Return how many strings from an index on have ``most`` bytes together, the one that exceeds it included."""
        return min(bisect_left(self._ends, self._ends[place] + most, place + 1), len(self)) - place

    def part(self, start: int, stop: int) -> "Blobs":
        """Return the strings from one index up to another, fewer if there are fewer."""
        start, stop = min(start, len(self)), min(stop, len(self))
        ends = self._ends[start : stop + 1]
        first = self._ends[0]
        return Blobs(self._blob[ends[0] - first : ends[-1] - first], ends)


def areAlike(column: Any) -> bool:
    """Return whether all values of a column are equal; there is one at least."""
    if isinstance(column, memoryview):  # a column of a frame
        return bytes(column) == bytes(column[:1]) * len(column)
    return column.count(column[0]) == len(column)  # type: ignore[no-any-return]


@dataclass(eq=False, slots=True)
class StoredBatch:
    """Records in the order of their offsets, as columns of equal length; cheap to make.

    ``topicOf`` and ``publisherOf`` are indexes into ``topics`` and ``publishers`` (pairs of client id and name), which
    may hold more than the batch needs. ``timestamps`` are microseconds since 1970; ``dialects`` values of
    :data:`DIALECTS` or :data:`OTHER_DIALECT`; ``contents`` keys of :data:`CONTENTS`.
    """

    offsets: Sequence[int]
    timestamps: Sequence[int]
    topics: Sequence[str]
    topicOf: Sequence[int]
    publishers: Sequence[tuple[int, str]]
    publisherOf: Sequence[int]
    dialects: Sequence[int]
    contents: Sequence[int]
    _headers: Blobs | list[bytes]
    _payloads: Blobs | list[bytes]

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def headers(self) -> list[bytes]:
        """The headers, without their topics; no bytes for an empty one."""
        if not isinstance(self._headers, list):
            self._headers = self._headers.cut()
        return self._headers

    @property
    def payloads(self) -> list[bytes]:
        """The payloads."""
        if not isinstance(self._payloads, list):
            self._payloads = self._payloads.cut()
        return self._payloads

    @property
    def size(self) -> int:
        """The bytes of all headers and payloads, known without splitting them."""
        return sum(
            sum(map(len, column)) if isinstance(column, list) else column.size
            for column in (self._headers, self._payloads)
        )

    def priorities(self) -> Sequence[int] | None:
        """Return the priority of each record; None if all have the usual one. Cheap if no header names one."""
        headers = self._headers
        word = b"priority"
        if not (any(word in each for each in headers) if isinstance(headers, list) else headers.mention(word)):
            return None
        columns = zip(self.dialects, self.headers, strict=True)
        found = array("B", [priorityOf(header) if dialect == _FLEXIMQ else PRIORITY for dialect, header in columns])
        return None if found.count(PRIORITY) == len(found) else found

    def message(self, place: int) -> Message:
        """Return one record as a message with its offset."""
        content, qos, legacy, line = CONTENTS[self.contents[place]]
        ids = idsOf(self._headers[place])
        head = self._head(place) if self.dialects[place] == _FLEXIMQ else None
        return _new(Message, (self._payloads[place], content, qos, *ids, legacy, line, self.offsets[place], head))

    def messages(self) -> list[Message]:
        """Return all records as messages with their offsets."""
        if len(self) and self._areOneRun:
            return message_loops.copies(self.message(0), self.payloads, self.offsets)
        columns = zip(self.contents, self.headers, self.payloads, self.offsets, self._heads(), strict=False)
        return [_message(code, header, payload, offset, head) for code, header, payload, offset, head in columns]

    def queued(self) -> Sequence[Message]:
        """Return the same messages, as one run if they are neighbours of one FlexiMQ client that can leave together."""
        areNeighbours = isinstance(self.offsets, range) or message_loops.stepping(self.offsets, 1)
        if not (areNeighbours and self.dialects[0] == _FLEXIMQ and self._areOneRun):
            return self.messages()
        first = self.message(0)
        if areSingle(first.head):
            return self.messages()
        return MessageRun(self.payloads, first._replace(offset=0)[1:], costOf(first) - len(first.payload), first.offset)

    @property
    def _areOneRun(self) -> bool:
        """Whether all records differ only in payloads, times and offsets; 5 ns each."""
        headers = self._headers
        alike = headers.areAlike if isinstance(headers, Blobs) else areAlike(headers)
        return alike and all(map(areAlike, (self.topicOf, self.publisherOf, self.dialects, self.contents)))

    def within(self, place: int, most: int) -> int:
        """Return how many records from an index on have ``most`` bytes of payload, the one that exceeds it included."""
        payloads = self._payloads
        if isinstance(payloads, Blobs):
            return payloads.within(place, most)
        sizes = accumulate(map(len, islice(payloads, place, None)))
        return next((number for number, size in enumerate(sizes, 1) if size >= most), len(payloads) - place)

    def messagesWithHeads(self) -> list[Message]:
        """Return all records as messages, each with a head, see :func:`withHead`."""
        known: dict[tuple[int, int], Head] = {}
        found = self.messages()
        for place, message in enumerate(found):
            if message.head is None:
                alike = self.topicOf[place], self.publisherOf[place]
                if alike not in known:
                    known[alike] = Head(self.topics[alike[0]], b"", self.publishers[alike[1]][0])
                found[place] = withHead(message, known[alike])
        return found

    def expiries(self) -> dict[int, int]:
        """Return when records with a time of their own expire, in microseconds since 1970, by offset."""
        headers = self._headers
        if not (_EXPIRES in headers if isinstance(headers, Blobs) else any(_EXPIRES in each for each in headers)):
            return {}
        heads = zip(self.offsets, self.timestamps, self._heads(), strict=False)
        return {offset: time + head.expires * 1000 for offset, time, head in heads if head is not None and head.expires}

    def _heads(self) -> Iterable[Head | None]:
        """Return the heads of all records, one object for all with the same; without end if there are none."""
        if _FLEXIMQ not in self.dialects:
            return repeat(None)
        known: dict[tuple[int, int, bytes], Head] = {}
        heads: list[Head | None] = []
        columns = zip(self.dialects, self.topicOf, self.publisherOf, self.headers, strict=True)
        for place, (dialect, *key) in enumerate(columns):
            if dialect != _FLEXIMQ:
                heads.append(None)
                continue
            found = known.get(alike := tuple(key))  # type: ignore[arg-type]
            if found is None:
                found = known[alike] = self._head(place)  # type: ignore[index]
            heads.append(found)
        return heads

    def _head(self, place: int) -> Head:
        publisher, _ = self.publishers[self.publisherOf[place]]
        return headOf(self.topics[self.topicOf[place]], self._headers[place], publisher)

    def placed(self, offset: int, time: int) -> "StoredBatch":
        """Return the batch with the offsets from ``offset`` on, unless it has them, and this time."""
        count = len(self)
        if not count or self.offsets[0] == offset:
            return self
        return replace(self, offsets=range(offset, offset + count), timestamps=[time] * count)

    def only(self, wanted: Callable[[str], bool]) -> "StoredBatch":
        """Return a batch of the records with selected topics."""
        places = {place for place, topic in enumerate(self.topics) if wanted(topic)}
        if len(places) == len(self.topics):
            return self
        topicOf = self.topicOf
        return self.pick([place for place, topic in enumerate(topicOf) if topic in places] if places else range(0))

    def pick(self, places: Sequence[int]) -> "StoredBatch":
        """Return a batch of the records at these indexes (ascending); a ``range`` with step 1 is cheap."""
        if isinstance(places, range) and places.step == 1:
            start, stop = places.start, max(places.start, places.stop)
            return self._with(
                lambda column: column[start:stop],
                lambda column: column[start:stop] if isinstance(column, list) else column.part(start, stop),
            )
        if len(places) == len(self):
            return self
        return self._with(
            lambda column: [column[place] for place in places], lambda column: [column[place] for place in places]
        )

    def _with(
        self, column: Callable[[Any], Sequence[int]], blobs: Callable[[Any], Blobs | list[bytes]]
    ) -> "StoredBatch":
        return StoredBatch(
            column(self.offsets),
            column(self.timestamps),
            self.topics,
            column(self.topicOf),
            self.publishers,
            column(self.publisherOf),
            column(self.dialects),
            column(self.contents),
            blobs(self._headers),
            blobs(self._payloads),
        )


def _message(code: int, header: bytes, payload: bytes, offset: int, head: Head | None) -> Message:
    content, qos, legacy, line = CONTENTS[code]
    return _new(Message, (payload, content, qos, *(idsOf(header) if header else _NO_IDS), legacy, line, offset, head))


def contentOf(message: Message) -> int:
    """Return the code of a message's content, QoS and flags: one of :data:`CONTENTS`."""
    flags = QOS1 * bool(message.qos) | LEGACY * message.legacy | LINE * message.line
    return _CODES[message.content] | flags


def headerOf(message: Message) -> bytes:
    """Return the header of a message whose head has one, else its ids as a stored header; no bytes if it has none."""
    _, _, _, messageId, correlation, replyTo, _, _, _, head = message
    if head is not None and head.pairs:
        return head.pairs
    if correlation is None and replyTo is None:
        if messageId is None:
            return b""
        # The common header of MiniMQ, in a quarter of the time.
        text = messageId.encode()
        if len(text) < len(_ONLY_ID):
            return _ONLY_ID[len(text)] + text
    ids = {name: value for name, value in zip(_IDS, message[3:6], strict=True) if value is not None}
    packed: bytes = msgpack.packb(ids)
    return packed


def withHead(message: Message, head: Head) -> Message:
    """Return a message of another dialect than FlexiMQ with this head, which has no pairs: neighbours may share it.
    Only the pairs of MessagePack are looked at later, so for this content they get the ids.
    """
    if message.content is Content.MESSAGEPACK and (pairs := headerOf(message)):
        head = head._replace(pairs=pairs)
    return message._replace(head=head)


def runOf(messages: Sequence[Message]) -> Run:
    """Return messages in the journal's form; for sources without a faster way."""
    headers = [headerOf(message) for message in messages]
    contents = [contentOf(message) for message in messages]
    return Run(
        headers[0] if headers and headers.count(headers[0]) == len(headers) else headers,
        [message.payload for message in messages],
        contents[0] if contents and contents.count(contents[0]) == len(contents) else contents,
    )


class _Pairs(list[tuple[Any, Any]]):
    """A map as its pairs, since Python may be unable to hash its keys."""


@lru_cache(maxsize=256)
def _readIds(header: bytes) -> tuple[str | None, ...]:
    try:
        pairs = msgpack.unpackb(header, strict_map_key=False, timestamp=1, object_pairs_hook=_Pairs)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return _NO_IDS
    if not isinstance(pairs, _Pairs):
        return _NO_IDS
    found: list[str | None] = [None, None, None]
    for key, value in pairs:
        if isinstance(key, str) and key in _IDS:
            found[_IDS.index(key)] = value if isinstance(value, str) else None
    return tuple(found)


def idsOf(header: bytes) -> tuple[str | None, ...]:
    """Return message_id, correlation_id and reply_to of a header; None if absent, or if it is no MessagePack map."""
    if b"_id" not in header and b"reply_to" not in header:  # most have none of them and need not be decoded
        return _NO_IDS
    return _readIds(header) if len(header) <= _REPEATED else _readIds.__wrapped__(header)
