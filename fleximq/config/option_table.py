"""The table of all options: their names, parsers and texts. docs/write_tables.py writes them into docs/."""

import difflib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from fleximq.config.extension_options import extensions
from fleximq.config.option_values import LogFormat, Sender, SlowConsumer, count, flag, oneOf, seconds, size, text, texts
from fleximq.config.permission_options import tables
from fleximq.config.queue_options import queues
from fleximq.config.rate_options import OverRate, byteRate, rate
from fleximq.config.schedule_options import schedules
from fleximq.errors import SettingError


class Option(NamedTuple):
    """One option, told once: the help, the pages and docs/fleximq.toml are made of it.

    ``value`` names its value in the pages ("" for a switch), ``words`` is its help text, ``more`` is added to it on the
    page, in reStructuredText, and ``example`` is a value in TOML for an option that is better not shown with its
    default. ``isLimit``: the field is in :class:`fleximq.limits.Limits`.
    """

    name: str
    read: Callable[[str, object], object]
    value: str
    words: str
    field: str
    more: str = ""
    example: str = ""
    isLimit: bool = False

    def of(self, settings: Any) -> Any:
        """Return its value in these settings."""
        return getattr(settings.limits if self.isLimit else settings, self.field)


def _own(
    name: str,
    read: Callable[[str, object], object],
    value: str,
    words: str,
    more: str = "",
    example: str = "",
    field: str = "",
) -> Option:
    return Option(name, read, value, words, field or _camelCase(name), more, example)


def _limit(name: str, read: Callable[[str, object], object], value: str, words: str, more: str = "") -> Option:
    return Option(name, read, value, words, _camelCase(name.removeprefix("max-")), more, isLimit=True)


def _camelCase(name: str) -> str:
    return re.sub("-(.)", lambda found: found[1].upper(), name)


