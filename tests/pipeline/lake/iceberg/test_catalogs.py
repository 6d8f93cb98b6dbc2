"""Iceberg tables in catalogs that other programs share: PostgreSQL, and PyIceberg's settings."""

import contextlib
import json
import os
import re
import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pages import ROOT
from tests.pipeline.fault_proxy import CUT, SLOW_DOWN, SWALLOWED, Fault, FaultProxy
from tests.pipeline.lake.iceberg_case import skip
from tests.pipeline.object_store import TABLE_BUCKET, icebergSettings, sharedStore, useStore
from tests.pipeline.postgres import PASSWORD, Postgres

if not skip:
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog
    from pyiceberg.types import StringType

    from fleximq.pipeline import lake
    from fleximq.pipeline.errors import LakeRefused, OptionRefused
    from fleximq.pipeline.jobs.catalog import CATALOG
    from fleximq.pipeline.jobs.ingest import INGEST
    from fleximq.pipeline.lake.batch_commit import BatchCommit
    from fleximq.pipeline.lake.compaction import compact
    from fleximq.pipeline.lake.iceberg.catalogs import _catalog, catalogOf, checkCatalog
    from fleximq.pipeline.lake.ingest_driver import TableIngest
    from fleximq.pipeline.lake.table.columns import TableColumns, writeColumns
    from fleximq.pipeline.lake.table.format import setFormat
    from fleximq.pipeline.lake.table.table_log import CompactionGoal
    from fleximq.pipeline.lake.table.table_spec import TableSpec
    from fleximq.pipeline.query.tables import lakeTable
    from tests.pipeline.jobs.fake_run import runJob
    from tests.pipeline.lake.tables import commit, makeTable, rows
    from tests.pipeline.lake.test_ingest_driver import FeedCase
    from tests.pipeline.session import sharedSession
    from tests.pipeline.written import Written


def makeIn(table: str, form: Mapping[str, Any]) -> None:
    """Make a table whose format has these options."""
    publishing = BatchCommit(table)
    publishing.makeFolders()
    setFormat(table, {"format": "iceberg", **form})
    writeColumns(table, TableColumns("raw", pa.schema([])))
    publishing.prepare()


def setVariable(test: SynchronousTestCase, name: str, value: str) -> None:
    """Set a variable of the environment until a test ends."""
    before = os.environ.get(name)
    test.addCleanup(lambda: os.environ.pop(name) if before is None else os.environ.update({name: before}))
    os.environ[name] = value


