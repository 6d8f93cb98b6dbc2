"""A load for the journal, made up by a random number, and what it was promised at every moment of it.

The journal is the real one, on a :class:`tests.journal.recorder.Recorder`. Every payload is another one, so that what
is found later can be told apart. :class:`Load` remembers, with the number of disk operations that were done by then,
when a run was appended, when it was said to be safe, and from when on it has to outlive a power loss.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgpack
from zope.interface import implementer

from fleximq.config.journal_options import Fsync
from fleximq.errors import NotKept
from fleximq.interfaces import IQueueState
from fleximq.journal.retention.retention_rules import RetentionPolicy
from fleximq.journal.retention.segment_removal import SegmentRemoval
from fleximq.values.state_records import (
    ClientIdsReserved,
    QueueAcknowledged,
    QueueClosed,
    QueueDelivered,
    QueueOpened,
    StateRecord,
)
from tests.journal.at_once import ALWAYS, JournalAtOnce, published
from tests.journal.recorder import Recorder

#: Longer than the load.
NEVER = 1 << 60
TOPICS = ("orders.new", "orders.old", "$dead/orders", "é")
#: Those whose messages may be taken out as soon as they are in a sealed segment.
EXPIRING = TOPICS[:2]
#: How often a load does each of: append, commit, note, wait for notes, stage, publish what was staged, let time pass,
#: meet a fault, take out what has expired.
WEIGHTS = (40, 40, 15, 6, 5, 6, 12, 2, 5)
_DIALECTS = ("broker", "fleximq", "blipmq", "minimq", "identity", "other")


@dataclass
class Kept:
    """A run: its first offset once it is known, what is in it, and when what was true of it."""

    payloads: tuple[bytes, ...]
    topic: str
    publisher: int
    header: bytes
    appended: int
    offset: int = 0
    said: int = NEVER
    lasting: int = NEVER
    refused: bool = False


@dataclass
@implementer(IQueueState)
class Queues:
    """What the broker would know: what is acknowledged by queue, which are open, and the highest client id."""

    open: set[str] = field(default_factory=set)
    acknowledged: dict[str, set[int]] = field(default_factory=dict)
    clientIds: int = 0

    def add(self, note: StateRecord) -> None:
        """Follow a note; knowing it already changes nothing."""
        if isinstance(note, QueueOpened):
            self.open.add(note.key)
        elif isinstance(note, QueueClosed):
            self.open.discard(note.key)
        elif isinstance(note, QueueAcknowledged):
            self.acknowledged.setdefault(note.key, set()).update(note.offsets)
        elif isinstance(note, ClientIdsReserved):
            self.clientIds = max(self.clientIds, note.until)

    def facts(self) -> set[tuple[str, str, int]]:
        """Return all that is known, each thing for itself."""
        known = {("open", key, 0) for key in self.open}
        known |= {("acknowledged", key, offset) for key, all in self.acknowledged.items() for offset in all}
        return known | {("client ids", "", self.clientIds)}

    # -- as the journal's keeper -------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return all of it."""
        acknowledged = {key: sorted(offsets) for key, offsets in self.acknowledged.items()}
        return {"open": sorted(self.open), "acknowledged": acknowledged}

    def lags(self) -> bool:
        """All records are delivered at once."""
        return False

    def needed(self) -> dict[str, int]:
        """Nothing is held back."""
        return {}

    def reading(self) -> dict[str, int]:
        """There are no consumer groups."""
        return {}

    def begun(self) -> None:
        """There are no schedules."""

    def restore(self, found: Any) -> None:
        """Take what a journal found when it was opened."""
        if found.snapshot is not None:
            self.open = set(found.snapshot["open"])
            self.acknowledged = {key: set(offsets) for key, offsets in found.snapshot["acknowledged"].items()}
        found.replay(lambda batch: None, self.add)
        self.clientIds = max(self.clientIds, found.nextClientId)


@dataclass
class Barrier:
    """What notes said that were safe, from an operation on."""

    facts: set[tuple[str, str, int]]
    lasting: int


