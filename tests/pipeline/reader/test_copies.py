"""Several folders with the same journal, as the nodes of a cluster have them. Spark's part is played here."""

import json
import shutil

from twisted.internet.task import Clock

from fleximq.errors import JournalError
from fleximq.journal.files.folder_files import STREAM
from tests.pipeline.installed import missing as skip
from tests.pipeline.reader.test_stream_reader import ReaderCase

if not skip:
    from fleximq.pipeline.broker_link import TIMEOUT
    from fleximq.pipeline.errors import OptionRefused, PipelineError
    from fleximq.pipeline.reader.journals import Journals
    from fleximq.pipeline.reader.offsets import RecordsMissing
    from fleximq.pipeline.reader.source_options import SourceOptions
    from fleximq.reader import bounds, read


class CopiesTests(ReaderCase):
    """``one`` is written; the others are copies that have what they had when they were last brought up to date."""

    def copy(self, *names: str) -> None:
        """Bring copies up to date."""
        for name in names:
            shutil.copytree(self.parent / "one", self.parent / name, dirs_exist_ok=True)

    def paths(self, *names: str) -> str:
        """Return the option for these folders."""
        return json.dumps([str(self.parent / name) for name in names])

    def options(self, *names: str) -> "SourceOptions":
        """Return the source's options for these folders."""
        return SourceOptions.of({"path": self.paths(*names)})

    def test_copyWithTheMostRecordsIsReadEvenWhenOneIsGone(self) -> None:
        self.fill("t", 5)
        self.copy("two", "three")
        self.open(paths=self.paths("two", "one", "three"))
        self.assertEqual(self.next(), [1, 2, 3, 4, 5])
        self.fill("t", 5)
        self.assertEqual(self.next(), [6, 7, 8, 9, 10])
        self.fill("t", 2)
        self.copy("three")
        (self.parent / "one").rename(self.parent / "gone")
        self.assertEqual(self.next(), [11, 12])
        self.assertEqual(self.next(), [-1])

    def test_laggingCopyIsWaitedForWithoutLossOrRepeats(self) -> None:
        self.fill("t", 5)
        self.copy("two")
        self.fill("t", 5)
        self.open()
        self.assertEqual(self.next(), list(range(1, 11)))
        self.open(paths=self.paths("two"))
        self.assertEqual(self.next(), [-1])
        self.fill("t", 1)
        self.copy("two")
        self.assertEqual(self.next(), [11])

    def test_recordsThatTheCopyLacksAreNotCountedAsSeen(self) -> None:
        self.fill("u", 3)
        self.copy("two")
        self.open(paths=self.paths("one", "two"), subscribe="t")
        self.assertEqual(self.next(), [-1])
        self.fill("t", 2)
        self.reader.prepareForTriggerAvailableNow()
        (self.parent / "one").rename(self.parent / "away")
        self.assertEqual(self.next(), [-1])
        (self.parent / "away").rename(self.parent / "one")
        self.assertEqual(self.next(), [4, 5])

    def test_taskReadsAnotherCopyIfItsOwnIsGone(self) -> None:
        self.fill("t", 5)
        self.copy("two")
        self.open(paths=self.paths("one", "two"))
        end = self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())
        parts = self.reader.partitions(self.at, end)
        (self.parent / "one").rename(self.parent / "gone")
        self.assertEqual(sum(batch.num_rows for part in parts for batch in self.reader.read(part)), 5)

    def test_laggingCopyGetsHalfAMinuteAndAnotherJournalNone(self) -> None:
        self.fill("t", 5)
        self.copy("two")
        (self.parent / "two" / STREAM).touch()
        self.fill("t", 5)
        clock, wanted = Clock(), {self.written.id: (1, 11)}
        pauses: list[float] = []

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            clock.advance(seconds)
            if len(pauses) == 3:
                self.copy("two")

        journals = Journals(self.options("two"), sleep, clock.seconds)
        self.assertEqual(journals.covering(wanted)[self.written.id].end().offset, 11)
        self.assertEqual(len(pauses), 3)
        error = self.assertRaises(PipelineError, journals.covering, {self.written.id: (1, 100)})
        self.assertIn("two lags: its next offset is 11, not 100 yet", str(error))
        self.assertTrue(TIMEOUT <= clock.seconds() < TIMEOUT + 1)
        alone = Journals(self.options("one"), lambda seconds: self.fail("it waits"), clock.seconds)
        alone.covering({self.written.id: (1, 99)})
        self.open("one", startingOffsets="99")
        self.assertRaises(RecordsMissing, self.reader.initialOffset)

    def test_unknownFolderMustBeAJournal(self) -> None:
        self.assertRaises(JournalError, Journals(self.options("one", "none")).find)
        self.assertRaises(OptionRefused, Journals(SourceOptions.of({"path": f"{self.parent}/none*"})).find)

    def test_readerWithoutSparkReadsTheCopyWithTheMostRecords(self) -> None:
        self.fill("t", 5)
        self.copy("two")
        self.fill("t", 5)
        folders = [self.parent / name for name in ("two", "none", "one")]
        self.assertEqual((read(folders).read_all().num_rows, bounds(folders).next), (10, 11))
        self.assertRaises(JournalError, read, [])
        (self.parent / "two" / "identity").unlink()
        self.assertEqual(read(folders).read_all().num_rows, 10)
