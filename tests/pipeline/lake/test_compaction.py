"""Small files become large ones; whatever happens in between, every row is there once."""

import errno
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.pipeline.lake.storage.lake_files import FILES
from tests.pipeline.installed import missing as skip

if not skip:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake import audit, compaction
    from fleximq.pipeline.lake.batch_commit import BatchCommit
    from fleximq.pipeline.lake.compaction import compact, exchange
    from fleximq.pipeline.lake.table import file_merge
    from fleximq.pipeline.lake.table.columns import BASE, TableColumns, writeColumns
    from fleximq.pipeline.lake.table.file_merge import groupsOf, lastListed, partsOf
    from fleximq.pipeline.lake.table.lock import compactorLock as locked
    from fleximq.pipeline.lake.table.parquet_writer import Span, fileMetadata
    from fleximq.pipeline.lake.table.table_log import BatchRange, CompactionGoal
    from tests.pipeline.lake.tables import DAY, JOURNAL, TIME, Failing, commit, offsetsIn, rows, stage

    #: All that there is is joined, however new it is.
    AT_ONCE = CompactionGoal(1 << 20, -1e9, 2)


class CompactCase(SynchronousTestCase):
    """``table`` has twelve batches, each with rows of one topic for two days; rows from 1 to 60."""

    def setUp(self) -> None:
        self.table = str(Path(self.mktemp()).absolute() / "lake" / "messages")
        self.publishing = BatchCommit(self.table)
        self.publishing.prepare()
        self.batches = 0
        for _ in range(12):
            self.publish()

    def publish(self) -> None:
        """Publish five more rows."""
        start = self.batches * 5 + 1
        batches = rows(range(start, start + 3)), rows(range(start + 3, start + 5), time=TIME + DAY)
        commit(self.table, self.batches, *batches)
        self.batches += 1

    @property
    def all(self) -> list[int]:
        """All offsets that were published."""
        return list(range(1, self.batches * 5 + 1))

    def files(self) -> list[Path]:
        """Return the files that a reader sees."""
        return [path for path in sorted(Path(self.table).rglob("*.parquet")) if "_fleximq" not in path.parts]

    def whole(self) -> None:
        """See that every row is there once, as the ledger says."""
        self.assertEqual(offsetsIn(self.table), self.all)
        self.assertEqual(audit(self.table), [])


