"""The rows of a replay in slices that fit into memory, ordered by journal and offset."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.reader.offsets import Point, StartKind
from fleximq.values.patterns import anyOf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Returns all rows of some journals in ranges of offsets, or all for None.
Span = Callable[[Mapping[str, tuple[int, int]] | None], "DataFrame"]
#: Approximate maximum rows and bytes of payloads in memory.
ROWS, BYTES = 100_000, 64 << 20
#: Number of offsets for which rows are counted together.
_GRAIN = 4096
#: Topics where only the broker publishes.
_BROKERS_OWN = ("$sys/", "$dead/")


class ReplaySlice(NamedTuple):
    """Some rows: those of a journal with offsets from ``start`` up to ``stop``."""

    journal: str
    start: int
    stop: int
    rows: int
    bytes: int


class ReplayFilter(NamedTuple):
    """The rows to publish, by a condition in SQL, and their topics, with ``{topic}`` for the original one."""

    where: str | None = None
    topic: str = "{topic}"

    def of(self, rows: "DataFrame") -> "DataFrame":
        """Return the selected rows for the sink, without topics of the broker; raises OptionRefused."""
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F

        if self.where is not None:
            try:
                rows = rows.where(self.where)
            except PySparkException as error:
                raise OptionRefused(f"--where cannot be used: {str(error).splitlines()[0]}") from error
        first, *others = (F.lit(text) for text in self.topic.split("{topic}"))
        topic = F.concat(first, *(part for text in others for part in (F.col("topic"), text)))
        for prefix in _BROKERS_OWN:
            rows = rows.where(~F.startswith(topic, F.lit(prefix)))
        # A text key is among the headers as text, and must stay one.
        key = F.expr("CASE WHEN encode(headers['key'], 'UTF-8') = key THEN NULL ELSE key END")
        return rows.select("journal", "offset", "timestamp", topic.alias("topic"), "dialect", "headers",
                           key.alias("key"), "value", *(["content"] if "content" in rows.columns else []))  # fmt: skip


@dataclass
class Origin:
    """The source of the rows."""

    span: Span
    rowFilter: ReplayFilter

    def pieces(self, after: tuple[str, int], ends: Mapping[str, int] | None) -> list[ReplaySlice]:
        """Return the slices after a point, in order, up to the ends of the journals; None: to the end of all."""
        from pyspark.sql import functions as F

        journal, offset = after
        later = (F.col("journal") > journal) | ((F.col("journal") == journal) & (F.col("offset") >= offset))
        rows = self.rowFilter.of(self.span(None)).where(later)
        grouped = rows.groupBy("journal", F.expr(f"offset div {_GRAIN}").alias("grain"))
        size = F.sum(F.coalesce(F.octet_length("value"), F.lit(0))).cast("bigint")
        counted = grouped.agg(F.min("offset"), F.max("offset") + 1, F.count("*"), size).orderBy("journal", "grain")
        grains = [ReplaySlice(row[0], row[2], row[3], row[4], row[5]) for row in counted.collect()]
        if ends is not None:
            kept = (grain._replace(stop=min(grain.stop, ends.get(grain.journal, 0))) for grain in grains)
            grains = [grain for grain in kept if grain.start < grain.stop]
        return list(mergeSlices(grains))

    def rows(self, piece: ReplaySlice) -> "DataFrame":
        """Return the rows of a piece, in no order."""
        from pyspark.sql import functions as F

        rows = self.rowFilter.of(self.span({piece.journal: (piece.start, piece.stop)}))
        isIn = (F.col("offset") >= piece.start) & (F.col("offset") < piece.stop)
        return rows.where((F.col("journal") == piece.journal) & isIn)


def mergeSlices(grains: Sequence[ReplaySlice]) -> Iterator[ReplaySlice]:
    """Merge neighbouring slices as far as they fit into memory, and divide larger ones."""
    merged: ReplaySlice | None = None
    for part in (part for grain in grains for part in _divided(grain)):
        if merged is not None:
            rows, size = merged.rows + part.rows, merged.bytes + part.bytes
            if merged.journal == part.journal and rows <= ROWS and size <= BYTES:
                merged = ReplaySlice(merged.journal, merged.start, part.stop, rows, size)
                continue
            yield merged
        merged = part
    if merged is not None:
        yield merged


def _divided(piece: ReplaySlice) -> Iterator[ReplaySlice]:
    parts = min(piece.stop - piece.start, max(1, -(-piece.bytes // BYTES)))
    step = -(-(piece.stop - piece.start) // parts)
    for start in range(piece.start, piece.stop, step):
        stop = min(start + step, piece.stop)
        yield ReplaySlice(piece.journal, start, stop, -(-piece.rows // parts), -(-piece.bytes // parts))


def ofJournals(
    spark: "SparkSession", options: Mapping[str, str], start: Point, end: Point, sealed: str | None = None
) -> Span:
    """Return a reader of journals, or brokers, by the source's options, together with a folder of sealed history."""
    from fleximq.pipeline.files.schema import ALL_COLUMNS

    columns = ",".join(ALL_COLUMNS)
    known: list[str] = []

    def span(ranges: Mapping[str, tuple[int, int]] | None) -> "DataFrame":
        bounds = {}
        if ranges is None:
            bounds = {**_bound("starting", start), **_bound("ending", end)}
        else:
            if not known:
                known.extend(_journals(options, sealed))
            # Journals that are not named are read from their end on, so they give no rows.
            others = dict.fromkeys(known, -1)
            for place, name in enumerate(("startingOffsets", "endingOffsets")):
                bounds[name] = json.dumps(others | {journal: each[place] for journal, each in ranges.items()})
        arguments = {**options, **bounds, "columns": columns}
        if sealed is None:
            return spark.read.format("fleximq").options(**arguments).load()
        from fleximq.pipeline import history

        path = arguments.pop("path", None)
        return history.read(spark, json.loads(path) if path and path.startswith("[") else path, sealed, **arguments)

    return span