class PostgresTests(SynchronousTestCase):
    """A lake on local disks, with its tables in PostgreSQL."""

    if find_spec("psycopg") is None:
        skip = "psycopg is not installed: pip install 'fleximq[store-tests]'"

    def setUp(self) -> None:
        self.server = Postgres().__enter__()
        self.addCleanup(self.server.__exit__, None, None, None)
        setVariable(self, "PGPASSWORD", PASSWORD)
        self.lake = str(Path(self.mktemp()).absolute())
        self.table = f"{self.lake}/messages"
        makeIn(self.table, {"catalog": self.server.url, "namespace": "plant"})
        for number in range(3):
            self.publish(number)

    def publish(self, number: int) -> None:
        """Publish two rows."""
        commit(self.table, number, rows([number * 2 + 1, number * 2 + 2]))

    def offsets(self) -> list[int]:
        """Return the offsets that a program finds which knows only the catalog."""
        catalog = load_catalog("lake", type="sql", uri=self.server.url)
        self.addCleanup(catalog.close)
        found: list[int] = sorted(catalog.load_table("plant.messages").scan().to_arrow()["offset"].to_pylist())
        return found

    def test_otherProgramsFindTheTableThere(self) -> None:
        self.assertEqual(self.offsets(), list(range(1, 7)))
        self.assertFalse(Path(self.lake, "iceberg.db").exists())
        self.assertEqual(lake.audit(self.table), [])
        self.assertEqual([each[1:] for each in compact(self.table, CompactionGoal(1 << 20, -1e9, 2))], [(3, 1)])
        self.assertEqual(self.offsets(), list(range(1, 7)))

    def test_recipeOfThePageRuns(self) -> None:
        page = (ROOT / "docs" / "guides" / "pipeline-lake.rst").read_text().partition("With PostgreSQL")[2]
        journal = Written(f"{self.lake}-journal")
        self.addCleanup(journal.close)
        journal.kept("t", b"1", b"2")
        changed = {
            "/var/lib/fleximq": journal.folder,
            "/mnt/lake": f"{self.lake}2",
            "@db/": f"@127.0.0.1:{self.server.port}/",
            "plant": "factory",
            "\\\n": "",
        }
        for before, after in changed.items():
            page = page.replace(before, after)
        [command] = re.findall(r"fleximq-pipeline ingest (.*)$", page, re.MULTILINE)[:1]
        runJob(INGEST, *shlex.split(command), "--once")
        [program] = re.findall(r"^    from pyiceberg.*\n(?:\n|    .*\n)+", page, re.MULTILINE)
        found: dict[str, Any] = {}
        exec(dedent(program), found)
        self.addCleanup(found["catalog"].close)
        self.assertEqual(found["rows"]["value"].to_pylist(), [b"1", b"2"])
        seen = lakeTable(sharedSession(), f"{self.lake}2/messages").select("date", "offset").collect()
        self.assertEqual([(str(row.date), row.offset) for row in seen], [("2023-11-14", 1), ("2023-11-14", 2)])

    def test_serverThatWasKilledIsUsedAgainAfterItsStart(self) -> None:
        self.server.kill()
        self.assertRaisesRegex(LakeRefused, "onnection refused", self.publish, 3)
        self.server.start()
        self.publish(4)
        self.assertEqual(self.offsets(), list(range(1, 11)))

    def test_tableThatAnotherProgramHasDroppedIsNotMadeAgainWithoutItsRows(self) -> None:
        load_catalog("lake", type="sql", uri=self.server.url).drop_table("plant.messages")
        self.assertRaisesRegex(LakeRefused, "has had 6 rows, but", self.publish, 3)

    def test_passwordsAreNotInFilesOfTheLake(self) -> None:
        for path in Path(self.lake).rglob("*"):
            if path.is_file():
                self.assertNotIn(PASSWORD.encode(), path.read_bytes(), path)


class SettingsTests(SynchronousTestCase):
    """A catalog of PyIceberg's settings, by its name."""

    skip = skip

    def setUp(self) -> None:
        self.lake = str(Path(self.mktemp()).absolute())
        self.table = f"{self.lake}/messages"

    def test_tableIsInTheCatalogOfThatName(self) -> None:
        from pyiceberg import catalog

        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        settings = {"catalog": {"central-1": {"type": "sql", "uri": f"sqlite:///{folder}/c.db"}}}
        self.patch(catalog._ENV_CONFIG, "config", settings)
        makeIn(self.table, {"catalog": "central-1"})
        commit(self.table, 0, rows([1, 2]))
        found = catalogOf(self.lake, "central-1").load_table("lake.messages")
        self.assertEqual(found.scan().to_arrow()["offset"].to_pylist(), [1, 2])
        self.assertTrue(Path(folder, "c.db").exists())

    def test_tableStaysInItsCatalog(self) -> None:
        makeTable(self.table, "iceberg")
        words = "has the catalog of the lake itself and cannot change to c"
        self.assertRaisesRegex(LakeRefused, words, setFormat, self.table, {"format": "iceberg", "catalog": "c"})
        makeIn(f"{self.table}2", {"catalog": "c", "namespace": "n"})
        setFormat(f"{self.table}2", {"format": "iceberg"})
        again = {"format": "iceberg", "catalog": "d"}
        self.assertRaisesRegex(LakeRefused, "has the catalog c and cannot", setFormat, f"{self.table}2", again)

    def test_unknownCatalogAndOneThatIsAwayAreOneSentence(self) -> None:
        self.assertRaisesRegex(LakeRefused, "the catalog nowhere does not answer: .*URI", checkCatalog, "nowhere")
        with self.assertRaisesRegex(LakeRefused, "the catalog http://127.0.0.1:1/a does not answer: .*refused"):
            checkCatalog("http://127.0.0.1:1/a?warehouse=w")

    def test_ingestRefusesACatalogBeforeItMakesFolders(self) -> None:
        journal = Path(self.mktemp())
        journal.mkdir()
        words = ("--journal", str(journal), "--lake", self.lake, "--catalog")
        self.assertRaisesRegex(OptionRefused, "--catalog is for --format iceberg", runJob, INGEST, *words, "a")
        self.assertRaises(SystemExit, runJob, INGEST, *words, "postgresql://u:secret@h/d")
        self.assertFalse(Path(self.lake).exists())


