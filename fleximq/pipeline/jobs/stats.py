"""``fleximq-pipeline stats``: windowed statistics of each topic, written to a table and published to topics.

A window is over when the newest message is later than its end by the allowed lateness; then its row is written once,
and later messages of the window are ignored. A message counts at the median time of the next 15, or at the present, if
its own time is later by more than the allowed lateness: a single jump of a broker's clock ends no windows.

``topic``, ``start`` and ``end`` name a window; ``messages`` and ``bytes`` (of payloads) are counts. ``publishers`` is
the number of clients, 5 % more or less for large numbers. ``gaps`` counts the silences, seconds without a message, of
at least the requested length; ``longest_gap`` is the longest in seconds. ``latency_p50``, ``latency_p90``,
``latency_p99`` and ``latency_max`` are milliseconds from the time in the headers until the broker received a message,
else null. The memory of a window is bounded: 3,600 steps for the silences, and a sketch each for publishers and
latency.
"""

import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from fleximq.limits import TOPIC_BYTES
from fleximq.pipeline.command import job
from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.lake.storage.lake_files import FILES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Where rows are published.
_PUBLISHED = "$stats/"
#: Maximum number of steps of a window, each silent or not.
_STEPS = 3600
_SECOND = 1_000_000
#: Number of messages whose times are compared with that of the one before them.
_NEXT = 15
#: Percentiles are right within a 1,000th of the messages.
_ACCURACY = 1000
#: Seconds between two checks of the query's state.
_LOOK = 0.5
#: Seconds to wait for the current batch when the job is stopped.
_STOP_TIMEOUT = 10.0


def _prepare(parser: ArgumentParser) -> None:
    job.addSource(parser, mayLose=True)
    source = parser.add_argument_group("source")
    add = partial(job.option, source)
    add("--window", "TIME", "the length of a window (1m)", job.duration, default=60_000_000)
    add("--late", "TIME", "the allowed lateness of messages (10s)", job.duration, default=10_000_000)
    add("--gap", "TIME", "a silence of so many seconds or more is a gap (10s)", job.duration, default=10_000_000)
    words = "the header key with the time when a message was sent: milliseconds since 1970, or ISO 8601"
    add("--sent-at", "KEY", words)
    job.addStart(source)
    group = parser.add_argument_group("destination")
    job.option(group, "--table", "FOLDER", "the table, a folder of Parquet files")
    job.option(
        group, "--publish", "URL", "the broker to publish each row at, to $stats/ and the topic's name", job.place
    )
    job.addStream(group, "_checkpoint in the table's folder", 10_000_000)


def _run(arguments: Namespace, run: JobRun) -> None:
    """Count until stopped, or until all is counted; raises OptionRefused if an option is missing or invalid."""
    source = job.sourceAlone(arguments)
    checkpoint = arguments.checkpoint or (arguments.table and f"{arguments.table.rstrip('/')}/_checkpoint")
    if not (arguments.table or arguments.publish):
        raise OptionRefused("--table FOLDER or --publish URL is needed: it says where the numbers go")
    if not checkpoint:
        raise OptionRefused("--checkpoint FOLDER is needed where there is no --table")
    if arguments.gap % 1_000_000:
        raise OptionRefused("--gap must be whole seconds")
    source |= {"startingOffsets": arguments.starting}
    job.checkSource(source)
    rows: list[int] = []
    query = _start(run.session(), arguments, source, checkpoint, rows)
    run.writeLine(f"counting into {' and '.join(filter(None, (arguments.table, arguments.publish)))}")
    late = _follow(query, run)
    run.writeLine(f"{sum(rows)} rows written")
    if late:
        run.writeLine(f"warning: messages of {late} windows of topics were too late for --late, and are not counted")


def _start(
    spark: "SparkSession", arguments: Namespace, source: dict[str, str], checkpoint: str, wrote: list[int]
) -> "StreamingQuery":
    """Return the started query; ``wrote`` gets the number of rows of each batch."""
    from fleximq.pipeline.source import FlexiMQSource

    spark.dataSource.register(FlexiMQSource)
    columns = "journal,topic,timestamp,publisher,value" + (",headers" if arguments.sent_at else "")
    rows = spark.readStream.format("fleximq").options(**source, columns=columns).load()
    counted = _windowStatistics(rows, arguments.window, arguments.late, arguments.gap, arguments.sent_at)
    broker = {**job.brokerOptions(arguments), "url": arguments.publish}

    def keep(batch: "DataFrame", number: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        batch.persist()
        try:
            if arguments.table:
                _written(batch, arguments.table, f"{query}-{number:010d}")
            if arguments.publish:
                _published(batch, broker | {"txnAppId": f"stats-{query}", "txnVersion": str(number)})
            wrote.append(batch.count())
        finally:
            batch.unpersist()

    writer = counted.writeStream.outputMode("append").option("checkpointLocation", checkpoint).foreachBatch(keep)
    if arguments.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=job.interval(arguments.trigger)).start()


