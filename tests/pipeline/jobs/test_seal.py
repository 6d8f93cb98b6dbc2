"""``seal``: segments of journals as Parquet."""

import errno
import json
import os
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip
from tests.pipeline.written import Written

if not skip:
    import pyarrow.parquet as pq

    from fleximq.journal.files.file_system import Files
    from fleximq.pipeline.errors import OptionRefused, PipelineError
    from fleximq.pipeline.files.journal_files import JournalFiles
    from fleximq.pipeline.files.slice_reader import Missing
    from fleximq.pipeline.jobs import seal
    from fleximq.pipeline.jobs.seal import SEAL, neighbours
    from fleximq.pipeline.lake.sealed_segments import MISSING, SEGMENTS, STAGED, sealedFiles, sealSegments
    from tests.pipeline.jobs.fake_run import FakeRun, runJob
    from tests.pipeline.session import sharedSession


def missingIn(metadata: Any) -> "list[Missing]":
    """Return the ranges that were missing when a segment was sealed, from the metadata of its file."""
    return [Missing(*each) for each in json.loads(metadata.get(MISSING, b"[]"))]


class SealCase(SynchronousTestCase):
    """``written`` is a journal of several segments; ``sealed`` is where they become files, each one of its own.

    ``fileBytes`` is about the most that a file takes.
    """

    fileBytes = 1

    def setUp(self) -> None:
        self.spark = sharedSession()
        parent = Path(self.mktemp()).absolute()
        parent.mkdir()
        self.folder = str(parent / "journal")
        self.sealed = str(parent / "sealed")
        self.written = Written(self.folder, segmentBytes=4000)
        self.fill(50)
        self.addCleanup(self.written.close)
        self.patch(seal, "FILE_BYTES", self.fileBytes)

    def fill(self, number: int) -> None:
        """Write some records of two topics."""
        for each in range(number):
            self.written.time += 1_000_000
            self.written.publish("a", b"%d" % each * 20, publisher=8)
            self.written.publish("b", b"x")
            self.written.commit()

    def seal(self, *more: str, run: Any = None) -> list[str]:
        """Run the job and return what it said."""
        return runJob(SEAL, "--journal", self.folder, "--sealed", self.sealed, *more, run=run).said

    def files(self) -> list[Any]:
        """Return what is sealed."""
        return sealedFiles(self.sealed, self.written.id)

    def offsets(self) -> list[int]:
        """Return the offsets in all files, as any reader of Parquet finds them."""
        rows = self.spark.read.parquet(f"{self.sealed}/*").select("offset").collect()
        return sorted(row.offset for row in rows)

    def damage(self, path: Path, part: float = 0.5) -> None:
        """Damage a record of a segment, behind so much of it."""
        content = path.read_bytes()
        place = content.index(b"\x00x", int(len(content) * part))
        path.write_bytes(content[:place] + b"\x00y" + content[place + 2 :])

    def staged(self) -> list[tuple[int, bytes]]:
        """Return offsets and values of the topic ``staged`` in all files."""
        rows = self.spark.read.parquet(f"{self.sealed}/*").where("topic = 'staged'").collect()
        return sorted((row.offset, row.value) for row in rows)

    def isAll(self, end: int) -> None:
        """See that all files together have each record before an offset once, as the source has it."""
        table = self.spark.read.parquet(f"{self.sealed}/*")
        source = self.spark.read.format("fleximq").option("columns", ",".join(table.columns)).load(self.folder)
        expected = sorted(source.where(f"offset < {end}").collect(), key=lambda row: row.offset)
        self.assertEqual(sorted(table.collect(), key=lambda row: row.offset), expected)
        self.assertEqual([row.offset for row in expected], list(range(1, end)))


