"""Tables of each format in a real object store, with requests that fail, and as other programs read them."""

import contextlib
import os
import random
from functools import partial, partialmethod
from importlib.util import find_spec
from itertools import product
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.fault_proxy import LATE, SERVER_ERROR, SLOW_DOWN, SWALLOWED, Fault, FaultProxy, Request
from tests.pipeline.installed import missing
from tests.pipeline.object_store import KEY, SECRET, sharedStore, useStore

skip = missing or (None if find_spec("s3fs") and find_spec("boto3") else "s3fs or boto3 is not installed")

if not skip:
    import duckdb
    import pyarrow as pa
    import pyarrow.compute as pc
    from fsspec import get_filesystem_class

    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake import delta_log
    from fleximq.pipeline.lake.batch_commit import STAGED, BatchCommit
    from fleximq.pipeline.lake.compaction import compact
    from fleximq.pipeline.lake.completeness import audit, ranges
    from fleximq.pipeline.lake.iceberg import catalogOf
    from fleximq.pipeline.lake.live_files import liveFiles, rowGroups
    from fleximq.pipeline.lake.storage.lake_files import LakeFiles
    from fleximq.pipeline.lake.storage.object_store import ObjectStore, storeOf
    from fleximq.pipeline.lake.storage.own_folder import OWN
    from fleximq.pipeline.lake.storage.store_access import storageOptions
    from fleximq.pipeline.lake.table.columns import BASE, TableColumns, writeColumns
    from fleximq.pipeline.lake.table.format import layoutOf, setFormat
    from fleximq.pipeline.lake.table.ledger import readLedger
    from fleximq.pipeline.lake.table.lock import writerLock
    from fleximq.pipeline.lake.table.parquet_writer import StagingWriter
    from fleximq.pipeline.lake.table.table_log import BatchRange, CompactionGoal
    from tests.pipeline.lake.tables import JOURNAL, rows

#: The rows of a batch.
_SIZE = 10
_AT_ONCE = (1 << 20, 0.0, 2)


