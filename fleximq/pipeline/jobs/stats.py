"""``fleximq-pipeline stats``: windowed statistics of each topic, written to a table and published to topics.

A window is over when the newest message is later than its end by the allowed lateness; then its row is written once,
and later messages of the window are ignored.
"""

import time
from argparse import ArgumentParser, Namespace
from functools import partial
from typing import TYPE_CHECKING

from fleximq.pipeline.command.job import (
    Job,
    addLoss,
    addSource,
    addStart,
    addStream,
    brokerOptions,
    checkSource,
    duration,
    interval,
    option,
    place,
    sourceAlone,
)
from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import OptionRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Seconds between two checks of the query's state.
_LOOK = 0.5
#: Seconds to wait for the current batch when the job is stopped.
_STOP_TIMEOUT = 10.0


def _prepare(parser: ArgumentParser) -> None:
    addSource(parser)
    addLoss(parser)
    source = parser.add_argument_group("source")
    add = partial(option, source)
    add("--window", "TIME", "the length of a window (1m)", duration, default=60_000_000)
    add("--late", "TIME", "the allowed lateness of messages (10s)", duration, default=10_000_000)
    add("--gap", "TIME", "a silence of so many seconds or more is a gap (10s)", duration, default=10_000_000)
    add(
        "--sent-at", "KEY", "the header key with the time when a message was sent: milliseconds since 1970, or ISO 8601"
    )
    addStart(source)
    group = parser.add_argument_group("destination")
    option(group, "--table", "FOLDER", "the table, a folder of Parquet files")
    option(group, "--publish", "URL", "the broker to publish each row at, to $stats/ and the topic's name", place)
    addStream(group, "_checkpoint in the table's folder", 10_000_000)


def _run(arguments: Namespace, run: JobRun) -> None:
    """Count until stopped, or until all is counted; raises OptionRefused if an option is missing or invalid."""
    source = sourceAlone(arguments)
    checkpoint = arguments.checkpoint or (arguments.table and f"{arguments.table.rstrip('/')}/_checkpoint")
    if not (arguments.table or arguments.publish):
        raise OptionRefused("--table FOLDER or --publish URL is needed: it says where the numbers go")
    if not checkpoint:
        raise OptionRefused("--checkpoint FOLDER is needed where there is no --table")
    if arguments.gap % 1_000_000:
        raise OptionRefused("--gap must be whole seconds")
    source |= {"startingOffsets": arguments.starting}
    checkSource(source)
    rows: list[int] = []
    query = _start(run.session(), arguments, source, checkpoint, rows)
    run.writeLine(f"counting into {' and '.join(filter(None, (arguments.table, arguments.publish)))}")
    _follow(query, run)
    run.writeLine(f"{sum(rows)} rows written")


def _start(
    spark: "SparkSession", arguments: Namespace, source: dict[str, str], checkpoint: str, wrote: list[int]
) -> "StreamingQuery":
    """Return the started query; ``wrote`` gets the number of rows of each batch."""
    from fleximq.pipeline.jobs.topic_statistics import published, windowStatistics, written
    from fleximq.pipeline.source import FlexiMQSource

    spark.dataSource.register(FlexiMQSource)
    columns = "journal,topic,timestamp,publisher,value" + (",headers" if arguments.sent_at else "")
    rows = spark.readStream.format("fleximq").options(**source, columns=columns).load()
    counted = windowStatistics(rows, arguments.window, arguments.late, arguments.gap, arguments.sent_at)
    broker = {**brokerOptions(arguments), "url": arguments.publish}

    def keep(batch: "DataFrame", number: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        batch.persist()
        try:
            if arguments.table:
                written(batch, arguments.table, f"{query}-{number:010d}")
            if arguments.publish:
                published(batch, broker | {"txnAppId": f"stats-{query}", "txnVersion": str(number)})
            wrote.append(batch.count())
        finally:
            batch.unpersist()

    writer = counted.writeStream.outputMode("append").option("checkpointLocation", checkpoint).foreachBatch(keep)
    if arguments.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=interval(arguments.trigger)).start()


def _follow(query: "StreamingQuery", run: JobRun) -> None:
    """Report progress until the query ends or the job is stopped; raises StreamingQueryException if it has failed."""
    done, last = 0, ""
    try:
        while query.isActive and not run.stopping.wait(_LOOK):
            # Several batches may have ended since the last check; an empty one has the number of the next one.
            new = [each for each in query.recentProgress if each["timestamp"] > last]
            if new:
                last = new[-1]["timestamp"]
                done += sum(each["numInputRows"] for each in new)
                run.progress("counted", done, None, "messages")
        # An interrupted batch would be repeated.
        deadline = time.monotonic() + _STOP_TIMEOUT
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(_LOOK / 10)
    finally:
        query.stop()
    query.awaitTermination()


STATS = Job(_prepare, _run)
