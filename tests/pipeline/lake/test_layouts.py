"""Tables of each format with files for each day, and folders whose names get ASCII: every row stays there once."""

import json
import os
import shutil
from errno import ENOSPC
from importlib.util import find_spec
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip
from tests.pipeline.lake.iceberg_case import skip as noIceberg

if not skip:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from fleximq.pipeline import lake
    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake import expiration, renaming
    from fleximq.pipeline.lake.batch_commit import BatchCommit
    from fleximq.pipeline.lake.compaction import compact
    from fleximq.pipeline.lake.expiration import expireDays, topicsOf
    from fleximq.pipeline.lake.live_files import liveFiles, rowGroups
    from fleximq.pipeline.lake.renaming import rename
    from fleximq.pipeline.lake.table import file_merge
    from fleximq.pipeline.lake.table.columns import TableColumns, writeColumns
    from fleximq.pipeline.lake.table.file_names import tableNames
    from fleximq.pipeline.lake.table.format import layoutOf, setFormat
    from fleximq.pipeline.lake.table.lock import writerLock
    from fleximq.pipeline.lake.table.parquet_writer import StagingWriter
    from fleximq.pipeline.lake.table.table_log import BatchRange, CompactionGoal, LiveFile, TableFile
    from tests.pipeline.lake.tables import DAY, JOURNAL, TIME, Broken, commit, crashes, rows, stage

    _AT_ONCE = CompactionGoal(1 << 20, -1e9, 2)
    #: Ten days after the first day of the rows, in seconds since 1970.
    _LATER = 1_700_006_400 + 10 * 86_400.0
_TOPICS = ("größe", "a/c", "z", "a.b")


class LayoutCase(SynchronousTestCase):
    """``table`` has four batches of 20 rows of four topics, the last one of the next day."""

    format = "parquet"
    layout: str | None = None

    def setUp(self) -> None:
        self.table = str(Path(self.mktemp()).absolute() / "messages")
        publishing = BatchCommit(self.table)
        publishing.makeFolders()
        self.record()
        writeColumns(self.table, TableColumns("raw", pa.schema([])))
        publishing.prepare()
        for number in range(4):
            self.publish(number)

    def record(self) -> None:
        """Record the layout."""
        setFormat(self.table, {"format": self.format}, self.layout)

    def publish(self, number: int) -> None:
        """Publish a batch."""
        time = TIME if number < 3 else TIME + DAY
        start = number * 20 + 1
        parts = [rows([start + each], _TOPICS[each % 4], time) for each in range(20)]
        commit(self.table, number, *parts)

    def rows(self) -> list[tuple[str, int]]:
        """Return topics and offsets that readers see, in the order of files."""
        found = []
        for path, topic in sorted(liveFiles(self.table)):
            for group in rowGroups(self.table, path, topic):
                found += [(row["topic"], row["offset"]) for row in group.select(["topic", "offset"]).to_pylist()]
        return found

    def whole(self, batches: int = 4) -> None:
        """See that every row is there once, with its topic."""
        self.assertEqual(
            sorted(self.rows(), key=lambda row: row[1]), [(_TOPICS[each % 4], each + 1) for each in range(20 * batches)]
        )
        self.assertEqual(lake.audit(self.table), [])


