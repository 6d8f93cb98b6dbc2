"""What ``catalog`` shows of the tables of a lake, in each format."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

_NEEDED = ("deltalake", "pyiceberg", "sqlalchemy")
if not skip and (absent := [name for name in _NEEDED if find_spec(name) is None]):
    skip = f"{absent[0]} is not installed"

if not skip:
    from fleximq.pipeline.errors import LakeRefused, OptionRefused
    from fleximq.pipeline.jobs.catalog import CATALOG
    from tests.pipeline.jobs.fake_run import FakeRun, runJob
    from tests.pipeline.lake.tables import commit, makeTable, rows


class CatalogTests(SynchronousTestCase):
    """A lake with a table of each format, each of two batches."""

    def setUp(self) -> None:
        self.lake = str(Path(self.mktemp()).absolute())
        for name in ("delta", "iceberg", "parquet"):
            makeTable(f"{self.lake}/{name}", name)
            commit(f"{self.lake}/{name}", 0, rows([1, 2]))
            commit(f"{self.lake}/{name}", 1, rows([3]))

    def facts(self, *words: str) -> list[dict[str, Any]]:
        """Return what it says as JSON."""
        found: list[dict[str, Any]] = json.loads(runJob(CATALOG, "--format", "json", *words).printed)["tables"]
        return found

    def test_eachTableHasFormatLocationCatalogRowsSnapshotAndColumns(self) -> None:
        found = {each.pop("table"): each for each in self.facts("--lake", self.lake)}
        self.assertEqual(list(found), ["delta", "iceberg", "parquet"])
        for name, each in found.items():
            self.assertEqual((each["format"], each["rows"], each["files"]), (name, 3, 2))
            self.assertIn(f"{self.lake}/{name}", each["location"])
        self.assertEqual([found[name]["snapshot"] for name in ("delta", "parquet")], [1, 1])
        self.assertGreater(found["iceberg"]["snapshot"], 1)
        self.assertEqual([each["catalog"] for each in found.values()], [None, "lake.lake.iceberg", None])
        types = {name: each["columns"]["offset"] for name, each in found.items()}
        self.assertEqual(types, {"delta": "long", "iceberg": "long", "parquet": "BIGINT"})

    def test_peopleSeeTheSame(self) -> None:
        lines = runJob(CATALOG, "--lake", self.lake, "--table", "iceberg").printed.splitlines()
        self.assertEqual(lines[0].split(), ["table", "format", "rows", "files", "snapshot", "catalog", "location"])
        self.assertEqual(lines[2].split()[:4], ["iceberg", "iceberg", "3", "2"])
        self.assertIn(["offset", "long"], [line.split() for line in lines])

    def test_catalogHasTablesOfOtherProgramsToo(self) -> None:
        import pyarrow as pa
        from pyiceberg.catalog import load_catalog

        uri = f"sqlite:///{self.lake}/iceberg.db"
        load_catalog("lake", uri=uri).create_table("lake.other", pa.schema([("a", pa.int32())]), f"{self.lake}/other")
        found = {each["table"]: each for each in self.facts("--catalog", uri)}
        self.assertEqual(list(found), ["iceberg", "other"])
        self.assertEqual((found["other"]["columns"], found["other"]["snapshot"]), ({"a": "int"}, None))
        self.assertEqual(found["iceberg"], self.facts("--lake", self.lake, "--table", "iceberg")[0])

    def test_damagedTableIsNamedAfterTheOthers(self) -> None:
        Path(self.lake, "delta", "_fleximq", "format").write_text("?")
        run = FakeRun()
        self.assertRaisesRegex(
            LakeRefused, "delta/_fleximq/format cannot", runJob, CATALOG, "--lake", self.lake, run=run
        )
        self.assertIn("iceberg", run.printed)
        self.assertRaises(OptionRefused, runJob, CATALOG, "--lake", self.lake, "--catalog", "c")
