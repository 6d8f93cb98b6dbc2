"""A table of the latest rows has them after any changes, and after a crash at any step of a change."""

import os
import time
from collections.abc import Sequence
from typing import Any

from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from tests.pipeline.lake.upserts.state_case import StateCase, skip

if not skip:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from fleximq.pipeline.errors import LakeRefused, OptionRefused, PipelineError
    from fleximq.pipeline.lake import audit, delta_log
    from fleximq.pipeline.lake.backfill import backfill, tableSource
    from fleximq.pipeline.lake.batch_commit import exclusive
    from fleximq.pipeline.lake.compaction import compact
    from fleximq.pipeline.lake.expiration import expireDays
    from fleximq.pipeline.lake.iceberg import iceberg_log
    from fleximq.pipeline.lake.iceberg.data_files import dataFilesOf
    from fleximq.pipeline.lake.live_files import liveFiles, logOf
    from fleximq.pipeline.lake.redecoding import redecode
    from fleximq.pipeline.lake.table.ledger import readLedger
    from fleximq.pipeline.lake.table.table_log import CompactionGoal
    from fleximq.pipeline.lake.table.table_spec import tableOf
    from fleximq.pipeline.lake.upserts import bucket_merge, state_ingest, state_table
    from tests.pipeline.lake.tables import crashes


