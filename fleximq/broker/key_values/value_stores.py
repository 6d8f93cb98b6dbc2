"""Where values are stored: in memory, or in the journal as records of a reserved topic.

A record's header has the key ``value``: the time at which it expires, its key and its owner. A later record of a key
replaces earlier ones; the removal of a value is a state record. Retention removes the records of former values.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgpack

from fleximq.broker.envelope import ConnectedClient
from fleximq.errors import NotKept
from fleximq.interfaces import IJournal
from fleximq.values.message import Content, Message
from fleximq.values.records import Run, StoredBatch, contentOf
from fleximq.values.state_records import ValuesRemoved

#: The topic of the records of values. No client can publish to it, and no replay has it.
VALUES = "$sys/values"
_CONTENT = contentOf(Message(b"", Content.MESSAGEPACK))
#: The bytes of records that are read at a time.
_CHUNK = 8 << 20
#: Approximate bytes of memory of a value, in addition to its content and key.
_VALUE_BYTES = 400

#: Receives the revision of a stored value and None, or 0 and the reason why it is not stored.
OnStored = Callable[[int, str | None], None]
#: Receives contents by their revisions, without lost ones, and the revisions that were not looked at.
OnRead = Callable[[Mapping[int, bytes], Sequence[int]], None]


class ValueRecord(NamedTuple):
    """What the journal stores with the content of a value. ``expires``: milliseconds since 1970, 0: never."""

    revision: int
    key: str
    expires: int
    principal: str | None


class ValueStore(Protocol):
    """A store of contents by their revisions, numbers that grow with each value."""

    def write(self, client: ConnectedClient, key: str, content: bytes, expires: int, stored: OnStored) -> None:
        """Store a content; ``stored`` is called once, perhaps before this returns. Raises NotKept."""

    def read(self, revisions: Sequence[int], found: OnRead) -> None:
        """Read contents, about 8 MiB of the first ones, and at least one."""

    def remove(self, revisions: Sequence[int]) -> None:
        """Remove values that were deleted or have expired. For replaced ones see :meth:`replaced`."""

    def replaced(self, revision: int) -> None:
        """Remove a value in whose place a later one is stored."""


class ValuesInMemory:
    """Values in memory.

    :param first: the first revision.
    :param most: the maximum number of bytes of all values.
    """

    def __init__(self, first: int, most: int) -> None:
        self._next = first
        self._most = most
        self._bytes = 0
        #: Each with the bytes for which it counts.
        self._contents: dict[int, tuple[bytes, int]] = {}

    def write(self, client: ConnectedClient, key: str, content: bytes, expires: int, stored: OnStored) -> None:
        """See :class:`ValueStore`; raises NotKept if the memory for values is full."""
        size = _VALUE_BYTES + len(key.encode()) + len(content)
        if self._bytes + size > self._most:
            raise NotKept(f"values in memory may have {self._most} bytes", range(1))
        self._bytes += size
        revision = self._next
        self._next += 1
        self._contents[revision] = content, size
        stored(revision, None)

    def read(self, revisions: Sequence[int], found: OnRead) -> None:
        """See :class:`ValueStore`."""
        contents: dict[int, bytes] = {}
        size = 0
        for revision in revisions:
            if size > _CHUNK:
                break
            contents[revision], _ = self._contents[revision]
            size += len(contents[revision])
        found(contents, revisions[len(contents) :])

    def remove(self, revisions: Sequence[int]) -> None:
        """See :class:`ValueStore`."""
        for revision in revisions:
            self.replaced(revision)

    def replaced(self, revision: int) -> None:
        """See :class:`ValueStore`."""
        _, size = self._contents.pop(revision)
        self._bytes -= size


class ValuesInJournal:
    """Values in the journal; the revision of one is its offset."""

    def __init__(self, journal: IJournal) -> None:
        self._journal = journal

    def write(self, client: ConnectedClient, key: str, content: bytes, expires: int, stored: OnStored) -> None:
        """See :class:`ValueStore`; raises NotKept if the journal stores nothing at present."""
        header = msgpack.packb({"value": [expires, key, client.principal]})
        run = Run(header, [content], _CONTENT)
        client.lastRun = self._journal.append(VALUES, client.id, client.name, client.dialect, run, stored)

    def read(self, revisions: Sequence[int], found: OnRead) -> None:
        """See :class:`ValueStore`."""

        ascending = array("Q", sorted(revisions))

        def read(batches: Sequence[StoredBatch], number: int) -> None:
            mine = [batch.only(VALUES.__eq__) for batch in batches if VALUES in batch.topics]
            found(
                {
                    offset: bytes(payload)
                    for each in mine
                    for offset, payload in zip(each.offsets, each.payloads, strict=True)
                },
                ascending[number:],
            )

        self._journal.fetchRecords(ascending, _CHUNK, read)

    def remove(self, revisions: Sequence[int]) -> None:
        """See :class:`ValueStore`."""
        self._journal.appendState(ValuesRemoved(revisions))

    def replaced(self, revision: int) -> None:
        """Do nothing: the later record is the proof."""


def valuesIn(batch: StoredBatch) -> list[ValueRecord]:
    """Return the values of a batch, which may have records of other topics."""
    if VALUES not in batch.topics:
        return []
    mine = batch.only(VALUES.__eq__)
    return [_recordOf(offset, header) for offset, header in zip(mine.offsets, mine.headers, strict=True)]


def _recordOf(offset: int, header: bytes) -> ValueRecord:
    expires, key, principal = msgpack.unpackb(header)["value"]
    return ValueRecord(offset, key, expires, principal)
