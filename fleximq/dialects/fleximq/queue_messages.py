"""The acts of one FlexiMQ client on queues: enqueue, consume, settle (docs/reference/dialects.rst, "Queues").

Deliveries are not subject to the policy for slow consumers: a client has no more unsettled ones than it asked for, and
gets none while it does not read its output.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import BROKER_ID, ConnectedClient, Envelope, QueueDelivery
from fleximq.broker.paths.path_table import readArguments
from fleximq.broker.paths.settlement import SETTLE, settle
from fleximq.dialects.connection.envelope_cache import EnvelopeCache
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.fleximq.delivery_form import DeliveryForm
from fleximq.dialects.fleximq.replies import FlexiReplies
from fleximq.dialects.outbox import MAX_UNREAD, Chunk, Outbox
from fleximq.errors import BrokerError, NotKept, NotOwner, UnknownDeliveries
from fleximq.values.queue_keys import QueueKeys
from fleximq.wire.fleximq_frame import frameOf, payloadOf
from fleximq.wire.fleximq_header import Header, MessageType, peek
from fleximq.wire.fleximq_scanner import FIXED_BYTES, payloads

#: A PUB with one of these keys differs from message to message, so its envelope is not cached.
PER_MESSAGE_KEYS = frozenset({"routing", "message_id", "correlation_id", "traceparent", "tracestate"})

#: Acts on a run of a number of frames, and answers its errors.
RepeatedRun = Callable[[Chunk, int], None]


class Conversation(Protocol):
    """The session that the acts belong to."""

    broker: Broker
    context: ListenerContext
    outbox: Outbox

    def passOn(self, frames: Chunk) -> None:
        """Send messages to the owner of the journal."""

    def refused(self, error: BrokerError, kind: int | None, fields: Any, topic: str = "") -> None:
        """Answer an error for a message with this type and header."""


class Reports(Protocol):
    """The reports of a client's failed messages."""

    def reportRefused(self, topic: str, reason: str | None, indexes: Sequence[int], inOrder: bool = False) -> None:
        """Report messages that the journal refused."""

    def reportNotKept(self, topic: str, envelope: bytes, error: NotKept) -> None:
        """Report messages that were refused at once, with the bytes of their envelope."""


