"""Tables of the latest rows in an object store."""

from importlib.util import find_spec

from tests.pipeline.lake.upserts.state_case import StateCase
from tests.pipeline.lake.upserts.state_case import skip as absent
from tests.pipeline.object_store import BUCKET, TABLE_BUCKET, icebergSettings, sharedStore, useStore

skip = absent or (None if find_spec("s3fs") and find_spec("boto3") else "s3fs or boto3 is not installed")

if not skip:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyiceberg import catalog
    from pyiceberg.catalog import load_catalog
    from pyiceberg.table import Table
    from pyiceberg.types import StringType

    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake.compaction import compact
    from fleximq.pipeline.lake.iceberg.catalogs import checkCatalog
    from fleximq.pipeline.lake.live_files import liveFiles
    from fleximq.pipeline.lake.storage.lake_files import FILES
    from fleximq.pipeline.lake.table.table_log import CompactionGoal


class StoredStateTests(StateCase):
    """In Delta Lake."""

    bucket = BUCKET

    def setUp(self) -> None:
        super().setUp()
        self.store = sharedStore()
        useStore(self, self.store.endpoint)
        self.lake = self.store.newPrefix(self.bucket)
        self.table = f"{self.lake}/state"

    def rows(self) -> "pa.Table":
        """Return the rows that readers of the format see."""
        parts = [pq.ParquetFile(FILES.input(f"{self.table}/{path}")).read() for path, _ in liveFiles(self.table)]
        return pa.concat_tables(parts, promote_options="default")

    def test_changesAreThoseOfTheModel(self) -> None:
        for _ in range(3):
            self.some(40)
            self.advance()
            self.look()


class StoredIcebergStateTests(StoredStateTests):
    """In Iceberg."""

    tableFormat = "iceberg"


class SharedCatalogTests(StoredIcebergStateTests):
    """In Iceberg, in a catalog that other programs share, by its REST interface."""

    bucket = TABLE_BUCKET

    def setUp(self) -> None:
        super().setUp()
        self.namespace = f"u{self.lake.rpartition('-')[2]}"
        self.lake = f"s3://{TABLE_BUCKET}/{self.namespace}"
        self.table = f"{self.lake}/state"
        self.patch(catalog._ENV_CONFIG, "config", {"catalog": {"central": self.store.catalogSettings}})
        checkCatalog("central", self.lake, self.namespace)

    @property
    def form(self) -> dict[str, str]:
        return {"format": "iceberg", "catalog": "central", "namespace": self.namespace}

    def rows(self) -> "pa.Table":
        """Return the rows that a program finds which knows only the catalog."""
        return self.elsewhere().scan().to_arrow()

    def elsewhere(self) -> "Table":
        """Return the table as another program opens it."""
        settings = {**self.store.catalogSettings, **icebergSettings(self.store.endpoint)}
        return load_catalog("other", **settings).load_table((self.namespace, "state"))

    def test_changesGoOnAfterAnotherProgramChangedTheTable(self) -> None:
        self.some(40)
        self.advance()
        with self.elsewhere().update_schema() as change:
            change.add_column("note", StringType())
        with self.elsewhere().transaction() as transaction:
            transaction.set_properties({"owner": "somebody"})
        self.some(40)
        self.advance()
        list(compact(self.table, CompactionGoal()))
        self.look()
        self.assertEqual(self.elsewhere().properties["owner"], "somebody")
        opened = self.elsewhere()
        opened.overwrite(opened.scan().to_arrow())
        self.some(40)
        self.assertRaisesRegex(LakeRefused, "has a file of another origin, and cannot replace rows", self.advance)
