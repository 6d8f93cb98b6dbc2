"""Reports the progress of a session's streaming queries to brokers after every micro-batch."""

import json
import re
from collections.abc import Sequence
from threading import Condition
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import listener

from fleximq.pipeline.broker_link import BrokerAddress
from fleximq.pipeline.lag.reporter import Reporter, groupName
from fleximq.values.urls import urlsIn

_JOURNAL_ID = re.compile(r"[0-9a-f]{32}")
#: Seconds to wait for the final reports of queries.
_CLOSE_TIMEOUT = 5.0


def report(
    spark: SparkSession, url: str, group: str | None = None, query: str | None = None, **options: str
) -> "LagListener":
    """Report to brokers after each micro-batch how far the streaming queries of a session are in sources ``fleximq``.
    Return the listener; its ``close`` waits for the final reports of ended queries. Raises OptionRefused.

    @:param url: brokers, separated by commas, or the nodes of clusters; each accepts reports on its own journal.
    :param group: the name of the group; by default that of the query, or else its id.
    :param query: only the query with this name or id.
    :param options: options of the connection: ``token``, ``caFile`` and others.
    """
    places = [BrokerAddress.of(options, each) for each in urlsIn(url)]
    added = LagListener(spark, places, None if group is None else groupName(group), query)
    spark.streams.addListener(added)
    return added


class LagListener(listener.StreamingQueryListener):
    """The listener that :func:`fleximq.pipeline.lag.report` returns."""

    def __init__(
        self, spark: SparkSession, places: Sequence[BrokerAddress], group: str | None, query: str | None
    ) -> None:
        self._spark = spark
        self._places = places
        self._group = group
        self._query = query
        self._reporters: dict[str, Reporter] = {}
        self._changed = Condition()
        self._running: set[str] = set()
        self._closed = False

    def close(self, seconds: float = _CLOSE_TIMEOUT) -> None:
        """Deliver the final reports of ended queries, waiting at most this time for each step, and stop listening."""
        active = {str(query.runId) for query in self._spark.streams.active}
        with self._changed:
            self._changed.wait_for(lambda: self._running <= active, seconds)
            self._closed = True
        self._spark.streams.removeListener(self)
        for reporter in self._reporters.values():
            reporter.close(seconds)

    def onQueryStarted(self, event: listener.QueryStartedEvent) -> None:
        with self._changed:
            self._running.add(str(event.runId))

    def onQueryProgress(self, event: listener.QueryProgressEvent) -> None:
        progress = event.progress
        name, queryId = progress.name, str(progress.id)
        offsets = sourceOffsets([source.endOffset for source in progress.sources])
        if not offsets or self._query not in (None, name, queryId):
            return
        group = self._group or name or queryId
        with self._changed:
            if not self._closed:
                if group not in self._reporters:
                    self._reporters[group] = Reporter(group, self._places)
                self._reporters[group].report(offsets)

    def onQueryTerminated(self, event: listener.QueryTerminatedEvent) -> None:
        with self._changed:
            self._running.discard(str(event.runId))
            self._changed.notify_all()


def sourceOffsets(ends: Sequence[Any]) -> dict[str, int]:
    """Return the offsets of a query's sources, given as JSON; the lower one of a journal that is read twice."""
    found: dict[str, int] = {}
    for end in ends:
        for journal, nextOffset in _offsets(end).items():
            found[journal] = min(nextOffset, found.get(journal, nextOffset))
    return found


def offsetsBehind(progress: Any) -> dict[str, int]:
    """Return how many offsets a streaming query is behind, by journal; the larger number of a journal that is read
    twice. Empty for a query without sources ``fleximq``. Offsets count the messages of all topics, and skip a billion
    after an unclean stop of the broker. As old as the last micro-batch.

    @:param progress: ``query.lastProgress``, or ``event.progress`` in a ``StreamingQueryListener``.
    """
    found: dict[str, int] = {}
    for source in progress["sources"]:
        end, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        for journal in end.keys() & latest.keys():
            found[journal] = max(latest[journal] - end[journal], found.get(journal, 0))
    return found


def _offsets(end: Any) -> dict[str, int]:
    try:
        offsets = json.loads(end) if isinstance(end, str) else end
    except ValueError:
        return {}
    isOurs = isinstance(offsets, dict) and all(
        isinstance(key, str) and _JOURNAL_ID.fullmatch(key) and type(value) is int for key, value in offsets.items()
    )
    return offsets if isOurs else {}
