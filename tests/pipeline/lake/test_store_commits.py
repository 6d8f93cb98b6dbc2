"""Commits to a table in an object store, against a model: requests fail, answers are lost, requests come late, writers
are killed, and former writers wake. Each row is there once.

The tables are plain Parquet, whose commits are ours alone. Those of Delta Lake and Iceberg are made by deltalake and
PyIceberg; :mod:`tests.pipeline.lake.test_lake_on_store` has them fail and come late in a real store.
"""

import contextlib
import logging
import os
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    import pyarrow as pa

    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake.batch_commit import STAGED, BatchCommit, exclusive
    from fleximq.pipeline.lake.compaction import compact
    from fleximq.pipeline.lake.completeness import audit
    from fleximq.pipeline.lake.expiration import expireDays
    from fleximq.pipeline.lake.live_files import liveFiles, rowGroups
    from fleximq.pipeline.lake.redecoding import redecode
    from fleximq.pipeline.lake.repair import repair
    from fleximq.pipeline.lake.storage import table_states
    from fleximq.pipeline.lake.storage.lake_files import LakeFiles
    from fleximq.pipeline.lake.storage.own_folder import OWN
    from fleximq.pipeline.lake.storage.table_states import KEPT
    from fleximq.pipeline.lake.table import lock
    from fleximq.pipeline.lake.table.columns import BASE, TableColumns, writeColumns
    from fleximq.pipeline.lake.table.format import layoutOf, setFormat
    from fleximq.pipeline.lake.table.ledger import readLedger
    from fleximq.pipeline.lake.table.lock import writerLock
    from fleximq.pipeline.lake.table.parquet_writer import StagingWriter
    from fleximq.pipeline.lake.table.table_log import BatchRange, CompactionGoal, TableFile
    from fleximq.pipeline.lake.table.table_spec import TableSpec
    from tests.pipeline.lake.store_model import AFTER, BEFORE, DONE, KILLED, LATE, Killed, StoreModel
    from tests.pipeline.lake.tables import DAY, JOURNAL, TIME, rows

#: The number of random runs, and the first one's seed; more of them, and all requests, are for a longer look.
RUNS, SEED = int(os.environ.get("FLEXIMQ_STORE_RUNS", "6")), int(os.environ.get("FLEXIMQ_STORE_SEED", "0"))
#: A test that lets something happen at each request of a process tries one in so many.
STRIDE = int(os.environ.get("FLEXIMQ_STORE_STRIDE", "7"))
#: The rows of a batch.
_SIZE = 4


class Writer:
    """An ingest as a process of its own: a generator, so that a test can stop it anywhere."""

    def __init__(self, table: str, files: "LakeFiles") -> None:
        self.table, self.files = table, files
        self._publishing = BatchCommit(table, files)

    def steps(self, batches: int) -> Iterator[str]:
        """Begin, and commit batches after those that the table has; yield after each step."""
        with writerLock(self.table, self.files):
            setFormat(self.table, {"format": "parquet"}, None, self.files)
            with exclusive(self.table, self.files):
                writeColumns(self.table, TableColumns("raw", pa.schema([])), self.files)
            ledger = self._publishing.prepare()
            yield "begun"
            for number in range(ledger.batch + 1, ledger.batch + 1 + batches):
                staged = self.stage(number)
                yield "staged"
                self.publish(number, staged)
                yield "published"

    def stage(self, number: int) -> "list[TableFile]":
        """Stage the rows of a batch, in two days."""
        folder = self.files.aside(self.table, STAGED, "writer")
        path = f"{self.table}/{OWN}/{folder}"
        writer = StagingWriter(path, BASE, JOURNAL, number, layoutOf(self.table, self.files), self.files)
        offsets = range(number * _SIZE + 1, (number + 1) * _SIZE + 1)
        writer.add(rows(offsets[:2]))
        writer.add(rows(offsets[2:], time=TIME + DAY))
        return writer.close()

    def publish(self, number: int, staged: "list[TableFile]") -> bool:
        """Commit a batch."""
        first = number * _SIZE + 1
        bounds = BatchRange(number, {JOURNAL: first}, {JOURNAL: first + _SIZE})
        return self._publishing.publish(bounds, staged, {})


