"""Measures how fast rows of random keys replace those of a large table, beside PyIceberg's own upsert on a smaller one.

::

    python -m benchmarks.pipeline.upserting --keys 10000000 --changes 1000000 --json measured.json

Records are JSON of about 85 bytes, decoded, merged and committed in one process; reading them from a journal is left
out, which takes 0.5 us a record. Both ways get the same rows of the smaller table, and are refused with another number
of rows than there are keys.
"""

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.machine import machine
from fleximq.pipeline.files.schema import ALL_COLUMNS, schemaOf
from fleximq.pipeline.lake.ingest_driver import TableIngest
from fleximq.pipeline.lake.storage.lake_files import FILES
from fleximq.pipeline.lake.table.file_names import BY_KEY
from fleximq.pipeline.lake.table.ledger import readLedger
from fleximq.pipeline.lake.table.table_spec import TableSpec
from fleximq.pipeline.lake.upserts.state_table import Piece, StateTable
from fleximq.values.message import Content, Message
from fleximq.values.records import contentOf

#: The journal of all records, and their number in one batch of the source.
JOURNAL, BATCH = "0123456789abcdef0123456789abcdef", 65_536
#: The topic of all records.
TOPIC = "devices.state"
_SCHEMA = schemaOf(ALL_COLUMNS)


class Records:
    """Makes records with ascending offsets."""

    def __init__(self) -> None:
        self.next = 1
        self._chance = np.random.default_rng(1)

    def of(self, keys: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> pa.RecordBatch:
        """Return one record for each key."""
        number = len(keys)
        offsets = np.arange(self.next, self.next + number)
        self.next += number
        names = pc.binary_join_element_wise("device-", pc.utf8_lpad(pc.cast(pa.array(keys), pa.string()), 8, "0"), "")
        celsius = pa.array(np.round(self._chance.random(number) * 40, 2))
        texts = ['{"device":"', names, '","celsius":', pc.cast(celsius, pa.string()), ',"seq":']
        texts += [pc.cast(pa.array(offsets), pa.string()), ',"at":"2026-01-31T12:00:00Z"}']
        found = {
            "journal": [JOURNAL] * number,
            "topic": [TOPIC] * number,
            "offset": offsets,
            "timestamp": offsets * 10 + 1_700_000_000_000_000,
            "publisher": np.full(number, 7),
            "dialect": ["fleximq"] * number,
            "headers": pa.nulls(number, _SCHEMA.field("headers").type),
            "key": names.cast(pa.binary()),
            "value": pc.binary_join_element_wise(*texts, "").cast(pa.binary()),
            "content": np.full(number, contentOf(Message(b"", Content.BYTES))),
        }
        columns = [pa.array(found[field.name]).cast(field.type) for field in _SCHEMA]
        return pa.record_batch(columns, schema=_SCHEMA)

    def pieces(self, keys: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> Iterator[Piece]:
        """Yield records of these keys, one for each."""
        for start in range(0, len(keys), BATCH):
            batch = self.of(keys[start : start + BATCH])
            yield Piece([batch], self.next, [])


def measured(tableFormat: str, keys: int, changes: Sequence[int], folder: str) -> Iterator[dict[str, object]]:
    """Fill a table, then change rows of random keys; yield the figures of each."""
    lake = f"{folder}/{tableFormat}-{keys}"
    spec, records = TableSpec("state", decode="json", upsert="key"), Records()
    chance = np.random.default_rng(2)
    with TableIngest(lake, [spec], {"format": tableFormat}, False, BY_KEY):
        state = StateTable(f"{lake}/state", spec, FILES)
        for number in [0, *changes]:
            some = chance.integers(0, keys, number) if number else chance.permutation(keys)
            start = records.next
            pieces = list(records.pieces(some)) if number else records.pieces(some)
            wall, cpu = time.monotonic(), time.process_time()
            commits = sum(1 for _ in state.take(JOURNAL, start, pieces, lambda: False))
            wall, cpu = time.monotonic() - wall, time.process_time() - cpu
            rows = readLedger(f"{lake}/state").journals[JOURNAL].rows
            if rows != keys:
                raise SystemExit(f"there are {rows} rows of {keys} keys")
            yield {
                "way": f"FlexiMQ, {tableFormat}",
                "keys": keys,
                "records": len(some),
                "commits": commits,
                "seconds": round(wall, 2),
                "processor seconds": round(cpu, 2),
                "records/s": round(len(some) / wall),
                "memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }


def peer(keys: int, changes: int, folder: str) -> dict[str, object]:
    """Change rows of random keys by PyIceberg's own upsert; return its figures."""
    from pyiceberg.catalog.sql import SqlCatalog

    home = Path(folder, "pyiceberg")
    home.mkdir()
    catalog = SqlCatalog("peer", uri=f"sqlite:///{home}/peer.db", warehouse=f"file://{home}")
    catalog.create_namespace("peer")
    records, chance = Records(), np.random.default_rng(2)

    def rows(some: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> pa.Table:
        found = pa.Table.from_batches([records.of(some)]).drop_columns(["headers"])
        return found.set_column(found.schema.get_field_index("key"), "key", found["key"].cast(pa.string()))

    before = rows(chance.permutation(keys))
    table = catalog.create_table("peer.state", before.schema)
    table.append(before)
    # It refuses a batch with one key twice.
    some = rows(np.unique(chance.integers(0, keys, changes)))
    wall, cpu = time.monotonic(), time.process_time()
    table.upsert(some, join_cols=["key"])
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    if (number := table.scan().to_arrow().num_rows) != keys:
        raise SystemExit(f"PyIceberg has {number} rows of {keys} keys")
    return {
        "way": "PyIceberg's upsert",
        "keys": keys,
        "records": some.num_rows,
        "commits": 1,
        "seconds": round(wall, 2),
        "processor seconds": round(cpu, 2),
        "records/s": round(some.num_rows / wall),
        "memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main(arguments: Sequence[str]) -> int:
    """Measure what the command line asks for, and print each figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline.upserting", description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--changes", type=int, nargs="*", default=[1_000, 100_000, 1_000_000, 1_000_000])
    parser.add_argument("--peer-keys", type=int, default=200_000)
    parser.add_argument("--peer-changes", type=int, default=20_000)
    parser.add_argument("--formats", nargs="*", default=["delta", "iceberg"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    found: list[dict[str, object]] = []

    def told(figures: dict[str, object]) -> None:
        found.append({**figures, "load": round(os.getloadavg()[0], 1)})
        print("  ".join(f"{name} {value}" for name, value in found[-1].items()), flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps({"machine": machine(), "figures": found}, indent=1))

    with tempfile.TemporaryDirectory() as folder:
        if options.peer_keys:
            told(peer(options.peer_keys, options.peer_changes, folder))
        for tableFormat in options.formats:
            if options.peer_keys:
                for figures in measured(tableFormat, options.peer_keys, [options.peer_changes], folder):
                    told(figures)
            for figures in measured(tableFormat, options.keys, options.changes, folder):
                told(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