def _follow(query: "StreamingQuery", run: JobRun) -> int:
    """Report progress until the query ends or the job is stopped, and return the number of windows that late messages
    belong to; raises StreamingQueryException if it has failed.
    """
    done, late, last = 0, 0, ""

    def look() -> None:
        # Several batches may have ended since the last look; an empty one has the number of the next one.
        nonlocal done, late, last
        new = [each for each in query.recentProgress if each["timestamp"] > last]
        if new:
            last = new[-1]["timestamp"]
            done += sum(each["numInputRows"] for each in new)
            late += sum(part["numRowsDroppedByWatermark"] for each in new for part in each["stateOperators"])
            run.progress("counted", done, None, "messages")

    try:
        while query.isActive and not run.stopping.wait(_LOOK):
            look()
        # An interrupted batch would be repeated.
        deadline = time.monotonic() + _STOP_TIMEOUT
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(_LOOK / 10)
        look()
    finally:
        query.stop()
    query.awaitTermination()
    return late


def _windowStatistics(rows: "DataFrame", window: int, late: int, gap: int, sentAt: str | None) -> "DataFrame":
    """Return one row for each topic and window that is over, as a stream; topics with statistics are left out.

    :param rows: have the source's columns journal, topic, timestamp, publisher, value, and headers if ``sentAt`` names
        the one with the time when a message was sent.
    :param window: its length, ``late`` the allowed lateness, ``gap`` the minimum of a silence, all in microseconds.
    """
    from pyspark.sql import functions as F

    # A second, or the fewest whole seconds that are enough.
    step = max(1, -(-window // (_STEPS * _SECOND))) * _SECOND
    latency = F.lit(None).cast("double")
    if sentAt is not None:
        sent = F.col("headers")[sentAt]
        # Milliseconds since a time that was sent as text; NaN is larger than an infinity.
        number = sent.try_cast("double")
        number = F.when(F.abs(number) < F.lit(float("inf")), number)
        moment = F.coalesce(number, F.unix_micros(F.try_to_timestamp(sent)) / 1000)
        latency = F.unix_micros("timestamp") / 1000 - moment
    chosen = rows.where(~F.startswith("topic", F.lit(_PUBLISHED))).select(
        "journal", "topic", "timestamp", "publisher", F.octet_length("value").alias("size"), latency.alias("latency")
    )
    counted = (
        chosen.mapInArrow(partial(plausibleTimes, late=late), chosen.schema)
        .withWatermark("timestamp", job.interval(late))
        .groupBy(F.window("timestamp", job.interval(window)).alias("window"), "topic")
        .agg(
            F.count("*").alias("messages"),
            F.sum(F.coalesce("size", F.lit(0))).cast("bigint").alias("bytes"),
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


def plausibleTimes(
    batches: Iterable["pa.RecordBatch"], late: int, now: Callable[[], float] = time.time
) -> Iterator["pa.RecordBatch"]:
    """Yield the messages of a part of a journal. A time that is more than ``late`` microseconds after the median of the
    next ones, or after the present, is replaced by it; ``now`` is in seconds since 1970.
    """
    import numpy as np
    import pyarrow as pa

    found = list(batches)
    if not found:
        return
    place = found[0].schema.get_field_index("timestamp")
    times = np.concatenate([batch.column(place).cast(pa.int64()).to_numpy() for batch in found])
    present = int(now() * _SECOND)
    bounded = np.where(times - present > late, present, times)
    if (bounded - np.minimum.accumulate(bounded[::-1])[::-1] > late).any():
        # Messages that do not exist yet count as later ones.
        padded = np.append(bounded[1:], np.full(_NEXT, np.iinfo(np.int64).max))
        usual = np.median(np.lib.stride_tricks.sliding_window_view(padded, _NEXT)[: len(times)], axis=1)
        bounded = np.where(bounded > usual + late, usual, bounded).astype(np.int64)
    for batch in found:
        column, bounded = pa.array(bounded[: len(batch)]), bounded[len(batch) :]
        field = batch.schema.field(place)
        yield batch.set_column(place, field, column.cast(field.type))


def _written(rows: "DataFrame", table: str, name: str) -> None:
    """Write rows as one file of this name to a table; a repeated write replaces it."""
    import pyarrow.parquet as pq

    from fleximq.pipeline.lake.table.file_names import fileName

    found = rows.toArrow()
    if found.num_rows:
        os.makedirs(table, exist_ok=True)
        draft = f"{table}/_{fileName(name)}.draft"
        with open(draft, "wb") as file:
            pq.write_table(found, file, compression="zstd")
        FILES.synced(draft)
        os.replace(draft, f"{table}/{name}.parquet")
        FILES.syncFolder(table)


def _published(rows: "DataFrame", options: Mapping[str, str]) -> None:
    """Publish rows, each as a map to the topic of its statistics."""
    from pyspark.sql import functions as F

    prefix = F.lit(_PUBLISHED)
    name = F.concat(prefix, F.col("topic"))
    # A name that would be too long becomes its hash; the map itself has the full name.
    hashed = F.concat(prefix, F.sha2("topic", 256))
    short = F.when(F.octet_length(name) > TOPIC_BYTES, hashed).otherwise(name)
    messages = rows.select(short.alias("topic"), F.struct(*rows.columns).alias("value"))
    messages.coalesce(1).write.format("fleximq").mode("append").options(**options).save()


STATS = job.Job(_prepare, _run)
