"""All metrics: name, kind, labels and help text. docs/write_tables.py writes them into docs/guides/monitoring.rst.

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
_VERSIONS, _QUEUE = ("version", "python", "twisted"), ("kind", "topic")

METRICS = (
    Metric("build_info", _GAUGE, "1, with the versions of broker, Python and Twisted.", _VERSIONS),
    Metric("uptime_seconds", _GAUGE, "Seconds since the broker started."),
    # connections
    Metric("connections", _GAUGE, "Open connections whose dialect is known, admitted or not.", ("dialect",)),
    Metric("clients", _GAUGE, "Admitted connections.", ("dialect",)),
    Metric("waiting_connections", _GAUGE, "Connections that are not admitted yet."),
    Metric("console_sessions", _GAUGE, "Sessions of users who have signed in to the console."),
    Metric("joins", _COUNTER, "Connections admitted since the start.", ("dialect",)),
    Metric("leaves", _COUNTER, "Clients that disconnected or were disconnected, by reason.", ("reason",)),
    Metric("not_let_in", _COUNTER, "Connections with a known dialect that ended before admission.", ("reason",)),
    Metric("refused_connections", _COUNTER, "Connections and requests refused before admission.", ("reason",)),
    Metric("slow_consumers", _COUNTER, "Clients disconnected because they read too slowly."),
    Metric("errors", _COUNTER, "Error answers to clients, by status code.", ("code",)),
    # traffic of the connections
    Metric("received_bytes", _COUNTER, "Bytes received.", ("dialect",)),
    Metric("sent_bytes", _COUNTER, "Bytes sent.", ("dialect",)),
    Metric("received_messages", _COUNTER, "Messages received: frames, lines or texts.", ("dialect",)),
    Metric("delivered_messages", _COUNTER, "Publications delivered to clients.", ("dialect",)),
    Metric("published_messages", _COUNTER, "Messages published, including the broker's own."),
    Metric("dropped_messages", _COUNTER, "Messages discarded, by reason.", ("reason",)),
    Metric("expired_messages", _COUNTER, "Messages whose time to live ended in a queue."),
    Metric("lost_messages", _COUNTER, "Messages that could not be read from the journal."),
    Metric("refused_messages", _COUNTER, "Durable messages that the journal could not store."),
    Metric("repeated_messages", _COUNTER, "Durable messages with a known id, not stored again."),
    # topics and queues
    Metric("topics", _GAUGE, "Known topics."),
    Metric("topic_published_messages", _COUNTER, "Messages published to the busiest topics.", ("topic",)),
    Metric("queues", _GAUGE, "Queues: work, dead (letters) and subscription (BlipMQ).", ("kind",)),
    Metric("queue_messages", _GAUGE, "Messages waiting in queues.", ("kind",)),
    Metric("queue_in_flight_messages", _GAUGE, "Messages delivered and not acknowledged.", ("kind",)),
    Metric("queue_bytes", _GAUGE, "Bytes of memory counted for messages in queues.", ("kind",)),
    Metric("queue_oldest_seconds", _GAUGE, "Age of the oldest message waiting in these queues.", ("kind",)),
    Metric("queue_consumers", _GAUGE, "Consumers of these queues.", ("kind",)),
    Metric("queue_unattended_messages", _GAUGE, "Messages waiting in queues without a consumer.", ("kind",)),
    Metric("longest_queue_messages", _GAUGE, "Messages waiting in each of the longest queues.", _QUEUE),
    Metric("longest_queue_oldest_seconds", _GAUGE, "Age of the oldest message in each of the longest queues.", _QUEUE),
    Metric("longest_queue_consumers", _GAUGE, "Consumers of each of the longest queues.", _QUEUE),
    Metric("redelivered_messages", _COUNTER, "Messages delivered again."),
    Metric("dead_letters", _COUNTER, "Messages that became dead letters, by reason.", ("reason",)),
    # schedules and values
    Metric("waiting_takes", _GAUGE, "Requests by HTTP that wait for jobs."),
    Metric("schedules", _GAUGE, "Messages that wait for their time, without the recurring schedules."),
    Metric("recurring_schedules", _GAUGE, "Recurring schedules."),
    Metric("schedules_late_seconds", _GAUGE, "Seconds by which the next scheduled message is late."),
    Metric("values", _GAUGE, "Values that clients have stored by their keys."),
    # the journal
    Metric("journal_writable", _GAUGE, "1 while the journal stores messages, 0 after a fault."),
    Metric("journal_bytes", _GAUGE, "Size of the journal's files."),
    Metric("journal_segments", _GAUGE, "Number of segment files of the journal."),
    Metric("journal_end_offset", _GAUGE, "Offset after the last stored message."),
    Metric("journal_oldest_seconds", _GAUGE, "Age of a topic's oldest message, of topics with the oldest.", ("topic",)),
    Metric("journal_commit_seconds", _HISTOGRAM, "Duration of a commit: encoding, writing and syncing."),
    Metric("journal_commit_messages", _HISTOGRAM, "Messages in one commit, stored with one sync."),
    Metric("journal_commit_bytes", _HISTOGRAM, "Bytes of one commit."),
    Metric("journal_events", _COUNTER, "Other events of the journal.", ("event",)),
    Metric("consumer_group_lag_messages", _GAUGE, "Messages that a consumer group has not processed yet.", ("group",)),
    Metric("consumer_group_lag_bytes", _GAUGE, "Bytes that a consumer group has not processed yet.", ("group",)),
    Metric("consumer_group_dead_letters", _GAUGE, "Dead letters in the lake of a consumer group.", ("group",)),
    # a node of a cluster
    Metric("cluster_owner", _GAUGE, "1 if this node owns the journal of its cluster, 0 if it follows."),
    Metric("cluster_term", _GAUGE, "Number of the owner: the first one has 1."),
    Metric("cluster_owner_changes", _COUNTER, "New owners since this node started."),
    Metric("cluster_lag_messages", _GAUGE, "Messages of the stream that the copy of this node lacks."),
    Metric("cluster_lag_seconds", _GAUGE, "Seconds by which the copy of this node is behind."),
    Metric("cluster_stream_free_bytes", _GAUGE, "Bytes that the stream may still have, at the owner."),
    Metric("cluster_stream_lost_messages", _GAUGE, "Messages that only the stream has lost, at the owner."),
    Metric("cluster_replicas", _GAUGE, "Copies of the stream, or of the keys, that are up to date; the fewer of both."),
    Metric("cluster_replicas_wanted", _GAUGE, "Copies that the NATS servers should have of each."),
    Metric("cluster_reconnects", _COUNTER, "Reconnects to the NATS servers."),
    Metric("cluster_forwarded_clients", _GAUGE, "Clients that this node forwards to the owner."),
    Metric("cluster_waiting_clients", _GAUGE, "Clients that wait for an owner, or for its answer."),
    Metric("cluster_forwards", _COUNTER, "Clients that the owner has accepted from this node."),
    Metric("cluster_forwards_refused", _COUNTER, "Clients closed because no owner has accepted them."),
    # the process
    Metric("reactor_lag_seconds", _HISTOGRAM, "Delay of timers in the event loop, measured each second."),
    Metric("reactor_lag_latest_seconds", _GAUGE, "Latest measured delay of timers in the event loop."),
    Metric("other_events", _COUNTER, "Events that no other metric counts.", ("event",)),
)