class DayTests(LayoutCase):
    """Files for each day."""

    def test_batchHasOneFileOfADayOrderedByTopic(self) -> None:
        self.assertEqual(layoutOf(self.table), "date")
        found = liveFiles(self.table)
        self.assertEqual(len(found), 4)
        self.assertEqual({path.split("/")[0] for path, _ in found}, {"date=2023-11-14", "date=2023-11-15"})
        for path, topic in found:
            self.assertEqual(topic, "")
            topics = pq.ParquetFile(f"{self.table}/{path}").read().column("topic").to_pylist()
            self.assertEqual(topics, sorted(topics))
        self.whole()
        self.assertEqual(topicsOf(self.table), set(_TOPICS))

    def test_filesOfADayAreMergedInOrderWithLittleMemory(self) -> None:
        self.patch(file_merge, "_MERGED_BYTES", 1)
        self.patch(file_merge, "MAX_MERGED", 2)
        self.assertEqual([each[1:] for each in compact(self.table, _AT_ONCE)], [(2, 1)])
        self.assertEqual([each[1:] for each in compact(self.table, _AT_ONCE)], [(2, 1)])
        self.whole()
        (first, second) = sorted(liveFiles(self.table))
        found = pq.ParquetFile(f"{self.table}/{first[0]}").read(["topic", "offset"]).to_pylist()
        order = [(row["topic"], row["offset"]) for row in found]
        self.assertEqual((len(order), order), (60, sorted(order)))
        self.publish(4)
        self.assertEqual([each[1:] for each in compact(self.table, _AT_ONCE)], [(2, 1)])
        self.whole(5)

    def test_expiredTopicsLeaveFilesAndStayCounted(self) -> None:
        rules = [("a.b", 86_400.0), ("z", 9.5 * 86_400)]
        gone = expireDays(self.table, rules, _LATER)
        self.assertEqual(
            sorted((each.partition, dict(each.rows)) for each in gone),
            [("date=2023-11-14", {JOURNAL: 30}), ("date=2023-11-15", {JOURNAL: 5})],
        )
        left = [(_TOPICS[each % 4], each + 1) for each in range(80) if each % 4 < 2 or (each % 4 == 2 and each >= 60)]
        self.assertEqual(sorted(self.rows(), key=lambda row: row[1]), left)
        self.assertEqual(lake.ranges(self.table)[JOURNAL], lake.Covered(1, 81, 45, (), 35))
        self.assertEqual(lake.audit(self.table), [])
        self.assertEqual(expireDays(self.table, rules, _LATER), [])
        expireDays(self.table, [(None, 9.5 * 86_400)], _LATER)
        self.assertEqual({path.split("/")[0] for path, _ in liveFiles(self.table)}, {"date=2023-11-15"})
        self.assertEqual(lake.audit(self.table), [])

    def test_expiredDeadLettersAreNotCounted(self) -> None:
        found = [rows([81, 82], "a~dlq", TIME, reason=["why"] * 2), rows([83], "b~dlq", TIME, reason=["why"])]
        staged = stage(self.table, *found, batch=4)
        BatchCommit(self.table).publish(BatchRange(4, {JOURNAL: 81}, {JOURNAL: 84}), staged, {}, dead={JOURNAL: 3})
        expireDays(self.table, [("a~dlq", 86_400.0)], _LATER)
        self.assertEqual(lake.ranges(self.table)[JOURNAL], lake.Covered(1, 84, 81, (), 2, 1))

    def test_crashDuringAnExpiryIsCompletedByTheNext(self) -> None:
        for step in crashes(lambda files: expireDays(self.table, [("z", 86_400.0)], _LATER, files), 5):
            expireDays(self.table, [("z", 86_400.0)], _LATER)
            self.assertEqual(lake.ranges(self.table)[JOURNAL], lake.Covered(1, 81, 60, (), 20), step)
            self.assertEqual((len(self.rows()), lake.audit(self.table)), (60, []), step)
            self.setUp()

    def test_fullDiskKeepsReplacedFilesAndNothingStaged(self) -> None:
        """On a full disk the files that are complete are replaced, and none stays staged: there is more room then."""
        close, left = StagingWriter.close, [2]

        def closed(writer: StagingWriter) -> list[TableFile]:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(ENOSPC, "no space")
            return close(writer)

        patched = self.patch(StagingWriter, "close", closed)
        error = self.assertRaises(LakeRefused, expireDays, self.table, [("z", 86_400.0)], _LATER)
        self.assertIn("cannot be written: no space left on device", str(error))
        patched.restore()
        self.assertEqual(os.listdir(f"{self.table}/_fleximq/staged"), [])
        self.assertNotIn("expiring", os.listdir(f"{self.table}/_fleximq"))
        self.assertEqual(lake.ranges(self.table)[JOURNAL], lake.Covered(1, 81, 70, (), 10))
        expireDays(self.table, [("z", 86_400.0)], _LATER)
        self.assertEqual(lake.ranges(self.table)[JOURNAL], lake.Covered(1, 81, 60, (), 20))
        self.assertEqual((len(self.rows()), lake.audit(self.table)), (60, []))

    def grow(self) -> None:
        """Publish a batch whose files have a further column."""
        columns = TableColumns("raw", pa.schema([("more", pa.int64())]))
        writeColumns(self.table, columns)
        parts = [rows([each], _TOPICS[each % 4], schema=columns.schema, more=[each]) for each in range(81, 101)]
        commit(self.table, 4, *parts, schema=columns.schema)

    def test_columnAddedDuringAnExpiryStays(self) -> None:
        def listed(table: str, *more: object) -> list[tuple[str, str]]:
            self.grow()
            return liveFiles(table)

        self.patch(expiration, "liveFiles", listed)
        expireDays(self.table, [("z", 86_400.0)], _LATER)
        list(compact(self.table, _AT_ONCE))
        groups = [each for path, topic in liveFiles(self.table) for each in rowGroups(self.table, path, topic)]
        found = [row for rows in groups for row in rows.to_pylist()]
        wanted = {each: each for each in range(81, 101) if _TOPICS[each % 4] != "z"}
        self.assertEqual({row["offset"]: row["more"] for row in found if row["offset"] > 80}, wanted)

    def test_tableKeepsItsLayout(self) -> None:
        setFormat(self.table, {"format": self.format})
        error = self.assertRaises(LakeRefused, setFormat, self.table, {"format": self.format}, "topic")
        self.assertIn("has the layout date and cannot change to topic; a new table", str(error))
        self.assertIn("backfill NEW --from messages", str(error))