class RestTests(SynchronousTestCase):
    """A lake in an object store, whose catalog only has tables with Iceberg's own folders."""

    skip = skip or (None if find_spec("s3fs") and find_spec("boto3") else "s3fs or boto3 is not installed")

    def setUp(self) -> None:
        from pyiceberg import catalog

        self.store = sharedStore()
        useStore(self, self.store.endpoint)
        self.namespace = f"n{self.store.newPrefix().rpartition('-')[2]}"
        settings = {"catalog": {"central": self.store.catalogSettings}}
        self.patch(catalog._ENV_CONFIG, "config", settings)
        self.lake = f"s3://{TABLE_BUCKET}/{self.namespace}"
        self.table = f"{self.lake}/messages"
        self.form = {"format": "iceberg", "catalog": "central", "namespace": self.namespace}
        checkCatalog("central", self.lake, self.namespace)
        self.batches = 0
        for _ in range(3):
            self.publish()

    def publish(self, **more: Any) -> None:
        """Publish two rows."""
        case = FeedCase()
        spec, first = [TableSpec("messages", decode="messagepack")], self.batches * 2 + 1
        case.lake = self.lake
        with TableIngest(self.lake, spec, self.form, False) as feeding:
            batch = case.batch({"a": first, **more}, {"a": first + 1, **more}, first=first)
            while feeding.evolve(told := case.told(spec, batch)):
                pass
            feeding.publish(self.batches, told)
        self.batches += 1

    def opened(self) -> Any:
        """Return the table as a program opens it that knows only the catalog."""
        settings = {**self.store.catalogSettings, **icebergSettings(self.store.endpoint)}
        return load_catalog("other", **settings).load_table((self.namespace, "messages"))

    def whole(self) -> None:
        """See that all rows are there, by the catalog and by the ledger."""
        wanted = list(range(1, self.batches * 2 + 1))
        found = self.opened().scan().to_arrow().sort_by("offset")
        self.assertEqual((found["offset"].to_pylist(), found["a"].to_pylist()), (wanted, wanted))
        self.assertEqual(lake.audit(self.table), [])

    def test_otherProgramsFindTheTableInTheCatalog(self) -> None:
        self.whole()
        self.assertEqual(self.opened().location(), self.table)
        self.assertEqual([each[1:] for each in compact(self.table, CompactionGoal(1 << 20, -1e9, 2))], [(3, 1)])
        self.whole()
        printed = runJob(CATALOG, "--lake", self.lake, "--format", "json").printed
        (found,) = json.loads(printed)["tables"]
        self.assertEqual((found["rows"], found["location"]), (6, self.table))
        self.assertEqual(found["catalog"], f"central.{self.namespace}.messages")

    def test_ingestGoesOnAfterAnotherProgramChangedTheTable(self) -> None:
        with self.opened().update_schema() as change:
            change.add_column("note", StringType())
        self.publish(note="x")
        self.whole()
        with self.opened().transaction() as transaction:
            transaction.set_properties({"owner": "somebody"})
        self.publish(b=1)
        self.whole()
        self.assertEqual(self.opened().properties["owner"], "somebody")
        if find_spec("pyiceberg_core"):
            found = self.opened()
            found.overwrite(found.scan().to_arrow())
            self.publish()
            self.whole()

    def test_aCommitWhoseAnswerIsLostIsDoneOnce(self) -> None:
        """The catalog's answer, not the store's."""
        from pyiceberg import catalog

        for fault in (SWALLOWED, Fault(done=True, status=500), CUT, SLOW_DOWN):
            with FaultProxy(self.store.catalog) as proxy:
                settings = {"catalog": {"central": {**self.store.catalogSettings, "uri": proxy.endpoint}}}
                self.patch(catalog._ENV_CONFIG, "config", settings)
                _catalog.cache_clear()
                proxy.fail(fault, "POST", "/tables/messages")
                with contextlib.suppress(LakeRefused):
                    self.publish()
                    self.batches -= 1
                self.batches += 1
            self.patch(catalog._ENV_CONFIG, "config", {"catalog": {"central": self.store.catalogSettings}})
            _catalog.cache_clear()
            self.publish()
            self.whole()
