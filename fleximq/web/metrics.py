"""``/metrics``: the broker's counts in the formats of Prometheus, collected for each request.

Messages cause no work here. The number of series is bounded: only the first ``--metrics-top`` topics and queues have
names, and reasons and events are limited to :data:`MAX_REASONS` each.
"""

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import InitVar, dataclass
from types import SimpleNamespace
from typing import Any

import twisted
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from zope.interface import Attribute, Interface

from fleximq import __version__
from fleximq.broker.broker import Broker
from fleximq.values.counted_event import SLOW_CONSUMER, CountedEvent, EventFamily
from fleximq.values.histogram import Histogram
from fleximq.web.metric_table import METRICS, PREFIX, MetricKind
from fleximq.web.queue_survey import QueueSurvey, QueueSurveyor
from fleximq.web.request import HttpReply, PageRequest

#: The maximum number of labels for reasons and for events; the others are added up as :data:`REST`.
MAX_REASONS = 100
REST = "others"

#: The metric that counts the events of each family; all other events are in ``other_events``.
_FAMILIES = {
    EventFamily.JOINED: "joins",
    EventFamily.LEFT: "leaves",
    EventFamily.NOT_LET_IN: "not_let_in",
    EventFamily.ERROR: "errors",
    EventFamily.DROPPED: "dropped_messages",
    EventFamily.JOURNAL: "journal_events",
    EventFamily.REFUSED_MESSAGES: "refused_messages",
    EventFamily.REFUSED_CONNECTIONS: "refused_connections",
    EventFamily.EXPIRED: "expired_messages",
    EventFamily.LOST: "lost_messages",
    EventFamily.REDELIVERED: "redelivered_messages",
    EventFamily.DEAD_LETTERS: "dead_letters",
    EventFamily.REPEATED: "repeated_messages",
}
_SLOW_CONSUMERS = CountedEvent(EventFamily.LEFT, SLOW_CONSUMER)
#: The metrics of the sums over each kind of queue, and of each dialect's traffic.
_SUMS = {
    "queues": "queues",
    "queue_messages": "messages",
    "queue_in_flight_messages": "inFlight",
    "queue_bytes": "bytes",
    "queue_oldest_seconds": "oldest",
    "queue_consumers": "consumers",
    "queue_unattended_messages": "unattended",
}
_TRAFFIC = {
    "received_bytes": "bytesIn",
    "sent_bytes": "bytesOut",
    "received_messages": "messagesIn",
    "delivered_messages": "messagesOut",
}
_TABLE = {metric.name: metric for metric in METRICS}


class IReactorLag(Interface):
    """The lag of the event loop."""

    histogram = Attribute("""The :class:`fleximq.values.histogram.Histogram` of all measurements, in seconds.""")
    latest = Attribute("""The latest measurement, in seconds.""")


