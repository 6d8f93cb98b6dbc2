"""Sealed history and journals as one table."""

import os
from pathlib import Path
from threading import Event, Thread
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.message import Content
from tests.pipeline.installed import missing as skip
from tests.pipeline.written import TIME, Written

if not skip:
    from py4j.protocol import Py4JError

    from fleximq.pipeline import history
    from fleximq.pipeline.errors import OptionRefused, PipelineError
    from fleximq.pipeline.files.journal_files import JournalFiles
    from fleximq.pipeline.files.schema import COLUMNS
    from fleximq.pipeline.jobs import seal
    from fleximq.pipeline.jobs.seal import SEAL
    from fleximq.pipeline.lake.sealed_segments import (
        SealedFile,
        offsetIn,
        sealedFiles,
        sealedName,
        sealSegments,
        unsealedRanges,
    )
    from fleximq.pipeline.reader.offsets import RecordsMissing
    from tests.pipeline.jobs.fake_run import runJob
    from tests.pipeline.session import sharedSession


class SealedTests(SynchronousTestCase):
    """What the names of the files say; without Spark."""

    def test_longerOfTwoFilesCountsAndOtherNamesAreIgnored(self) -> None:
        folder = Path(self.mktemp())
        (folder / "j").mkdir(parents=True)
        for first, nextOffset in [(30, 41), (1, 20), (30, 35), (20, 30), (20, 20)]:
            (folder / "j" / sealedName(first, nextOffset)).touch()
        for name in ("_lock", "_sealing-1", "00000000000000000050-00000000000000000060.parquet.crc"):
            (folder / "j" / name).touch()
        self.assertEqual([file[1:] for file in sealedFiles(str(folder), "j")], [(1, 20), (20, 30), (30, 41)])
        self.assertEqual(sealedFiles(str(folder), "k"), [])

    def test_unsealedRangesAreBeforeBetweenAndBehindFiles(self) -> None:
        files = [SealedFile("", 5, 10), SealedFile("", 10, 12), SealedFile("", 20, 30)]
        for span, expected in [
            ((1, None), [(1, 5), (12, 20), (30, None)]),
            ((5, None), [(12, 20), (30, None)]),
            ((7, 12), []),
            ((7, 13), [(12, 13)]),
            ((15, 25), [(15, 20)]),
            ((29, 40), [(30, 40)]),
            ((50, None), [(50, None)]),
            ((1, 3), [(1, 3)]),
        ]:
            self.assertEqual(unsealedRanges(files, *span), expected, span)


class HistoryCase(SynchronousTestCase):
    """``written`` is a journal of several segments, with a second between every two of its commits."""

    def setUp(self) -> None:
        self.spark = sharedSession()
        self.parent = Path(self.mktemp()).absolute()
        self.parent.mkdir()
        self.sealed = str(self.parent / "sealed")
        self.folder = str(self.parent / "one")
        self.written = self.journal("one")
        self.fill(30)

    def journal(self, name: str) -> Written:
        """Return a new journal."""
        written = Written(str(self.parent / name), segmentBytes=4000)
        self.addCleanup(written.close)
        return written

    def fill(self, number: int, written: Any = None) -> None:
        """Write records of two topics."""
        written = written or self.written
        for each in range(number):
            written.time += 1_000_000
            written.publish("a.x", b"%d" % each * 20, publisher=8)
            written.publish("b", b"x")
            written.commit()

    def seal(self, *more: str, path: str | None = None) -> None:
        """Seal what can be sealed."""
        runJob(SEAL, "--journal", path or self.folder, "--sealed", self.sealed, *more)

    def read(self, path: Any = "one", **options: str) -> Any:
        """Return the table."""
        return history.read(self.spark, None if path is None else str(self.parent / path), self.sealed, **options)

    def offsets(self, table: Any) -> list[int]:
        """Return the offsets of a table's rows, in order."""
        return sorted(row.offset for row in table.select("offset").collect())

    @property
    def all(self) -> list[int]:
        """All offsets that were ever given."""
        return list(range(1, self.written.next))