class StateIngestTests(StateCase):
    """In Delta Lake."""

    def test_tableHasTheLatestRowOfEachKey(self) -> None:
        self.put(b"a")
        self.put(b"b")
        self.put(b"a")
        self.assertEqual([each.records for each in self.advance()], [3])
        self.look()
        self.put(b"b", colour="red")
        self.put(b"c")
        self.advance()
        self.look()
        self.assertEqual(sorted(self.rows()["colour"].to_pylist(), key=str), [None, None, "red"])

    def test_emptyPayloadsAndNullRemoveTheRowOfTheirKey(self) -> None:
        nothings: list[bytes] = [b"", b"null", b" \n", b"null\n"]
        for place in range(len(nothings)):
            self.put(b"%d" % place)
        self.put(b"stays")
        self.advance()
        for place, nothing in enumerate(nothings):
            self.change(b"%d" % place, nothing)
            del self.model[b"%d" % place]
        self.change(b"unknown", b"")
        self.advance()
        self.look()

    def test_keyThatWasRemovedCanReturn(self) -> None:
        self.put(b"a")
        self.advance()
        self.remove(b"a")
        self.advance()
        self.look()
        self.assertEqual(liveFiles(self.table), [])
        self.put(b"a")
        self.advance()
        self.look()

    def test_messagesWithoutKeyAndThoseThatDoNotFitAreDeadLetters(self) -> None:
        self.put(b"a")
        self.dead = [self.change(None, {"n": 1}), self.change(b"a", b"{"), self.change(None, b"")]
        (done,) = self.advance()
        self.assertEqual((done.records, done.dead, done.reason), (4, 3, "the message has no key"))
        self.look()
        rows = self.rows().sort_by("offset")
        dead = rows.filter(rows["reason"].is_valid())
        self.assertEqual(set(dead["topic"].to_pylist()), {"devices.a~dlq"})
        self.assertEqual(dead["reason"].to_pylist()[2], "an empty message removes the row of its key, but has none")
        self.dead.append(self.change(None, {"n": 1}))
        self.advance()
        self.look()
        self.assertEqual(len(liveFiles(self.table)), 2)

    def test_randomChangesInSmallBucketsAreThoseOfTheModel(self) -> None:
        self.patch(bucket_merge, "BUCKET_BYTES", 4000)
        self.patch(state_table, "CHANGE_BYTES", 10_000)
        self.patch(state_ingest, "SLICE_BYTES", 3_000)
        for _ in range(12):
            self.some(self.chance.randrange(1, 120), keys=200)
            self.advance()
            self.look()
        self.assertGreater(len(liveFiles(self.table)), 5)

    def test_endAfterAnyChangeLosesNothing(self) -> None:
        self.patch(state_table, "CHANGE_BYTES", 10_000)
        self.patch(state_ingest, "SLICE_BYTES", 5_000)
        self.some(1000, keys=300)
        changes = last = 0
        while last < self.written.next:
            with self.opened() as ingest:
                last = next(ingest.advance(ingest.specs[0])).next
            changes += 1
        self.assertGreater(changes, 5)
        self.look()

    def test_firstKeysCanBeRemovedAndReturn(self) -> None:
        self.patch(bucket_merge, "BUCKET_BYTES", 4000)
        for place in range(100):
            self.put(b"k%02d" % place)
        self.advance()
        for place in range(50):
            self.remove(b"k%02d" % place)
        self.advance()
        self.look()
        for place in range(100):
            self.put(b"k%02d" % place)
            self.put(b"a%02d" % place)
        self.advance()
        self.look()
        for place in range(100):
            self.put(b"a%02d" % place)
        self.advance()
        self.look()

    def test_auditFindsAKeyThatIsThereTwice(self) -> None:
        self.put(b"a")
        self.put(b"b")
        self.advance()
        (path, _), *_ = liveFiles(self.table)
        with pq.ParquetFile(f"{self.table}/{path}") as file:
            rows, metadata = file.read(), file.metadata.metadata
        twice = rows.take([0, 0]).replace_schema_metadata(
            {name: value for name, value in metadata.items() if name.startswith(b"fleximq.")}
        )
        pq.write_table(twice, f"{self.table}/{path}")
        (sentence,) = audit(self.table)
        self.assertIn("has keys twice, out of order", sentence)

    def test_onlyBucketsWithChangedKeysAreWrittenAgain(self) -> None:
        self.patch(bucket_merge, "BUCKET_BYTES", 4000)
        for place in range(100):
            self.put(b"k%02d" % place)
        self.advance()
        before = {path for path, _ in liveFiles(self.table)}
        self.assertGreater(len(before), 4)
        self.put(b"k50")
        self.advance()
        self.look()
        self.assertEqual(len(before - {path for path, _ in liveFiles(self.table)}), 1)

    def test_firstChangesMayOnlyRemoveKeys(self) -> None:
        self.remove(b"a")
        self.advance()
        self.put(b"a")
        self.advance()
        self.look()

    def test_otherJobsLeaveTheTableAsItIs(self) -> None:
        self.some(50)
        self.advance()
        before = liveFiles(self.table)
        self.assertEqual(list(compact(self.table, CompactionGoal(1 << 20, 0.0, 1))), [])
        self.assertEqual(expireDays(self.table, [(None, 0.0)], 2e9), [])
        for work in (
            lambda: list(redecode(self.table, self.spec)),
            lambda: list(backfill(self.lake, self.spec, [], False)),
            lambda: tableSource(self.lake, "state", self.spec),
        ):
            self.assertIn("has only the latest row of each key", str(self.assertRaises(LakeRefused, work)))
        self.assertEqual(liveFiles(self.table), before)
        self.look()

    def test_replacedFilesStayForAnHour(self) -> None:
        self.put(b"a")
        self.advance()
        self.put(b"a")
        self.advance()
        (live,) = [path for path, _ in liveFiles(self.table)]
        log = logOf(self.table)
        assert log is not None
        log.cleanUp(time.time(), FILES, lambda: exclusive(self.table))
        self.assertEqual(len(os.listdir(f"{self.table}/keys")), 2)
        self.patch(delta_log, "REPLACED_HOURS", 0)
        log.cleanUp(time.time() + 3700, FILES, lambda: exclusive(self.table))
        self.assertEqual(os.listdir(f"{self.table}/keys"), [os.path.basename(live)])
        self.look()

    def test_removalOfAnUnknownKeyChangesNoFile(self) -> None:
        self.put(b"a")
        self.advance()
        before = liveFiles(self.table)
        self.remove(b"b")
        self.advance()
        self.assertEqual(liveFiles(self.table), before)
        self.look()

    def test_crashAtAnyStepRepeatsAndLosesNothing(self) -> None:
        self.patch(bucket_merge, "BUCKET_BYTES", 4000)
        self.some(100)
        self.dead.append(self.change(None, {}))
        self.advance()
        self.some(60)
        self.dead.append(self.change(None, {}))
        for _ in crashes(self.advance, 10):
            # Whatever was published meanwhile is in the next change.
            self.some(2)
        self.look()
        self.assertEqual(os.listdir(f"{self.table}/_fleximq/upserting"), [])

    def test_rowsOfTheFieldReplaceOthersAndMessageKeysRemoveThem(self) -> None:
        self.words = "state=devices.#:json:upsert(id)"
        big = 2**53
        for number in (big, big + 1, 7):
            self.change(None, {"id": number, "n": 0})
        last = self.change(None, {"id": 7, "n": 1})
        self.advance()
        self.change(b"%d" % (big + 1), b"")
        self.advance()
        found = sorted((row["id"], row["n"]) for row in self.rows().select(["id", "n"]).to_pylist())
        self.assertEqual(found, [(7, 1), (big, 0)])
        self.assertEqual(max(self.rows()["offset"].to_pylist()), last)
        nested = self.change(None, {"id": None, "n": 2})
        (done,) = self.advance()
        self.assertEqual(
            (done.dead, done.reason), (1, "the payload has no single value 'id', by which rows replace others")
        )
        self.assertIn(nested, self.rows()["offset"].to_pylist())

    def test_tableByTopicHasTheLastMessageOfEach(self) -> None:
        self.words = "state=devices.#:raw:upsert(topic)"
        for topic in ("devices.a", "devices.b", "devices.a"):
            last = self.change(None, b"x", topic)
        self.change(None, b"", "devices.b")
        self.advance()
        self.assertEqual(self.rows().select(["topic", "offset"]).to_pylist(), [{"topic": "devices.a", "offset": last}])

    def test_journalsHaveRowsOfTheirOwn(self) -> None:
        """Offsets of two journals cannot be compared."""
        self.put(b"a")
        self.advance()
        first, self.written = self.written, type(self.written)(self.mktemp())
        self.put(b"a")
        self.advance()
        self.assertEqual(self.rows().num_rows, 2)
        self.assertEqual(set(readLedger(self.table).journals), {first.id, self.written.id})

    def test_recordsThatAreGoneEndItOrAreAGap(self) -> None:
        self.put(b"a")
        self.advance()
        for _ in range(800):
            self.put(b"b")
        for name in sorted(name for name in os.listdir(self.written.folder) if name.endswith(".fxj"))[:1]:
            os.unlink(f"{self.written.folder}/{name}")
        self.assertRaises(PipelineError, self.advance)
        self.advance(failOnDataLoss="false")
        self.look()
        (covered,) = readLedger(self.table).journals.values()
        self.assertTrue(covered.gaps[0].lost)

    def test_anotherKeyOrKindOfTableIsRefused(self) -> None:
        self.put(b"a")
        self.advance()
        self.words = "state=devices.#:json:upsert(id)"
        self.assertIn(
            "has upsert(key) and cannot go on with upsert(id)", str(self.assertRaises(LakeRefused, self.advance))
        )

    def test_fileOfAnotherOriginIsRefused(self) -> None:
        self.put(b"a")
        self.advance()
        (path, _), *_ = liveFiles(self.table)
        rows = pq.read_table(f"{self.table}/{path}", partitioning=None)
        pq.write_table(rows, f"{self.table}/{path}")
        self.put(b"a")
        self.assertIn("has a file of another origin", str(self.assertRaises(LakeRefused, self.advance)))