REPEATED = (texts, extensions)  #: The parsers of options that may be given several times.
_ORIGIN = "A further web origin that may use this broker, e.g. https://example.com, or * for WebSockets of all."
_RATE = ", as RATE[,BURST]."
_TOGETHER = " all clients of one principal together" + _RATE
#: All options, in the order of the help text.
# fmt: off
OPTIONS = (
    _own(
        "listen", texts, "[DIALECT+]ENDPOINT", "Where to listen, as [DIALECT+]ENDPOINT or URL.",
        more=(
            "ENDPOINT is one of `Transports`_, or a TCP port; with port 0 the system chooses a port, which the log "
            "names. DIALECT limits the listener to one: ``minimq+tcp:5677``. A MiniMQ listener on a UNIX socket or "
            "on loopback can give all its clients one principal, as ``minimq+tcp:5677:principal=workers`` does "
            "(:doc:`security`); TCP is then bound to 127.0.0.1 unless ``interface`` names another address of "
            "loopback."
        ),
        example='["tcp:7890", "minimq+tcp:5677:principal=workers"]',
    ),
    _own(
        "http", texts, "ENDPOINT", "Where to serve HTTP alone: metrics, health, API.",
        more="Open until the broker has ended; see :doc:`/guides/monitoring`. The dialect ports serve the same.",
        example='["tcp:9090:interface=127.0.0.1"]',
    ),
    _own("disable-dialect", texts, "NAME", "A dialect that is not served, e.g. that of a plug-in.", example='["line"]'),
    _own("ipc-dir", text, "FOLDER", "The folder of relative ipc:// paths."),
    _own(
        "tls-certificate", text, "FILE", "A PEM file with the certificate chain for tls:// and wss://.",
        example='"/etc/fleximq/chain.pem"',
    ),
    _own(
        "tls-key", text, "FILE", "A PEM file with its private key, if not in the same file.",
        example='"/etc/fleximq/key.pem"',
    ),
    _own(
        "tls-ciphers", text, "LIST", "The suites of TLS 1.2 for tls:// and wss://, as OpenSSL lists them.",
        more="See `TLS`_.",
    ),
    _own(
        "handshake-timeout", seconds, "SECONDS", "Seconds a connection may take for its handshake.",
        more="The handshake identifies its dialect and itself.",
    ),
    _own(
        "keepalive", seconds, "SECONDS", "Idle seconds before a PING; after three times that the connection is closed.",
        more="For dialects that have a PING. A FlexiMQ client may propose another number: fleximq.client does.",
    ),
    _own(
        "drain-timeout", seconds, "SECONDS", "Seconds that connections have to close when the broker stops.",
        more="See `Stopping`_.",
    ),
    _own(
        "auth", texts, "SCHEME:ARGUMENT",
        "How to check the credentials of clients, as SCHEME:ARGUMENT, e.g. passwords:FILE.",
        more="They are asked in this order. See :doc:`security`.",
        example='["passwords:/etc/fleximq/passwords", "apikeys:/etc/fleximq/keys"]',
    ),
    _own("allow-anonymous", flag, "", "Admit clients without credentials, from every address."),
    _own(
        "allowed-origin", texts, "ORIGIN", _ORIGIN,
        more="``null`` is the origin of local files. See :ref:`web-pages`.",
        example='["https://example.com"]',
    ),
    _own(
        "audit-log", text, "FILE", "A file for a line of JSON about each login, refusal and act of an administrator.",
        more="See :doc:`security`.",
        example='"/var/lib/fleximq/audit.json"',
    ),
    _limit("max-message", size, "SIZE", "Bytes of a complete FlexiMQ message.", more="At most 1GiB."),
    _limit("max-line", size, "SIZE", "Bytes of a MiniMQ line."),
    _limit("max-text", size, "SIZE", "Bytes of an Identity message, after inflation."),
    _limit(
        "max-clients", count, "NUMBER", "Admitted connections.",
        more=(
            "Or as many as the system's limit on open files permits: the broker raises that limit as far as it "
            "may, and the log says if it is too low. Others get FlexiMQ and Identity 503, BlipMQ and MiniMQ 500."
        ),
    ),
    _limit(
        "max-waiting", count, "NUMBER", "Connections not admitted yet.",
        more="Or a quarter of the connections that the system permits. Others are closed.",
    ),
    _limit(
        "unadmitted-bytes", size, "SIZE", "Bytes buffered of all connections not admitted yet, together.",
        more=(
            "2 KiB of each do not count. The connection that would exceed it is closed. Of MiniMQ clients that "
            "need no credentials this includes the first line."
        ),
    ),
    _limit(
        "max-clients-per-address", count, "NUMBER", "Connections from one other machine.",
        more=(
            "Admitted or not; of IPv6 the first 64 bits are one address. Others are closed. Local connections do "
            "not count."
        ),
    ),
    _limit("max-subscriptions", count, "NUMBER", "Subscriptions of one client."),
    _limit("max-topics", count, "NUMBER", "Idle topics that are remembered.", more="Idle topics have no subscribers."),
    _limit(
        "max-durable-topics", count, "NUMBER", "Topics with messages in the journal.",
        more=(
            "Of messages that have not expired. Others are refused as by a full disk; so are those beyond twice as "
            "many on disk."
        ),
    ),
    _limit(
        "max-requests", count, "NUMBER", "Unanswered REQs of one client.",
        more="1,024 characters of id and path count as one more. Others get 429.",
    ),
    _limit(
        "max-schedules", count, "NUMBER", "Messages that wait for their time, without the recurring ones.",
        more="Others get 503. Each takes 20 bytes of memory if it is in the journal.",
    ),
    _limit(
        "max-schedules-per-principal", count, "NUMBER", "Those of one principal; anonymous clients are one.",
        more="Others get 429.",
    ),
    _limit(
        "max-values", count, "NUMBER", "Values that clients store by their keys.",
        more="Others get 503. Each takes about 400 bytes of memory; its content is in the journal if there is one.",
    ),
    _limit(
        "max-values-per-principal", count, "NUMBER", "Those of one principal; anonymous clients are one.",
        more="Others get 429.",
    ),
    _limit(
        "outbox-bytes", size, "SIZE", "Bytes that one connection may leave unread.",
        more=(
            "From 1 MiB on the broker stops reading from BlipMQ and MiniMQ clients, and disconnects those that "
            "read nothing for a minute; their messages wait in their queues."
        ),
    ),
    _own(
        "slow-consumer", oneOf(SlowConsumer), "POLICY",
        "Policy for deliveries over outbox-bytes: disconnect, drop or block.",
        more=(
            "``drop`` drops and counts new deliveries, but no answers; at twice the size it disconnects. ``block`` "
            "stops reading from the publishers concerned, for at most 10 seconds; then it disconnects the client."
        ),
    ),
    _own("redelivery", seconds, "SECONDS", "Seconds until an unacknowledged message is delivered again."),
    _own("max-deliveries", count, "NUMBER", "Deliveries after which a message becomes a dead letter."),
    _own("subscription-grace", seconds, "SECONDS", "Seconds a BlipMQ subscription outlives its client."),
    _own("durable-grace", seconds, "SECONDS", "Seconds a durable BlipMQ subscription outlives its last use."),
    _own(
        "queue-expiry", seconds, "SECONDS", "Seconds a MiniMQ queue, even with messages, lives without a CONSUME.",
        more="Without it, only empty queues and reply queues are removed, after an hour.",
        example="3600",
    ),
    _own("consume-wait", seconds, "SECONDS", "Seconds until a MiniMQ CONSUME gets NO_MSG; 0 is at once."),
    _own(
        "message-ttl", texts, "PATTERN=SECONDS", "Seconds after which a message expires, as PATTERN=SECONDS.",
        more="In a full queue they give way to new ones.",
        example='["prices.*=60"]',
    ),
    _own(
        "schema", texts, "PATTERN=FILE", "Refuse messages that do not fit the schema in this file, as PATTERN=FILE.",
        more=(
            "``order.json`` is a JSON Schema, ``order.avsc`` one of Avro; ``order.proto,shop.Order`` is a message of "
            "Protocol Buffers, in ``.proto`` or in a set of descriptors (``.desc``, ``.binpb``, ``.pb``). Of several "
            "patterns that match, the first counts. See :doc:`/guides/schemas`."
        ),
        example='["orders.#=/etc/fleximq/order.json"]',
    ),
    _limit(
        "max-queues", count, "NUMBER", "MiniMQ queues in all, and BlipMQ subscriptions in all.",
        more="The same applies to dead-letter queues.",
    ),
    _limit(
        "queue-messages", count, "NUMBER", "Messages in one queue.",
        more="A queue is a MiniMQ topic or a BlipMQ subscription.",
    ),
    _limit(
        "queue-bytes", size, "SIZE", "Bytes in one queue.",
        more=(
            "A message counts its payload, its ids and 256 bytes, and 448 bytes more while it is delivered and "
            "unacknowledged."
        ),
    ),
    _limit("queue-memory", size, "SIZE", "Bytes of a durable queue that are in memory as well as on disk."),
    _own(
        "journal", text, "FOLDER", "The folder of durable messages; without it, messages are in memory only.",
        more="It is created if missing, without parents.",
        example='"/var/lib/fleximq"',
    ),
    _own(
        "durable", texts, "PATTERN", "Store messages of topics that match this pattern durably, e.g. orders.#.",
        example='["orders.#"]',
    ),
    _own(
        "fsync", text, "MODE", "When a message counts as safe: always (synced), interval:MS or never.",
        more="See `When a message is safe`_.",
    ),
    _own(
        "cluster", texts, "URL",
        "A NATS server with JetStream that holds the journal of a cluster, e.g. nats://a:4222.",
        more="See :doc:`/guides/cluster`.",
        example='["nats://10.0.0.1:4222", "nats://10.0.0.2:4222", "nats://10.0.0.3:4222"]',
    ),
    _own(
        "cluster-auth", text, "KIND:FILE", "Credentials for the NATS servers: password:FILE, token:FILE or creds:FILE.",
        more=(
            "The file of ``password`` has a line ``USER:PASSWORD``, that of ``creds`` JWT and seed of a user "
            "(``nsc generate creds``)."
        ),
        example='"password:/etc/fleximq/nats"',
    ),
    _own(
        "cluster-ca", text, "FILE",
        "A PEM file with the certificates that the NATS servers are checked with; uses TLS.",
        more="By default those of the system.",
        example='"/etc/fleximq/nats-ca.pem"',
    ),
    _own(
        "cluster-certificate", text, "FILE", "A PEM file with the certificate of this node for the NATS servers.",
        example='"/etc/fleximq/node.pem"',
    ),
    _own(
        "cluster-key", text, "FILE", "A PEM file with its private key, if not in the same file.",
        example='"/etc/fleximq/node-key.pem"',
    ),
    _own("node", text, "NAME", "The name of this node in the cluster.", example='"east-1"'),
    _own("cluster-name", text, "NAME", "The name of the cluster, which begins the names of its streams."),
    _own("cluster-bytes", size, "SIZE", "The most bytes of the cluster's journal on each NATS server."),
    _own("cluster-wait", seconds, "SECONDS", "Seconds that a client waits while no node owns the cluster's journal."),
    _own(
        "mesh", flag, "", "Serve volatile messages at each node, on the cluster's listeners of fleximq+ or identity+.",
        more="See :ref:`cluster-mesh`.",
    ),
    _own(
        "node-address", text, "HOST:PORT",
        "The HOST:PORT by which other nodes reach this one; by default the system chooses.",
        more="See :ref:`cluster-forwarding`.",
        example='"10.0.0.1:7800"',
    ),
    _own(
        "retain", texts, "PATTERN", "Give new subscribers of topics that match this pattern the latest message.",
        more="These topics are durable too.",
        example='["prices.*"]',
    ),
    _own(
        "retention", texts, "PATTERN=AGE[,SIZE]",
        "How long messages are stored, as PATTERN=AGE[,SIZE], e.g. orders.#=7d,10GiB.",
        more=(
            "``orders.#=7d``, ``orders.#=10GiB`` or ``orders.#=7d,10GiB``: the limit that is reached first. AGE is "
            "a number and ``s``, ``m``, ``h``, ``d`` or ``w``; SIZE counts for each topic. Without it for ever. "
            "See `Retention`_."
        ),
        example='["orders.#=7d,10GiB", "prices.*=1h"]',
    ),
    _own(
        "history", count, "NUMBER", "Past messages that a new Identity subscriber of a channel receives.",
        more="The channel must be durable.",
    ),
    _own(
        "journal-max-bytes", size, "SIZE", "Maximum size of the journal in bytes; 0 is the size of the disk.",
        more="See `Retention`_.",
    ),
    _own("journal-segment", size, "SIZE", "Bytes of one file of the journal."),
    _own(
        "idempotence-window", seconds, "SECONDS", "Seconds in which a repeated message id is recognised.",
        more=(
            "The ids are those in ``message_id`` of FlexiMQ messages on durable topics; a repeated message is "
            "confirmed but not stored. 0 disables this."
        ),
    ),
    _own("minimq-idempotent", flag, "", "Treat a MiniMQ message with a known id as a repeat too."),
    _own(
        "max-message-rate", rate, "RATE", "Messages a second from one client" + _RATE,
        more="Frames, lines or texts of any kind.",
        example='"5000,20000"',
        field="messageRate",
    ),
    _own(
        "max-byte-rate", byteRate, "RATE", "Bytes a second from one client" + _RATE,
        more="After inflation.",
        example='"10MiB"',
        field="byteRate",
    ),
    _own(
        "max-subscribe-rate", rate, "RATE", "Subscriptions a second of one client" + _RATE,
        example="100",
        field="subscribeRate",
    ),
    _own("principal-message-rate", rate, "RATE", "Messages a second from" + _TOGETHER, example='"20000"'),
    _own("principal-byte-rate", byteRate, "RATE", "Bytes a second from" + _TOGETHER, example='"40MiB"'),
    _own("principal-subscribe-rate", rate, "RATE", "Subscriptions a second of" + _TOGETHER, example="1000"),
    _own(
        "over-rate", oneOf(OverRate), "WORD", "Action against a client over its rate: pause or refuse.",
        more=(
            "A paused client waits, and no message is lost. With ``refuse`` further messages get 429 and are not "
            "processed."
        ),
    ),
    _own(
        "max-connect-rate", rate, "RATE", "New connections a second from one address" + _RATE,
        more="The address is one of another machine; others are closed.",
        example='"20,100"',
        field="connectRate",
    ),
    _own(
        "max-join-rate", rate, "RATE", "Join attempts a second from one address" + _RATE,
        more="A JOIN, AUTH, first MiniMQ line or WebSocket upgrade is such an attempt.",
        example='"20,100"',
        field="joinRate",
    ),
    _own(
        "max-disconnects", count, "NUMBER", "Disconnects in a minute after which a client must wait.",
        more="15 is a good choice; 0 is no limit. See :doc:`security`.",
        example="15",
    ),
    _own("flapping-wait", seconds, "SECONDS", "Seconds that a client over max-disconnects must wait."),
    _own(
        "busy-poll", count, "MICROSECONDS",
        "Microseconds to look for input after a read before the broker sleeps; 0 is never.",
        more=(
            "With it, requests and answers take half of the time, and may use a whole core; idle, the broker uses "
            "none."
        ),
    ),
    _own(
        "log-format", oneOf(LogFormat), "FORM", "How the log is written: text, or lines of JSON.",
        more="See :doc:`/guides/monitoring`.",
    ),
    _own(
        "metrics-top", count, "NUMBER", "Number of topics, queues and groups that metrics name.",
        more="At most 1000.",
    ),
    _own("no-console", flag, "", "Serve no console at /console/.", more="See :doc:`/guides/console`."),
    _own("request-timeout", seconds, "SECONDS", "Seconds until an unanswered REQ gets 504; 0 is never."),
    _own("bcast-echo", flag, "", "Send a BCAST back to its sender too."),
    _own("announce-channels", flag, "", "Notify Identity clients when the list of channels changes."),
    _own(
        "sender", oneOf(Sender), "WORD",
        "The sender that subscribers see: client, or the principal that has logged in.",
        more="``client`` is its number (FlexiMQ) or name (Identity). See :ref:`senders`.",
    ),
    _own(
        "strict-fleximq", flag, "", "Accept FlexiMQ frames only in the document's own layout.",
        more="Without the variants of :doc:`/reference/dialects`.",
    ),
    _own(
        "spawn", texts, "COMMAND",
        "A program and its arguments to run as a FlexiMQ client over its standard input and output.",
        more="In shell syntax, ``--spawn 'worker --queue \"a b\"'``. See `Child programs`_.",
        example="[\"/usr/local/bin/worker --queue 'a b'\"]",
    ),
    _own(
        "extension", extensions, "NAME[:KEY=VALUE,...]",
        "An extension to enable, and its options, as NAME[:key=value,...].",
        more=(
            "A key without a value is a switch turned on; ``\\,`` is a comma inside a value. In the file it has a "
            "table of its own. See :doc:`/guides/extending`."
        ),
    ),
)
# fmt: on
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
    _own("roles", tables, "", "The permissions of a role: [roles.NAME]."),
    _own("queues", queues, "", "The definition of a queue: [queues.NAME]."),
    _own("schedules", schedules, "", "A message that is published again and again: [schedules.NAME]."),
    _own("principals", tables, "", "The permissions of a principal, and its roles: [principals.NAME]."),
)
_BY_NAME = {option.name: option for option in (*OPTIONS, *TABLES)}


def grouped() -> dict[str, list[Option]]:
    """Return the options of each group of the help text."""
    groups: dict[str, list[Option]] = {}
    group = ""
    for option in OPTIONS:
        group = GROUPS.get(option.name, group)
        groups.setdefault(group, []).append(option)
    return groups


def optionNamed(name: str) -> Option:
    """Return the option of this name; raises SettingError if there is none; the sentence has the nearest name."""
    if name not in _BY_NAME:
        nearest = difflib.get_close_matches(name, _BY_NAME, 1)
        raise SettingError(f"there is no setting named {name}" + (f", did you mean {nearest[0]}?" if nearest else ""))
    return _BY_NAME[name]