class CompactTests(CompactCase):
    """What there is afterwards."""

    def test_eachPartitionBecomesOneFileInOrder(self) -> None:
        done = list(compact(self.table, AT_ONCE))
        self.assertEqual([each[1:] for each in done], [(12, 1), (12, 1)])
        self.assertEqual(len(self.files()), 2)
        self.whole()
        first = pq.read_table(str(self.files()[0]), partitioning=None)
        offsets = first.column("offset").to_pylist()
        self.assertEqual(offsets, sorted(offsets))
        self.assertEqual(len(offsets), 36)
        self.assertFalse(os.path.exists(f"{self.table}/_fleximq/compacting"))

    def test_joinedFilesAreSyncedAfterAllTheirBytes(self) -> None:
        synced: set[tuple[int, int]] = set()

        def sync(descriptor: int) -> None:
            found = os.fstat(descriptor)
            synced.add((found.st_ino, found.st_size))

        self.patch(os, "fdatasync", sync)
        list(compact(self.table, AT_ONCE))
        self.assertLessEqual({(found.st_ino, found.st_size) for found in map(os.stat, self.files())}, synced)

    def test_compactedFilesStayAndLaterOnesAreJoined(self) -> None:
        list(compact(self.table, AT_ONCE))
        self.assertEqual(list(compact(self.table, AT_ONCE)), [])
        self.publish()
        self.assertEqual([each.before for each in compact(self.table, AT_ONCE)], [2, 2])
        self.whole()

    def test_recentlyChangedPartitionIsLeftAloneUnlessItHasManyFiles(self) -> None:
        self.assertEqual(list(compact(self.table, CompactionGoal())), [])
        self.assertEqual(len(list(compact(self.table, CompactionGoal(many=12)))), 2)
        self.publish()
        late = os.stat(self.files()[0]).st_mtime + 3601
        self.assertEqual(len(list(compact(self.table, CompactionGoal(), now=late))), 2)
        self.whole()

    def test_filesOfHalfTheGoalStay(self) -> None:
        """Files of half the size that is wanted stay as they are, and no more are joined than make one."""
        size = max(path.stat().st_size for path in self.files())
        self.assertEqual(
            list(compact(self.table, CompactionGoal(2 * min(p.stat().st_size for p in self.files()), -1e9, 2))), []
        )
        done = list(compact(self.table, CompactionGoal(4 * size + 1, -1e9, 2)))
        self.assertEqual({each.after for each in done}, {3})
        self.whole()

    def test_rowsOfTwoJournalsAreNotJoined(self) -> None:
        other = "f" * 32
        for number in range(3):
            batch = rows([number + 1], journal=[other])
            found = [each._replace(journal=other) for each in stage(self.table, batch, batch=self.batches)]
            path = f"{self.table}/_fleximq/staged/{found[0].path}"
            table = pq.read_table(path)
            with pq.ParquetWriter(path, BASE) as writer:
                writer.write_table(table)
                span = Span(other, number + 1, number + 1, 1, self.batches)
                writer.add_key_value_metadata(fileMetadata([span], "t"))
            self.publishing.publish(BatchRange(self.batches, {other: number + 1}, {other: number + 2}), found, {})
            self.batches += 1
        self.assertEqual([each[1:] for each in compact(self.table, AT_ONCE)], [(15, 2), (12, 1)])
        self.assertEqual(audit(self.table), [])

    def test_earlierFilesGetNewColumnsEmpty(self) -> None:
        schema = pa.schema([*BASE, ("added", pa.int64())])
        writeColumns(self.table, TableColumns("json", pa.schema([("added", pa.int64())])))
        commit(self.table, 12, rows([61], schema=schema, added=[5]), schema=schema)
        list(compact(self.table, AT_ONCE))
        joined = pq.read_table(str(self.files()[0]), partitioning=None)
        self.assertEqual(joined.column("added").to_pylist(), [None] * 36 + [5])
        self.assertEqual(audit(self.table), [])

    def test_joinedFileHasTheNameThatIsListedLast(self) -> None:
        """The joined file has the name of the one that a listing gives last, and never looks like it from before."""
        folder = f"{self.table}/topic=t/date=2023-11-14"
        order = os.listdir(folder)
        (group,) = groupsOf(partsOf(folder, FILES), 1 << 20)
        self.assertEqual(lastListed(group).name, order[-1])
        sizes = {part.bytes for part in group}
        list(compact(self.table, AT_ONCE))
        (path,) = [path for path in self.files() if path.parent == Path(folder)]
        self.assertEqual(path.name, order[-1])
        content = path.read_bytes()
        for size in sizes:
            self.assertNotEqual(content[size - 4 : size], b"PAR1")

    def test_foreignFileIsAnErrorThatNamesThePartition(self) -> None:
        Path(self.table, "topic=t/date=2023-11-14/x.parquet").write_bytes(b"nothing")
        error = self.assertRaises(LakeRefused, list, compact(self.table, AT_ONCE))
        self.assertIn("has a file of another origin in topic=t/date=2023-11-14", str(error))


class MeanwhileTests(CompactCase):
    """What others do at the same time."""

    def during(self, what: Any) -> None:
        """Let something happen when a partition has been written anew, before it is exchanged."""
        wrote = file_merge.merge

        def join(*arguments: Any, **more: Any) -> int:
            size = wrote(*arguments, **more)
            what()
            return size

        self.patch(compaction, "merge", join)

    def test_batchDuringACompactionStays(self) -> None:
        self.during(self.publish)
        self.assertEqual(len(list(compact(self.table, AT_ONCE))), 2)
        self.whole()
        self.assertEqual(len(self.files()), 5)

    def test_begunBatchIsFinishedFirst(self) -> None:
        start = self.batches * 5 + 1
        found = stage(self.table, rows(range(start, start + 5)), batch=self.batches)
        batch = BatchRange(self.batches, {JOURNAL: start}, {JOURNAL: start + 5})
        broken = BatchCommit(self.table, Failing(6))
        self.assertRaises(LakeRefused, broken.publish, batch, found, {})
        self.batches += 1
        begun = os.path.exists(f"{self.table}/_fleximq/record")
        list(compact(self.table, AT_ONCE))
        self.publishing.publish(batch, [] if begun else found, {})
        self.whole()
        self.assertEqual(self.publishing.publish(batch, [], {}), False)
        self.whole()

    def test_partitionWithAMissingFileIsNotExchanged(self) -> None:
        victim = self.files()[0]
        self.during(partial(victim.unlink, missing_ok=True))
        self.assertEqual([each.partition[-2:] for each in compact(self.table, AT_ONCE)], ["15"])
        self.assertEqual(offsetsIn(self.table), [offset for offset in self.all if offset > 3])

    def test_secondCompactionIsRefused(self) -> None:
        with locked(self.table):
            error = self.assertRaises(LakeRefused, list, compact(self.table, AT_ONCE))
        self.assertIn("is in use: another run compacts or redecodes it", str(error))


