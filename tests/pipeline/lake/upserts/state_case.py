"""A journal, tables of the latest rows that follow it, and a model of what they must have."""

import random
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.values.message import Content
from tests.pipeline.installed import missing
from tests.pipeline.written import Written

skip = missing
for name in ("deltalake", "pyiceberg", "sqlalchemy"):
    if not skip and find_spec(name) is None:
        skip = f"{name} is not installed"

if not skip:
    import msgspec
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fleximq.pipeline.lake import audit
    from fleximq.pipeline.lake.live_files import liveFiles
    from fleximq.pipeline.lake.table.ledger import readLedger
    from fleximq.pipeline.lake.table.table_spec import TableSpec, tableOf
    from fleximq.pipeline.lake.upserts.state_ingest import StateIngest
    from fleximq.pipeline.lake.upserts.state_table import Advance
    from fleximq.pipeline.reader.source_options import SourceOptions


class StateCase(SynchronousTestCase):
    """``state`` is the table; ``model`` has the offset of each key's row, ``dead`` the offsets of dead letters."""

    tableFormat = "delta"
    words = "state=devices.#:json:upsert(key)"

    def setUp(self) -> None:
        self.lake = str(Path(self.mktemp()).absolute())
        self.table = f"{self.lake}/state"
        self.written = Written(str(Path(self.mktemp()).absolute()), segmentBytes=20_000)
        self.model: dict[bytes, int] = {}
        self.dead: list[int] = []
        self.chance = random.Random(11)

    @property
    def form(self) -> dict[str, str]:
        """The format of a new table, with its options."""
        return {"format": self.tableFormat}

    @property
    def spec(self) -> "TableSpec":
        """The table's specification."""
        return tableOf("--table", self.words)

    def change(self, key: bytes | None, payload: Any, topic: str = "devices.a") -> int:
        """Publish a message, a value as JSON, or bytes; return its offset."""
        offset = self.written.next
        body = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
        header = b"" if key is None else msgspec.msgpack.encode({"key": key})
        self.written.kept(topic, body, header=header, content=Content.BYTES)
        return offset

    def put(self, key: bytes, **fields: Any) -> None:
        """Publish a row."""
        self.model[key] = self.change(key, {"n": self.written.next, **fields})

    def remove(self, key: bytes) -> None:
        """Publish a tombstone."""
        self.change(key, b"")
        self.model.pop(key, None)

    def some(self, number: int, keys: int = 50) -> None:
        """Publish random changes."""
        for _ in range(number):
            key = b"k%d" % self.chance.randrange(keys)
            if self.chance.random() < 0.2:
                self.remove(key)
            else:
                self.put(key)

    def opened(self, files: LakeFiles | None = None, **more: str) -> "StateIngest":
        """Return an ingest of the table."""
        options = SourceOptions.of({"path": self.written.folder, **more})
        return StateIngest(self.lake, [self.spec], self.form, options, files or FILES)

    def advance(self, files: LakeFiles | None = None, **more: str) -> "list[Advance]":
        """Bring the table up to the end of the journal."""
        with self.opened(files, **more) as ingest:
            return list(ingest.advance(ingest.specs[0]))

    def rows(self) -> "pa.Table":
        """Return the rows that readers of the format see."""
        parts = [pq.read_table(f"{self.table}/{path}", partitioning=None) for path, _ in liveFiles(self.table)]
        return pa.concat_tables(parts, promote_options="default") if parts else pa.table({})

    def look(self) -> None:
        """Compare the table with the model."""
        rows = self.rows()
        found = rows.filter(rows["reason"].is_null()).select(["key", "offset"]).to_pylist() if rows.num_rows else []
        self.assertEqual(sorted((row["key"], row["offset"]) for row in found), sorted(self.model.items()))
        dead = rows.filter(rows["reason"].is_valid())["offset"].to_pylist() if rows.num_rows else []
        self.assertEqual(sorted(dead), self.dead)
        self.assertEqual(audit(self.table), [])
        (covered,) = readLedger(self.table).journals.values()
        self.assertEqual(covered.next, self.written.next)
        self.assertEqual(covered.rows, len(self.model) + len(self.dead))
        self.assertEqual(covered.dead, len(self.dead))
