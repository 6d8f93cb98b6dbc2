"""Segments of which nothing is left, made one file by retention while somebody reads from outside."""

from fleximq.journal.files.segment_table import segmentName
from tests.journal.recorder import Recorder
from tests.journal.retention.test_segment_removal import FOLDER, SECOND, RetentionCase
from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.pipeline.files.journal_files import JournalFiles, readSlice
    from fleximq.pipeline.files.selection import Selection, Slice
    from fleximq.pipeline.files.slice_reader import Missing


class JoinedTests(RetentionCase):
    """Two records that stay before four segments of which nothing does, and two behind."""

    def setUp(self) -> None:
        super().setUp()
        self.fill(("b", 2, 10))
        for _ in range(4):
            self.fill(("a", 20, 100))
        self.fill(("b", 2, 10))
        self.now += 11 * SECOND

    def slices(self) -> list["Slice"]:
        """Return all there is."""
        journal = JournalFiles(FOLDER, self.disk)
        return journal.slices(1, journal.end().offset)

    def read(self, slices: list["Slice"]) -> tuple[int, bool]:
        """Return how many records are read, and whether something is lost that retention has not let go."""
        missing: list[Missing] = []
        batches = [
            batch for each in slices for batch in readSlice(each, ["offset"], Selection(), missing.append, self.disk)
        ]
        return sum(batch.num_rows for batch in batches), any(each.lost for each in missing)

    def test_mergedSegmentIsReadByOldAndNewReaders(self) -> None:
        before = self.slices()
        self.assertEqual(self.read(before), (90, False))
        self.clean()
        self.assertEqual(self.read(self.slices()), (6, False))
        self.assertEqual(self.read(before), (6, False))

    def test_mergedSegmentIsReadWhileTheOthersStillExist(self) -> None:
        remove = Recorder.remove
        bases = self.bases()
        kept = {f"{FOLDER}/{segmentName(base)}" for base in bases}
        self.patch(Recorder, "remove", lambda disk, path: None if path in kept else remove(disk, path))
        self.clean()
        self.assertEqual(self.bases(), bases)
        self.assertEqual(self.read(self.slices()), (6, False))