class ListingTests(CompactCase):
    """A reader that, as Hadoop does, takes the names in a folder and then asks for the size of one after the other."""

    def look(self, before: int) -> list[int] | None:
        """Return the offsets that are found by who asks for so many sizes before the exchange; None: a file is gone."""
        folder = f"{self.table}/topic=t/date=2023-11-14"
        names = os.listdir(folder)
        sizes = {name: os.stat(f"{folder}/{name}").st_size for name in names[:before]}
        list(compact(self.table, AT_ONCE))
        for name in names[before:]:
            if os.path.exists(f"{folder}/{name}"):
                sizes[name] = os.stat(f"{folder}/{name}").st_size
        found: list[int] = []
        for name, size in sizes.items():
            if not os.path.exists(f"{folder}/{name}"):
                return None
            content = Path(folder, name).read_bytes()[:size]
            try:
                found += pq.read_table(pa.BufferReader(content)).column("offset").to_pylist()
            except pa.ArrowInvalid:
                return None
        return sorted(found)

    def test_listingDuringAnExchangeFindsAllRowsOrAMissingFile(self) -> None:
        expected = [offset for offset in self.all if (offset - 1) % 5 < 3]
        self.assertEqual(self.look(0), expected)
        for before in range(1, 13):
            self.setUp()
            self.assertIsNone(self.look(before), before)


class CrashTests(CompactCase):
    """The process ends at any step; nothing is cleaned up."""

    def crash(self, work: Any) -> bool:
        """Compact until it breaks; True if it did."""
        remove: Any = shutil.rmtree

        def unlessBroken(path: str, **more: Any) -> None:
            if sys.exc_info()[0] is None:
                remove(path, **more)

        patched = self.patch(shutil, "rmtree", unlessBroken)
        try:
            work()
            return False
        except LakeRefused:
            return True
        finally:
            patched.restore()

    def compactWith(self, files: "Failing") -> None:
        """Compact through these files."""
        list(compact(self.table, AT_ONCE, files))

    def after(self) -> None:
        """See that all is there, and that compacting goes on."""
        self.whole()
        list(compact(self.table, AT_ONCE))
        self.whole()
        self.assertEqual(len(self.files()), 2)
        self.assertFalse(os.path.exists(f"{self.table}/_fleximq/compacting"))

    def test_crashAtAnyChangeOfFilesLeavesEachRowOnce(self) -> None:
        for step in range(100):
            files = Failing(step)
            broke = self.crash(partial(self.compactWith, files))
            self.after()
            if not broke:
                break
            self.setUp()
        self.assertEqual(step, 6)

    def test_crashAtMergeOrExchangeLeavesEachRowOnce(self) -> None:
        for name in ("merge", "exchange"):
            real = getattr(compaction, name)

            def before(*arguments: Any, **more: Any) -> None:
                raise OSError(errno.EIO, "it ends here")

            def behind(*arguments: Any, real: Any = real, **more: Any) -> None:
                real(*arguments, **more)
                raise OSError(errno.EIO, "it ends here")

            for broken in (before, behind):
                patched = self.patch(compaction, name, broken)
                self.assertTrue(self.crash(lambda: list(compact(self.table, AT_ONCE))), name)
                patched.restore()
                self.whole()
        self.after()

    def test_crashAtALinkLeavesEachRowOnce(self) -> None:
        list(compact(self.table, AT_ONCE))
        Path(self.table, "topic=t/date=2023-11-14/_stays").touch()
        self.publish()

        def link(*arguments: Any) -> None:
            raise OSError(errno.ENOSPC, "it ends here")

        patched = self.patch(os, "link", link)
        self.assertTrue(self.crash(lambda: list(compact(self.table, AT_ONCE))))
        patched.restore()
        self.after()
        self.assertTrue(Path(self.table, "topic=t/date=2023-11-14/_stays").exists())


class ExchangeTests(SynchronousTestCase):
    """Two folders change places."""

    def test_foldersChangePlacesOrNeitherChanges(self) -> None:
        parent = Path(self.mktemp())
        for name in ("a", "b"):
            (parent / name).mkdir(parents=True)
            (parent / name / name).touch()
        exchange(f"{parent}/a", f"{parent}/b")
        self.assertEqual((os.listdir(parent / "a"), os.listdir(parent / "b")), (["b"], ["a"]))
        error = self.assertRaises(OSError, exchange, f"{parent}/a", f"{parent}/c")
        self.assertEqual(error.errno, errno.ENOENT)
