"""A broker with schedules on a journal that is written and read where a test says so, on a disk that can lose power."""

from collections.abc import Sequence
from typing import Any

import msgpack
from twisted.internet.task import Clock

from fleximq.broker.envelope import Envelope
from fleximq.broker.publishing.transactions import RecordSource
from fleximq.journal.files.file_system import Files
from fleximq.values.records import QOS1, StoredBatch
from tests.broker.parts import Collector, makeBroker
from tests.journal.at_once import JournalAtOnce
from tests.journal.recorder import Recorder

SOURCE = RecordSource()
#: The seconds of the system clock when the monotonic one is at 0.
AHEAD = 1_000_000_000.0


def batch(topic: str, header: dict[str, Any], *payloads: bytes) -> StoredBatch:
    """Return a run of QoS1 with the same header for all messages."""
    none = [0] * len(payloads)
    packed = [msgpack.packb(header) if header else b""] * len(payloads)
    publishers = [(1001, "fleximq-1001")]
    contents, dialects = [QOS1] * len(payloads), [1] * len(payloads)
    return StoredBatch(none, none, [topic], none, publishers, none, dialects, contents, packed, list(payloads))


def duesOf(batches: Sequence[StoredBatch], topic: str = "t") -> list[int]:
    """Return the due times of the publications of schedules to a topic."""
    mine = (each.only(topic.__eq__) for each in batches)
    return [msgpack.unpackb(header)["schedule"]["due"] for each in mine for header in each.headers]


class Life:
    """One process with a broker; ``seen`` has what a subscriber of the durable topic "t" received.

    :param files: the disk.
    :param clock: the monotonic clock; the system clock is ``ahead`` of it.
    """

    def __init__(self, files: Files | None = None, clock: Clock | None = None, **options: Any) -> None:
        self.clock = clock or Clock()
        self.ahead = AHEAD
        self.disk = files or Recorder()
        self.journal = JournalAtOnce(self.disk, now=lambda: int(self.wall() * 1_000_000), **options)
        self.errors: list[Exception] = []
        self.broker = makeBroker(self.clock, self.journal, self.errors.append, self.wall, durable=("t",))
        found = self.journal.open(self.broker.checkpointer)
        self.broker.checkpointer.restore(found)
        self.beforeBegin()
        self.journal.begin()
        self.me = self.broker.join("fleximq")
        self.seen = Collector()
        self.broker.subscribe(self.me, self.seen, "t")

    def beforeBegin(self) -> None:
        """Called when the broker is restored, and the journal stores nothing yet."""

    def wall(self) -> float:
        """Return the seconds of the system clock."""
        return self.clock.seconds() + self.ahead

    def now(self) -> int:
        """Return the milliseconds of the system clock."""
        return int(self.wall() * 1000)

    def schedule(self, due: int, *payloads: bytes, topic: str = "t", **header: Any) -> list[Any]:
        """Schedule messages, and return the list of decisions: reasons and indexes."""
        told: list[Any] = []

        def decided(reason: str | None, places: Sequence[int]) -> None:
            told.append((reason, list(places)))

        envelope = Envelope(self.broker.topicFor(self.me, topic), self.me, SOURCE)
        body, ids = batch(topic, header, *payloads), header.get("message_id")
        self.broker.schedule(envelope, body, len(payloads), due, decided, ids and [ids] * len(payloads))
        return told

    def commit(self) -> None:
        """Carry out all commits."""
        self.broker.checkpointer.flush()
        self.journal.opened.group.handOver(stateRecords=True)
        self.journal.worker.drain()

    def step(self, isHandedOver: bool) -> None:
        """Carry out one piece of the journal's work; ``isHandedOver``: let all records so far be its next commit."""
        self.broker.checkpointer.flush()
        if isHandedOver:
            self.journal.opened.group.handOver(stateRecords=True)
        self.journal.worker.step()
        self.clock.advance(0)

    def roll(self, isHandedOver: bool) -> None:
        """Begin a segment of the journal; ``isHandedOver`` as for :meth:`step`."""
        self.journal.opened.roll()
        self.step(isHandedOver)

    def waitingIds(self) -> list[int]:
        """Return the ids of the durable messages that wait, by due time."""
        return [number for block in self.broker.schedules.inJournal.timetable.blocks() for number in block.numbers]

    def finish(self, seconds: float = 100.0) -> None:
        """Let time pass, with all commits."""
        for _ in range(4):
            self.clock.advance(seconds / 4)
            for _ in range(3):
                self.commit()
                self.clock.advance(0)

    def published(self, topic: str = "t") -> list[bytes]:
        """Return the payloads of a topic's records in the journal."""
        mine = (each.only(topic.__eq__) for each in self.journal.everything())
        return [payload for each in mine for payload in each.payloads]

    def stop(self) -> None:
        """End in order."""
        self.broker.stop()
        self.journal.close()

    def killed(self) -> "Life":
        """Return the next process on the same disk and clocks."""
        self.broker.stop()
        assert isinstance(self.disk, Recorder)
        life = type(self)(Recorder(self.disk.now()), self.clock)
        life.ahead = self.ahead
        return life
