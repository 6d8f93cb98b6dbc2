"""Publications by HTTP: to topics, and to queues. Hot.

They are FlexiMQ's: a run of frames with one header, so that FlexiMQ subscribers and the journal get them as if a client
of FlexiMQ had sent them. The header is made once for equal requests.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from fleximq.broker.envelope import ConnectedClient, Envelope
from fleximq.dialects.connection.connection_rate import overRate
from fleximq.dialects.fleximq.forms import FlexiSource
from fleximq.dialects.http.format.routes import Parameter
from fleximq.dialects.http.operations.arguments import SHORTEST, milliseconds, moment, whole
from fleximq.dialects.http.operations.bodies import payloadsOf
from fleximq.dialects.http.operations.exchange import Exchange
from fleximq.errors import BadRequest, NotKept, NotRecorded, TooLarge
from fleximq.limits import HEADER_BYTES, MOST_MILLISECONDS
from fleximq.values.header_pairs import SENDER
from fleximq.values.publication_head import PRIORITIES
from fleximq.wire.fleximq_frame import encodeMessage
from fleximq.wire.fleximq_header import Header, MessageType, checkHeader

#: Size of the length before a payload.
_LENGTH_BYTES = 8
_DONE = b"{}\n"
_MOST_SECONDS = MOST_MILLISECONDS // 1000

PARAMETERS = (
    Parameter("message_id", "string", "identifies the message: a durable topic stores it once", "FlexiMQ-Message-Id"),
    Parameter("key", "string", "the key by which messages are grouped and kept in order", "FlexiMQ-Key"),
    Parameter("priority", "integer", "0 to 9; queues deliver higher ones first", "FlexiMQ-Priority"),
    Parameter("delay", "number", "seconds until it is published", "FlexiMQ-Delay"),
    Parameter("at", "string", "the time when it is published, ISO 8601 with a zone", "FlexiMQ-At"),
    Parameter("expires", "number", "seconds after which it is removed where it waits", "FlexiMQ-Expires"),
)


class Prepared(NamedTuple):
    """What equal requests share: the bytes before each payload, and the envelope."""

    head: bytes
    envelope: Envelope
    header: Header


class Outcome:
    """The decision about one run; ``offset`` is that of its first message, None if it is not durable. ``schedules`` are
    the ids of messages that wait for their time.
    """

    __slots__ = ("client", "offset", "reason", "refused", "schedules")

    def __init__(self, client: ConnectedClient) -> None:
        self.client = client
        self.offset: int | None = None
        self.reason = ""
        self.refused: list[int] = []
        self.schedules: Sequence[int] = ()

    def scheduled(self, ids: Sequence[int]) -> None:
        """Record the ids of schedules."""
        self.schedules = ids

    def decided(self, reason: str | None, indexes: Sequence[int]) -> None:
        """Record a decision."""
        if reason is not None:
            self.reason = reason
            self.refused.extend(indexes)
        elif self.offset is None:
            self.offset = self.client.committed


def publish(exchange: Exchange) -> None:
    """Publish the body to the topic of the path."""
    _publish(exchange, False)


def enqueue(exchange: Exchange) -> None:
    """Put the body into the queue of the path."""
    _publish(exchange, True)


def _publish(exchange: Exchange, isWork: bool) -> None:
    request, client, broker = exchange.request, exchange.client, exchange.broker
    prepared = request.prepared
    if prepared is None or prepared.envelope.topic.gone:
        prepared = request.prepared = _prepare(exchange, isWork)
    payloads = payloadsOf(request.kind, exchange.body)
    if not payloads:
        exchange.answer({})
        return
    head, envelope, header = prepared
    most = exchange.session.context.settings.limits.message
    size = (len(head) + _LENGTH_BYTES) * len(payloads) + sum(map(len, payloads))
    if size > most:  # each message repeats the header
        words = "the message has" if len(payloads) == 1 else f"the {len(payloads)} messages have"
        raise TooLarge(f"{words} {size} bytes with their headers, but at most {most} are allowed")
    if len(payloads) == 1:
        payload = payloads[0]
        body = b"".join((head, len(payload).to_bytes(_LENGTH_BYTES, "big"), payload))
    else:
        body = b"".join([b"".join((head, len(each).to_bytes(_LENGTH_BYTES, "big"), each)) for each in payloads])
        _chargeMore(exchange, len(payloads) - 1)
    outcome = Outcome(client)
    client.committed = 0
    _begin(exchange, envelope, header, body, len(payloads), outcome, isWork)
    if broker.arePublicationsDecided(client):
        _answer(exchange, outcome, len(payloads))
    else:
        broker.whenCommitted(lambda: _answer(exchange, outcome, len(payloads)), client)


def _begin(
    exchange: Exchange, envelope: Envelope, header: Header, body: bytes, count: int, outcome: Outcome, isWork: bool
) -> None:
    broker, keys = exchange.broker, header.queueing
    messageId = header.fields.get("message_id")
    ids = None if messageId is None else (messageId,)
    if ids is not None and count > 1:
        raise BadRequest("message_id is for a single message")
    try:
        if keys is not None and keys.isScheduled:
            due = keys.dueAt(round(broker.wall() * 1000))
            broker.schedule(envelope, body, count, due, outcome.decided, ids, outcome.scheduled)
        elif ids is None:
            (broker.produce if isWork else broker.publish)(envelope, body, count, outcome.decided)
        else:
            (broker.produceOnce if isWork else broker.publishOnce)(envelope, body, ids, outcome.decided)
    except NotKept as error:
        if count == 1 or isinstance(error, NotRecorded) or not error.refused:
            raise
        raise type(error)(f"{error.reason}: {_refusedOf(error.refused, count)}", error.refused) from error


def _answer(exchange: Exchange, outcome: Outcome, count: int) -> None:
    if outcome.refused:
        exchange.fail(NotRecorded(outcome.reason))
    elif outcome.schedules:
        exchange.answer({"schedules": [*outcome.schedules]})
    elif outcome.offset:
        exchange.send(b'{"offset":%d}\n' % outcome.offset)
    else:
        exchange.send(_DONE)


def _refusedOf(indexes: Sequence[int], count: int) -> str:
    return f"{len(indexes)} of {count} messages are refused, the first one is in line {indexes[0] + 1}"


def _chargeMore(exchange: Exchange, count: int) -> None:
    """Charge further messages of one request."""
    session = exchange.session
    if session.rate is not None and session.rate.refuses and session.rate.meter.admits(count, 0) < count:
        raise overRate()
    session.traffic.messagesIn += count


def _prepare(exchange: Exchange, isWork: bool) -> Prepared:
    """Check the header of a publication and the right to it."""
    client, arguments = exchange.client, exchange.arguments
    fields: dict[str, Any] = {"topic": exchange.name}
    for name in ("message_id", "key"):
        if name in arguments:
            fields[name] = arguments[name]
    if "priority" in arguments:
        fields["priority"] = whole(arguments, "priority", 0, 0, len(PRIORITIES) - 1)
    if "delay" in arguments:
        fields["deliver_in"] = milliseconds(arguments, "delay", 0, _MOST_SECONDS)
    if "at" in arguments:
        fields["deliver_at"] = moment("at", arguments["at"])
    if "expires" in arguments:
        fields["expires_in"] = milliseconds(arguments, "expires", SHORTEST, _MOST_SECONDS)
    if isWork:
        fields["queue"] = True
    if client.sender:
        fields[SENDER] = client.sender
    header = checkHeader(MessageType.PUB, fields)
    head = encodeMessage(MessageType.PUB, client.id, fields)[:-_LENGTH_BYTES]
    if len(head) > HEADER_BYTES:
        raise TooLarge("the header of the message is too large")
    topic = exchange.broker.topicFor(client, header.topic)
    return Prepared(head, Envelope(topic, client, FlexiSource(len(head), header, client.id), 1, isWork), header)