@dataclass(eq=False, repr=False)
class Metrics:
    """The page.

    ``waiting`` returns the number of connections that have not joined yet, ``top`` is the number of named queues and
    topics, and ``more`` returns those without labels of the console and of a node of a cluster, by name.
    """

    _broker: Broker
    _surveyor: QueueSurveyor
    _lag: IReactorLag
    _waiting: Callable[[], int]
    _top: int
    more: InitVar[Callable[[], Mapping[str, float]] | None] = None

    def __post_init__(self, more: Callable[[], Mapping[str, float]] | None) -> None:
        self._more = more or dict
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    async def answer(self, request: PageRequest) -> HttpReply:
        """Answer with all metrics, in the format of the request's ``Accept`` header."""
        survey = await self._surveyor.survey(self._top, request.sees)
        encode, kind = choose_encoder(request.accept)
        families: Any = SimpleNamespace(collect=lambda: [*self.families(survey), *self._process.collect()])
        return HttpReply(encode(families), kind)

    def families(self, survey: QueueSurvey) -> Iterator[Metric]:
        """Yield every metric of the table with its current values."""
        values: dict[str, Mapping[tuple[str, ...], float]] = {name: {} for name in _TABLE}
        values |= self._values(survey)
        histograms = {"reactor_lag_seconds": self._lag.histogram}
        journal: Any = self._broker.journal
        if journal.onDisk:
            commits = journal.commits
            histograms |= {f"journal_commit_{of}": getattr(commits, of) for of in ("seconds", "messages", "bytes")}
        for name, metric in _TABLE.items():
            if metric.kind is MetricKind.HISTOGRAM:
                yield _histogram(name, metric.words, histograms.get(name))
            else:
                make = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
                family = make(PREFIX + name, metric.words, labels=metric.labels)
                for labels, value in values[name].items():
                    family.add_metric(labels, value)
                yield family

    def _values(self, survey: QueueSurvey) -> dict[str, Mapping[tuple[str, ...], float]]:
        broker = self._broker
        return {
            "build_info": {(__version__, platform.python_version(), twisted.__version__): 1},
            "uptime_seconds": {(): broker.clock.seconds() - broker.started},
            "connections": self._byDialect(broker.traffic.connections()),
            "clients": self._byDialect(Counter(client.dialect for client in broker.clients)),
            "waiting_connections": {(): self._waiting()},
            "topics": {(): len(broker.topics)},
            "published_messages": {(): survey.published},
            "waiting_takes": {(): broker.takes.waiting},
            "schedules": {(): len(broker.schedules)},
            "recurring_schedules": {(): len(broker.schedules.repeats)},
            "schedules_late_seconds": {(): broker.schedules.late},
            "values": {(): len(broker.keyValues)},
            "reactor_lag_latest_seconds": {(): self._lag.latest},
            **{
                name: {(dialect,): getattr(each, field) for dialect, each in broker.traffic.totals().items()}
                for name, field in _TRAFFIC.items()
            },
            **_events(broker.counts.events),
            **_surveyed(survey),
            **self._journal(),
            **{name: {(): value} for name, value in self._more().items()},
        }

    def _byDialect(self, counts: Mapping[str, int]) -> dict[tuple[str, ...], float]:
        """Return counts with a sample for each dialect, also without connections."""
        return {(label,): number for label, number in {**dict.fromkeys(self._broker.dialects, 0), **counts}.items()}

    def _journal(self) -> dict[str, Mapping[tuple[str, ...], float]]:
        journal = self._broker.journal
        if not journal.onDisk:
            return {}
        health = journal.health()
        lags = {word.group: journal.backlogFrom(word.next) for word in self._broker.groups}
        dead = self._broker.groups.dead
        farthest = sorted(lags, key=lambda group: -lags[group].records)[: max(self._top, 1)]
        return {
            "journal_writable": {(): float(health["state"] == "ok")},
            "journal_bytes": {(): health["bytes"]},
            "journal_segments": {(): health["segments"]},
            "journal_end_offset": {(): journal.end},
            "consumer_group_lag_messages": {(group,): lags[group].records for group in farthest},
            "consumer_group_lag_bytes": {(group,): lags[group].bytes for group in farthest},
            "consumer_group_dead_letters": {(group,): dead[group] for group in farthest if group in dead},
        }


def _surveyed(survey: QueueSurvey) -> dict[str, Mapping[tuple[str, ...], float]]:
    sums = survey.sums
    return {
        **{name: {(kind,): getattr(each, field) for kind, each in sums.items()} for name, field in _SUMS.items()},
        "longest_queue_messages": _added(((each.kind, each.topic), each.messages) for each in survey.longest),
        "longest_queue_oldest_seconds": {(each.kind, each.topic): each.oldest for each in survey.longest},
        "longest_queue_consumers": {(each.kind, each.topic): each.consumers for each in survey.longest},
        "journal_oldest_seconds": {(name,): age for name, age in survey.oldest},
        "topic_published_messages": {(name,): number for number, name in survey.busiest},
    }


def _added(values: Iterable[tuple[tuple[str, ...], float]]) -> dict[tuple[str, ...], float]:
    """Return sums by labels: a topic may have several subscriptions."""
    sums: Counter[tuple[str, ...]] = Counter()
    for labels, number in values:
        sums[labels] += number  # type: ignore[assignment]
    return dict(sums)


def _events(events: Mapping[str, int]) -> dict[str, Mapping[tuple[str, ...], float]]:
    found: dict[str, Counter[tuple[str, ...]]] = {name: Counter() for name in (*_FAMILIES.values(), "other_events")}
    found["slow_consumers"] = Counter({(): events.get(_SLOW_CONSUMERS, 0)})
    for event, number in sorted(events.items(), key=lambda item: -item[1]):
        name, label = "other_events", event
        if isinstance(event, CountedEvent):
            name, label = _FAMILIES[event.family], event.label
        labels: tuple[str, ...] = ()
        if _TABLE[name].labels:
            full = len(found[name]) >= MAX_REASONS and (label,) not in found[name]
            labels = (REST if full else label,)
        found[name][labels] += number
    for name, counts in found.items():
        if not _TABLE[name].labels and not counts:
            counts[()] = 0
    return dict(found)


def _histogram(name: str, words: str, histogram: Histogram | None) -> Metric:
    family = HistogramMetricFamily(PREFIX + name, words, labels=())
    if histogram is not None:
        total, buckets = 0, []
        for bound, count in zip((*map(repr, map(float, histogram.bounds)), "+Inf"), histogram.counts, strict=True):
            total += count
            buckets.append((bound, total))
        family.add_metric((), buckets, histogram.sum)
    return family
