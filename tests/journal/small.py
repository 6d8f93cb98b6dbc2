"""A small journal with everything in it, on a disk in memory, for tests that damage it."""

from array import array
from functools import cache
from typing import NamedTuple

import msgpack

from fleximq.journal.format.frame import HEADER_BYTES, FrameHeader, readHeader
from fleximq.values.records import StoredBatch
from fleximq.values.state_records import ClientIdsReserved, QueueAcknowledged, QueueDelivered, QueueOpened
from tests.journal.at_once import JournalAtOnce, published
from tests.journal.recorder import Recorder, State

FOLDER = "/disk/journal"
#: Topic, publisher, header and payload.
Content = tuple[str, int, bytes, bytes]


class Small(NamedTuple):
    """A journal as it was left; ``records`` are all that it kept, by offset."""

    state: State
    records: dict[int, Content]

    def segments(self) -> list[str]:
        """Return the names of the segments' files, in order."""
        return sorted(name for name in self.state.names if name.endswith(".fxj"))

    def content(self, name: str) -> bytes:
        """Return the bytes of a file."""
        return self.state.files[self.state.names[name]]

    def frames(self, name: str) -> list[FrameHeader]:
        """Return the headers of a segment's frames."""
        content, headers, place = self.content(name), [], 0
        while place < len(content):
            headers.append(readHeader(content, place))
            place += headers[-1].length
        return headers

    def changed(self, name: str, content: bytes) -> State:
        """Return the disk with another content in one file."""
        state = self.state.copy()
        state.files[state.names[name]] = content
        return state

    def flipped(self, name: str, bit: int) -> State:
        """Return the disk with one bit of one file flipped."""
        content = bytearray(self.content(name))
        content[bit // 8] ^= 1 << bit % 8
        return self.changed(name, bytes(content))

    def without(self, *names: str) -> State:
        """Return the disk without these files."""
        state = self.state.copy()
        for name in names:
            del state.names[name]
        return state


def contents(batches: list[StoredBatch]) -> dict[int, Content]:
    """Return what is in batches, by offset."""
    return {
        offset: (
            batch.topics[batch.topicOf[place]],
            batch.publishers[batch.publisherOf[place]][0],
            batch.headers[place],
            batch.payloads[place],
        )
        for batch in batches
        for place, offset in enumerate(batch.offsets)
    }


@cache
def makeSmall(clean: bool = True, rounds: int = 9) -> Small:
    """Return a journal of several segments with frames of each kind but those that only retention writes.

    :param clean: it was closed; otherwise its process was killed after a commit of three frames.
    """
    disk = Recorder()
    disk.makeFolder("/disk")
    gap = _fill(JournalAtOnce(disk, segmentBytes=5000), "one", rounds, clean=False)
    records = gap | _fill(JournalAtOnce(disk, segmentBytes=5000), "two", 4, clean)
    return Small(disk.now(), records)


def _fill(journal: JournalAtOnce, query: str, rounds: int, clean: bool) -> dict[int, Content]:
    journal.open()
    journal.begin()
    records: dict[int, Content] = {}

    def append(topic: str, publisher: int, header: bytes, payloads: list[bytes]) -> None:
        def committed(offset: int, reason: str | None) -> None:
            for place, payload in enumerate(payloads):
                records[offset + place] = topic, publisher, header, payload

        journal.append(*published(payloads, topic, publisher, header=header), committed)

    journal.appendState(QueueOpened("q:a", "a", 1, 3, "somebody", 1))
    journal.appendState(ClientIdsReserved(1064))
    for number in range(rounds):
        append("a", 1000, b"", [b"first %d" % number * 20, b"", b"third"])
        journal.worker.drain()
        append("b/é", 1001, msgpack.packb({"key": number}), [b"%d" % number * 150])
        append("a", 1001, b"", [b"behind"])
        tokens: list[str] = []
        for part in ("0", "1", "2"):
            staged = [b"%d %s %d" % (number, part.encode(), place) for place in range(2)]
            journal.stage(
                query,
                number,
                part,
                [published(staged, f"sink{part}", 2)],
                lambda token, reason, tokens=tokens: tokens.append(token or ""),  # type: ignore[misc]
            )
        journal.worker.drain()

        def publish(offset: int, reason: str | None, number: int = number) -> None:
            for place in range(6):
                part, place = divmod(place, 2)
                records[offset + part * 2 + place] = f"sink{part}", 2, b"", b"%d %d %d" % (number, part, place)

        if number % 3 != 2:
            journal.commitStaged(query, number, tokens, publish)
        journal.appendState(QueueDelivered("q:a", 2, array("Q")))
        journal.appendState(QueueAcknowledged("q:a", array("Q", [1 + number])))
        journal.whenCommitted(lambda: None)
        journal.worker.drain()
    # While this is written, what follows becomes one commit of three frames.
    append("c", 1002, b"", [b"the last but one"])
    append("c", 1002, b"", [b"the last"])
    journal.stage(query, rounds, "0", [published([b"never"], "sink0", 2)], lambda token, reason: None)
    journal.appendState(QueueAcknowledged("q:a", array("Q", [2])))
    journal.whenCommitted(lambda: None)
    journal.worker.drain()
    if clean:
        journal.close()
    return records


#: Where each field of a frame's header begins, and how many bytes it has.
FIELDS = {
    "magic": (0, 4),
    "version": (4, 2),
    "kind": (6, 1),
    "flags": (7, 1),
    "length": (8, 4),
    "crc": (12, 4),
    "previous": (16, 4),
    "count": (20, 4),
    "segment": (24, 8),
    "position": (32, 8),
    "baseOffset": (40, 8),
    "firstTime": (48, 8),
    "lastTime": (56, 8),
}
assert sum(size for _, size in FIELDS.values()) == HEADER_BYTES