class StoredTableCase(SynchronousTestCase):
    """``format`` is that of the table."""

    format = "parquet"
    #: A part of the path of each commit.
    log = f"/{OWN}/state/"

    def setUp(self) -> None:
        self.store = sharedStore()
        self.use(self.store.endpoint)
        self.lake = self.store.newPrefix()
        self.table = f"{self.lake}/orders"

    def use(self, endpoint: str) -> None:
        """Reach the store at an endpoint, with new connections."""
        useStore(self, endpoint)
        storeOf.cache_clear()
        self.addCleanup(storeOf.cache_clear)

    def ingest(self, batches: int) -> None:
        """Begin as an ingest does, and commit batches after those that the table has."""
        files = LakeFiles()
        publishing = BatchCommit(self.table, files)
        with writerLock(self.table, files):
            setFormat(self.table, {"format": self.format}, None, files)
            if not files.hasOwn(self.table, "schema"):
                writeColumns(self.table, TableColumns("raw", pa.schema([])), files)
            begin = publishing.prepare().batch + 1
            for number in range(begin, begin + batches):
                folder = f"{self.table}/{OWN}/{files.aside(self.table, STAGED, 'writer')}"
                writer = StagingWriter(folder, BASE, JOURNAL, number, layoutOf(self.table, files), files)
                first = number * _SIZE + 1
                writer.add(rows(range(first, first + _SIZE)))
                bounds = BatchRange(number, {JOURNAL: first}, {JOURNAL: first + _SIZE})
                publishing.publish(bounds, writer.close(), {})

    def offsets(self) -> list[int]:
        """Return the offsets of the rows."""
        groups = (group for path, topic in liveFiles(self.table) for group in rowGroups(self.table, path, topic))
        return sorted(offset for group in groups for offset in group["offset"].to_pylist())

    def whole(self) -> None:
        """Look whether each row is there once."""
        (covered,) = ranges(self.table).values()
        self.assertEqual(self.offsets(), list(range(1, covered.next)))
        self.assertEqual(audit(self.table), [])

    def test_batchesAndCompaction(self) -> None:
        self.ingest(3)
        self.ingest(2)
        self.whole()
        self.assertEqual([each[1:] for each in compact(self.table, CompactionGoal(*_AT_ONCE))], [(5, 1)])
        self.assertEqual(len(liveFiles(self.table)), 1)
        self.whole()
        self.ingest(1)
        self.assertEqual(readLedger(self.table).batch, 5)
        self.whole()

    def test_failingRequests(self) -> None:
        """One in ten has no answer although it is done, or the store is too busy; writers begin again."""
        with FaultProxy(self.store.endpoint) as proxy:
            self.use(proxy.endpoint)
            chance = random.Random(5)

            def choose(request: Request) -> Fault | None:
                if chance.random() > 0.1:
                    return None
                return chance.choice([SWALLOWED, SERVER_ERROR, SLOW_DOWN]) if request.method != "GET" else SLOW_DOWN

            proxy.choose = choose
            refused = 0
            for _ in range(6):
                try:
                    self.ingest(1)
                    list(compact(self.table, CompactionGoal(*_AT_ONCE)))
                except (LakeRefused, OSError):
                    refused += 1
            proxy.choose = lambda request: None
            self.ingest(1)
        self.use(self.store.endpoint)
        self.whole()
        self.assertGreater(readLedger(self.table).batch, 0)

    def test_commitsThatAreDoneLate(self) -> None:
        """No attempt at a commit has an answer; all are done before the next ingest, after it, or in its midst."""
        os.environ["AWS_MAX_ATTEMPTS"] = "1"
        self.addCleanup(os.environ.pop, "AWS_MAX_ATTEMPTS")
        # Its further attempts, with longer pauses, would have no answer either.
        self.patch(get_filesystem_class("s3"), "retries", 2)
        with FaultProxy(self.store.endpoint) as proxy:
            self.use(proxy.endpoint)
            self.ingest(1)
            refused = 0
            for part, after in product((f"/{OWN}/state/", self.log), range(3)):

                def late(request: Request, part: str = part) -> Fault | None:
                    return LATE if request.method == "PUT" and request.ifNoneMatch and part in request.path else None

                proxy.choose = late
                with contextlib.suppress(LakeRefused, OSError):
                    self.ingest(1)
                    refused -= 1
                refused += 1
                # The next one is another process.
                storeOf.cache_clear()
                requests = 0

                def deliver(request: Request, after: int = after) -> Fault | None:
                    nonlocal requests
                    requests += request.method == "PUT"
                    if requests == after:
                        proxy.deliver()
                    return None

                proxy.choose = deliver
                if not after:
                    proxy.deliver()
                with contextlib.suppress(LakeRefused):
                    self.ingest(1)
                proxy.deliver()
                self.ingest(1)
                self.whole()
            self.assertGreater(refused, 5)

    def test_credentialsAreNowhereInTheLake(self) -> None:
        self.ingest(1)
        client = self.store.client()
        bucket, _, prefix = self.lake.removeprefix("s3://").partition("/")
        for each in client.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]:
            content = client.get_object(Bucket=bucket, Key=each["Key"])["Body"].read()
            self.assertNotIn(SECRET.encode(), content, each["Key"])
            self.assertNotIn(KEY.encode(), content, each["Key"])

    def test_errorsHaveNoCredentials(self) -> None:
        self.use("http://127.0.0.1:9")
        os.environ["AWS_MAX_ATTEMPTS"] = "1"
        self.addCleanup(os.environ.pop, "AWS_MAX_ATTEMPTS")
        error = self.assertRaises((LakeRefused, OSError), self.ingest, 1)
        self.assertNotIn(SECRET, f"{error!r} {error}")

    def readers(self) -> Any:
        """Yield the rows as other programs read them."""
        from pyarrow import fs

        system = fs.S3FileSystem(
            access_key=KEY, secret_key=SECRET, endpoint_override=self.store.endpoint, region="us-east-1"
        )
        paths = [f"{self.table}/{path}".removeprefix("s3://") for path, _ in liveFiles(self.table)]
        import pyarrow.dataset as ds

        dataset = ds.dataset(paths, filesystem=system)
        yield dataset.to_table(columns=["offset", "value"])
        found = duckdb.from_arrow(dataset)
        yield found.select('"offset", value').to_arrow_table()

    def test_otherProgramsReadTheSameRows(self) -> None:
        self.ingest(3)
        groups = [group for path, topic in liveFiles(self.table) for group in rowGroups(self.table, path, topic)]
        wanted = pa.concat_tables(group.select(["offset", "value"]) for group in groups).sort_by("offset")
        self.assertEqual(len(wanted), 3 * _SIZE)
        for found in self.readers():
            self.assertEqual(found.sort_by("offset").to_pylist(), wanted.to_pylist())


