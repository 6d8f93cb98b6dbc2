"""``fleximq-pipeline stats``: what went through each topic in each window of time, as a table and back into topics.

A window is over when the newest message is so much later than its end as messages may be late; then its row is written,
once, and nothing that comes for it afterwards counts. What a row says is in
:mod:`fleximq.pipeline.jobs.topic_statistics`.
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
    starting,
)
from fleximq.pipeline.errors import OptionRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: What says how a broker is reached; a source that reads a folder has nothing of it.
_BROKERS = ("url", "token", "caFile", "certFile", "keyFile")
#: Seconds between two looks at what the query does.
_LOOK = 0.5
#: Seconds for which a batch may go on that had begun when the job was told to stop.
_PATIENCE = 10.0


def prepare(parser: ArgumentParser) -> None:
    """Add the options."""
    addSource(parser)
    group = parser.add_argument_group("what is counted")
    add = option
    add(group, "--window", read=duration, default=60_000_000, metavar="TIME", help="the length of a window (1m)")
    add(
        group,
        "--late",
        read=duration,
        default=10_000_000,
        metavar="TIME",
        help="a window is over when a message is so much later than its end (10s)",
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
        read=starting,
        default="earliest",
        metavar="WHERE",
        help="where it begins the first time: earliest, latest or an offset (earliest)",
    )
    group = parser.add_argument_group("where it goes")
    add(group, "--table", read=option_values.text, metavar="FOLDER", help="the table, a folder of Parquet files")
    add(
        group,
        "--publish",
        read=place,
        metavar="URL",
        help="the broker at which each row is published, to $stats/ and the topic's name",
    )
    add(
        group,
        "--checkpoint",
        read=option_values.text,
        metavar="FOLDER",
        help="where it remembers what is done (_checkpoint in the table's folder)",
    )
    add(
        group,
        "--trigger",
        read=duration,
        default=10_000_000,
        metavar="TIME",
        help="how often it looks for messages (10s)",
    )
    add(group, "--once", action="store_true", help="end when everything is counted that is there now")


def run(chosen: Namespace, run: JobContext) -> None:
    """Count until told to stop, or until all is counted.

    :raises OptionRefused: an option is missing, or cannot be.
    """
    source = sourceOptions(chosen)
    checkpoint = chosen.checkpoint or (chosen.table and f"{chosen.table.rstrip('/')}/_checkpoint")
    if not (chosen.table or chosen.publish):
        raise OptionRefused("--table FOLDER or --publish URL is needed: it says where the numbers go")
    if not checkpoint:
        raise OptionRefused("--checkpoint FOLDER is needed where there is no --table")
    if chosen.gap % 1_000_000:
        raise OptionRefused("--gap must be whole seconds")
    brokers = brokerOptions(chosen)
    if "path" in source:
        source = {name: value for name, value in source.items() if name not in _BROKERS}
    source |= {"startingOffsets": chosen.starting}
    checkSource(source)
    publish = {**brokers, "url": chosen.publish} if chosen.publish else None
    query = start(run.session(), chosen, source, checkpoint, publish)
    run.say(f"counting into {' and '.join(filter(None, (chosen.table, chosen.publish)))}")
    follow(query, run)


def start(
    spark: "SparkSession", chosen: Namespace, source: dict[str, str], checkpoint: str, publish: dict[str, str] | None
) -> "StreamingQuery":
    """Return the query, which has begun."""
    from fleximq.pipeline.jobs.topic_statistics import figures, published, written
    from fleximq.pipeline.source import FlexiMQSource

    spark.dataSource.register(FlexiMQSource)
    columns = "journal,topic,timestamp,publisher,value" + (",headers" if chosen.sent_at else "")
    rows = spark.readStream.format("fleximq").options(**source, columns=columns).load()
    counted = figures(rows, chosen.window, chosen.late, chosen.gap, chosen.sent_at)

    def keep(batch: "DataFrame", number: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        batch.persist()
        try:
            if chosen.table:
                written(batch, chosen.table, f"{query}-{number:010d}")
            if publish is not None:
                published(batch, publish | {"txnAppId": f"stats-{query}", "txnVersion": str(number)})
        finally:
            batch.unpersist()

    writer = counted.writeStream.outputMode("append").option("checkpointLocation", checkpoint).foreachBatch(keep)
    writer = (
        writer.trigger(availableNow=True) if chosen.once else writer.trigger(processingTime=interval(chosen.trigger))
    )
    return writer.start()


def follow(query: "StreamingQuery", run: JobContext) -> None:
    """Return when a query has ended, or was told to; say meanwhile what it does.

    :raises StreamingQueryException: it has failed.
    """
    done, last = 0, ""
    try:
        while query.isActive and not run.stopping.wait(_LOOK):
            # Several batches may have ended since the last look; one without rows has the number of the next one.
            new = [each for each in query.recentProgress if each["timestamp"] > last]
            if new:
                last = new[-1]["timestamp"]
                done += sum(each["numInputRows"] for each in new)
                run.progress("counted", done, None, "messages")
        _settle(query)
    finally:
        query.stop()
    query.awaitTermination()


def _settle(query: "StreamingQuery") -> None:
    """Return between two batches, if that does not take too long: a batch that is interrupted is done again."""
    deadline = time.monotonic() + _PATIENCE
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(_LOOK / 10)


STATS = Job("stats", "Count what topics get in each window of time.", prepare, run)