def _journals(options: Mapping[str, str], sealed: str | None) -> list[str]:
    from fleximq.pipeline.lake.sealed_segments import journalsIn
    from fleximq.pipeline.reader.journals import Journals
    from fleximq.pipeline.reader.source_options import SourceOptions

    found = set[str]() if sealed is None else {*journalsIn(sealed)}
    if {"path", "url"} & options.keys():
        with closing(Journals(SourceOptions.of(options))) as journals:
            found |= journals.find().keys()
    return list(found)


def _bound(which: str, point: Point) -> dict[str, str]:
    if point.kind is StartKind.TIME:
        return {f"{which}Timestamp": str(-(-point.value // 1000))}
    return {f"{which}Offsets": str(point.value) if point.kind is StartKind.OFFSET else point.kind.value}


def ofLake(spark: "SparkSession", table: str, topics: Mapping[str, Sequence[str]], start: Point, end: Point) -> Span:
    """Return a reader of a table, of topics named by ``subscribe`` or patterns of ``topics``; raises OptionRefused."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    from fleximq.pipeline.lake.locations import lakePath
    from fleximq.pipeline.query.tables import lakeTable

    try:
        # A folder's name may be too short for the full name of its topic; the files have it.
        rows = lakeTable(spark, lakePath(table), byFolder=False)
    except PySparkException as error:
        # Spark's own error fills a page.
        raise OptionRefused(f"{table} is no table of Parquet files") from error
    missing = {"journal", "topic", "offset", "timestamp", "dialect", "headers", "key", "value"} - set(rows.columns)
    if missing:
        raise OptionRefused(f"{table} has no column {' and no '.join(sorted(missing))}")
    if "reason" in rows.columns:
        # Messages that could not be decoded have another topic name here, but were published as others.
        own = F.when(F.col("reason").isNull(), F.col("topic")).otherwise(F.regexp_replace("topic", "~dlq$", ""))
        rows = rows.withColumn("topic", own)
    if topics:
        names = [row[0] for row in rows.select("topic").distinct().collect()]
        matches = anyOf(topics.get("topics", ()))
        named = frozenset(topics.get("subscribe", ()))
        rows = rows.where(F.col("topic").isin([name for name in names if name in named or matches(name)]))
    for point, after in ((start, True), (end, False)):
        column = {StartKind.OFFSET: F.col("offset"), StartKind.TIME: F.unix_micros("timestamp")}.get(point.kind)
        if column is not None:
            rows = rows.where(column >= point.value if after else column < point.value)
    return lambda ranges: rows
