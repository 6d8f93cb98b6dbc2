"""Each reader of the formats finds the latest row of each key, and no other, after files were replaced."""

from typing import Any

from tests.pipeline.lake.upserts.state_case import StateCase
from tests.pipeline.lake.upserts.state_case import skip as absent

skip = absent
if not skip:
    try:
        import duckdb  # noqa: F401
        import polars  # noqa: F401
    except ImportError as error:
        skip = f"{error.name} is not installed"

if not skip:
    import pyarrow as pa

    from fleximq.pipeline.lake.upserts import bucket_merge
    from tests.pipeline.lake.hostile import readers
    from tests.pipeline.lake.hostile.questions import Source


class DeltaReaderTests(StateCase):
    """A table of Delta Lake."""

    words = "state=devices.#:json:upsert(id)"
    own: Any = staticmethod(readers.deltalake) if not skip else None

    def test_eachReaderFindsTheLatestRows(self) -> None:
        self.patch(bucket_merge, "BUCKET_BYTES", 20_000)
        for _ in range(5):
            for _ in range(60):
                number = self.chance.randrange(80)
                if self.chance.random() < 0.3:
                    self.change(b"%d" % number, b"")
                    self.model.pop(b"%d" % number, None)
                else:
                    self.model[b"%d" % number] = self.change(None, {"id": number, "at": self.written.next})
            self.advance()
        wanted = sorted((int(key), offset) for key, offset in self.model.items())
        source = Source(self.lake, "state", self.tableFormat)
        for reader in (self.own, readers.duckdb, readers.polarsReader, readers.spark):
            rows: pa.Table = reader(source, [])[0]
            found = sorted((row["id"], row["offset"]) for row in rows.select(["id", "offset"]).to_pylist())
            self.assertEqual(found, wanted, reader.__name__)


class IcebergReaderTests(DeltaReaderTests):
    """A table of Iceberg."""

    tableFormat = "iceberg"
    own = staticmethod(readers.pyiceberg) if not skip else None