class SealTests(SealCase):
    """What there is afterwards."""

    def test_allSegmentsButTheLastAreSealedAsTheSourceHasThem(self) -> None:
        self.seal()
        segments = JournalFiles(self.folder).segments()
        self.assertGreater(len(segments), 3)
        self.assertEqual([file[1:] for file in self.files()], [(each.start, each.end) for each in segments])
        end = segments[-1].end
        self.isAll(end)

    def test_startsNoSparkAndIsRefusedAnObjectStore(self) -> None:
        self.patch(FakeRun, "session", lambda run, quick=False: self.fail("Spark was started"))
        self.seal()
        self.assertGreater(len(self.files()), 3)
        error = self.assertRaises(OptionRefused, runJob, SEAL, "--journal", self.folder, "--sealed", "s3://b/sealed")
        self.assertIn("must be a folder", str(error))

    def test_sealedFilesStayAndOnlyNewSegmentsAreSealed(self) -> None:
        self.seal()
        before = {path: path.stat().st_mtime_ns for path in Path(self.sealed).glob("*/*.parquet")}
        self.assertEqual(self.seal(), ["0 segments sealed"])
        self.fill(10)
        self.seal()
        after = {path: path.stat().st_mtime_ns for path in Path(self.sealed).glob("*/*.parquet")}
        self.assertGreater(len(after), len(before))
        self.assertEqual({path: after[path] for path in before}, before)
        self.assertEqual(self.offsets(), list(range(1, self.files()[-1].next)))

    def test_sealedRecordsOutliveRetention(self) -> None:
        self.seal()
        sealed = self.offsets()
        for path in sorted(Path(self.folder).glob("*.fxj"))[:2]:
            path.unlink()
        self.fill(10)
        self.seal()
        self.assertEqual(self.offsets()[: len(sealed)], sealed)
        self.assertEqual(self.offsets(), list(range(1, self.files()[-1].next)))

    def test_eachFileNamesItsSegments(self) -> None:
        self.seal()
        bases = sorted(int(path.name[:20]) for path in Path(self.folder).glob("*.fxj"))[:-1]
        metadata = [pq.read_metadata(file.path).metadata for file in self.files()]
        self.assertEqual([json.loads(each[SEGMENTS]) for each in metadata], [[base] for base in bases])
        self.assertEqual([missingIn(each) for each in metadata], [[]] * len(bases))

    def test_eachJournalHasItsFolder(self) -> None:
        other = Written(f"{os.path.dirname(self.folder)}/journal2", segmentBytes=2000)
        self.addCleanup(other.close)
        for number in range(60):
            other.kept("c", b"%d" % number * 20)
        runJob(SEAL, "--journal", f"{self.folder}*", "--sealed", self.sealed)
        self.assertGreater(len(sealedFiles(self.sealed, other.id)), 1)
        self.assertGreater(len(self.files()), 1)

    def test_stagedRecordsAreInTheFileOfTheirTransactionOnce(self) -> None:
        token = self.written.stage("q", 1, "0", "staged", b"s1", b"s2")
        self.fill(30)
        first = self.written.publishStaged("q", 1, token)
        self.fill(30)
        self.seal()
        self.assertEqual(self.staged(), [(first, b"s1"), (first + 1, b"s2")])

    def test_bothFoldersAreRequiredAndTheFirstIsAJournal(self) -> None:
        self.assertRaisesRegex(
            OptionRefused, "--journal FOLDER and --sealed FOLDER are needed", runJob, SEAL, "--sealed", "x"
        )
        wrong = ("--journal", self.sealed, "--sealed", self.sealed)
        self.assertRaisesRegex(PipelineError, "is no journal", runJob, SEAL, *wrong)

    def test_stoppedRunSaysWhatIsLeftAndGoesOnLater(self) -> None:
        run = FakeRun()
        run.stopping.set()
        said = self.seal(run=run)
        self.assertEqual(said, [f"0 segments sealed, {len(JournalFiles(self.folder).segments())} left"])
        self.seal()
        self.assertGreater(len(self.files()), 3)