class HistoryTests(HistoryCase):
    """Each record once, wherever it is."""

    def test_rowsAreThoseOfTheSourceAndSealedOnesAreOfParquet(self) -> None:
        self.seal()
        table = self.read()
        self.assertEqual(tuple(table.columns), COLUMNS)
        source = self.spark.read.format("fleximq").load(self.folder)
        self.assertEqual(table.schema, source.schema)
        self.assertEqual(
            sorted(table.collect(), key=lambda r: r.offset), sorted(source.collect(), key=lambda r: r.offset)
        )
        sealed = sealedFiles(self.sealed, self.written.id)[-1].next
        plan = table._jdf.queryExecution().executedPlan().toString()
        self.assertIn("parquet", plan.lower())
        self.assertIn(f"-{sealed:020d}.parquet", " ".join(table.inputFiles()))

    def test_payloadsAreDecodedAsTheSourceDoes(self) -> None:
        self.written.kept("json", *(b'{"a": %d}' % number for number in range(200)), content=Content.TEXT)
        self.fill(30)
        self.seal()
        self.written.kept("json", b'{"a": 200}', b"none", b'{"a": "no"}', content=Content.TEXT)
        options = {"decode": "json", "decodeSchema": "a INT", "columns": "error,decoded,offset,timestamp,headers"}
        table = self.read(**options)
        source = self.spark.read.format("fleximq").options(**options).load(self.folder)
        self.assertEqual(table.schema, source.schema)
        key = lambda row: row.offset  # noqa: E731
        self.assertEqual(sorted(table.collect(), key=key), sorted(source.collect(), key=key))
        only = self.read(subscribe="json", decode="json", decodeSchema="a INT")
        self.assertEqual(only.selectExpr("sum(decoded.a)", "count(error)").first(), (sum(range(201)), 2))

    def test_withoutSealedFilesTheJournalIsRead(self) -> None:
        os.makedirs(self.sealed)
        self.assertEqual(self.offsets(self.read()), self.all)

    def test_tableStaysRightWhileItsJournalGrowsAndIsSealed(self) -> None:
        os.makedirs(self.sealed)
        before = self.read()
        self.seal()
        table = self.read()
        self.fill(30)
        self.seal()
        self.assertEqual(self.offsets(before), self.all)
        self.assertEqual(self.offsets(table), self.all)
        segments = sorted(Path(self.folder).glob("*.fxj"))
        segments[0].unlink()
        self.assertEqual(self.offsets(table), self.all)
        self.assertEqual(self.offsets(self.read()), self.all)

    def test_eachRecordIsThereOnceWhileSealing(self) -> None:
        looked, stopped = Event(), Event()
        segments = JournalFiles(self.folder).segments()
        folder = f"{self.sealed}/{self.written.id}"
        os.makedirs(folder)

        def work() -> None:
            # The later ones first, so that there are holes.
            for segment in reversed(segments):
                sealSegments([segment], folder, False)
                looked.wait(300)
                if not stopped.is_set():
                    looked.clear()

        thread = Thread(target=work)
        thread.start()
        try:
            while thread.is_alive():
                self.assertEqual(self.offsets(self.read()), self.all)
                looked.set()
        finally:
            stopped.set()
            looked.set()
            thread.join(300)

    def test_restOfAPartlySealedSegmentIsRead(self) -> None:
        self.seal("--unfinished")
        self.assertEqual(sealedFiles(self.sealed, self.written.id)[-1].next, self.all[-1] + 1)
        self.assertEqual(self.offsets(self.read()), self.all)
        self.fill(2)
        self.assertEqual(self.offsets(self.read()), self.all)
        self.fill(30)
        self.seal("--unfinished")
        part = sealedFiles(self.sealed, self.written.id)[-2]
        os.unlink(part.path)
        self.assertEqual(self.offsets(self.read()), self.all)

    def test_unsealedSegmentBetweenSealedOnesIsRead(self) -> None:
        self.seal()
        os.unlink(sealedFiles(self.sealed, self.written.id)[1].path)
        self.assertEqual(self.offsets(self.read()), self.all)

    def test_recordsRemovedBeforeSealingAreMissing(self) -> None:
        self.patch(seal, "FILE_BYTES", 1)
        self.seal()
        files = sealedFiles(self.sealed, self.written.id)
        os.unlink(files[1].path)
        for path in sorted(Path(self.folder).glob("*.fxj"))[:2]:
            path.unlink()
        expected = [offset for offset in self.all if not files[1].first <= offset < files[1].next]
        with self.assertLogs("fleximq.pipeline", "WARNING") as logs:
            self.assertEqual(self.offsets(self.read()), expected)
        words = f"has no offsets {files[1].first} to {files[1].next - 1} any more: retention has removed them before"
        self.assertIn(words, logs.output[0])
        error = self.assertRaises(RecordsMissing, self.read, startingOffsets=str(files[1].first))
        self.assertIn(words, str(error))
        late = self.read(startingOffsets=str(files[1].first), failOnDataLoss="false")
        self.assertEqual(self.offsets(late), [offset for offset in self.all if offset >= files[1].next])

    def test_severalJournalsAreOneTable(self) -> None:
        two, gone = self.journal("two"), self.journal("gone")
        self.fill(20, two)
        self.fill(20, gone)
        self.seal(path=f"{self.parent}/*")
        end = sealedFiles(self.sealed, gone.id)[-1].next
        os.unlink(f"{gone.folder}/identity")
        three = self.journal("three")
        self.fill(1, three)
        rows = self.read("*").groupBy("journal").count().collect()
        self.assertEqual(
            {row.journal: row["count"] for row in rows},
            {self.written.id: len(self.all), two.id: two.next - 1, gone.id: end - 1, three.id: 2},
        )

    def test_sealedHistoryIsReadWithoutAJournal(self) -> None:
        self.seal()
        end = sealedFiles(self.sealed, self.written.id)[-1].next
        self.assertEqual(self.offsets(self.read(None)), list(range(1, end)))


