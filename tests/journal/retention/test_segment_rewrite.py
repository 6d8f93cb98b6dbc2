"""Segments of which nothing is left: neighbours become one file, and what has to be read is read all the same."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.files.folder_survey import Finding, FolderSurvey
from fleximq.journal.files.segment_index import indexName
from fleximq.journal.files.segment_summary import Segment
from fleximq.journal.files.segment_table import segmentName
from fleximq.journal.recovery.recovery import recover
from fleximq.journal.retention.segment_removal import FreedSpace
from fleximq.journal.retention.segment_rewrite import emptyRuns, isEmpty
from tests.journal.recorder import Recorder, State
from tests.journal.retention.test_segment_removal import FOLDER, RULES, SECOND, RetentionCase, recordsOf


class JoiningCase(RetentionCase):
    """A first segment that stays, then as many as a test wants of which nothing does, then one that stays."""

    def load(self, number: int) -> None:
        """Fill the journal, and let what may go have expired."""
        self.fill(("b", 2, 10))
        for _ in range(number):
            self.fill(("a", 20, 100))
        self.fill(("b", 2, 10))
        self.wanted = [each for each in recordsOf(self.journal) if each[1] == "b"]
        self.now += 11 * SECOND


class JoiningTests(JoiningCase):
    """Passes of retention."""

    def test_joined(self) -> None:
        """Neighbours become one file, which ends where the last of them did; another pass does nothing."""
        self.load(5)
        bases = self.bases()
        freed = self.clean()
        self.assertEqual((freed.removed, freed.rewritten), (4, 6))
        self.assertEqual(self.bases(), [*bases[:2], *bases[6:]])
        self.assertEqual((self.journal.segments.all[1].end, len(self.journal.segments)), (bases[6], 4))
        self.assertEqual(self.disk.names(FOLDER).count(indexName(bases[2])), 0)
        self.assertEqual(self.clean(), FreedSpace())
        self.assertSame(self.wanted)

    def test_joinedAgain(self) -> None:
        """What is left empty later joins what was joined before: there is one such file, however long that goes on."""
        self.load(3)
        for _ in range(4):
            self.clean()
            self.fill(("a", 20, 100))
            self.now += 11 * SECOND
        self.clean()
        self.assertEqual(len([each for each in self.journal.segments.all if isEmpty(each)]), 2)
        self.assertSame(self.wanted)

    def test_removed(self) -> None:
        """A joined file goes with the first segment."""
        self.load(3)
        self.clean()
        rules = RULES._replace(durable=lambda topic: False)
        self.assertEqual(self.clean(rules=rules, needed={"b": self.wanted[-1][0]}).removed, 2)
        self.assertSound()

    def test_damaged(self) -> None:
        """Files that are damaged are left as they are."""
        self.load(1)
        self.clean()
        base = self.bases()[1]
        self.fill(("a", 20, 100))
        number = self.disk._names[f"{FOLDER}/{segmentName(base)}"]
        self.disk._files[number][130] ^= 1
        self.load(2)
        self.clean()
        self.assertIn(base, self.bases())

    def between(self) -> State:
        """Return the disk as a crash leaves it when the joined file is there, and the others still are, too."""
        self.load(4)
        files = len(self.bases())
        self.patch(Recorder, "remove", _removeNoSegment)
        self.clean()
        self.assertEqual((len(self.bases()), len(self.journal.segments)), (files, files - 3))
        return self.disk.now()

    def test_between(self) -> None:
        """Between the two steps nothing is lost or damaged for a start, and for whoever looks from outside."""
        state = self.between()
        for without in ((), (indexName(self.bases()[1]),)):
            names = {name: number for name, number in state.names.items() if name.rpartition("/")[2] not in without}
            disk = Recorder(State(state.files, names))
            found = recover(disk, FOLDER, self.journal.id)
            self.assertEqual((found.lost, found.torn), ([], []))
            findings = [each for each in FolderSurvey(disk, FOLDER).check() if isinstance(each, Finding)]
            self.assertEqual([each.sentence for each in findings if each.damaged], [])


def _removeNoSegment(disk: Recorder, path: str) -> None:
    """Remove indexes, and no segment."""
    if path.endswith(".fxj"):
        return
    del disk._names[path]


def _stub(base: int, end: int) -> Segment:
    segment = Segment(base, 1)
    segment.end, segment.removed = end, end - base - 200
    return segment


class StubsTests(SynchronousTestCase):
    """Which segments are joined."""

    def bases(self, *segments: Segment, span: int = 1 << 40) -> list[list[int]]:
        """Return where the segments of each run begin."""
        return [[each.base for each in run] for run in emptyRuns(segments, span)]

    def test_runs(self) -> None:
        """Two or more that stand side by side, with nothing in them."""
        full = _stub(3000, 4000)
        full.checkpoints.append(3000)
        segments = [_stub(0, 1000), _stub(1000, 2000), _stub(2000, 3000), full, _stub(4000, 5000)]
        self.assertEqual(self.bases(*segments), [[0, 1000, 2000]])
        self.assertEqual(self.bases(*segments, _stub(5000, 6000)), [[0, 1000, 2000], [4000, 5000]])
        self.assertEqual(self.bases(_stub(0, 1000), _stub(2000, 3000)), [])
        self.assertEqual(self.bases(), [])

    def test_span(self) -> None:
        """Up to so many bytes of positions together."""
        segments = [_stub(place * 1000, place * 1000 + 1000) for place in range(5)]
        self.assertEqual(self.bases(*segments, span=5000), [[0, 1000, 2000, 3000, 4000]])
        self.assertEqual(self.bases(*segments, span=2999), [[0, 1000], [2000, 3000]])
        self.assertEqual(self.bases(*segments, span=1999), [])