class DeltaTests(StoredTableCase):
    """Delta Lake."""

    format = "delta"
    log = "/_delta_log/"

    def setUp(self) -> None:
        super().setUp()
        # Otherwise it tries for minutes.
        self.patch(delta_log, "storageOptions", lambda table: {**(storageOptions(table) or {}), "max_retries": "1"})

    def readers(self) -> Any:
        """Yield the rows as deltalake and polars read them."""
        import polars
        from deltalake import DeltaTable

        yield from super().readers()
        options = storageOptions(self.table)
        yield DeltaTable(self.table, storage_options=options).to_pyarrow_table(columns=["offset", "value"])
        found = polars.read_delta(self.table, storage_options=options).select("offset", "value").to_arrow()
        yield found.set_column(1, "value", pc.cast(found["value"], pa.binary()))


class IcebergTests(StoredTableCase):
    """Iceberg with the lake's own catalog."""

    format = "iceberg"
    log = "/metadata/v"

    def readers(self) -> Any:
        """Yield the rows as PyIceberg reads them, by the catalog and without it, and polars."""
        import polars
        from pyiceberg.table import StaticTable

        yield from super().readers()
        table = catalogOf(self.lake, None).load_table(("lake", "orders"))
        yield table.scan(selected_fields=("offset", "value")).to_arrow()
        properties = {"s3.endpoint": self.store.endpoint, "s3.region": "us-east-1"}
        static = StaticTable.from_metadata(self.table, properties)
        yield static.scan(selected_fields=("offset", "value")).to_arrow()
        found = polars.scan_iceberg(table).select("offset", "value").collect().to_arrow()
        yield found.set_column(1, "value", pc.cast(found["value"], pa.binary()))

    def test_lateCommitWhereOldMetadataAreDeleted(self) -> None:
        """Another program may let the table have few old versions; a commit with a number that was deleted is repeated
        on the newest version, and one after which others have committed is not.
        """
        self.ingest(1)
        table = catalogOf(self.lake, None).load_table(("lake", "orders"))
        few = {"write.metadata.previous-versions-max": "2", "write.metadata.delete-after-commit.enabled": "true"}
        with table.transaction() as change:
            change.set_properties(few)
        create = ObjectStore.create

        def others(number: int) -> None:
            for each in range(number):
                with catalogOf(self.lake, None).load_table(("lake", "orders")).transaction() as change:
                    change.set_properties({"other": str(each)})

        def late(store: ObjectStore, path: str, content: bytes) -> bool:
            if not path.endswith(".metadata.json"):
                return create(store, path, content)
            patched.restore()
            others(5)
            return create(store, path, content)

        def early(number: int, store: ObjectStore, path: str, content: bytes) -> bool:
            isDone = create(store, path, content)
            if path.endswith(".metadata.json"):
                patched.restore()
                others(number)
            return isDone

        patched = self.patch(ObjectStore, "create", late)
        self.ingest(1)
        for after in (2, 5):
            patched = self.patch(ObjectStore, "create", partialmethod(partial(early, after)))
            self.ingest(1)
        for found in self.readers():
            self.assertEqual(sorted(found["offset"].to_pylist()), list(range(1, 4 * _SIZE + 1)))

    def change(self, name: str) -> None:
        """Commit a change beside an ingest."""
        with catalogOf(self.lake, None).load_table(("lake", "orders")).transaction() as changes:
            changes.set_properties({name: "1"})

    def slowly(self, before: str, after: str) -> dict[str, str]:
        """Commit while others do, before and after the hint is written, and return what a reader without the catalog
        sees.
        """
        from pyiceberg.table import StaticTable

        put = ObjectStore.put

        def slow(store: ObjectStore, path: str, content: bytes) -> None:
            self.assertTrue(path.endswith("/version-hint.text"))
            patched.restore()
            if before:
                self.change(before)
            put(store, path, content)
            if after:
                self.change(after)

        patched = self.patch(ObjectStore, "put", slow)
        self.change("slow")
        properties = {"s3.endpoint": self.store.endpoint, "s3.region": "us-east-1"}
        return StaticTable.from_metadata(self.table, properties).properties

    def test_aSlowCommitDoesNotLeadReadersToItsOlderVersion(self) -> None:
        self.ingest(1)
        self.assertIn("faster", self.slowly("faster", ""))
        self.assertIn("later", self.slowly("", "later"))