class StoreCase(SynchronousTestCase):
    """``model`` is the store, ``table`` a table in it."""

    def setUp(self) -> None:
        self.model = StoreModel()
        self.table = f"{self.model.lake}/orders"

    def ingest(self, batches: int = 1, choose: "Callable[[int], str] | None" = None) -> None:
        """Run an ingest to its end."""
        files = self.model.process(choose) if choose is not None else self.model.process()
        list(Writer(self.table, files).steps(batches))

    def offsets(self) -> list[int]:
        """Return the offsets of all rows that readers see."""
        files = self.model.process()
        found = [
            offset
            for path, topic in liveFiles(self.table, files)
            for group in rowGroups(self.table, path, topic, files)
            for offset in group["offset"].to_pylist()
        ]
        return sorted(found)

    def whole(self, atLeast: int = 0) -> None:
        """Complete the table as the next ingest does, and look whether it has each row once."""
        self.ingest(1)
        files = self.model.process()
        batches = readLedger(self.table, files).batch + 1
        self.assertGreater(batches, atLeast)
        self.assertEqual(self.offsets(), list(range(1, batches * _SIZE + 1)))
        self.assertEqual(audit(self.table, files), [])


class FencingTests(StoreCase):
    """Two writers."""

    def test_formerWriterIsRefusedAndHasChangedNothing(self) -> None:
        former = Writer(self.table, self.model.process()).steps(9)
        for _ in range(4):
            next(former)
        self.ingest(2)
        error = self.assertRaises(LakeRefused, next, former)
        self.assertIn("is in use: another ingest feeds it", str(error))
        self.whole(3)

    def test_formerWriterThatWakesInACommitCannotFinishItTwice(self) -> None:
        """At each of its requests another ingest takes over, and goes on; then the former wakes."""
        for last in range(1, 400, STRIDE):
            self.setUp()
            done: list[bool] = []

            def pause(number: int, last: int = last, done: list[bool] = done) -> str:
                if number == last:
                    self.ingest(2)
                    done.append(True)
                return DONE

            try:
                self.ingest(2, pause)
                ended = True
            except LakeRefused:
                ended = False
            if not done:
                break
            self.whole(3 if ended else 2)
        self.assertGreater(last, 20)

    def test_lateWriterWhoseNumberWasDeletedIsRefused(self) -> None:
        """Its next number can be created again, but the others are far ahead."""
        self.ingest()
        former = self.model.process()
        with exclusive(self.table, former):
            other = self.model.process()
            states = other.store(self.table).states  # type: ignore[union-attr]
            other.store(self.table).remove(f"{self.table}/{OWN}/lock")  # type: ignore[union-attr]
            for number in range(KEPT + 9):
                states.write(self.table, "behind", b"[%d]" % number)
            self.assertRaises(LakeRefused, former.writeOwn, self.table, "behind", b'["former"]')
        self.assertEqual(other.readOwn(self.table, "behind"), b"[%d]" % (KEPT + 8))

    def test_ofTwoWritersThatReadOneStateOneCommits(self) -> None:
        self.ingest()
        former, other = self.model.process(), self.model.process()
        with exclusive(self.table, former):
            other.remove(f"{self.table}/{OWN}/lock")
            other.writeOwn(self.table, "behind", b'["other"]')
            self.assertRaises(LakeRefused, former.writeOwn, self.table, "behind", b'["former"]')
        self.assertEqual(former.readOwn(self.table, "behind"), b'["other"]')

    def test_formerWriterDeletesOnlyItsOwnStagedFiles(self) -> None:
        """It was paused between its commit and the deletion of what it has staged."""
        former = Writer(self.table, self.model.process())
        steps = former.steps(2)
        for _ in range(3):
            next(steps)
        other = Writer(self.table, self.model.process()).steps(1)
        for _ in range(2):
            next(other)
        former._publishing.removeStaged()
        self.assertEqual(next(other), "published")
        self.whole(1)

    def test_oldNumbersAreDeleted(self) -> None:
        self.ingest()
        files = self.model.process()
        for number in range(KEPT + 20):
            files.writeOwn(self.table, "behind", b"[%d]" % number)
        self.assertLessEqual(len(files.names(f"{self.table}/{OWN}/state")), KEPT + 1)