class NeighboursTests(SealCase):
    """Segments that one run seals share files."""

    fileBytes = 1 << 30

    def test_eachThreadSealsOneFileWithoutGapsOrRepeats(self) -> None:
        self.patch(os, "cpu_count", lambda: 2)
        said = self.seal()
        segments = JournalFiles(self.folder).segments()
        self.assertEqual(said, [f"{len(segments)} segments sealed"])
        self.assertTrue(2 <= len(self.files()) <= 3 < len(segments), self.files())
        self.assertEqual(self.offsets(), list(range(1, segments[-1].end)))
        bases = [json.loads(pq.read_metadata(file.path).metadata[SEGMENTS]) for file in self.files()]
        self.assertEqual(sum(bases, []), [each.pieces[0].base for each in segments])

    def test_recordsStagedAndPublishedInOneFileAreThereOnce(self) -> None:
        token = self.written.stage("q", 1, "0", "staged", b"s1", b"s2")
        self.fill(20)
        first = self.written.publishStaged("q", 1, token)
        self.fill(20)
        self.patch(seal, "FILE_BYTES", 1 << 40)
        self.seal()
        self.assertEqual(self.staged(), [(first, b"s1"), (first + 1, b"s2")])

    def test_damagedSegmentIsSealedAloneByALaterRun(self) -> None:
        self.damage(sorted(Path(self.folder).glob("*.fxj"))[1])
        segments = JournalFiles(self.folder).segments()
        run = FakeRun()
        error = self.assertRaises(PipelineError, self.seal, run=run)
        self.assertEqual(str(error), "1 segments are not sealed, because records are missing")
        self.assertEqual(run.said[1:], [f"{len(segments) - 1} segments sealed"])
        without = {*range(1, segments[-1].end)} - {*range(segments[1].start, segments[1].end)}
        self.assertEqual(self.offsets(), sorted(without))
        self.assertEqual(self.seal("--damaged"), ["1 segments sealed"])
        (file,) = [each for each in self.files() if each.first == segments[1].start]
        self.assertEqual(len(missingIn(pq.read_metadata(file.path).metadata)), 1)

    def test_groupsAreOfOneSizeAndWithoutGaps(self) -> None:
        one, *rest = JournalFiles(self.folder).segments()
        sealed = [one, *rest]
        self.assertEqual(neighbours(sealed, 1), [sealed])
        self.assertEqual(neighbours(sealed, 10 * len(sealed)), [[each] for each in sealed])
        halves = neighbours(sealed, 2)
        self.assertEqual(sum(halves, []), sealed)
        few, many = sorted(sum(each.bytes for each in half) for half in halves)
        self.assertLessEqual(many - few, max(each.bytes for each in sealed))
        self.assertEqual(neighbours([one, *rest[1:]], 1), [[one], rest[1:]])
        self.assertEqual(neighbours([], 5), [])


class UnfinishedTests(SealCase):
    """The last segment is sealed in parts."""

    fileBytes = 1 << 30

    def begun(self, number: int = 1) -> None:
        """Write some records, behind which the last segment still has room."""
        self.fill(number)
        while JournalFiles(self.folder).segments(unfinished=True)[-1].bytes > 2000:
            self.fill(1)

    def last(self) -> int:
        """Return the next offset of the journal."""
        return JournalFiles(self.folder).bounds().next

    def test_eachRunSealsTheNewPartOfTheLastSegment(self) -> None:
        self.begun()
        self.seal("--unfinished")
        self.assertEqual(self.files()[-1].next, self.last())
        self.assertEqual(self.seal("--unfinished"), ["0 segments sealed"])
        before = self.files()
        self.fill(2)
        self.assertEqual(self.seal(), ["0 segments sealed"])
        self.assertEqual(self.seal("--unfinished"), ["1 segments sealed"])
        (added,) = self.files()[len(before) :]
        self.assertEqual((added.first, added.next), (before[-1].next, self.last()))
        self.fill(40)
        # The rest of the one that was unfinished, and those behind it that are finished now.
        self.seal()
        end = JournalFiles(self.folder).segments()[-1].end
        self.isAll(end)

    def test_recordsStagedBeforeAPartAreInTheLaterPartOnce(self) -> None:
        self.begun()
        token = self.written.stage("q", 1, "0", "staged", b"s1", b"s2")
        self.seal("--unfinished")
        first = self.written.publishStaged("q", 1, token)
        self.seal("--unfinished")
        self.assertEqual(self.offsets(), list(range(1, first + 2)))
        self.assertEqual(self.staged(), [(first, b"s1"), (first + 1, b"s2")])

    def test_damageInASealedPartDoesNotKeepTheRestFromSealing(self) -> None:
        self.begun(2)
        self.seal("--unfinished")
        self.damage(max(Path(self.folder).glob("*.fxj")), 0)
        self.fill(2)
        self.assertEqual(self.seal("--unfinished"), ["1 segments sealed"])
        self.assertEqual(self.offsets(), list(range(1, self.last())))
        self.assertEqual(missingIn(pq.read_metadata(self.files()[-1].path).metadata), [])

    def test_deletedPartIsSealedAgainWithoutRepeats(self) -> None:
        self.begun()
        self.seal("--unfinished")
        segment = JournalFiles(self.folder).segments(unfinished=True)[-1]
        parts = [self.last()]
        for _ in range(2):
            self.fill(1)
            self.seal("--unfinished")
            parts.append(self.last())
        self.fill(40)
        self.seal("--unfinished")
        self.assertGreater(JournalFiles(self.folder).segments()[-1].end, parts[-1])
        for span in ((parts[0], parts[1]), (parts[1], parts[2])):
            (file,) = [file for file in self.files() if (file.first, file.next) == span]
            os.unlink(file.path)
            self.assertEqual(self.seal("--unfinished"), ["1 segments sealed"])
            self.assertEqual(self.offsets(), list(range(1, self.last())))
            self.assertIn(span, [(file.first, file.next) for file in self.files()])
        self.assertLess(segment.start, parts[0])

    def test_journalWithoutRecordsHasNothingToSeal(self) -> None:
        other = Written(f"{os.path.dirname(self.folder)}/empty")
        self.addCleanup(other.close)
        self.folder = other.folder
        self.assertEqual(self.seal("--unfinished"), ["0 segments sealed"])
        self.assertEqual(sealedFiles(self.sealed, other.id), [])


