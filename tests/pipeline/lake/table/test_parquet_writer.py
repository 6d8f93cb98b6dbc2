"""Rows as staged files."""

import os
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fleximq.pipeline.lake.table import parquet_writer
    from fleximq.pipeline.lake.table.columns import BASE
    from fleximq.pipeline.lake.table.file_names import DATE, TOPIC
    from fleximq.pipeline.lake.table.parquet_writer import Span, StagingWriter, spansOf
    from fleximq.pipeline.lake.table.table_log import TableFile
    from tests.pipeline.lake.tables import DAY, JOURNAL, TIME, rows


class WriterCase(SynchronousTestCase):
    """A writer of one attempt of a task."""

    layout = "topic"

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()

    def write(self, *batches: Any) -> "list[TableFile]":
        """Write batches and return the files, in order of topic, day and offset."""
        writer = StagingWriter(str(self.folder), BASE, JOURNAL, 3, self.layout)
        for batch in batches:
            writer.add(batch)
        return sorted(writer.close(), key=lambda each: (each.topic, each.date, each.first))

    def read(self, staged: "TableFile") -> list[int]:
        """Return the offsets in a file."""
        found: list[int] = pq.read_table(self.folder / staged.path).column("offset").to_pylist()
        return found


class WriterTests(WriterCase):
    """What one attempt of a task stages."""

    def test_rowsAreDividedByTopicAndUtcDayInOrder(self) -> None:
        last = TIME - TIME % DAY + DAY - 1
        found = self.write(
            rows([1, 2], "b"), rows([3], "a"), rows([4, 5], "b", last), rows([6], "b", last + 1), rows([7], "a", -1)
        )
        self.assertEqual(
            [(each.topic, each.date, each.first, each.last, each.rows) for each in found],
            [
                ("a", "1969-12-31", 7, 7, 1),
                ("a", "2023-11-14", 3, 3, 1),
                ("b", "2023-11-14", 1, 5, 4),
                ("b", "2023-11-15", 6, 6, 1),
            ],
        )
        self.assertEqual([self.read(each) for each in found], [[7], [3], [1, 2, 4, 5], [6]])
        self.assertEqual([each.bytes for each in found], [(self.folder / each.path).stat().st_size for each in found])

    def test_stagedFilesAreSyncedAfterAllTheirBytes(self) -> None:
        synced: list[int] = []
        self.patch(os, "fdatasync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
        found = self.write(rows([1, 2], "b"), rows([3], "a"), rows([4], "b", TIME + DAY))
        self.assertEqual(sorted(synced), sorted(each.bytes for each in found))

    def test_timesOfNoDateAreFiledUnderTheFirstOrLastDay(self) -> None:
        """Days that are no dates of readers count as the first or the last one that is; the rows keep their times."""
        first, last = -719_162 * DAY, 2_932_897 * DAY - 1
        found = self.write(*(rows([1 + at], "a", time) for at, time in enumerate((first - 1, first, last, last + 1))))
        self.assertEqual([each.date for each in found], ["0001-01-01"] * 2 + ["9999-12-31"] * 2)
        self.assertEqual([self.read(each) for each in found], [[1], [2], [3], [4]])

    def test_batchOfSeveralTopicsAndDaysIsDivided(self) -> None:
        batch = pa.Table.from_batches(
            [rows([1], "b"), rows([2], "a"), rows([3], "b", TIME + DAY), rows([4], "b"), rows([5], "a")]
        )
        found = self.write(batch.combine_chunks().to_batches()[0])
        self.assertEqual([self.read(each) for each in found], [[2, 5], [1, 4], [3]])

    def test_eachFileNamesTopicJournalOffsetsAndBatch(self) -> None:
        (found,) = self.write(rows([5, 9, 11], "a/b"))
        topic, spans = spansOf(pq.read_metadata(self.folder / found.path).metadata)
        self.assertEqual((topic, spans), ("a/b", [Span(JOURNAL, 5, 11, 3, 3)]))

    def test_allColumnsAreReadBackAsTheyWere(self) -> None:
        batch = rows([1, 2], headers=[[("a", "b")], None], key=[b"k", None], content=[1, None], reason=[None, "why"])
        (found,) = self.write(batch)
        table = pq.ParquetFile(self.folder / found.path).read()
        self.assertEqual(table.schema.names, BASE.names)
        self.assertEqual(table.to_pylist(), batch.to_pylist())

    def test_noRowsMakeNoFile(self) -> None:
        self.assertEqual(self.write(rows([])), [])
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_manyTopicsKeepFewFilesOpenAndWriteEachRowOnce(self) -> None:
        """With many topics, few files are open and few rows wait; each row is written once, in order within a topic."""
        self.patch(parquet_writer, "MAX_OPEN_FILES", 3)
        self.patch(parquet_writer, "MAX_BUFFERED_BYTES", 2000)
        self.patch(parquet_writer, "GROUP_BYTES", 1000)
        opened: set[Any] = set()
        most = [0]
        real = pq.ParquetWriter

        class Counted:
            def __init__(self, *arguments: Any, **more: Any) -> None:
                self._real = real(*arguments, **more)
                opened.add(self)
                most[0] = max(most[0], len(opened))

            def __getattr__(self, name: str) -> Any:
                return getattr(self._real, name)

            def close(self) -> None:
                self._real.close()
                opened.discard(self)

        self.patch(pq, "ParquetWriter", Counted)
        found = self.write(*(rows([10 * turn + topic], f"t{topic}") for turn in range(60) for topic in range(10)))
        self.assertEqual((most[0], opened), (3, set()))
        self.assertGreater(len(found), 10)
        of: dict[str, list[int]] = {}
        for each in found:
            read = self.read(each)
            self.assertEqual((each.first, each.last, each.rows), (read[0], read[-1], len(read)))
            of.setdefault(each.topic, []).extend(read)
        self.assertEqual(of, {f"t{topic}": [10 * turn + topic for turn in range(60)] for topic in range(10)})

    def test_abandonedWriterRemovesItsFiles(self) -> None:
        self.patch(parquet_writer, "GROUP_BYTES", 1)
        self.patch(parquet_writer, "MAX_OPEN_FILES", 1)
        writer = StagingWriter(str(self.folder), BASE, JOURNAL, 0, TOPIC)
        writer.add(rows([1], "a"))
        writer.add(rows([2], "b"))
        self.assertEqual(len(list(self.folder.iterdir())), 2)
        writer.abandon()
        self.assertEqual(list(self.folder.iterdir()), [])


class SortedTests(WriterCase):
    """Files with the topics of a day."""

    layout = DATE if not skip else ""

    def test_dayIsOneFileOrderedByTopicAndOffset(self) -> None:
        found = self.write(
            rows([1, 2], "b"), rows([3], "é"), rows([4], "a"), rows([5], "b"), rows([6], "a", TIME + DAY)
        )
        self.assertEqual(
            [(each.topic, each.date, each.first, each.last, each.rows) for each in found],
            [("", "2023-11-14", 1, 5, 5), ("", "2023-11-15", 6, 6, 1)],
        )
        self.assertEqual([self.read(each) for each in found], [[4, 1, 2, 5, 3], [6]])

    def test_rowGroupsEndBetweenTopics(self) -> None:
        """Row groups end between topics where they can, so that a reader of one topic reads few of them."""
        self.patch(parquet_writer, "SORTED_GROUP_BYTES", 4000)
        offsets = iter(range(1, 3000))
        (file,) = self.write(
            *(rows([next(offsets) for _ in range(10)], f"t{turn % 20:02}") for turn in range(100)),
            rows([next(offsets) for _ in range(500)], "z"),
        )
        found = pq.ParquetFile(self.folder / file.path)
        columns = [found.metadata.row_group(each) for each in range(found.num_row_groups)]
        ranges = [each.column(found.schema_arrow.get_field_index("topic")).statistics for each in columns]
        self.assertGreater(len(ranges), 15)
        for topic in ("t00", "t07", "t19"):
            self.assertEqual(len([each for each in ranges if each.min <= topic <= each.max]), 1, topic)
        self.assertGreater(len([each for each in ranges if each.max == "z"]), 3)

    def test_dayLargerThanTheMemoryIsSeveralOrderedFiles(self) -> None:
        self.patch(parquet_writer, "GROUP_BYTES", 20_000)
        found = self.write(*(rows(range(turn * 50 + 1, turn * 50 + 51), f"t{9 - turn % 10}") for turn in range(30)))
        self.assertGreater(len(found), 3)
        seen: list[int] = []
        for each in found:
            read = pq.read_table(self.folder / each.path, columns=["topic", "offset"]).to_pylist()
            order = [(row["topic"], row["offset"]) for row in read]
            self.assertEqual(order, sorted(order))
            seen += [offset for _, offset in order]
        self.assertEqual(sorted(seen), list(range(1, 1501)))
