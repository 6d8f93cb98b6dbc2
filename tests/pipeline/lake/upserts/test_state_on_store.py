"""Tables of the latest rows in an object store."""

from importlib.util import find_spec

from tests.pipeline.lake.upserts.state_case import StateCase
from tests.pipeline.lake.upserts.state_case import skip as absent
from tests.pipeline.object_store import sharedStore, useStore

skip = absent or (None if find_spec("s3fs") and find_spec("boto3") else "s3fs or boto3 is not installed")

if not skip:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fleximq.pipeline.lake.live_files import liveFiles
    from fleximq.pipeline.lake.storage.lake_files import FILES
    from fleximq.pipeline.lake.storage.object_store import storeOf


class StoredStateTests(StateCase):
    """In Delta Lake."""

    def setUp(self) -> None:
        super().setUp()
        store = sharedStore()
        useStore(self, store.endpoint)
        storeOf.cache_clear()
        self.addCleanup(storeOf.cache_clear)
        self.lake = store.newPrefix()
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
