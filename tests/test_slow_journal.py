"""The journal that tests commit by hand."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.broker.envelope import ConnectedClient, Envelope
from fleximq.broker.presence import OwnMessages
from fleximq.broker.topics.topic_table import Topic
from fleximq.errors import NotKept
from fleximq.interfaces import IJournal
from fleximq.values.message import Content, Message
from tests.journal_records import published
from tests.slow_journal import SlowJournal


class SlowJournalTests(SynchronousTestCase):
    """What it keeps, and gives back."""

    def setUp(self) -> None:
        self.journal = SlowJournal()
        self.told: list[Any] = []

    def append(self, payload: bytes, topic: str = "t") -> None:
        """Append one message."""
        envelope = Envelope(Topic(topic), ConnectedClient(7, "fleximq", "fleximq-7"), OwnMessages())
        self.journal.append(*published(envelope, Message(payload, Content.BYTES)), lambda *told: self.told.append(told))

    def test_interface(self) -> None:
        """It is a journal."""
        verifyObject(IJournal, self.journal)

    def test_commits(self) -> None:
        """What is appended is told and read when it is committed, not before."""
        self.append(b"a")
        self.journal.read(1, lambda topic: True, 100, lambda *found: self.told.append(found))
        self.journal.commit()
        self.append(b"b")
        self.assertEqual(self.told, [([], 1), (1, None)])
        self.assertEqual([record.payload for record in self.journal.records], [b"a"])
        self.assertEqual(self.journal.end, 2)

    def test_someOnly(self) -> None:
        """So many runs can be committed, and the others refused."""
        for payload in (b"a", b"b", b"c"):
            self.append(payload)
        self.journal.commit(runs=1)
        self.journal.commit("no room")
        self.assertEqual(self.told, [(1, None), (0, "no room"), (0, "no room")])

    def test_reads(self) -> None:
        """Records come from an offset on, of the topics wanted, and about as many bytes as are asked for."""
        for payload in (b"aa", b"bb", b"cc"):
            self.append(payload)
            self.append(b"x", "u")
        self.journal.commit()
        found: list[Any] = []
        self.journal.read(2, lambda topic: topic == "t", 2, lambda *told: found.append(told))
        self.journal.read(5, lambda topic: topic == "t", 9, lambda *told: found.append(told))
        self.assertEqual([[batch.payloads for batch in batches] for batches, _ in found], [[[b"bb"]], [[b"cc"]]])
        self.assertEqual([next for _, next in found], [5, 7])

    def test_fetches(self) -> None:
        """Messages come back with their offsets; lost ones are left out."""
        for payload in (b"a", b"b", b"c"):
            self.append(payload)
        self.journal.commit()
        self.journal.lose(2)
        self.journal.fetch([1, 2, 3], 100, self.told.append)
        self.assertEqual([(each.payload, each.offset) for each in self.told[-1]], [(b"a", 1), (b"c", 3)])

    def test_patient(self) -> None:
        """Answers wait for the test where it wants them to."""
        self.journal.patient = True
        self.journal.offsetAt(0, self.told.append)
        self.assertEqual((self.told, self.journal.asked), ([], 1))
        self.journal.answer()
        self.assertEqual(self.told, [1])

    def test_bounds(self) -> None:
        """Each topic has its first and last record, their times, and what they sum up to."""
        self.append(b"aa")
        self.journal.now += 5
        self.append(b"bbb")
        self.journal.commit()
        self.assertEqual(self.journal.bounds(), {"t": (1, 2, 1_000_000, 1_000_005, 2, 5)})
        self.journal.forget(2)
        self.assertEqual(self.journal.bounds()["t"].first, 2)

    def test_readOnly(self) -> None:
        """After a fault nothing is kept until it is reopened."""
        self.journal.readOnly = "the disk is full"
        self.assertRaises(NotKept, self.append, b"a")
        self.journal.reopen(self.told.append)
        self.append(b"a")
        self.assertEqual(self.told, [None])

    def test_staged(self) -> None:
        """Staged messages are seen when they are committed, once for each batch."""
        envelope = Envelope(Topic("t"), ConnectedClient(1, "fleximq", "fleximq-1"), OwnMessages())
        run = [published(envelope, Message(b"a", Content.BYTES))]
        self.journal.stage("q", 1, "0", run, lambda *found: self.told.append(found))
        self.journal.commit()
        self.assertEqual((self.told, self.journal.records), ([("1", None)], []))
        for _ in range(2):
            self.journal.commitStaged("q", 1, ["1"], lambda *found: self.told.append(found))
            self.journal.commit()
        self.assertEqual(self.told[1:], [(1, None), (1, None)])
        self.assertEqual([record.payload for record in self.journal.records], [b"a"])
