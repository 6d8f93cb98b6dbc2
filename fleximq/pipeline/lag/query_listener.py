"""Listens to the streaming queries of a session, and tells brokers how far each is after every micro-batch."""

import json
import re
from collections.abc import Sequence
from threading import Condition
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from fleximq.pipeline.broker_link import Place
from fleximq.pipeline.lag.reporter import Reporter, groupName

#: The id of a journal.
_ID = re.compile(r"[0-9a-f]{32}")
#: Seconds that the end waits for the last words of queries.
_LAST_WORD = 5.0


def report(
    spark: SparkSession, url: str, group: str | None = None, query: str | None = None, **options: str
) -> "LagListener":
    """Tell brokers after each micro-batch how far the streaming queries of a session are; return what does it.

    It goes on until its ``close`` is called, which waits for the last words of queries that have ended. Only sources
    ``fleximq`` count.

    :param url: one broker, or several, separated by commas; each takes what is about its own journal.
    :param group: the name of the group; that of the query without it, or else its id.
    :param query: only the query with this name or id.
    :param options: how a broker is reached: ``token``, ``caFile`` and the like.
    :raises OptionRefused: one of them cannot be used.
    """
    places = [Place.of(options, each.strip()) for each in url.split(",")]
    listener = LagListener(spark, places, None if group is None else groupName(group), query)
    spark.streams.addListener(listener)
    return listener


class LagListener(StreamingQueryListener):
    """What :func:`fleximq.pipeline.lag.report` returns.

    :param group: the name of the group, None: that of each query.
    :param query: the name or id of the only query that counts.
    """

    def __init__(self, spark: SparkSession, places: Sequence[Place], group: str | None, query: str | None) -> None:
        self._spark = spark
        self._places = places
        self._group = group
        self._query = query
        self._reporters: dict[str, Reporter] = {}
        self._changed = Condition()
        self._running: set[str] = set()
        self._closed = False

    def close(self, seconds: float = _LAST_WORD) -> None:
        """Hear what the queries that have ended had to say, tell it, within this time each, and listen no longer."""
        active = {str(query.runId) for query in self._spark.streams.active}
        with self._changed:
            self._changed.wait_for(lambda: self._running <= active, seconds)
            self._closed = True
        self._spark.streams.removeListener(self)
        for reporter in self._reporters.values():
            reporter.close(seconds)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is done yet; how it ends will come."""
        with self._changed:
            self._running.add(str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Tell how far the query is: a micro-batch is done."""
        progress = event.progress
        names = (progress.name, str(progress.id))
        offsets = together([source.endOffset for source in progress.sources])
        if offsets and (self._query is None or self._query in names):
            self._tell(self._group or progress.name or str(progress.id), offsets)

    def _tell(self, group: str, offsets: dict[str, int]) -> None:
        with self._changed:
            if not self._closed:
                reporter = self._reporters.get(group)
                if reporter is None:
                    reporter = self._reporters[group] = Reporter(group, self._places)
                reporter.tell(offsets)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing has changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Its last word has come."""
        with self._changed:
            self._running.discard(str(event.runId))
            self._changed.notify_all()


def together(ends: Sequence[Any]) -> dict[str, int]:
    """Return the offsets at which a query's sources are, each as JSON; of a journal that is read twice, the lower one.

    Sources of another kind count for nothing.
    """
    found: dict[str, int] = {}
    for end in ends:
        for journal, next in _offsets(end).items():
            found[journal] = min(next, found.get(journal, next))
    return found


def _offsets(end: Any) -> dict[str, int]:
    try:
        offsets = json.loads(end) if isinstance(end, str) else end
    except ValueError:
        return {}
    if not isinstance(offsets, dict):
        return {}
    if not all(isinstance(key, str) and _ID.fullmatch(key) and type(value) is int for key, value in offsets.items()):
        return {}
    return offsets