class ChoiceTests(HistoryCase):
    """Options mean on both sides what they mean to the source."""

    def same(self, **options: str) -> list[int]:
        """Return the offsets that the source and the history give."""
        source = self.spark.read.format("fleximq").options(**options).load(self.folder)
        expected = self.offsets(source)
        table = self.read(**options)
        self.assertEqual(table.columns, source.columns)
        self.assertEqual(self.offsets(table), expected, options)
        return expected

    def test_optionsMeanTheSameForJournalAndSealedFiles(self) -> None:
        self.seal()
        middle = sealedFiles(self.sealed, self.written.id)[1].first + 2
        at = (TIME + 9_500_000) // 1000
        for options in [
            {"subscribe": "b"},
            {"subscribe": "b,none", "columns": "value,offset"},
            {"topics": "a.*"},
            {"topics": "#"},
            {"subscribePattern": "[ab]..*"},
            {"includeHeaders": "false"},
            {"columns": "content,offset,topic"},
            {"startingOffsets": str(middle)},
            {"endingOffsets": str(middle)},
            {"startingOffsets": f'{{"{self.written.id}": {middle}}}', "endingOffsets": str(middle + 5)},
            {"startingOffsets": "latest"},
            {"startingTimestamp": str(at)},
            {"endingTimestamp": str(at)},
            {"startingTimestamp": str(at * 2)},
        ]:
            self.same(**options)
        self.assertEqual(len(self.same(topics="a.*")), 30)
        self.assertEqual(self.same(startingOffsets=str(middle))[0], middle)
        self.assertEqual(self.same(startingTimestamp=str(at))[0], 19)

    def test_firstRecordOfATimeIsFoundInSealedFiles(self) -> None:
        self.seal()
        files = sealedFiles(self.sealed, self.written.id)
        self.assertEqual(offsetIn(files, 0), 1)
        self.assertEqual(offsetIn(files, TIME + 9_000_000), 17)
        self.assertIsNone(offsetIn(files, TIME * 2))

    def test_folderMayBeNamedLikeAPattern(self) -> None:
        self.sealed = str(self.parent / "se[a]led {x}")
        self.seal()
        self.assertEqual(self.offsets(self.read()), self.all)

    def test_wrongSourcesAndOptionsAreOneSentence(self) -> None:
        self.assertIn("cannot be read", str(self.assertRaises(PipelineError, self.read)))
        self.seal()
        self.assertIn("no option 'subscibe'", str(self.assertRaises(OptionRefused, self.read, subscibe="a")))
        self.assertIn("is no journal", str(self.assertRaises(PipelineError, self.read, "nowhere")))
        self.assertRaisesRegex(RecordsMissing, "has no offset 1000 yet", self.read, startingOffsets="1000")

    def test_damagedSealedFileIsAnError(self) -> None:
        self.seal()
        path = Path(sealedFiles(self.sealed, self.written.id)[0].path)
        path.write_bytes(path.read_bytes()[:-20])
        error = self.assertRaises(Py4JError, lambda: self.read().collect())
        self.assertIn(path.name, str(error))
