"""Hostile messages on their way into a lake, without Spark: several batches of an ingest, and all that maintains it."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from fleximq.pipeline import lake as lakes
from fleximq.pipeline.files.schema import ALL_COLUMNS, schemaOf
from fleximq.pipeline.lake.compaction import compact
from fleximq.pipeline.lake.expiration import expireDays
from fleximq.pipeline.lake.ingest_driver import TableIngest
from fleximq.pipeline.lake.ingest_task import stage
from fleximq.pipeline.lake.live_files import liveFiles
from fleximq.pipeline.lake.redecoding import redecode
from fleximq.pipeline.lake.table.columns import requiredColumns
from fleximq.pipeline.lake.table.file_merge import aligned
from fleximq.pipeline.lake.table.table_log import CompactionGoal
from fleximq.pipeline.lake.table.table_spec import TableSpec
from fleximq.pipeline.lake.task_reports import TaskReports
from fleximq.values.message import Content, Message
from fleximq.values.records import contentOf
from tests.pipeline.lake.hostile.column_values import canonical
from tests.pipeline.lake.hostile.expected_values import complaint, missingColumns
from tests.pipeline.lake.hostile.messages import GONE, HostileMessage
from tests.pipeline.lake.tables import DAY, JOURNAL, TIME

_SOURCE = schemaOf(ALL_COLUMNS)
#: Merge everything at once.
_GOAL = CompactionGoal(1 << 20, -1e9, 2)
_TRIES = 20


class HostileLake(NamedTuple):
    """The lake to make: its folder, the tables' format, layout and specifications."""

    folder: str
    format: str
    layout: str | None
    specs: tuple[TableSpec, ...]


def recordsOf(messages: Sequence[HostileMessage], first: int) -> pa.RecordBatch:
    """Return messages as the source gives them, with offsets from ``first`` on."""
    columns = {
        "journal": [JOURNAL] * len(messages),
        "topic": [each.topic for each in messages],
        "offset": range(first, first + len(messages)),
        "timestamp": [each.time for each in messages],
        "publisher": [7] * len(messages),
        "dialect": ["fleximq"] * len(messages),
        "value": [each.payload for each in messages],
        "content": [contentOf(Message(b"", each.content)) for each in messages],
    }
    made = [pa.array(columns.get(field.name, [None] * len(messages)), field.type) for field in _SOURCE]
    return pa.record_batch(made, schema=_SOURCE)


def fill(wanted: HostileLake, messages: Sequence[HostileMessage], random: Random) -> dict[str, list[pa.Schema]]:
    """Ingest messages in three batches, and compact, expire and redecode between and after them, in any order; return
    the columns that each table had after each batch. Raises any error, and AssertionError if a table is incomplete.
    """
    columns: dict[str, list[pa.Schema]] = {spec.name: [] for spec in wanted.specs}
    third = -(-len(messages) // 3)
    jobs = [_compact, _redecode, _expire]
    for number, start in enumerate(range(0, len(messages), max(1, third))):
        _ingest(wanted, number, messages[start : start + third], start)
        for spec in wanted.specs:
            table = f"{wanted.folder}/{spec.name}"
            columns[spec.name].append(requiredColumns(table).fields)
            random.choice(jobs)(table, spec)
    for spec in wanted.specs:
        for job in random.sample(jobs, len(jobs)):
            job(f"{wanted.folder}/{spec.name}", spec)
        found = lakes.audit(f"{wanted.folder}/{spec.name}")
        assert found == [], found
    return columns


def _ingest(wanted: HostileLake, number: int, messages: Sequence[HostileMessage], first: int) -> None:
    batch = recordsOf(messages, first)
    told = json.dumps({"start": {JOURNAL: first}, "end": {JOURNAL: first + len(messages)}, "gaps": {}})
    form = {"format": wanted.format}
    with TableIngest(wanted.folder, wanted.specs, form, False, layout=wanted.layout) as feeding:
        for _ in range(_TRIES):
            reports = TaskReports.of([told, *stage(wanted.folder, wanted.specs, JOURNAL, number, [batch], [])])
            if not feeding.evolve(reports):
                feeding.publish(number, reports)
                return
    raise AssertionError("the columns keep growing")


def _compact(table: str, spec: TableSpec) -> None:
    list(compact(table, _GOAL))


def _redecode(table: str, spec: TableSpec) -> None:
    list(redecode(table, spec))


def _expire(table: str, spec: TableSpec) -> None:
    expireDays(table, [(GONE, 86_400.0)], (TIME + 20 * DAY) / 1_000_000)


def rowsOf(rows: pa.Table, schema: pa.Schema) -> list[dict[str, Any]]:
    """Return a reader's rows of a table, whose schema this is, by offset."""
    columns = {field.name: canonical(rows.column(field.name), field.type) for field in schema}
    found = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return sorted(found, key=lambda row: row["offset"])


def storedRows(table: str) -> pa.Table:
    """Return the rows of a table's live files, read one by one."""
    schema = requiredColumns(table).schema
    files = [pq.ParquetFile(f"{table}/{path}").read() for path, _ in liveFiles(table)]
    return pa.concat_tables([schema.empty_table(), *(aligned(each, schema) for each in files)])


def faultsOf(
    wanted: HostileLake, spec: TableSpec, messages: Sequence[HostileMessage], columns: list[pa.Schema], rows: pa.Table
) -> dict[int, str]:
    """Return why rows that a reader has are wrong, by the place of the message."""
    known = requiredColumns(f"{wanted.folder}/{spec.name}")
    found = rowsOf(rows, known.schema)
    faults = {}
    third = max(1, -(-len(messages) // 3))
    left = {place for place, each in enumerate(messages) if each.topic != GONE}
    for row in found:
        place = row["offset"]
        if place in left:
            left.remove(place)
        elif not (row["reason"] is not None and messages[place].topic == GONE):
            faults[place] = "its row should be gone, or is there twice"
        message = messages[place]
        if spec.decode == "messagepack":
            message = message._replace(content=Content.MESSAGEPACK)
        topic = message.topic if row["reason"] is None else f"{message.topic}~dlq"
        if (row["topic"], row["value"], row["timestamp"]) != (topic, message.payload, message.time):
            faults[place] = f"its row has another topic, time or payload: {row['topic']!r}"
            continue
        if len(known.fields) and spec.decode != "raw":
            late = frozenset(field.name for field in set(known.fields) - set(columns[place // third]))
            values = {field: row[name] for field, name in zip(known.fields.names, known.names, strict=True)}
            why = complaint(message, values, row["reason"], known.fields, late)
            if spec.isInferred and not why and row["reason"] is None:
                absent = missingColumns(message, known.fields, wanted.format == "iceberg")
                why = f"its keys have no column: {absent}" if absent else ""
            if why:
                faults[place] = why
    return faults | dict.fromkeys(left, "it has no row")
