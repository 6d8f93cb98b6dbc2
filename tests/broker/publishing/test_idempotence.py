"""Ids that were published lately."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.publishing.deduplication import ENTRY_BYTES, FORGOTTEN, REPEATED, PublicationKeys, RecentIds
from fleximq.values.message import Content, Message
from fleximq.values.records import DIALECTS, headerOf
from tests.journal_records import Record, batchOf

_WINDOW = 1000


class IdempotenceCase(SynchronousTestCase):
    """A window of 1,000 microseconds."""

    def setUp(self) -> None:
        """Begin at a late hour."""
        self.now = 1_000_000
        self.step = 0
        self.counts: Counter[str] = Counter()
        self.told: list[Any] = []
        self.begin()

    def begin(self, **more: Any) -> None:
        """Begin anew."""
        dialects = frozenset({DIALECTS["fleximq"]})
        self.ids = RecentIds(_WINDOW, lambda: self.now, lambda: self.now + self.step, dialects, self.count, **more)

    def count(self, event: str, number: int) -> None:
        """Count."""
        self.counts[event] += number

    def kept(self, reason: str | None, places: Sequence[int]) -> None:
        """Note what a repeat is told."""
        self.told.append((reason, tuple(places)))

    def claim(self, *ids: str, topic: str = "t") -> PublicationKeys:
        """Claim ids."""
        claim, _ = self.ids.register(topic, ids, self.kept)
        return claim

    def store(self, *ids: str, topic: str = "t") -> list[int]:
        """Claim ids and have them committed; return the places of the new ones."""
        claim = self.claim(*ids, topic=topic)
        self.ids.committed(claim)
        return claim.places


class ClaimTests(IdempotenceCase):
    """What is new and what is not."""

    def test_new(self) -> None:
        """What was never seen is new."""
        self.assertEqual((self.claim("a", "b").places, self.counts), ([0, 1], {}))

    def test_known(self) -> None:
        """What was stored is not, and nobody has to wait for it."""
        self.store("a")
        claim, number = self.ids.register("t", ("b", "a"), self.kept)
        self.assertEqual((claim.places, number, self.told, self.counts[REPEATED]), ([0], 0, [], 1))

    def test_otherTopic(self) -> None:
        """An id counts in its topic."""
        self.store("a")
        self.assertEqual(self.store("a", topic="u"), [0])

    def test_pending(self) -> None:
        """A repeat of what is on its way waits for its run, and hears what becomes of it."""
        for reason in (None, "the disk is full"):
            self.begin()
            self.told.clear()
            first = self.claim("a", "b")
            first.number = 7
            again, number = self.ids.register("t", ("x", "b"), self.kept)
            self.assertEqual((again.places, number, self.told), ([0], 7, []))
            if reason is None:
                self.ids.committed(first)
            else:
                self.ids.refused(first, first.places, reason)
            self.assertEqual(self.told, [(reason, (1,))])

    def test_sameRun(self) -> None:
        """So does one in the same run."""
        claim = self.claim("a", "a", "b")
        self.assertEqual(claim.places, [0, 2])
        self.ids.committed(claim)
        self.assertEqual(self.told, [(None, (1,))])

    def test_refused(self) -> None:
        """What was refused may be stored when it comes again; what was taken of the same run may not."""
        claim = self.claim("a", "b", "b")
        self.ids.refused(claim, [1], "full")
        self.assertEqual(self.told, [("full", (2,))])
        self.ids.committed(claim)
        self.assertEqual(self.store("a", "b"), [1])

    def test_refusalsLeaveNothing(self) -> None:
        """Ids that are refused at once take no room."""
        for number in range(100):
            claim = self.claim(f"{number}", f"{number}+")
            self.ids.refused(claim, claim.places, "full")
        self.assertEqual((len(self.ids), len(self.ids._order), self.ids._size), (0, 0, 0))


class WindowTests(IdempotenceCase):
    """How long ids are remembered, and how many."""

    def test_window(self) -> None:
        """An id is known for the window, from its first message on."""
        self.store("a")
        self.now += _WINDOW
        self.assertEqual(self.store("a"), [])
        self.now += 1
        self.assertEqual(self.store("a"), [0])

    def test_number(self) -> None:
        """Of too many ids the oldest are forgotten and counted."""
        self.begin(mostIds=3)
        self.store("a", "b", "c")
        self.assertEqual(self.counts, {})
        self.store("d")
        self.assertEqual((len(self.ids), self.counts[FORGOTTEN]), (3, 1))
        self.assertEqual(self.store("d", "c", "b"), [])
        self.assertEqual(self.store("a"), [0])

    def test_bytes(self) -> None:
        """So are they when they have too many letters."""
        self.begin(mostBytes=2 * (ENTRY_BYTES + 10))
        self.store("0123456789", "0123456780")
        self.assertEqual(self.counts, {})
        self.store("a")
        self.assertEqual((len(self.ids), self.counts[FORGOTTEN]), (2, 1))

    def test_nothingStays(self) -> None:
        """When all have expired nothing is left of them."""
        for number in range(50):
            self.store(f"{number}")
        self.now += _WINDOW + 1
        self.store()
        self.assertEqual((len(self.ids), len(self.ids._order), self.ids._size), (0, 0, 0))

    def test_forgottenOnTheWay(self) -> None:
        """A run whose ids had to be forgotten before it was committed does not bring them back."""
        self.begin(mostIds=1)
        claim = self.claim("a")
        self.store("b")
        self.ids.committed(claim)
        self.assertEqual((len(self.ids), self.store("b")), (1, []))


class RestartTests(IdempotenceCase):
    """Ids outlive the broker."""

    def test_snapshot(self) -> None:
        """A snapshot holds what was stored in the window, and brings it back with its time."""
        self.store("old")
        self.now += 600
        self.store("a", "b")
        self.store("a", topic="u")
        self.claim("pending")
        self.now += 500
        snapshot = self.ids.snapshot()
        self.assertEqual(snapshot, {"t": [["a", "b"], [1_000_600] * 2], "u": [["a"], [1_000_600]]})
        self.begin()
        self.ids.restore(snapshot)
        self.assertEqual((self.store("a", "b", "old"), self.store("a", topic="u")), ([2], []))
        self.now = 1_001_601
        self.assertEqual(self.store("a", "b"), [0, 1])

    def test_clockSet(self) -> None:
        """A step of the system clock makes no id forgotten early or late."""
        for step in 10 * _WINDOW, -10 * _WINDOW:
            self.begin()
            self.store("a")
            self.step += step
            self.now += _WINDOW
            self.assertEqual(self.store("a"), [])
            snapshot = self.ids.snapshot()
            self.begin()
            self.ids.restore(snapshot)
            self.assertEqual(self.store("a"), [])
            self.now += 1
            self.assertEqual(self.store("a"), [0])
            self.now += 100 * _WINDOW

    def test_fromTheFuture(self) -> None:
        """An id of a journal that was written before the clock was set back counts as new."""
        self.ids.remember("t", "a", self.now + 10 * _WINDOW)
        self.assertEqual(self.store("a"), [])
        self.now += _WINDOW + 1
        self.assertEqual(self.store("a"), [0])

    def test_restoreLate(self) -> None:
        """What has expired meanwhile is not brought back."""
        self.store("a")
        snapshot = self.ids.snapshot()
        self.now += _WINDOW + 1
        self.begin()
        self.ids.restore(snapshot)
        self.assertEqual(len(self.ids), 0)

    def record(self, id: str | None, age: int, dialect: str = "fleximq", topic: str = "t") -> Record:
        """Return a record that is so old."""
        message = Message(b"x", Content.TEXT, message_id=id)
        return Record(1, self.now - age, topic, (1000, "x"), DIALECTS[dialect], 0, headerOf(message), b"x")

    def test_journal(self) -> None:
        """Ids are learnt from records of the dialects that were named, as far as they are in the window."""
        records = [
            self.record("late", _WINDOW + 1),
            self.record("a", _WINDOW),
            self.record(None, 10),
            self.record("b", 5, dialect="minimq"),
            self.record("b", 5, topic="u"),
        ]
        self.ids.learn(batchOf(records))
        self.assertEqual(len(self.ids), 2)
        self.assertEqual((self.store("a", "b", "late"), self.store("b", topic="u")), ([1, 2], []))

    def test_oldJournal(self) -> None:
        """A batch that is too old as a whole is not looked at, nor is one without records."""
        old = batchOf([self.record("a", _WINDOW + 1)])
        del old._headers
        self.ids.learn(old)
        self.ids.learn(batchOf([]))
        self.assertEqual(len(self.ids), 0)

    def test_remember(self) -> None:
        """A stored message is known from its own time on; repeats of it change nothing."""
        self.ids.remember("t", "a", self.now - _WINDOW)
        self.ids.remember("t", "b", self.now - _WINDOW - 1)
        self.ids.remember("t", "a", self.now - _WINDOW)
        self.assertEqual((len(self.ids), self.store("a", "b")), (1, [1]))