class IcebergStateTests(StateIngestTests):
    """The same in Iceberg."""

    tableFormat = "iceberg"


class RefusedRowTests(StateCase):
    """A log that refuses rows for a cause that nothing knows before; here those with ``n`` -1."""

    tableFormat = "iceberg"

    def setUp(self) -> None:
        super().setUp()
        self.tries, self.isPoison = 0, True

        def described(found: Any, paths: Sequence[str], files: LakeFiles) -> list[Any]:
            self.tries += 1
            for path in paths:
                values = pq.read_table(path.removeprefix("file://"), columns=["n"]).column("n").to_pylist()
                if self.isPoison and -1 in values:
                    raise ValueError("it is poison")
            return dataFilesOf(found, paths)

        self.patch(iceberg_log, "dataFilesOf", described)

    def poison(self, key: bytes) -> None:
        """Publish a row that is refused."""
        self.dead.append(self.change(key, {"n": -1}))

    def test_onlyGuiltyRowsBecomeDeadLetters(self) -> None:
        """They replace no row, neither one of the table nor one of the same change."""
        self.put(b"a")
        self.put(b"b")
        self.advance()
        self.poison(b"a")
        self.put(b"c")
        self.poison(b"c")
        self.remove(b"b")
        self.poison(b"new")
        self.some(30)
        (done,) = self.advance()
        self.assertEqual((done.dead, done.reason), (3, "the table cannot take it: it is poison"))
        self.look()
        self.assertLess(self.tries, 40)
        self.put(b"a")
        self.advance()
        self.look()
        dead = self.rows().filter(pc.field("reason").is_valid())
        self.assertEqual(set(dead["topic"].to_pylist()), {"devices.a~dlq"})
        self.assertEqual([bytes(each) for each in dead["value"].to_pylist()], [b'{"n":-1}'] * 3)

    def test_endAtAnyStepLosesNothing(self) -> None:
        self.put(b"a")
        self.advance()
        self.poison(b"a")
        for _ in crashes(self.advance, 10):
            self.put(b"b")
        self.look()

    def test_causeInNoRowTouchesNoRow(self) -> None:
        self.put(b"a")
        self.advance()
        self.put(b"b")
        self.patch(iceberg_log, "dataFilesOf", self.refuse)
        self.assertIn("no memory", str(self.assertRaises(PipelineError, self.advance)))

    def refuse(self, *arguments: Any) -> Any:
        """Fail for a cause of the machine."""
        raise MemoryError("no memory")


class SpecTests(StateCase):
    """What the option says."""

    def test_columnIsReadAfterTheFormat(self) -> None:
        for text, decode, topics in (
            ("s=a.#:json:upsert(key)", "json", ("a.#",)),
            ("s=a.#,b:upsert(topic)", "raw", ("a.#", "b")),
            ("s=a:b:upsert( key )", "raw", ("a:b",)),
        ):
            spec = tableOf("--table", text)
            self.assertEqual((spec.decode, spec.topics), (decode, topics))
            self.assertIn(spec.upsert, ("key", "topic"))

    def test_columnsThatCannotBeAreRefused(self) -> None:
        refused: list[Any] = ["s=a:json:upsert()", "s=a:text:upsert(id)"]
        refused.append({"name": "s", "decode": "json", "schema": "a INT", "upsert": "id"})
        for written in refused:
            self.assertRaises(OptionRefused, tableOf, "--table", written)

    def test_plainParquetIsRefused(self) -> None:
        self.tableFormat = "parquet"
        self.assertIn("choose --format delta or iceberg", str(self.assertRaises(LakeRefused, self.advance)))
