"""A channel of AMQP: consumers with their unsettled deliveries, and operations on queues and exchanges."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from math import ceil
from time import time
from typing import Any, NamedTuple, Protocol
from uuid import NAMESPACE_OID, uuid4, uuid5

from amqp.exceptions import NotFound, PreconditionFailed, RecoverableConnectionError
from kombu.exceptions import ChannelError
from kombu.transport import base
from kombu.utils import json

from fleximq.client.errors import ClientError, NotSettled, RequestFailed, SubscribeFailed
from fleximq.client.jobs import Job
from fleximq.client.payloads import packed
from fleximq.client.wrapper import completed
from fleximq.integrations.definition import DEFINITION, priorityOf
from fleximq.integrations.kombu.client import KombuClient
from fleximq.integrations.kombu.topics import bindingSource, topicOf
from fleximq.status import Status

#: The header of a message that is published again and again: a map of the arguments of ``/schedule/repeat`` without
#: topic, payload and header.
REPEAT = "fleximq_repeat"
#: Seconds without a consumer after which an automatically deleted or exclusive queue is deleted.
_UNUSED_SECONDS = 60.0


#: The properties of a message in AMQP; others that a publisher names are not sent, as by py-amqp.
_PROPERTIES = frozenset(
    {"app_id", "cluster_id", "correlation_id", "delivery_mode", "expiration", "message_id", "priority", "reply_to"}
    | {"timestamp", "type", "user_id"}
)


class Declared(NamedTuple):
    """The answer to a declaration; the numbers are 0 unless it was passive."""

    queue: str
    message_count: int
    consumer_count: int


class Received(NamedTuple):
    """A delivery to a consumer of a channel, with its tag there; :meth:`Channel.message_to_python` decodes it."""

    job: Job
    delivery_tag: int
    consumer_tag: str


#: Called with a delivery.
Callback = Callable[[Received], None]


class Consumer(NamedTuple):
    """A consumer of a channel; its deliveries are acknowledged by ``no_ack``."""

    channel: "Channel"
    tag: str
    callback: Callback
    no_ack: bool


class Consumption(Protocol):
    """The connection of channels: consumes from queues for all of them."""

    inner: KombuClient
    channels: "set[Channel]"
    exchanges: dict[str, str]
    exclusive: set[str]

    def consume(self, queue: str, consumer: Consumer) -> None:
        """Add a consumer of a queue; raises SubscribeFailed."""

    def cancel(self, queue: str, tag: str) -> None:
        """Remove a consumer of a queue."""

    def adjust(self, queue: str) -> None:
        """Tell the broker how many deliveries of a queue may be unsettled."""

    def settled(self, queue: str, isConsumed: bool) -> None:
        """Send a settlement of a delivery from a queue, whose consumer still consumes or not."""

    def get(self, channel: "Channel", queue: str, noAck: bool) -> Received | None:
        """Return one message of a queue, None if there is none."""


class Channel(base.StdChannel):
    """A channel of AMQP: consumers with their unsettled deliveries, and operations on queues and exchanges."""

    def __init__(self, connection: Consumption) -> None:
        self.connection = connection
        self.prefetch = 0
        self.unsettled: dict[int, tuple[Job, str]] = {}
        self._consumers: dict[str, str] = {}
        self._tags = count(1)
        self._client = connection.inner

    # -- messages ----------------------------------------------------------------------------------

    def prepare_message(
        self,
        body: Any,
        priority: int | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return a message for :meth:`basic_publish`."""
        named = {} if priority is None else {"priority": priority}
        return {
            "body": body,
            "content_type": content_type,
            "content_encoding": content_encoding,
            "headers": dict(headers or {}),
            "properties": {
                name: value for name, value in {**(properties or {}), **named}.items() if name in _PROPERTIES
            },
        }

    def message_to_python(self, received: Received) -> base.Message:
        """Return a delivery as a message of kombu. One of a publisher without kombu has its value as JSON body."""
        job = received.job
        value = job.value
        if not (isinstance(value, dict) and value.keys() >= {"body", "content_type", "meta"}):
            value = {"body": json.dumps(value), "content_type": "application/json", "content_encoding": "utf-8"}
        meta = json.loads(value.get("meta") or "{}")
        headers, properties = meta.get("headers") or {}, meta.get("properties") or {}
        fired = job.header.get("schedule")
        if isinstance(fired, dict) and "name" in fired:
            _identify(f"{fired['name']} {fired['due']}", headers, properties)
        info = {
            "exchange": meta.get("exchange", ""),
            "routing_key": meta.get("routing_key", job.topic),
            "priority": properties.get("priority"),
            "redelivered": job.attempt > 1,
            "consumer_tag": received.consumer_tag,
        }
        return base.Message(
            body=value["body"],
            channel=self,
            delivery_tag=received.delivery_tag,
            content_type=value["content_type"],
            content_encoding=value["content_encoding"],
            headers=headers,
            properties=properties,
            delivery_info=info,
        )

    def basic_publish(self, message: dict[str, Any], exchange: str = "", routing_key: str = "", **options: Any) -> None:
        """Publish a message, and return when the broker has it: for a durable queue, on disk.

        With the header :data:`REPEAT` the broker publishes it again and again, and not now; each of its publications
        has ids of its own.
        """
        headers, properties = message["headers"], message["properties"]
        fields: dict[str, Any] = {}
        if properties.get("priority") is not None:
            fields["priority"] = priorityOf(properties["priority"])
        # An expired task of Celery goes to a worker, which reports it as revoked: somebody may wait for its result.
        if properties.get("expiration") is not None and headers.get("expires") is None:
            fields["expires_in"] = max(1, int(float(properties["expiration"])))
        if isinstance(properties.get("correlation_id"), str):
            fields["correlation_id"] = properties["correlation_id"]
        due = _dueOf(headers.get("eta"))
        if due is not None:
            fields["deliver_at"] = due
        recurring = headers.get(REPEAT)
        told = {name: value for name, value in headers.items() if name != REPEAT}
        if recurring is not None and headers.get("expires") is not None:  # of each publication, not of the first one
            seconds = datetime.fromisoformat(headers["expires"]).timestamp() - time()
            fields["expires_in"] = max(1, round(seconds * 1000))
            told["expires"] = None
        meta = {"exchange": exchange, "routing_key": routing_key, "headers": told, "properties": properties}
        value = {
            "body": message["body"],
            "content_type": message["content_type"],
            "content_encoding": message["content_encoding"],
            "meta": json.dumps(meta),
        }
        topic = topicOf(exchange, routing_key)
        if recurring is not None:
            self._ask("/schedule/repeat", topic=topic, payload=value, header=fields, **recurring)
        else:
            self._client.send(topic, packed(value), fields)

    # -- queues and exchanges ----------------------------------------------------------------------

    def exchange_declare(self, exchange: str = "", type: str = "direct", **options: Any) -> None:
        """Note the type of an exchange, for its bindings; the broker needs no declaration."""
        if exchange:
            self.connection.exchanges[exchange] = type

    def exchange_delete(self, exchange: str, **options: Any) -> None:
        """Forget the type of an exchange; bindings remain."""
        self.connection.exchanges.pop(exchange, None)

    def prepare_queue_arguments(self, arguments: Mapping[str, Any], **options: Any) -> Mapping[str, Any]:
        """Return the arguments of a queue in RabbitMQ's words."""
        found: Mapping[str, Any] = base.to_rabbitmq_queue_arguments(arguments or {}, **options)
        return found

    def queue_declare(
        self,
        queue: str = "",
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = True,
        arguments: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Declared:
        """Define a queue unless it exists; ``passive`` only counts its messages and consumers.

        :raises NotFound: a passive queue does not exist.
        :raises PreconditionFailed: the queue exists with other settings.
        """
        if passive:
            row = self._row(queue)
            if row is None:
                raise NotFound(f"there is no queue of {queue!r}")
            return Declared(queue, row["messages"] + row["in_flight"], row["consumers"])
        name = queue or f"kombu.{uuid4().hex}"
        wanted = _definition(durable, exclusive or auto_delete, arguments or {})
        present = self._ask("/queue/bind", Status.NOT_FOUND, queue=name, sources=[])
        if present is None:
            present = self._ask("/queue/define", Status.CONFLICT, queue=name, **wanted)
            if present is None:  # another client was faster
                present = self._ask("/queue/bind", queue=name, sources=[])
        different = [key for key, value in wanted.items() if value not in (present.get(key), DEFINITION.get(key))]
        if different and len(present) > 1:
            raise PreconditionFailed(f"the queue {name!r} is {present}, not {wanted}")
        if exclusive:
            self.connection.exclusive.add(name)
        return Declared(name, 0, 0)

    def queue_bind(self, queue: str, exchange: str = "", routing_key: str = "", **options: Any) -> None:
        """Add an exchange with a routing key to the sources of a queue."""
        if exchange:
            self._ask("/queue/bind", queue=queue, sources=[self._source(exchange, routing_key)])

    def queue_unbind(self, queue: str, exchange: str = "", routing_key: str = "", **options: Any) -> None:
        """Remove an exchange with a routing key from the sources of a queue."""
        if exchange:
            self._ask("/queue/unbind", queue=queue, sources=[self._source(exchange, routing_key)])

    def _source(self, exchange: str, routingKey: str) -> str:
        try:
            return bindingSource(exchange, routingKey, self.connection.exchanges.get(exchange, "direct"))
        except ValueError as error:
            raise ChannelError(str(error)) from None

    def queue_purge(self, queue: str, **options: Any) -> int:
        """Drop the waiting messages of a queue, which needs the right to ``admin``; return their number."""
        found = self._ask("/broker/queues/purge", Status.NOT_FOUND, topic=queue)
        return 0 if found is None else found["purged"]

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **options: Any) -> int:
        """Delete a queue; return the number of its messages."""
        if if_unused or if_empty:
            row = self._row(queue)
            if row is None or (if_unused and row["consumers"]) or (if_empty and row["messages"] + row["in_flight"]):
                return 0
        self.connection.exclusive.discard(queue)
        found = self._ask("/queue/delete", Status.NOT_FOUND, queue=queue)
        return 0 if found is None else found["deleted"]

    def _row(self, queue: str) -> dict[str, Any] | None:
        rows = self._ask("/broker/queues", topic=queue)["queues"]
        return rows[0] if rows else None

    def _ask(self, path: str, missing: Status | None = None, **arguments: Any) -> Any:
        """Return the answer of one of the broker's paths, None for the status ``missing``; raises ChannelError."""
        try:
            return completed(self._client.ask(path, arguments))
        except RequestFailed as error:
            if error.status == missing:
                return None
            raise ChannelError(error.words) from error

    # -- consumers ---------------------------------------------------------------------------------

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Have at most so many unsettled deliveries of each queue; 0: as many as the broker allows."""
        self.prefetch = prefetch_count
        for queue in set(self._consumers.values()):
            self.connection.adjust(queue)

    def basic_consume(
        self,
        queue: str,
        no_ack: bool = False,
        callback: Callback | None = None,
        consumer_tag: str = "",
        **options: Any,
    ) -> str:
        """Begin to consume from a queue, and return the tag of the consumer."""
        tag = consumer_tag or f"kombu.{uuid4().hex}"
        self._consumers[tag] = queue
        try:
            self.connection.consume(queue, Consumer(self, tag, callback or _drop, no_ack))
        except SubscribeFailed as error:
            del self._consumers[tag]
            raise ChannelError(error.words) from error
        return tag

    def basic_cancel(self, consumer_tag: str, **options: Any) -> None:
        """End a consumer; its unsettled deliveries stay with this channel."""
        queue = self._consumers.pop(consumer_tag, None)
        if queue is not None:
            self.connection.cancel(queue, consumer_tag)

    def basic_get(self, queue: str, no_ack: bool = False, **options: Any) -> Received | None:
        """Return one message, None if there is none."""
        return self.connection.get(self, queue, no_ack)

    def received(self, job: Job, consumerTag: str, noAck: bool) -> Received:
        """Count a delivery as unsettled, or acknowledge it."""
        tag = next(self._tags)
        if noAck:
            job.ack()
        else:
            self.unsettled[tag] = job, consumerTag
        return Received(job, tag, consumerTag)

    # -- settlement --------------------------------------------------------------------------------

    def basic_ack(self, delivery_tag: int, multiple: bool = False, **options: Any) -> None:
        """Acknowledge a delivery, or all up to it."""
        self._settle(delivery_tag, multiple, lambda job: job.ack())

    def basic_reject(self, delivery_tag: int, requeue: bool = False, **options: Any) -> None:
        """Return a delivery to its queue, or make a dead letter of it."""
        self.basic_nack(delivery_tag, requeue=requeue)

    def basic_nack(self, delivery_tag: int, multiple: bool = False, requeue: bool = True, **options: Any) -> None:
        """As :meth:`basic_reject`, also of all deliveries up to one."""
        self._settle(delivery_tag, multiple, (lambda job: job.retry(0)) if requeue else lambda job: job.reject())

    def basic_recover(self, requeue: bool = True, **options: Any) -> None:
        """Return all unsettled deliveries of this channel to their queues."""
        for tag in list(self.unsettled):
            self.basic_reject(tag, requeue=True)

    def _settle(self, tag: int, multiple: bool, settle: Callable[[Job], None]) -> None:
        tags = [each for each in list(self.unsettled) if each <= tag] if multiple else [tag]
        for each in tags:
            job, consumerTag = self.unsettled.pop(each, (None, ""))
            if job is None:
                continue
            try:
                settle(job)
            except NotSettled as error:
                raise RecoverableConnectionError(error.words) from error
            self.connection.settled(job.queue, consumerTag in self._consumers)

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """End all consumers, and return all unsettled deliveries to their queues."""
        with suppress(ClientError, RecoverableConnectionError):
            for tag in list(self._consumers):
                self.basic_cancel(tag)
            self.basic_recover()
        self.connection.channels.discard(self)

    def after_reply_message_received(self, queue: str) -> None:
        """Delete a queue that was made for one reply."""
        self.queue_delete(queue)


def _definition(durable: bool, isTemporary: bool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a queue's definition for those of AMQP."""
    found = dict(DEFINITION)
    if arguments.get("x-delivery-limit") is not None:
        found["max_attempts"] = arguments["x-delivery-limit"]
    if arguments.get("x-max-length") is not None:
        found |= {"max_messages": arguments["x-max-length"], "when_full": "drop-oldest"}
    if arguments.get("x-max-length-bytes") is not None:
        found |= {"max_bytes": arguments["x-max-length-bytes"], "when_full": "drop-oldest"}
    if arguments.get("x-message-ttl") is not None:
        found["message_ttl"] = max(0.001, arguments["x-message-ttl"] / 1000)
    if arguments.get("x-expires") is not None:
        found["expiry"] = max(1.0, arguments["x-expires"] / 1000)
    elif isTemporary:
        found["expiry"] = _UNUSED_SECONDS
    if not durable:
        found["durable"] = False
    return found


def _dueOf(eta: object) -> int | None:
    """Return the milliseconds since 1970 of an ETA in the future, None for another value."""
    if not isinstance(eta, str):
        return None
    try:
        when = datetime.fromisoformat(eta)
    except ValueError:
        return None
    due = ceil((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)
    return due if due > time() * 1000 else None


def _identify(occurrence: str, headers: dict[str, Any], properties: dict[str, Any]) -> None:
    """Give the publication of a recurring schedule ids of its own, the same ones whenever it is delivered."""
    own = str(uuid5(NAMESPACE_OID, occurrence))
    for name in ("id", "root_id"):
        if name in headers:
            headers[name] = own
    if "correlation_id" in properties:
        properties["correlation_id"] = own


def _drop(received: Received) -> None:
    """Ignore a delivery to a consumer without a callback."""
