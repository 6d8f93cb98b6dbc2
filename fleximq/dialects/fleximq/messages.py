"""The action of each FlexiMQ message type (FlexiMQ document 3, docs/reference/dialects.rst).

``message_<TYPE>`` is called with the checked header, the envelope and the complete frame with zeroed reserved bytes. It
acts, or raises the error to answer with.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import chain
from typing import Any

from twisted.internet.interfaces import IAddress

from fleximq.broker.authorization import permits
from fleximq.broker.envelope import BROKER_ID, Envelope
from fleximq.broker.paths import path_table
from fleximq.broker.replay.replay import Start
from fleximq.dialects.connection.envelope_cache import EnvelopeCache
from fleximq.dialects.connection.read_pauses import ReadPause
from fleximq.dialects.connection.slow_consumer import PausablePublisher
from fleximq.dialects.context import Context
from fleximq.dialects.fleximq.direct_cache import DirectCache
from fleximq.dialects.fleximq.forms import REPLAY_FORMS, FlexiSource, records
from fleximq.dialects.fleximq.replies import FlexiReplies, correlation, errorPayload
from fleximq.dialects.outbox import Chunk, Outbox
from fleximq.dialects.replay_outlet import ReplayOutlet
from fleximq.dialects.session import ConnectionState
from fleximq.errors import (
    BadRequest,
    BrokerError,
    ClientNotFound,
    InvalidRouting,
    InvalidTopic,
    NotKept,
    NotPermitted,
    NotRecorded,
    SubscriptionFailed,
    TooManyRequests,
)
from fleximq.rights import Action
from fleximq.status import Status
from fleximq.values.header_pairs import SENDER
from fleximq.values.patterns import isPattern
from fleximq.wire.fleximq_frame import hasZeroReserved, payloadOf
from fleximq.wire.fleximq_header import Header, MessageType, RoutingEntry, peek
from fleximq.wire.fleximq_record_frame import headerWithSender, withHeader
from fleximq.wire.fleximq_scanner import FIXED_BYTES

#: Maximum number of unanswered requests to the broker itself, since some answers are large.
QUESTIONS = 64
#: A client is not read while a request to the broker with so many bytes of arguments is not answered.
LARGE_REQUEST = 1 << 16
#: A PUB with one of these keys differs from message to message, so its envelope is not cached.
_PER_MESSAGE_KEYS = frozenset({"routing", "message_id", "correlation_id", "traceparent", "tracestate"})


class FlexiMessages(FlexiReplies):
    """The input half of a FlexiMQ session, after the header was checked."""

    __slots__ = ("_inputPauses", "_directs", "_envelopes", "_largeRequests", "_later")

    def __init__(self, context: Context, outbox: Outbox, address: IAddress) -> None:
        super().__init__(context, outbox, address)
        self._envelopes = EnvelopeCache(context.envelopeBudget)
        self._directs = DirectCache(context.envelopeBudget)
        self._largeRequests = 0
        self._inputPauses: PausablePublisher | None = None
        #: The number of SUBs and UNSUBs that await earlier publications.
        self._later = 0

    def message_REQ(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Forward a request, or answer one to the broker itself."""
        entry = header.routing[0]
        path = entry.path or ""
        if entry.client_id == BROKER_ID:
            self._answer(header, path, payloadOf(frame, len(envelope)))
        else:
            self.broker.request(self._me, entry.target, header.id or "", path, frame)
            self._rememberDirect(header, envelope, frame)

    def _answer(self, header: Header, path: str, payload: bytes) -> None:
        arguments = path_table.readArguments(self.broker, self._me, path, payload)
        if self._requests >= QUESTIONS:
            raise TooManyRequests(f"more than {QUESTIONS} requests to the broker are not answered yet")
        self._requests += 1
        isLarge = len(payload) > LARGE_REQUEST
        self._largeRequests += isLarge
        try:
            answered = partial(self._answered, path, header.id, isLarge)
            path_table.answer(self.broker, self._me, path, arguments, answered)
        except BrokerError:
            self._requests -= 1
            self._largeRequests -= isLarge
            raise
        self._inputPauses = self.outbox.reader
        if self._largeRequests and self._inputPauses is not None:
            self._inputPauses.readPauses.pause(ReadPause.UNANSWERED)  # or many large arguments would wait in memory

    def _answered(self, path: str, id: str | None, isLarge: bool, value: Any) -> None:
        self._requests -= 1
        self._largeRequests -= isLarge
        if isLarge and not self._largeRequests and self._inputPauses is not None:
            self._inputPauses.readPauses.resume(ReadPause.UNANSWERED)
        if isinstance(value, BrokerError):
            self.counted(value)
            self._sendError(value, path, id)
        else:
            routing = self._routing({"client_id": self.id, "path": path})
            fields = {"status": int(Status.OK), "routing": routing} | correlation(id)
            self._sendValue(fields, value)
        self.requestDone()

    def message_REP(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Forward a reply to its requester; report a missing one by a NOTIF 600."""
        entry = header.routing[0]
        if entry.client_id == BROKER_ID:
            return
        ids = self.broker.clients.accepting(entry.target)
        if len(ids) > 1:
            raise InvalidRouting(f"there are {len(ids)} clients {entry}, but a REP goes to one")
        try:
            self.broker.reply(self._me, next(iter(ids), 0), header.id or "", frame, entry.path or "")
        except ClientNotFound:
            self._reportLost(header, entry)
        else:
            if entry.client_id:
                self._rememberDirect(header, envelope, frame)

    def message_NOTIF(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Send a copy to each known target, then report each unknown one by a NOTIF 600."""
        entries = [entry for entry in header.routing if entry.client_id != BROKER_ID]
        idsOf = self._idsOf(entries)
        lost = [entry for entry in entries if not idsOf[entry.target]]
        paths = dict.fromkeys(entry.path or "" for entry in entries)
        self.broker.notify(self._me, chain.from_iterable(idsOf.values()), paths, frame)
        for entry in lost:
            self._reportLost(header, entry)

    def _idsOf(self, entries: Sequence[RoutingEntry]) -> dict[int | str, Collection[int]]:
        """Return the ids of the clients that these entries mean, by target."""
        targets = dict.fromkeys(entry.target for entry in entries)
        return {target: self.broker.clients.accepting(target) for target in targets}

    def message_BCAST(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Send a copy to all other clients."""
        self.broker.broadcast(self._me, frame)

    def message_PUB(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Publish, and cache the envelope if it is likely to be repeated."""
        if self._me.sender and SENDER not in header.fields:
            named = headerWithSender(envelope[FIXED_BYTES:], self._me.sender)
            if not named:
                raise BadRequest("the header has no room for the name of the sender")
            envelope, frame = withHeader(envelope, named, frame)
        topic = self.broker.topicFor(self._me, header.topic)
        parsed = Envelope(topic, self._me, FlexiSource(len(envelope), header))
        audience = [entry for entry in header.routing if entry.client_id != BROKER_ID]
        if audience:
            ids = chain.from_iterable(self._idsOf(audience).values())
            self.broker.publishNarrowed(parsed, frame, 1, dict.fromkeys(ids))
            return
        if hasZeroReserved(envelope) and _PER_MESSAGE_KEYS.isdisjoint(header.fields):
            self._envelopes.remember(envelope, parsed)
        id = header.fields.get("message_id")
        if id is None:
            self._publish(parsed, envelope, frame, 1)
        else:
            self._publish(parsed, envelope, frame, 1, (id,))

    def _publish(
        self, parsed: Envelope, envelope: bytes, frames: Chunk, count: int, ids: Sequence[str] | None = None
    ) -> None:
        """Publish a run, and answer its refused messages, possibly later."""
        onDecided = partial(self._reportRefused, parsed.topic.name)
        try:
            if ids is None:
                self.broker.publish(parsed, frames, count, onDecided)
            else:
                self.broker.publishOnce(parsed, frames, ids, onDecided)
        except NotRecorded as error:
            self._reportRefused(parsed.topic.name, error.reason, error.refused, inOrder=True)
        except NotKept as error:
            fields = peek(envelope[FIXED_BYTES:])
            for _ in error.refused:
                self._refused(error, MessageType.PUB, fields, parsed.topic.name)

    def message_SUB(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Subscribe to a topic or pattern, from now on or from an offset in the journal."""
        self.subscribing()
        self._inOrder(self._subscribe, header)

    def _inOrder(self, act: Callable[[Header], None], header: Header) -> None:
        """Act after this client's pending publications to the same topics were delivered."""
        if not self._later and (not self._concerns(header.topic) or self.broker.arePublicationsDecided(self._me)):
            act(header)
            return
        self._later += 1
        self.broker.whenPublicationsDecided(partial(self._actLater, act, header), self._me)

    def _concerns(self, name: str) -> bool:
        """Return whether a pending publication may match this topic or pattern."""
        topic = self.broker.topics.find(name)
        return isPattern(name) or (topic is not None and bool(topic.pendingRuns))

    def _actLater(self, act: Callable[[Header], None], header: Header) -> None:
        self._later -= 1
        if self.state is ConnectionState.OPEN:
            try:
                act(header)
            except BrokerError as error:
                self._subscriptionLost(error, "")  # before the PONG that waits for it

    def _subscribe(self, header: Header) -> None:
        try:
            if header.start is not None:
                self.broker.follow(self._me, self._replaying(offsets=True), header.topic, Start(*header.start))
            elif header.topic not in self._me.subscriptions:
                self.broker.subscribe(self._me, self, header.topic)
                self.broker.recall(self._me, self._replaying(offsets=False), header.topic)
        except (InvalidTopic, NotPermitted) as error:
            raise SubscriptionFailed(str(error)) from error

    def _replaying(self, offsets: bool) -> ReplayOutlet:
        form = REPLAY_FORMS[self.form, offsets]
        shaped, clock, failed = self._shaped, self.context.clock, self._subscriptionLost
        return ReplayOutlet(self, self.outbox, clock, form, lambda batches: shaped(records(batches, offsets)), failed)

    def _subscriptionLost(self, error: BrokerError, name: str) -> None:
        self.counted(error)
        self.outbox.take(self._error(error.status, errorPayload(error), name))

    def message_UNSUB(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """End a subscription, by the name it was made with; an unknown one is no error."""
        self._inOrder(lambda header: self.broker.unsubscribe(self._me, header.topic), header)

    def message_PING(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Answer with a PONG after the commit of all earlier publications."""
        if header.interval is not None and self._keepAlive is not None:
            self._keepAlive.suggest(header.interval)
        fields = {"keepalive": {"timestamp": header.timestamp}}
        pong = self._encoded(MessageType.PONG, fields)
        if self.broker.arePublicationsDecided(self._me):
            self.answers.take(pong)
        else:
            self.broker.whenCommitted(self.answers.later((pong,)), self._me)

    def message_PONG(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Note that the client answers PINGs; receiving it is enough for the keep-alive."""
        if self._keepAlive is not None:
            self._keepAlive.mayBeSilent = False

    def _rememberDirect(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Cache a header that may be repeated with another id, unless the frame was modified."""
        if hasZeroReserved(envelope) and frame.startswith(envelope):
            entry = header.routing[0]
            self._directs.remember(envelope, entry.target, entry.path or "", header.id or "")

    def rightsChanged(self, lost: Sequence[str]) -> None:
        """Clear cached envelopes, and answer for each lost subscription as for a refused one."""
        self._forget()
        if self._me.service and not permits(self._me, Action.SERVE, self._me.service):
            self.broker.rename(self._me, "")
        for name in lost:
            self._subscriptionLost(SubscriptionFailed(f"subscribing to {name!r} is not permitted any more"), name)

    def left(self) -> None:
        """Clear cached envelopes."""
        self._forget()

    def _forget(self) -> None:
        self._envelopes.clear()
        self._directs.clear()
