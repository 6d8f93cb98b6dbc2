"""``fleximq-pipeline stats``: windowed statistics of each topic, written to a table and published to topics.

A window is over when the newest message is later than its end by the allowed lateness; then its row is written once,
and later messages of the window are ignored. :mod:`fleximq.pipeline.jobs.topic_statistics` describes the rows.
"""

import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from fleximq.config import option_values
from fleximq.pipeline.command.job import (
    Job,
    JobContext,
    addSource,
    brokerOptions,
    checkSource,
    duration,
    interval,
    option,
    place,
    sourceOptions,
    streamStart,
)
from fleximq.pipeline.errors import OptionRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: The options for the connection to a broker; a source that reads a folder has none of them.
_BROKERS = ("url", "token", "caFile", "certFile", "keyFile")
#: Seconds between two checks of the query's state.
_LOOK = 0.5
#: Seconds to wait for the current batch when the job is stopped.
_STOP_TIMEOUT = 10.0


def prepare(parser: ArgumentParser) -> None:
    """Add the options."""
    addSource(parser)
    group = parser.add_argument_group("source")
    add = option
    add(group, "--window", read=duration, default=60_000_000, metavar="TIME", help="the length of a window (1m)")
    add(
        group,
        "--late",
        read=duration,
        default=10_000_000,
        metavar="TIME",
        help="the allowed lateness of messages (10s)",
    )
    add(
        group,
        "--gap",
        read=duration,
        default=10_000_000,
        metavar="TIME",
        help="a silence of so many seconds or more is a gap (10s)",
    )
    add(
        group,
        "--sent-at",
        read=option_values.text,
        metavar="KEY",
        help="the header key with the time when a message was sent: milliseconds since 1970, or ISO 8601",
    )
    add(
        group,
        "--starting",
        read=streamStart,
        default="earliest",
        metavar="WHERE",
        help="the start of a new query: earliest, latest or an offset (earliest)",
    )
    group = parser.add_argument_group("destination")
    add(group, "--table", read=option_values.text, metavar="FOLDER", help="the table, a folder of Parquet files")
    add(
        group,
        "--publish",
        read=place,
        metavar="URL",
        help="the broker to publish each row at, to $stats/ and the topic's name",
    )
    add(
        group,
        "--checkpoint",
        read=option_values.text,
        metavar="FOLDER",
        help="the folder of Spark's checkpoint (_checkpoint in the table's folder)",
    )
    add(
        group,
        "--trigger",
        read=duration,
        default=10_000_000,
        metavar="TIME",
        help="how often it looks for messages (10s)",
    )
    add(group, "--once", action="store_true", help="end after the messages that exist now")


def run(arguments: Namespace, run: JobContext) -> None:
    """Count until stopped, or until all is counted; raises OptionRefused if an option is missing or invalid."""
    source = sourceOptions(arguments)
    checkpoint = arguments.checkpoint or (arguments.table and f"{arguments.table.rstrip('/')}/_checkpoint")
    if not (arguments.table or arguments.publish):
        raise OptionRefused("--table FOLDER or --publish URL is needed: it says where the numbers go")
    if not checkpoint:
        raise OptionRefused("--checkpoint FOLDER is needed where there is no --table")
    if arguments.gap % 1_000_000:
        raise OptionRefused("--gap must be whole seconds")
    brokers = brokerOptions(arguments)
    if "path" in source:
        source = {name: value for name, value in source.items() if name not in _BROKERS}
    source |= {"startingOffsets": arguments.starting}
    checkSource(source)
    publish = {**brokers, "url": arguments.publish} if arguments.publish else None
    query = start(run.session(), arguments, source, checkpoint, publish)
    run.writeLine(f"counting into {' and '.join(filter(None, (arguments.table, arguments.publish)))}")
    follow(query, run)


def start(
    spark: "SparkSession", arguments: Namespace, source: dict[str, str], checkpoint: str, publish: dict[str, str] | None
) -> "StreamingQuery":
    """Return the started query."""
    from fleximq.pipeline.jobs.topic_statistics import published, windowStatistics, written
    from fleximq.pipeline.source import FlexiMQSource

    spark.dataSource.register(FlexiMQSource)
    columns = "journal,topic,timestamp,publisher,value" + (",headers" if arguments.sent_at else "")
    rows = spark.readStream.format("fleximq").options(**source, columns=columns).load()
    counted = windowStatistics(rows, arguments.window, arguments.late, arguments.gap, arguments.sent_at)

    def keep(batch: "DataFrame", number: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        batch.persist()
        try:
            if arguments.table:
                written(batch, arguments.table, f"{query}-{number:010d}")
            if publish is not None:
                published(batch, publish | {"txnAppId": f"stats-{query}", "txnVersion": str(number)})
        finally:
            batch.unpersist()

    writer = counted.writeStream.outputMode("append").option("checkpointLocation", checkpoint).foreachBatch(keep)
    writer = (
        writer.trigger(availableNow=True)
        if arguments.once
        else writer.trigger(processingTime=interval(arguments.trigger))
    )
    return writer.start()


def follow(query: "StreamingQuery", run: JobContext) -> None:
    """Report progress until the query has ended or the job is stopped; raises StreamingQueryException if it has failed."""
    done, last = 0, ""
    try:
        while query.isActive and not run.stopping.wait(_LOOK):
            # Several batches may have ended since the last check; an empty one has the number of the next one.
            new = [each for each in query.recentProgress if each["timestamp"] > last]
            if new:
                last = new[-1]["timestamp"]
                done += sum(each["numInputRows"] for each in new)
                run.progress("counted", done, None, "messages")
        _awaitBatch(query)
    finally:
        query.stop()
    query.awaitTermination()


def _awaitBatch(query: "StreamingQuery") -> None:
    """Wait a limited time for the end of the current batch: an interrupted batch would be repeated."""
    deadline = time.monotonic() + _STOP_TIMEOUT
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(_LOOK / 10)


STATS = Job("stats", "Count the messages of each topic in windows of time.", prepare, run)
