"""Retention warns before it takes out what a consumer group has not read."""

from collections.abc import Mapping

from fleximq.config.journal_options import RetentionRule
from fleximq.journal.files.file_system import Files
from fleximq.journal.retention.retention_rules import RetentionPolicy
from fleximq.journal.retention.segment_removal import FreedSpace, SegmentRemoval
from tests.journal.recorder import Recorder
from tests.journal.retention.test_segment_removal import FOLDER, RULES, SECOND, RetentionCase


def words(group: str, first: int, last: int) -> str:
    """Return the sentence."""
    return (
        f'the consumer group "{group}" has not read the offsets {first} to {last}, and what has expired of them is '
        f"removed now"
    )


class UnreadTests(RetentionCase):
    """``reading`` says what each group reads next; ``unread`` is what was told, ``records`` how much that was."""

    def setUp(self) -> None:
        super().setUp()
        self.reading: dict[str, int] = {}
        self.unread: list[str] = []
        self.records: list[int] = []
        self.before: list[int] = []

    def begin(self, disk: Recorder) -> None:
        """Open the journal, and make one retention for all passes."""
        super().begin(disk)
        self.retention = self.retentionWith(RULES)

    def retentionWith(self, rules: RetentionPolicy) -> SegmentRemoval:
        """Return a retention with these rules."""
        return SegmentRemoval(
            self.disk,
            FOLDER,
            self.journal.segments,
            rules,
            self.exclusively,
            self.fail,
            self.told,
        )

    def told(self, sentence: str, records: int) -> None:
        """Keep what is told, and how many files there are at that moment."""
        self.unread.append(sentence)
        self.records.append(records)
        self.before.append(len(self.bases()))

    def clean(
        self, needed: Mapping[str, int] | None = None, rules: RetentionPolicy = RULES, files: Files | None = None
    ) -> FreedSpace:
        """Do a pass."""
        open = frozenset(staged.position for staged in self.journal.segments.staged())
        return self.retention.clean(needed or {}, open, self.now, reading=self.reading)

    def test_wholeSegments(self) -> None:
        """Neighbouring segments are one sentence, which comes before anything is gone."""
        self.fill(("a", 5, 10))
        self.fill(("a", 5, 10))
        self.fill(("b", 2, 10))
        self.reading = {"g": 3}
        files = len(self.bases())
        self.now += 11 * SECOND
        self.assertEqual(self.clean().removed, 2)
        self.assertEqual((self.unread, self.before), ([words("g", 3, 11)], [files]))
        self.assertEqual(self.records, [9])

    def test_read(self) -> None:
        """A group that has read all of it is nobody to warn of; nor is one where nothing goes."""
        self.fill(("a", 5, 10))
        self.fill(("b", 5, 10))
        self.reading = {"done": 7, "young": 1}
        self.clean()
        self.assertEqual(self.unread, [])
        self.now += 11 * SECOND
        del self.reading["young"]
        self.assertEqual(self.clean().removed, 1)
        self.assertEqual(self.unread, [])

    def test_groups(self) -> None:
        """Each group is warned of by itself."""
        self.fill(("a", 5, 10))
        self.reading = {"one": 1, "three": 3, "all": 99}
        self.now += 11 * SECOND
        self.clean()
        self.assertEqual(self.unread, [words("one", 1, 5), words("three", 3, 5)])

    def test_rewritten(self) -> None:
        """Of a segment further in, what has expired counts: from where the group is up to the last of it."""
        self.fill(("b", 2, 10))
        self.fill(("a", 9, 400), ("b", 1, 10))
        self.reading = {"g": 1}
        self.now += 11 * SECOND
        self.assertEqual(self.clean().rewritten, 1)
        [sentence] = self.unread
        self.assertIn('"g" has not read the offsets 3 to 12,', sentence)
        self.assertEqual(self.records, [10])

    def test_partlyRead(self) -> None:
        """A group that has read what has expired of a segment is not warned of for what stays."""
        self.fill(("b", 2, 10))
        self.fill(("a", 9, 400), ("b", 1, 10), ("b", 1, 10))
        self.reading = {"g": 13}
        self.now += 11 * SECOND
        self.assertEqual(self.clean().rewritten, 1)
        self.assertEqual(self.unread, [])

    def test_once(self) -> None:
        """What a pass could not take out is not told again; a group that comes later is."""
        self.fill(("a", 5, 10))
        self.now += 11 * SECOND
        self.reading = {"g": 1}
        self.retention.stop()
        self.assertEqual(self.clean(), FreedSpace())
        self.clean()
        self.assertEqual(len(self.unread), 1)
        self.reading["h"] = 2
        self.clean()
        self.assertEqual(self.unread, [words("g", 1, 5), words("h", 2, 5)])
        del self.reading["g"]
        self.clean()
        self.reading["g"] = 4
        self.clean()
        self.assertEqual(self.unread[2:], [words("g", 4, 5)])

    def test_size(self) -> None:
        """What is over the bytes of its topic counts as what is too old."""
        self.fill(("b", 10, 100))
        self.fill(("b", 10, 100))
        self.retention = self.retentionWith(
            RetentionPolicy(lambda topic: topic == "b", retentions=[RetentionRule("b", 0, 1000)])
        )
        self.reading = {"g": 1}
        self.assertEqual(self.clean().removed, 1)
        self.assertEqual(self.unread, [words("g", 1, 10)])

    def test_name(self) -> None:
        """A group's name is written so that it stays in its line."""
        self.fill(("a", 5, 10))
        self.reading = {'x"\n': 1}
        self.now += 11 * SECOND
        self.clean()
        self.assertIn('"x\\"\\n"', self.unread[0])