class BusyTests(StoreCase):
    """Other processes that change the table, but do not feed it."""

    def test_changeThatComesBetweenIsNoEnd(self) -> None:
        """At each request another process takes the lock away, as after a long pause, and changes the table."""
        self.patch(lock, "_log", logging.Logger("silent", logging.CRITICAL))
        for last in range(1, 400, STRIDE):
            self.setUp()
            done: list[bool] = []
            files = self.model.process()
            writer = Writer(self.table, files).steps(2)
            next(writer)
            client = files.store(self.table)._client  # type: ignore[union-attr]
            client.requests = 0

            def disturb(number: int, last: int = last, done: list[bool] = done) -> str:
                if number == last:
                    other = self.model.process()
                    with contextlib.suppress(FileNotFoundError):
                        other.remove(f"{self.table}/{OWN}/lock")
                    with exclusive(self.table, other):
                        other.writeOwn(self.table, "behind", b'["other"]')
                    done.append(True)
                return DONE

            client._choose = disturb
            self.assertEqual(list(writer), ["staged", "published"] * 2)
            if not done:
                break
            self.whole(2)
        self.assertGreater(last, 20)

    def test_lockOfALivingProcessIsRenewed(self) -> None:
        """However slow its store is."""
        self.ingest()
        self.patch(table_states, "LEASE", 0.01)
        files, renewed = self.model.process(), threading.Event()
        store = files.store(self.table)
        put = store.put  # type: ignore[union-attr]

        def renew(path: str, content: bytes) -> None:
            put(path, content)
            renewed.set()

        self.patch(store, "put", renew)
        with exclusive(self.table, files):
            before = store.get(f"{self.table}/{OWN}/lock")  # type: ignore[union-attr]
            for _ in range(2):
                self.assertTrue(renewed.wait(60))
                renewed.clear()
            self.assertNotEqual(store.get(f"{self.table}/{OWN}/lock"), before)  # type: ignore[union-attr]
        self.assertFalse(files.exists(f"{self.table}/{OWN}/lock"))


class FailureTests(StoreCase):
    """Single requests of one writer, which is followed by another."""

    def each(self, fate: str) -> None:
        """Let each request of an ingest meet this fate in turn."""
        for last in range(1, 400, STRIDE):
            self.setUp()
            met: list[bool] = []

            def choose(number: int, last: int = last, met: list[bool] = met) -> str:
                if number != last:
                    return DONE
                met.append(True)
                return fate

            with contextlib.suppress(LakeRefused, OSError, Killed):
                self.ingest(2, choose)
            self.model.deliver()
            if not met:
                break
            self.whole()
        self.assertGreater(last, 20)

    def test_requestThatFails(self) -> None:
        self.each(BEFORE)

    def test_answerThatIsLost(self) -> None:
        self.each(AFTER)

    def test_requestThatIsDoneLater(self) -> None:
        self.each(LATE)

    def test_kill(self) -> None:
        self.each(KILLED)

    def test_creationThatIsDoneAfterTheWriterHasGivenUpCannotCommitWhatItHasDeleted(self) -> None:
        """All attempts at the record of a batch are late; the writer goes on, and deletes the staged files."""
        files = self.model.process()
        writer = Writer(self.table, files)
        steps = writer.steps(2)
        next(steps)
        next(steps)
        client = files.store(self.table)._client  # type: ignore[union-attr]
        client._choose = lambda number: LATE if "/state/" in client.path else DONE
        self.assertRaises(LakeRefused, next, steps)
        client._choose = lambda number: DONE
        with exclusive(self.table, files):
            writer._publishing.removeStaged()
        self.model.deliver()
        self.whole()

    def test_copyThatIsDoneAfterItsFileWasMergedBringsNothingBack(self) -> None:
        """The next writer has copied the staged file itself and deleted it, so the late copy has no source."""
        files = self.model.process()
        steps = Writer(self.table, files).steps(2)
        next(steps)
        next(steps)
        client = files.store(self.table)._client  # type: ignore[union-attr]
        client._choose = lambda number: LATE if f"/{STAGED}-" in client.path else DONE
        self.assertRaises(LakeRefused, next, steps)
        self.ingest(3)
        other = self.model.process()
        self.assertEqual(len(list(compact(self.table, CompactionGoal(1 << 20, -1e9, 2), other))), 2)
        before = list(other.visible(self.table))
        self.assertNotEqual(self.model._late, [])
        self.model.deliver()
        self.assertEqual(list(other.visible(self.table)), before)
        self.whole(3)


class RandomTests(StoreCase):
    """Several ingests, compactors and expiries in random order, with random failures."""

    def test_eachRowIsThereOnce(self) -> None:
        for seed in range(SEED, SEED + RUNS):
            self.setUp()
            try:
                self.campaign(random.Random(seed))
            except BaseException:
                print("seed", seed)
                raise

    def campaign(self, chance: random.Random) -> None:
        """Let writers begin, go on, be killed, and wake."""
        writers: list[Iterator[Any]] = []

        def choose(number: int) -> str:
            if chance.random() > 0.05:
                return DONE
            return chance.choice([BEFORE, AFTER, LATE, KILLED])

        for _ in range(chance.randrange(3, 30)):
            what = chance.random()
            if what < 0.25 or not writers:
                writers.append(Writer(self.table, self.model.process(choose)).steps(5))
            elif what < 0.35:
                self.model.deliver()
            elif what < 0.5:
                writers.append(compact(self.table, CompactionGoal(1 << 20, 0.0, 2), self.model.process(choose)))
            place = chance.randrange(len(writers))
            with contextlib.suppress(LakeRefused, OSError, Killed, StopIteration):
                next(writers[place])
        writers.clear()
        self.model.deliver()
        with contextlib.suppress(LakeRefused):
            list(compact(self.table, CompactionGoal(1 << 20, 0.0, 2), self.model.process()))
        self.whole()


