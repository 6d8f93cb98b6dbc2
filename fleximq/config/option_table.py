"""The table of all options: their names, parsers and help texts."""

import difflib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from fleximq.config.extension_options import extensions
from fleximq.config.option_values import LogFormat, Sender, SlowConsumer, count, flag, oneOf, seconds, size, text, texts
from fleximq.config.permission_options import tables
from fleximq.config.rate_options import OverRate, byteRate, rate
from fleximq.errors import SettingError


class Option(NamedTuple):
    """One option: name, parser, help text, and field; ``isLimit``: the field is in :class:`fleximq.limits.Limits`."""

    name: str
    read: Callable[[str, object], object]
    words: str
    field: str
    isLimit: bool = False

    def of(self, settings: Any) -> Any:
        """Return its value in these settings."""
        return getattr(settings.limits if self.isLimit else settings, self.field)


def _own(name: str, read: Callable[[str, object], object], words: str, field: str = "") -> Option:
    return Option(name, read, words, field or _camelCase(name))


def _limit(name: str, read: Callable[[str, object], object], words: str) -> Option:
    return Option(name, read, words, _camelCase(name.removeprefix("max-")), True)


def _camelCase(name: str) -> str:
    return re.sub("-(.)", lambda found: found[1].upper(), name)


REPEATED = (texts, extensions)  #: The parsers of options that may be given several times.
_ORIGIN = "A further web origin that may open a WebSocket, e.g. https://example.com, or * for all."
_RATE = ", as RATE[,BURST]."
_TOGETHER = " all clients of one principal together" + _RATE
#: All options, in the order of the help text.
OPTIONS = (
    _own("listen", texts, "Where to listen, as [DIALECT+]ENDPOINT or URL."),
    _own("http", texts, "Where to serve HTTP alone: metrics, health, API."),
    _own("disable-dialect", texts, "A dialect that is not served, e.g. that of a plug-in."),
    _own("ipc-dir", text, "The folder of relative ipc:// paths."),
    _own("tls-certificate", text, "A PEM file with the certificate chain for tls:// and wss://."),
    _own("tls-key", text, "A PEM file with its private key, if not in the same file."),
    _own("tls-ciphers", text, "The suites of TLS 1.2 for tls:// and wss://, as OpenSSL lists them."),
    _own("handshake-timeout", seconds, "Seconds a connection may take for its handshake."),
    _own("keepalive", seconds, "Idle seconds before a PING; after three times that the connection is closed."),
    _own("drain-timeout", seconds, "Seconds that connections have to close when the broker stops."),
    _own("auth", texts, "How to check the credentials of clients, as SCHEME:ARGUMENT, e.g. passwords:FILE."),
    _own("allow-anonymous", flag, "Admit clients without credentials, from every address."),
    _own("allowed-origin", texts, _ORIGIN),
    _own("audit-log", text, "A file for a line of JSON about each login, refusal and act of an administrator."),
    _limit("max-message", size, "Bytes of a complete FlexiMQ message."),
    _limit("max-line", size, "Bytes of a MiniMQ line."),
    _limit("max-text", size, "Bytes of an Identity message, after inflation."),
    _limit("max-clients", count, "Admitted connections."),
    _limit("max-waiting", count, "Connections not admitted yet."),
    _limit("unadmitted-bytes", size, "Bytes buffered of all connections not admitted yet, together."),
    _limit("max-clients-per-address", count, "Connections from one other machine."),
    _limit("max-subscriptions", count, "Subscriptions of one client."),
    _limit("max-topics", count, "Idle topics that are remembered."),
    _limit("max-durable-topics", count, "Topics with messages in the journal."),
    _limit("max-requests", count, "Unanswered REQs of one client."),
    _limit("outbox-bytes", size, "Bytes that one connection may leave unread."),
    _own("slow-consumer", oneOf(SlowConsumer), "Policy for deliveries over outbox-bytes: disconnect, drop or block."),
    _own("redelivery", seconds, "Seconds until an unacknowledged message is delivered again."),
    _own("max-deliveries", count, "Deliveries after which a message becomes a dead letter."),
    _own("subscription-grace", seconds, "Seconds a BlipMQ subscription outlives its client."),
    _own("durable-grace", seconds, "Seconds a durable BlipMQ subscription outlives its last use."),
    _own("queue-expiry", seconds, "Seconds a MiniMQ queue, even with messages, lives without a CONSUME."),
    _own("consume-wait", seconds, "Seconds until a MiniMQ CONSUME gets NO_MSG; 0 is at once."),
    _own("message-ttl", texts, "Seconds after which a message expires, as PATTERN=SECONDS."),
    _limit("max-queues", count, "MiniMQ queues in all, and BlipMQ subscriptions in all."),
    _limit("queue-messages", count, "Messages in one queue."),
    _limit("queue-bytes", size, "Bytes in one queue."),
    _limit("queue-memory", size, "Bytes of a durable queue that are in memory as well as on disk."),
    _own("journal", text, "The folder of durable messages; without it, messages are in memory only."),
    _own("durable", texts, "Store messages of topics that match this pattern durably, e.g. orders.#."),
    _own("fsync", text, "When a message counts as safe: always (synced), interval:MS or never."),
    _own("cluster", texts, "A NATS server with JetStream that holds the journal of a cluster, e.g. nats://a:4222."),
    _own("cluster-auth", text, "Credentials for the NATS servers: password:FILE, token:FILE or creds:FILE."),
    _own("cluster-ca", text, "A PEM file with the certificates that the NATS servers are checked with; uses TLS."),
    _own("cluster-certificate", text, "A PEM file with the certificate of this node for the NATS servers."),
    _own("cluster-key", text, "A PEM file with its private key, if not in the same file."),
    _own("node", text, "The name of this node in the cluster."),
    _own("cluster-name", text, "The name of the cluster, which begins the names of its streams."),
    _own("cluster-bytes", size, "The most bytes of the cluster's journal on each NATS server."),
    _own("cluster-wait", seconds, "Seconds that a client waits while no node owns the cluster's journal."),
    _own("mesh", flag, "Serve volatile messages at each node, on the cluster's listeners of fleximq+ or identity+."),
    _own("node-address", text, "The HOST:PORT by which other nodes reach this one; by default the system chooses."),
    _own("retain", texts, "Give new subscribers of topics that match this pattern the latest message."),
    _own("retention", texts, "How long messages are stored, as PATTERN=AGE[,SIZE], e.g. orders.#=7d,10GiB."),
    _own("history", count, "Past messages that a new Identity subscriber of a channel receives."),
    _own("journal-max-bytes", size, "Maximum size of the journal in bytes; 0 is the size of the disk."),
    _own("journal-segment", size, "Bytes of one file of the journal."),
    _own("idempotence-window", seconds, "Seconds in which a repeated message id is recognised."),
    _own("minimq-idempotent", flag, "Treat a MiniMQ message with a known id as a repeat too."),
    _own("max-message-rate", rate, "Messages a second from one client" + _RATE, "messageRate"),
    _own("max-byte-rate", byteRate, "Bytes a second from one client" + _RATE, "byteRate"),
    _own("max-subscribe-rate", rate, "Subscriptions a second of one client" + _RATE, "subscribeRate"),
    _own("principal-message-rate", rate, "Messages a second from" + _TOGETHER),
    _own("principal-byte-rate", byteRate, "Bytes a second from" + _TOGETHER),
    _own("principal-subscribe-rate", rate, "Subscriptions a second of" + _TOGETHER),
    _own("over-rate", oneOf(OverRate), "Action against a client over its rate: pause or refuse."),
    _own("max-connect-rate", rate, "New connections a second from one address" + _RATE, "connectRate"),
    _own("max-join-rate", rate, "Join attempts a second from one address" + _RATE, "joinRate"),
    _own("max-disconnects", count, "Disconnects in a minute after which a client must wait."),
    _own("flapping-wait", seconds, "Seconds that a client over max-disconnects must wait."),
    _own("busy-poll", count, "Microseconds to look for input after a read before the broker sleeps; 0 is never."),
    _own("log-format", oneOf(LogFormat), "How the log is written: text, or lines of JSON."),
    _own("metrics-top", count, "Number of topics, queues and groups that metrics name."),
    _own("request-timeout", seconds, "Seconds until an unanswered REQ gets 504; 0 is never."),
    _own("bcast-echo", flag, "Send a BCAST back to its sender too."),
    _own("announce-channels", flag, "Notify Identity clients when the list of channels changes."),
    _own("sender", oneOf(Sender), "The sender that subscribers see: client, or the principal that has logged in."),
    _own("strict-fleximq", flag, "Accept FlexiMQ frames only in the document's own layout."),
    _own("spawn", texts, "A program and its arguments to run as a FlexiMQ client over its standard input and output."),
    _own("extension", extensions, "An extension to enable, and its options, as NAME[:key=value,...]."),
)
#: The groups of the help text, by their first options.
GROUPS = {
    "listen": "Listening",
    "auth": "Security",
    "max-message": "Limits",
    "redelivery": "Queues",
    "journal": "Journal",
    "max-message-rate": "Rates",
    "log-format": "Other",
}
#: Options of settings files only: tables of tables.
TABLES = (
    _own("roles", tables, "The permissions of a role: [roles.NAME]."),
    _own("principals", tables, "The permissions of a principal, and its roles: [principals.NAME]."),
)
_BY_NAME = {option.name: option for option in (*OPTIONS, *TABLES)}


def optionNamed(name: str) -> Option:
    """Return the option of this name; raises SettingError if there is none; the sentence has the nearest name."""
    if name not in _BY_NAME:
        nearest = difflib.get_close_matches(name, _BY_NAME, 1)
        raise SettingError(f"there is no setting named {name}" + (f", did you mean {nearest[0]}?" if nearest else ""))
    return _BY_NAME[name]