class DayDeltaTests(DayTests):
    """The same of a Delta table."""

    format = "delta"
    if find_spec("deltalake") is None:
        skip = "deltalake is not installed: pip install fleximq[delta]"

    def test_columnAddedDuringACompactionStays(self) -> None:
        from fleximq.pipeline.lake.delta_log import DeltaLog

        files = DeltaLog.files

        def listed(log: DeltaLog) -> list[LiveFile]:
            patched.restore()
            self.grow()
            return files(log)

        patched = self.patch(DeltaLog, "files", listed)
        list(compact(self.table, _AT_ONCE))
        found = pq.read_table([f"{self.table}/{path}" for path, _ in liveFiles(self.table)])
        self.assertEqual(found.column("more").null_count, 80)

    def test_deltaTableIsDividedByDayAndAnyFilterFindsItsRows(self) -> None:
        from deltalake import DeltaTable

        for change in ("none", "compacted"):
            table = DeltaTable(self.table)
            self.assertEqual(table.metadata().partition_columns, ["date"])
            for condition, number in (
                (pc.field("topic") == "z", 20),
                (pc.field("dialect") == "fleximq", 80),
                (pc.field("reason").is_null(), 80),
                (pc.field("offset") > 70, 10),
            ):
                self.assertEqual(table.to_pyarrow_dataset().to_table(filter=condition).num_rows, number, change)
            list(compact(self.table, _AT_ONCE))

    def test_boundsOfTheFormerVersionAreRemovedOnce(self) -> None:
        from deltalake import DeltaTable

        bounds = {"minValues": {"offset": 1}, "maxValues": {"offset": 20}}
        first = Path(self.table, "_delta_log", f"{0:020}.json")
        actions = [json.loads(line) for line in first.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                action["add"]["stats"] = json.dumps({"numRecords": 20, **bounds})
        first.write_text("\n".join(map(json.dumps, actions)))
        dataset = DeltaTable(self.table).to_pyarrow_dataset()
        self.assertEqual(dataset.to_table(filter=pc.field("dialect") == "fleximq").num_rows, 60)
        for _ in range(2):
            expireDays(self.table, [("none", 86_400.0)], _LATER)
            table = DeltaTable(self.table)
            self.assertEqual(table.version(), 4)
            found = table.to_pyarrow_dataset().to_table(filter=pc.field("dialect") == "fleximq")
            self.assertEqual(found.num_rows, 80)
        self.whole()


class DayIcebergTests(DayTests):
    """The same of an Iceberg table."""

    format = "iceberg"
    skip = noIceberg

    def test_icebergTableIsDividedByDayAndKnowsTheTopicsOfFiles(self) -> None:
        from fleximq.pipeline.lake.iceberg import catalogOf

        table = catalogOf(str(Path(self.table).parent), None).load_table(("lake", "messages"))
        self.assertEqual([field.name for field in table.spec().fields], ["date"])
        for row_filter, files in (("topic = 'z'", 4), ("topic = 'zz'", 0)):
            self.assertEqual(len(list(table.scan(row_filter).plan_files())), files)
        self.assertEqual(table.scan().to_arrow().num_rows, 80)


class RenameTests(LayoutCase):
    """A table of the version before, with names of topics as folders."""

    def record(self) -> None:
        """The version before recorded no layout."""
        Path(self.table, "_fleximq", "format").write_text(f'{{"format": "{self.format}"}}')

    def test_foldersGetAsciiNamesAndRowsStay(self) -> None:
        """All folders get names in ASCII, rows stay as they are, and batches follow; once is enough."""
        (sentence,) = lake.audit(self.table)
        self.assertIn("1 topics, such as 'größe', are in folders whose names are not ASCII", sentence)
        self.assertIn("their 20 rows under the locale C; fleximq-pipeline rename", sentence)
        self.assertEqual(rename(self.table), 16)
        self.whole()
        folders = {path.split("/")[0] for path, _ in liveFiles(self.table)}
        self.assertEqual(len(folders), 4)
        for folder in folders:
            self.assertTrue(folder.isascii() and folder.startswith("fleximq_topic="), folder)
        self.assertEqual(rename(self.table), 0)
        setFormat(self.table, {"format": self.format}, "topic")
        self.publish(4)
        self.whole(5)
        self.assertEqual({path.split("/")[0] for path, _ in liveFiles(self.table)}, folders)
        self.assertEqual([name for name in os.listdir(Path(self.table).parent) if name.startswith(".")], [])

    def test_tableInUseIsNotRenamed(self) -> None:
        with writerLock(self.table):
            error = self.assertRaises(LakeRefused, rename, self.table)
        self.assertIn("is in use: another ingest feeds it", str(error))

    def test_tableGoesOnUntilItIsRenamed(self) -> None:
        setFormat(self.table, {"format": self.format}, "topic")
        self.publish(4)
        self.assertEqual(len({path.split("/")[0] for path, _ in liveFiles(self.table)}), 4)
        self.assertEqual(len(self.rows()), 100)


class RenamePlainTests(LayoutCase):
    """A plain table of the version before, whose folders are exchanged."""

    record = RenameTests.record

    def test_crashBeforeTheExchangeChangesNothing(self) -> None:
        def broken(*_: object) -> None:
            raise Broken("it ends here")

        patched = self.patch(renaming, "exchange", broken)
        self.assertRaises(LakeRefused, rename, self.table)
        patched.restore()
        self.assertEqual(len(self.rows()), 80)
        self.assertEqual(rename(self.table), 16)
        self.whole()

    def test_folderOfAKilledRunIsNoTableAndIsRemoved(self) -> None:
        folder = Path(self.table).parent
        shutil.copytree(self.table, folder / ".messages.renaming")
        self.assertEqual(tableNames(str(folder)), ["messages"])
        for _ in range(2):
            rename(self.table)
            self.assertEqual([name for name in os.listdir(folder) if name.startswith(".")], [])
            shutil.copytree(self.table, folder / ".messages.renaming")
        self.whole()


class RenameDeltaTests(LayoutCase):
    """A Delta table of the version before, whose log has the names of topics."""

    format = "delta"
    record = RenameTests.record
    if find_spec("deltalake") is None:
        skip = "deltalake is not installed: pip install fleximq[delta]"

    def test_deltaTableIsNotRenamed(self) -> None:
        """It goes on as it was, with a sentence that says how to get another one."""
        self.assertIn("backfill fills a new table without them", lake.audit(self.table)[0])
        self.assertIn("backfill NEW --from messages", str(self.assertRaises(LakeRefused, rename, self.table)))
        setFormat(self.table, {"format": "delta"}, "topic")
        self.publish(4)
        self.assertEqual(len(self.rows()), 100)


class RenameIcebergTests(RenameTests):
    """The same of an Iceberg table."""

    format = "iceberg"
    skip = noIceberg