class ChangeTests(StoreCase):
    """What other jobs do."""

    def test_killedCompactionLosesNothing(self) -> None:
        for last in range(1, 400, STRIDE):
            self.setUp()
            self.ingest(4)
            met: list[bool] = []

            def choose(number: int, last: int = last, met: list[bool] = met) -> str:
                if number == last:
                    met.append(True)
                    return KILLED
                return DONE

            with contextlib.suppress(Killed):
                list(compact(self.table, CompactionGoal(1 << 20, 0.0, 2), self.model.process(choose)))
            self.whole(4)
            if not met:
                break
        self.assertEqual(len(liveFiles(self.table, self.model.process())), 4)

    def test_formerCompactorThatWakesChangesNothing(self) -> None:
        for last in range(1, 400, STRIDE):
            self.setUp()
            self.ingest(4)
            done: list[bool] = []

            def pause(number: int, last: int = last, done: list[bool] = done) -> str:
                if number == last:
                    list(compact(self.table, CompactionGoal(1 << 20, 0.0, 2), self.model.process()))
                    self.ingest(1)
                    done.append(True)
                return DONE

            with contextlib.suppress(LakeRefused):
                list(compact(self.table, CompactionGoal(1 << 20, 0.0, 2), self.model.process(pause)))
            self.whole(5 if done else 4)
            if not done:
                break

    def test_expiredRowsStayCounted(self) -> None:
        self.ingest(2)
        files = self.model.process()
        gone = expireDays(self.table, [(None, 86_400.0)], (TIME + 2 * DAY) / 1e6, files)
        self.assertEqual([each.partition for each in gone], ["date=2023-11-14"])
        self.assertEqual(self.offsets(), [3, 4, 7, 8])
        (covered,) = readLedger(self.table, files).journals.values()
        self.assertEqual((covered.rows, covered.expired), (4, 4))
        self.assertEqual(audit(self.table, files), [])


class ProbeTests(StoreCase):
    """A store that cannot keep writers apart."""

    def spoil(self) -> None:
        """Let it replace objects from now on."""
        real = self.model.memory.pipe_file

        def pipe(path: str, content: bytes, mode: str = "") -> None:
            real(path, content)

        self.patch(self.model.memory, "pipe_file", pipe)

    def test_eachJobIsRefusedBeforeItWrites(self) -> None:
        self.ingest(1)
        self.spoil()
        jobs = {
            "repair": lambda files: repair(self.table, files),
            "compact": lambda files: list(compact(self.table, CompactionGoal(1 << 20, 0.0, 2), files)),
            "expire": lambda files: expireDays(self.table, [(None, 86_400.0)], (TIME + 9 * DAY) / 1e6, files),
            "redecode": lambda files: list(redecode(self.table, TableSpec("orders"), files)),
        }
        before = set(self.model.memory.store)
        for name, job in jobs.items():
            error = self.assertRaises(LakeRefused, job, self.model.process())
            self.assertIn("--single-writer", str(error), name)
            self.assertEqual(set(self.model.memory.store), before, name)

    def test_storeThatReplacesObjectsIsRefusedInOneSentence(self) -> None:
        files = self.model.process()
        self.spoil()
        error = self.assertRaises(LakeRefused, list, Writer(self.table, files).steps(1))
        self.assertIn("--single-writer if only one process ever writes this lake", str(error))
        self.assertEqual(files.names(f"{self.table}/date=2023-11-14"), [])
        store = files.store(self.table)
        assert store is not None
        self.patch(type(store), "isAlone", True)
        self.ingest(2)
        self.assertEqual(self.offsets(), list(range(1, 2 * _SIZE + 1)))

    def test_storeThatDoesNotListWhatItHasIsRefused(self) -> None:
        """As one that takes some characters of a name for others: each ingest would be the first one."""
        files = self.model.process()
        client = files.store(self.table)._client  # type: ignore[union-attr]
        self.patch(client._model.memory, "ls", lambda *_, **__: [])
        error = self.assertRaises(LakeRefused, list, Writer(self.table, files).steps(1))
        self.assertIn("does not list what was written there", str(error))
