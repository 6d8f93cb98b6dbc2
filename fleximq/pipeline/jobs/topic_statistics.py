"""Statistics of each topic in windows of time: the columns that ``fleximq-pipeline stats`` writes.

``topic``, ``start`` and ``end`` name a window; ``messages`` and ``bytes`` (of payloads) are counts. ``publishers`` is
the number of clients, 5 % more or less for large numbers. ``gaps`` counts the silences, seconds without a message, of
at least the requested length; ``longest_gap`` is the longest in seconds. ``latency_p50``, ``latency_p90``,
``latency_p99`` and ``latency_max`` are milliseconds from the time in the headers until the broker received a message,
else null. The memory of a window is bounded: 3,600 steps for the silences, and a sketch each for publishers and
latency.
"""

import os
from collections.abc import Mapping

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fleximq.journal.files.file_system import Files
from fleximq.limits import TOPIC_BYTES
from fleximq.pipeline.command.job import interval
from fleximq.pipeline.lake.table.parquet_writer import synced

#: Where rows are published.
STATS = "$stats/"
#: Maximum number of steps of a window, each silent or not.
_STEPS = 3600
_SECOND = 1_000_000
#: Percentiles are right within a 1,000th of the messages.
_ACCURACY = 1000


def windowStatistics(rows: DataFrame, window: int, late: int, gap: int, sentAt: str | None = None) -> DataFrame:
    """Return one row for each topic and window that is over, as a stream; topics with statistics are left out.

    :param rows: have the source's columns journal, topic, timestamp, publisher, value, and headers if ``sentAt`` names
        the one with the time when a message was sent.
    :param window: its length, ``late`` the allowed lateness, ``gap`` the minimum of a silence, all in microseconds.
    """
    # A second, or the fewest whole seconds that are enough.
    step = max(1, -(-window // (_STEPS * _SECOND))) * _SECOND
    latency = F.lit(None).cast("double")
    if sentAt is not None:
        sent = F.col("headers")[sentAt]
        # Milliseconds since a time that was sent as text.
        moment = F.coalesce(sent.try_cast("double"), F.unix_micros(F.try_to_timestamp(sent)) / 1000)
        latency = F.unix_micros("timestamp") / 1000 - moment
    counted = (
        rows.where(~F.startswith("topic", F.lit(STATS)))
        .withColumn("latency", latency)
        .withWatermark("timestamp", interval(late))
        .groupBy(F.window("timestamp", interval(window)).alias("window"), "topic")
        .agg(
            F.count("*").alias("messages"),
            F.sum(F.coalesce(F.octet_length("value"), F.lit(0))).cast("bigint").alias("bytes"),
            F.approx_count_distinct(F.struct("journal", "publisher")).alias("publishers"),
            F.collect_set(F.expr(f"unix_micros(timestamp) div {step}")).alias("steps"),
            F.percentile_approx("latency", [0.5, 0.9, 0.99], _ACCURACY).alias("latencies"),
            F.max("latency").alias("latency_max"),
        )
    )
    # Count the silent steps between two steps with messages, before the first one and after the last one.
    silences = F.expr(f"""
        zip_with(
            concat(array(unix_micros(window.start) div {step} - 1), array_sort(steps)),
            concat(array_sort(steps), array((unix_micros(window.end) + {step} - 1) div {step})),
            (before, after) -> (after - before - 1) * {step}
        )
    """)
    return counted.withColumn("silences", silences).select(
        "topic",
        F.col("window.start").alias("start"),
        F.col("window.end").alias("end"),
        "messages",
        "bytes",
        "publishers",
        F.expr(f"size(filter(silences, each -> each >= {gap}))").cast("bigint").alias("gaps"),
        (F.array_max("silences") / _SECOND).alias("longest_gap"),
        *(F.col("latencies")[place].alias(f"latency_p{of}") for place, of in enumerate((50, 90, 99))),
        "latency_max",
    )


def written(rows: DataFrame, table: str, name: str) -> None:
    """Write rows as one file of this name to a table; a repeated write replaces it."""
    found = rows.toArrow()
    if found.num_rows:
        os.makedirs(table, exist_ok=True)
        draft = f"{table}/_{name}.draft"
        with open(draft, "wb") as file:
            pq.write_table(found, file, compression="zstd")
        synced(draft)
        os.replace(draft, f"{table}/{name}.parquet")
        Files().syncFolder(table)


def published(rows: DataFrame, options: Mapping[str, str]) -> None:
    """Publish rows, each as a map to the topic of its statistics."""
    names = F.concat(F.lit(STATS), F.col("topic"))
    # A name that would be too long becomes its hash; the map itself has the full name.
    short = F.when(F.octet_length(names) > TOPIC_BYTES, F.concat(F.lit(STATS), F.sha2("topic", 256))).otherwise(names)
    messages = rows.select(short.alias("topic"), F.struct(*rows.columns).alias("value"))
    messages.coalesce(1).write.format("fleximq").mode("append").options(**options).save()
