"""Messages of topics that are not durable any more stay as retention says."""

import json

from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.journal_options import RetentionRule
from fleximq.errors import JournalError
from fleximq.journal.files.file_system import readFile
from fleximq.journal.retention.retention_rules import RetentionPolicy
from fleximq.journal.retention.segment_removal import SegmentRemoval
from fleximq.values.patterns import anyOf
from tests.journal.at_once import JournalAtOnce, published
from tests.journal.recorder import Recorder

FOLDER = "/disk/journal"
FILE = f"{FOLDER}/durable"


class FormerPatternsTests(SynchronousTestCase):
    """One journal, started with several options."""

    def setUp(self) -> None:
        self.disk = Recorder()
        self.disk.makeFolder("/disk")
        self.now = 1_700_000_000_000_000

    def start(self, *patterns: str, retentions: tuple[RetentionRule, ...] = ()) -> JournalAtOnce:
        """Start with these durable topics."""
        rules = RetentionPolicy(anyOf(patterns), retentions=retentions, patterns=patterns)
        journal = JournalAtOnce(self.disk, now=lambda: self.now, rules=rules)
        journal.open()
        journal.begin()
        self.addCleanup(journal.close)
        return journal

    def append(self, journal: JournalAtOnce, *topics: str) -> None:
        """Store a message for each topic."""
        for topic in topics:
            journal.append(*published([b"x" * 500], topic), lambda offset, reason: self.assertIsNone(reason))
        journal.worker.drain()

    def left(self, journal: JournalAtOnce) -> dict[str, int]:
        """Return the number of messages of each topic after a pass over all segments but the new one."""
        rules = journal.opened.cleaner.rules
        assert rules is not None
        SegmentRemoval(self.disk, FOLDER, journal.segments, rules).clean({}, frozenset(), self.now)
        return {topic: bounds.count for topic, bounds in journal.bounds().items()}

    def known(self) -> object:
        """Return the content of the file."""
        return json.loads(readFile(self.disk, FILE)) if self.disk.exists(FILE) else None

    def test_notDeleted(self) -> None:
        """Without its option a topic loses no message, at this start and at later ones; the log names the number."""
        journal = self.start("d.#", "e")
        self.append(journal, "d.a", "d.b", "e", *["queue"] * 6)
        journal.close()
        for _ in range(2):
            journal = self.start("e")
            self.assertEqual(len([each for each in journal.said if "not durable any more: 2;" in each]), 1)
            self.assertEqual(self.left(journal), {"d.a": 1, "d.b": 1, "e": 1})
            self.assertEqual(self.known(), {"e": None, "d.#": 10})
            journal.close()

    def test_newMessages(self) -> None:
        """What is stored later, e.g. for a queue, goes when no queue needs it."""
        journal = self.start("d.#")
        self.append(journal, "d.a")
        journal.close()
        journal = self.start()
        self.append(journal, "d.a", "d.b")
        journal.close()
        self.assertEqual(self.left(self.start()), {"d.a": 1})

    def test_retention(self) -> None:
        """They expire by a line of retention; then the pattern is forgotten."""
        journal = self.start("d")
        self.append(journal, "d")
        journal.close()
        self.now += 10_000_000
        journal = self.start(retentions=(RetentionRule("d", 5, 0),))
        self.assertEqual(self.left(journal), {})
        journal.close()
        journal = self.start()
        self.assertEqual((self.known(), journal.said), ({}, []))

    def test_durableAgain(self) -> None:
        """With its option again the topic is as before."""
        journal = self.start("d")
        self.append(journal, "d")
        journal.close()
        self.start().close()
        journal = self.start("d")
        self.append(journal, "d")
        journal.close()
        journal = self.start("d")
        self.assertEqual((self.left(journal), self.known(), journal.said), ({"d": 2}, {"d": None}, []))

    def test_noPatterns(self) -> None:
        """A journal for queues alone has no such file."""
        self.start().close()
        self.assertIsNone(self.known())

    def test_damaged(self) -> None:
        """A file that is not the broker's prevents the start."""
        self.start("d").close()
        for content in (b"{", b"[]", b'{"d": "x"}', b"\xff"):
            self.disk.remove(FILE)
            descriptor = self.disk.create(FILE)
            self.disk.write(descriptor, [content], 0)
            self.assertRaises(JournalError, self.start, "d")
