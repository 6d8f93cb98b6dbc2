"""A journal that is gone, or another one in its folder, while a stream of it goes on or is begun again."""

import os
import shutil

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from fleximq.pipeline.files.schema import COLUMNS
    from fleximq.pipeline.reader.offsets import Offsets, RecordsMissing
    from fleximq.pipeline.reader.source_options import SourceOptions
    from fleximq.pipeline.reader.stream_reader import StreamReader
    from tests.pipeline.written import Written


class SwappedTests(SynchronousTestCase):
    """A stream has planned the first ten records of the journal in ``folder``, beside which there is another one."""

    def setUp(self) -> None:
        self.root = os.path.abspath(self.mktemp())
        os.makedirs(self.root)
        self.folder = f"{self.root}/one"
        self.write(self.folder, 10)
        self.write(f"{self.root}/two", 1)
        self.reader = self.begun()
        self.start = self.reader.initialOffset()
        self.end = self.reader.latestOffset(self.start, ReadAllAvailable())
        self.assertEqual(self.read(self.reader), [*range(1, 11)] + [1])

    def write(self, folder: str, number: int) -> None:
        """Write a new journal with so many records."""
        written = Written(folder)
        written.kept("t", *(b"%d" % place for place in range(number)))
        written.close()

    def begun(self, **options: str) -> "StreamReader":
        """Return a stream as after a restart."""
        chosen = {"path": f"{self.root}/*", "startingOffsets": "earliest", **options}
        return StreamReader(SourceOptions.of(chosen), COLUMNS)

    def read(self, reader: "StreamReader") -> list[int]:
        """Return the offsets of what was planned, the longer journal first."""
        found: dict[str, list[int]] = {}
        for partition in reader.partitions(self.start, self.end):
            for batch in reader.read(partition):
                found.setdefault(batch.column("journal")[0].as_py(), []).extend(batch.column("offset").to_pylist())
        return [offset for offsets in sorted(found.values(), key=len, reverse=True) for offset in offsets]

    def test_otherJournalInTheFolderIsNoticed(self) -> None:
        for number in (3, 10, 50):
            shutil.rmtree(self.folder)
            self.write(self.folder, number)
            error = self.assertRaises(RecordsMissing, self.reader.latestOffset, self.end, ReadAllAvailable())
            self.assertIn("was read before and is not there any more", str(error))

    def test_repeatedBatchOfAMissingJournalIsRefused(self) -> None:
        shutil.rmtree(self.folder)
        error = self.assertRaises(RecordsMissing, self.begun().partitions, self.start, self.end)
        self.assertIn("is not there any more, and with it the offsets 1 to 10", str(error))

    def test_withDataLossAllowedOtherJournalsAreRead(self) -> None:
        shutil.rmtree(self.folder)
        self.write(self.folder, 3)
        reader = self.begun(failOnDataLoss="false")
        self.assertEqual(self.read(reader), [1])
        end: Offsets = reader.latestOffset(self.end, ReadAllAvailable())
        self.assertEqual(sorted(end.values()), [2, 4, 11])