class Load:
    """Runs at once when it is made; ``kept``, ``barriers`` and ``closed`` say what was promised.

    :param broken: syncs that do nothing, see :class:`tests.journal.recorder.Recorder`.
    :param weights: how often each thing is done that can be done.
    :param topics: where messages go.
    """

    def __init__(
        self,
        seed: int,
        fsync: Fsync = ALWAYS,
        steps: int = 60,
        broken: frozenset[str] = frozenset(),
        weights: Sequence[int] = WEIGHTS,
        topics: Sequence[str] = TOPICS,
    ) -> None:
        self.random = Random(seed)
        self.disk = Recorder(broken=broken)
        self.disk.makeFolder("/disk")
        self.disk.begun = self.disk.now()
        self.disk.changes.clear()
        self.fsync = fsync
        self._topics = topics
        self.kept: list[Kept] = []
        self.barriers: list[Barrier] = []
        self.said: list[tuple[int, set[tuple[str, str, int]]]] = []
        self.closed: list[int] = []
        self.given: list[tuple[int, int]] = []
        self.transactions: list[tuple[str, int, Kept]] = []
        self.queues = Queues()
        self.cleaned = NEVER
        self.complaints: list[str] = []
        self._time = 1_700_000_000_000_000
        self._seconds = 0.0
        self._number = 0
        self._staged: list[tuple[int, list[str], list[bytes]]] = []
        self._batch = 0
        self._pendingBarriers: list[Barrier] = []
        self._begin()
        for _ in range(steps):
            self.random.choices(
                (
                    self._append,
                    self._commit,
                    self._note,
                    self._barrier,
                    self._stage,
                    self._publish,
                    self._pass,
                    self._fault,
                    self._clean,
                ),
                weights,
            )[0]()
        if self.random.random() < 0.5:
            self._restart()
            for _ in range(8):
                self._append()
                self._commit()
        self._close()

    def mayBeGone(self, kept: Kept, done: int) -> bool:
        """Tell whether nobody is to miss a run after so many operations: it was refused, or may have been taken out."""
        return kept.refused or (kept.topic in EXPIRING and self.cleaned <= done)

    @property
    def now(self) -> int:
        """How many operations were done."""
        return len(self.disk.changes)

    def _begin(self) -> None:
        self._seconds += 100
        self.journal = JournalAtOnce(
            self.disk, now=self._clock, fsync=self.fsync, segmentBytes=self.random.choice((3000, 6000, 20000))
        )
        queues = Queues()
        queues.restore(self.journal.open(self.queues))
        self.journal.begin()
        self.journal.worker.log._seconds = lambda: self._seconds

    def _clock(self) -> int:
        self._time += self.random.randrange(1, 2000)
        return self._time

    # -- what is done ------------------------------------------------------------------------------

    def _payload(self) -> bytes:
        self._number += 1
        size = self.random.choice((0, 5, 60, 60, 200, 1500))
        return b"%08d" % self._number + self.random.randbytes(size)

    def _append(self) -> None:
        payloads = tuple(self._payload() for _ in range(self.random.choice((1, 1, 2, 7))))
        kept = Kept(
            payloads,
            self.random.choice(self._topics),
            self.random.randrange(1000, 1004),
            self.random.choice((b"", b"", msgpack.packb({"key": "k"}))),
            self.now,
        )
        self.kept.append(kept)
        run = published(payloads, kept.topic, kept.publisher, "p", self.random.choice(_DIALECTS), kept.header)
        try:
            self.journal.append(*run, self._committed(kept))
        except NotKept:
            # Nothing of it can have come to the disk.
            self.kept.remove(kept)

    def _committed(self, kept: Kept) -> Callable[[int, str | None], None]:
        def committed(offset: int, reason: str | None) -> None:
            if reason is not None:
                kept.refused = True
                return
            kept.offset = offset
            kept.said = self.now
            self.given.append((self.now, offset + len(kept.payloads)))
            if self.fsync.mode == "always":
                kept.lasting = self.now

        return committed

    def _commit(self) -> None:
        before = self.now
        said = [kept for kept in self.kept if kept.said < NEVER]
        barriers = list(self._pendingBarriers)
        self.journal.opened.group.handOver(stateRecords=self.random.random() < 0.3)
        self.journal.worker.step()
        if any(change.name.endswith(".fxj") for change in self.disk.changes[before:]):
            # A new segment: all before it was synced when it was made, whatever the mode.
            self._last(said, barriers)

    def _last(self, said: list[Kept], barriers: list[Barrier]) -> None:
        for kept in said:
            kept.lasting = min(kept.lasting, self.now)
        for barrier in barriers:
            barrier.lasting = min(barrier.lasting, self.now)

    def _note(self) -> None:
        key = self.random.choice(("q:orders.new", "s:1", "s:2"))
        highest = max((kept.offset for kept in self.kept), default=0)
        note: StateRecord
        if key not in self.queues.open:
            note = QueueOpened(key, "orders.new", 1, 5, None, highest + 1)
        else:
            note = self.random.choice(
                (
                    QueueAcknowledged(key, array("Q", [self.random.randrange(highest + 1) for _ in range(3)])),
                    QueueAcknowledged(key, array("Q", [highest])),
                    QueueDelivered(key, 2, array("Q")),
                    ClientIdsReserved(self.queues.clientIds + 64),
                )
            )
        self.queues.add(note)
        self.journal.appendState(note)

    def _barrier(self) -> None:
        barrier = Barrier({fact for fact in self.queues.facts() if fact[2] or fact[0] == "open"}, NEVER)

        def safe() -> None:
            if self.journal.opened.group.readOnly is not None:
                return
            if self.fsync.mode == "always":
                barrier.lasting = self.now
            self._pendingBarriers.append(barrier)

        if self.journal.opened.group.readOnly is None:
            self.barriers.append(barrier)
            self.journal.whenCommitted(safe)

    def _stage(self) -> None:
        payloads = [self._payload() for _ in range(3)]
        batch = self._batch + 1
        self.journal.stage(
            "query",
            batch,
            "0",
            [published(payloads, "sink", 1, "", "broker")],
            lambda token, reason: self._staged.append((batch, [token], payloads)) if token else None,
        )

    def _publish(self) -> None:
        ready = [each for each in self._staged if each[0] == self._batch + 1]
        if not ready or self.journal.opened.group.readOnly is not None:
            return
        self._batch += 1
        self._staged = []
        kept = Kept(tuple(payload for _, _, all in ready for payload in all), "sink", 1, b"", self.now)
        self.kept.append(kept)
        self.transactions.append(("query", self._batch, kept))
        self.journal.commitStaged(
            "query", self._batch, [token for _, tokens, _ in ready for token in tokens], self._committed(kept)
        )

    def _pass(self) -> None:
        """Let time pass, and the thread look whether it is time to sync."""
        self._seconds += 10
        said = [kept for kept in self.kept if kept.said < NEVER]
        barriers = list(self._pendingBarriers)
        self.journal.worker.syncDue()
        if self.fsync.mode == "interval":
            self._last(said, barriers)

    def _fault(self) -> None:
        """Let the disk fail, for as long as it takes somebody to see to it."""
        self.disk.failing = self.random.choice(("write", "sync"))
        for _ in range(self.random.randrange(5)):
            self.random.choice((self._append, self._commit, self._note))()
        self.disk.failing = ""
        self.journal.worker.drain()
        if self.journal.opened.group.readOnly is not None:
            self._staged.clear()
            said = [kept for kept in self.kept if kept.said < NEVER]
            barriers = list(self._pendingBarriers)
            self.journal.reopen(lambda reason: None)
            self.journal.worker.drain()
            self._last(said, barriers)

    def _clean(self) -> None:
        """Take out what has expired; what was sealed by now may be gone from here on."""
        self.cleaned = min(self.cleaned, self.now)
        journal = self.journal
        reader = journal.opened.reader

        def exclusively(work: Callable[[], None]) -> None:
            work()
            reader.forgetNow()

        rules = RetentionPolicy(durable=lambda topic: topic not in EXPIRING)
        open = frozenset(each.position for each in journal.segments.staged())
        SegmentRemoval(self.disk, "/disk/journal", journal.segments, rules, exclusively, self.complaints.append).clean(
            {}, open, self._time
        )

    def _restart(self) -> None:
        self._close()
        self._staged = [each for each in self._staged if each[0] > self._batch]
        self._begin()

    def _close(self) -> None:
        self.journal.close()
        self._last([kept for kept in self.kept if kept.said < NEVER], list(self._pendingBarriers))
        self.closed.append(self.now)