class FailureTests(SealCase):
    """What goes wrong."""

    def test_damagedSegmentIsLeftOutOrSealedWithItsGap(self) -> None:
        self.damage(sorted(Path(self.folder).glob("*.fxj"))[1])
        run = FakeRun()
        error = self.assertRaises(PipelineError, self.seal, run=run)
        self.assertEqual(str(error), "1 segments are not sealed, because records are missing")
        self.assertIn("bytes are damaged", run.said[0])
        segments = JournalFiles(self.folder).segments()
        self.assertEqual(len(self.files()), len(segments) - 1)
        self.seal("--damaged")
        self.assertEqual(len(self.files()), len(segments))
        (missing,) = missingIn(pq.read_metadata(self.files()[1].path).metadata)
        self.assertTrue(missing.lost)
        self.assertEqual(
            sorted({*range(1, segments[-1].end)} - {*self.offsets()}), [*range(missing.first, missing.next)]
        )

    def test_segmentThatRetentionRemovesLeavesNoFile(self) -> None:
        segment = JournalFiles(self.folder).segments()[0]
        sorted(Path(self.folder).glob("*.fxj"))[0].unlink()
        os.makedirs(self.sealed)
        [outcome] = sealSegments([segment], self.sealed, False)
        self.assertIn("retention has removed them while they were being read", outcome.why)
        self.assertEqual(os.listdir(self.sealed), [])

    def test_fileThatCannotBeRenamedIsOneSentenceAndLeavesNothing(self) -> None:
        class Full(Files):
            """A disk that is full."""

            def rename(self, old: str, new: str) -> None:
                """Fail."""
                raise OSError(errno.ENOSPC, "No space left on device")

        os.makedirs(self.sealed)
        segment = JournalFiles(self.folder).segments()[0]
        error = self.assertRaises(PipelineError, sealSegments, [segment], self.sealed, False, Full())
        self.assertIn("cannot be written: no space left on device", str(error))
        self.assertEqual(os.listdir(self.sealed), [])

    def test_leftoverOfAKilledRunIsNoRowAndIsRemoved(self) -> None:
        os.makedirs(f"{self.sealed}/{self.written.id}")
        rubbish = Path(self.sealed, self.written.id, f"{STAGED}abc")
        rubbish.write_bytes(b"half a file")
        self.seal()
        self.assertFalse(rubbish.exists())
        self.assertEqual(self.offsets(), list(range(1, self.files()[-1].next)))

    def test_secondRunOnAJournalIsRefused(self) -> None:
        self.seal()
        files = Files()
        descriptor = files.openLock(f"{self.sealed}/{self.written.id}/_lock")
        self.addCleanup(files.close, descriptor)
        self.assertTrue(files.lock(descriptor))
        self.assertIn("is in use: another run seals into it", str(self.assertRaises(PipelineError, self.seal)))
