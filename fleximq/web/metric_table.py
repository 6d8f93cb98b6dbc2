"""All metrics: name, kind, labels and help text. docs/monitoring.rst shows the same table.

Names of counters omit the suffix ``_total`` of Prometheus's format.
"""

from enum import StrEnum
from typing import NamedTuple

PREFIX = "fleximq_"


class MetricKind(StrEnum):
    """The kinds of metrics of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric."""

    name: str
    kind: MetricKind
    words: str
    labels: tuple[str, ...] = ()

    @property
    def spelt(self) -> str:
        """The name in queries; for a histogram without the suffixes of its series."""
        return f"{PREFIX}{self.name}{'_total' if self.kind is MetricKind.COUNTER else ''}"


_COUNTER, _GAUGE, _HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

METRICS = (
    Metric(
        "build_info", _GAUGE, "1, with the versions of broker, Python and Twisted.", ("version", "python", "twisted")
    ),
    Metric("uptime_seconds", _GAUGE, "Seconds since the broker started."),
    # connections
    Metric("connections", _GAUGE, "Connections that speak a dialect, let in or not.", ("dialect",)),
    Metric("clients", _GAUGE, "Connections that were let in.", ("dialect",)),
    Metric("waiting_connections", _GAUGE, "Connections that were not let in yet."),
    Metric("joins", _COUNTER, "Connections that were let in since the start.", ("dialect",)),
    Metric("leaves", _COUNTER, "Clients that left or were cut off, by why.", ("reason",)),
    Metric("not_let_in", _COUNTER, "Connections that spoke a dialect and ended before they were let in.", ("reason",)),
    Metric("refused_connections", _COUNTER, "Connections and requests that were turned away at the door.", ("reason",)),
    Metric("slow_consumers", _COUNTER, "Clients that were cut off because they read too slowly."),
    Metric("errors", _COUNTER, "Errors that clients were answered, by code.", ("code",)),
    # what goes over them
    Metric("received_bytes", _COUNTER, "Bytes received.", ("dialect",)),
    Metric("sent_bytes", _COUNTER, "Bytes sent.", ("dialect",)),
    Metric("received_messages", _COUNTER, "Messages received: frames, lines or texts.", ("dialect",)),
    Metric("delivered_messages", _COUNTER, "Publications handed to clients.", ("dialect",)),
    Metric("published_messages", _COUNTER, "Messages published, the broker's own included."),
    Metric("dropped_messages", _COUNTER, "Messages that were thrown away, by why.", ("reason",)),
    Metric("expired_messages", _COUNTER, "Messages that outlived their time to live in a queue."),
    Metric("lost_messages", _COUNTER, "Messages that could not be read back from the journal."),
    Metric("refused_messages", _COUNTER, "Durable messages that the journal did not take."),
    Metric("repeated_messages", _COUNTER, "Durable messages that came again and were not kept twice."),
    # topics and queues
    Metric("topics", _GAUGE, "Topics that are remembered."),
    Metric("topic_published_messages", _COUNTER, "Messages published to the busiest topics.", ("topic",)),
    Metric("queues", _GAUGE, "Queues: work, dead (letters) and subscription (BlipMQ).", ("kind",)),
    Metric("queue_messages", _GAUGE, "Messages that wait in queues.", ("kind",)),
    Metric("queue_in_flight_messages", _GAUGE, "Messages handed out and not acknowledged.", ("kind",)),
    Metric("queue_bytes", _GAUGE, "Memory that messages in queues count for.", ("kind",)),
    Metric("queue_oldest_seconds", _GAUGE, "Age of the oldest message that waits in a queue of the kind.", ("kind",)),
    Metric("longest_queue_messages", _GAUGE, "Messages that wait in the longest queues.", ("kind", "topic")),
    Metric("longest_queue_oldest_seconds", _GAUGE, "Age of the oldest message in each of these.", ("kind", "topic")),
    Metric("redelivered_messages", _COUNTER, "Messages that were handed out again."),
    Metric("dead_letters", _COUNTER, "Messages that became dead letters."),
    # the journal
    Metric("journal_writable", _GAUGE, "1 while the journal keeps messages, 0 after a fault."),
    Metric("journal_bytes", _GAUGE, "Bytes of the journal's files."),
    Metric("journal_segments", _GAUGE, "Files of the journal."),
    Metric("journal_end_offset", _GAUGE, "The offset behind the last message that is kept."),
    Metric("journal_commit_seconds", _HISTOGRAM, "How long commits took: encoding, writing and syncing."),
    Metric("journal_commit_messages", _HISTOGRAM, "Messages in one commit, which share one sync."),
    Metric("journal_commit_bytes", _HISTOGRAM, "Bytes of one commit."),
    Metric("journal_events", _COUNTER, "What else happened to the journal.", ("event",)),
    Metric("consumer_group_lag_messages", _GAUGE, "How far consumer groups are behind.", ("group",)),
    Metric("consumer_group_lag_bytes", _GAUGE, "The same in bytes.", ("group",)),
    # the process
    Metric("reactor_lag_seconds", _HISTOGRAM, "How late the event loop calls what is due, looked at each second."),
    Metric("reactor_lag_latest_seconds", _GAUGE, "The latest of these."),
    Metric("other_events", _COUNTER, "Whatever else is counted.", ("event",)),
)

#: The metrics of the process, made by the Prometheus client.
PROCESS = (
    "process_virtual_memory_bytes",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_max_fds",
)