class QueueMessages:
    """The acts of one client.

    ``repeated`` has a function for each cached envelope of these acts: the read loop calls it with later runs.

    :param lost: reports the loss of the queue of this name.
    """

    __slots__ = ("_broker", "_consumed", "_isPaused", "_lost", "_me", "_replies", "_reports", "_session", "repeated")

    def __init__(
        self,
        session: Conversation,
        me: ConnectedClient,
        replies: FlexiReplies,
        reports: Reports,
        lost: Callable[[BrokerError, str], None],
    ) -> None:
        self._session = session
        self._broker = session.broker
        self._me = me
        self._replies = replies
        self._reports = reports
        self._lost = lost
        #: The queues that it consumes; the one that has filled its output most recently is the last.
        self._consumed: dict[str, None] = {}
        self._isPaused = False
        self.repeated: EnvelopeCache[RepeatedRun] = EnvelopeCache(session.context.envelopeBudget)

    # -- publications ------------------------------------------------------------------------------

    def publish(self, header: Header, keys: QueueKeys, parsed: Envelope, envelope: bytes, frame: bytes) -> None:
        """Publish a message for workers, whose topic gets a queue if it has none, or one that waits for its time.

        Its envelope is cached here and not with those of other publications: the read loop may deliver their runs
        without the broker, which would not make a queue again that has expired.

        :param parsed: the value of ``envelope``, which are the bytes of ``frame`` before its payload.
        """
        if keys.queue is not None:
            parsed = parsed._replace(durable=True)
        act = partial(self._run, keys, parsed, envelope)
        messageId = header.fields.get("message_id")
        if messageId is None and frame.startswith(envelope) and PER_MESSAGE_KEYS.isdisjoint(header.fields):
            self.repeated.remember(envelope, act)
        act(frame, 1, None if messageId is None else (messageId,))

    def _publish(
        self, keys: QueueKeys, parsed: Envelope, envelope: bytes, frames: Chunk, count: int, ids: Sequence[str] | None
    ) -> None:
        broker, topic = self._broker, parsed.topic.name
        onDecided = partial(self._reports.reportRefused, topic)
        try:
            if keys.isScheduled:
                broker.schedule(parsed, frames, count, keys.dueAt(round(broker.wall() * 1000)), onDecided, ids)
            elif ids is None:
                broker.produce(parsed, frames, count, onDecided)
            else:
                broker.produceOnce(parsed, frames, ids, onDecided)
        except NotKept as error:
            self._reports.reportNotKept(topic, envelope, error)

    def _run(
        self,
        keys: QueueKeys,
        parsed: Envelope,
        envelope: bytes,
        frames: Chunk,
        count: int,
        ids: Sequence[str] | None = None,
    ) -> None:
        try:
            self._publish(keys, parsed, envelope, frames, count, ids)
        except NotOwner:
            self._session.passOn(frames)
        except BrokerError as error:
            if keys.isScheduled and count > 1:  # a limit has room for some of them, perhaps
                for each in payloads(bytes(frames), len(envelope)):
                    self._run(keys, parsed, envelope, frameOf(envelope, each), 1)
                return
            fields = peek(envelope[FIXED_BYTES:])
            for _ in range(count):
                self._session.refused(error, MessageType.PUB, fields, parsed.topic.name)

    # -- consumers ---------------------------------------------------------------------------------

    def consume(self, topic: str, keys: QueueKeys) -> None:
        """Become a consumer of a queue; a second time, change its ``prefetch``. Errors are those of
        :meth:`fleximq.broker.broker.Broker.consumeFrom`.
        """
        name = keys.queue or ""
        deliver = partial(self._deliver, name, DeliveryForm(name))
        consume = partial(self._broker.consumeFrom, self._me, name, deliver, partial(self._ended, name))
        if self._isPaused:
            consume(0, topic)
            self._broker.pauseConsuming(self._me, name, True)
        consume(keys.prefetch, topic)
        self._consumed.setdefault(name)

    def _deliver(self, name: str, form: DeliveryForm, deliveries: Sequence[QueueDelivery]) -> None:
        outbox = self._session.outbox
        outbox.traffic.messagesOut += len(deliveries)
        self._replies.writer.replay(form.render(deliveries))
        if outbox.full or outbox.pendingBytes > MAX_UNREAD:
            self._consumed.pop(name, None)
            self._consumed[name] = None
            self._pause()

    def _pause(self) -> None:
        """Let no queue deliver: their number must not multiply the unread output."""
        if not self._isPaused:
            self._isPaused = True
            self._soon(self._resume)
        for name in self._consumed:
            self._broker.pauseConsuming(self._me, name, True)

    def _soon(self, call: Callable[[], None]) -> None:
        self._session.context.clock.callLater(0, call)

    def _resume(self) -> None:
        """Consume again when the output of the last turn was read."""
        outbox = self._session.outbox
        if outbox.full:
            outbox.whenRelieved(partial(self._soon, self._resume))
            return
        self._isPaused = False
        for name in list(self._consumed):
            if self._isPaused:  # the output is full again
                return
            self._broker.pauseConsuming(self._me, name, False)

    def _ended(self, name: str, error: BrokerError) -> None:
        self._consumed.pop(name, None)
        self._lost(error, name)

    def stop(self, keys: QueueKeys) -> None:
        """Be a consumer no more; unsettled deliveries return to the queue. A no-op if the client is none."""
        name = keys.queue or ""
        self._consumed.pop(name, None)
        self._broker.stopConsuming(self._me, name)

    def stopAll(self) -> None:
        """Stop consuming from all queues."""
        while self._consumed:
            self._broker.stopConsuming(self._me, self._consumed.popitem()[0])

    # -- settlement --------------------------------------------------------------------------------

    def notified(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Settle deliveries if a notification to the broker says so; ignore all others."""
        if not any(entry.client_id == BROKER_ID and entry.path == SETTLE for entry in header.routing):
            return
        if len(header.routing) == 1 and frame.startswith(envelope):
            self.repeated.remember(envelope, partial(self._settleRun, envelope))
        self._settle(readArguments(self._broker, self._me, SETTLE, payloadOf(frame, len(envelope))))

    def _settle(self, arguments: Any) -> None:
        unknown = settle(self._broker, self._me, arguments)
        if unknown:
            raise UnknownDeliveries(arguments["queue"], unknown)

    def _settleRun(self, envelope: bytes, frames: Chunk, count: int) -> None:
        """Settle the deliveries of neighbouring notifications."""

        def refused(error: BrokerError) -> None:
            self._session.refused(error, MessageType.NOTIF, peek(envelope[FIXED_BYTES:]))

        if not self._broker.ownsJournal:
            self._session.passOn(frames)
            return
        size = len(envelope)
        packed = payloads(bytes(frames), size) if count > 1 else (payloadOf(bytes(frames), size),)
        for arguments in self._together(packed, refused):
            try:
                self._settle(arguments)
            except BrokerError as error:
                refused(error)

    def _together(self, packed: Iterable[bytes], refused: Callable[[BrokerError], None]) -> list[Any]:
        """Return the arguments of notifications; neighbours that only acknowledge become one."""
        found: list[Any] = []
        acks: list[int] | None = None  # of the last one, if it has nothing else
        for each in packed:
            try:
                arguments = readArguments(self._broker, self._me, SETTLE, each)
            except BrokerError as error:
                refused(error)
                continue
            onlyAcks = arguments is not None and len(arguments) == 2 and "ack" in arguments
            if onlyAcks and acks is not None and arguments["queue"] == found[-1]["queue"]:
                acks += arguments["ack"]
                continue
            found.append(arguments)
            acks = arguments["ack"] if onlyAcks else None
        return found
