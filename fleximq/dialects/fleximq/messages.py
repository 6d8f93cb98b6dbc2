"""The action of each FlexiMQ message type (FlexiMQ document 3, docs/reference/dialects.rst).

``message_<TYPE>`` is called with the checked header, the envelope and the complete frame with zeroed reserved bytes. It
acts, or raises the error to answer with.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Protocol

from twisted.internet.interfaces import IAddress

from fleximq.broker.authorization import permits
from fleximq.broker.broker import Broker
from fleximq.broker.envelope import BROKER_ID, ConnectedClient, Envelope
from fleximq.broker.paths import path_table
from fleximq.broker.paths.settlement import SETTLE
from fleximq.broker.paths.value_paths import VALUE_PATHS
from fleximq.broker.replay.replay import Start
from fleximq.dialects.answers import Answers
from fleximq.dialects.connection.connection_state import ConnectionState
from fleximq.dialects.connection.keepalive import KeepAlive
from fleximq.dialects.connection.read_pauses import ReadPause
from fleximq.dialects.connection.slow_consumer import PausablePublisher
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.fleximq.forms import REPLAY_FORMS, FlexiSource, records
from fleximq.dialects.fleximq.owner_link import OwnerLink
from fleximq.dialects.fleximq.queue_messages import PER_MESSAGE_KEYS, QueueMessages
from fleximq.dialects.fleximq.read_loop import ReadLoop
from fleximq.dialects.fleximq.replies import FlexiReplies, errorPayload
from fleximq.dialects.outbox import Chunk, Outbox
from fleximq.dialects.replay_outlet import ReplayOutlet
from fleximq.errors import (
    BadRequest,
    BrokerError,
    ClientNotFound,
    Conflict,
    Forbidden,
    InvalidRouting,
    InvalidTopic,
    NotImplementedByBroker,
    NotOwner,
    NotPermitted,
    NotStored,
    SubscriptionFailed,
    TooManyRequests,
)
from fleximq.interfaces import IPeer
from fleximq.rights import Action
from fleximq.values.header_pairs import SENDER, SENDER_BYTES, isForged
from fleximq.values.patterns import isPattern
from fleximq.wire.fleximq_frame import NO_RESERVED, RESERVED, payloadOf, readPrefix, withZeroReserved, words
from fleximq.wire.fleximq_header import Header, MessageType, OpenHeader, RoutingEntry, checkHeader
from fleximq.wire.fleximq_record_frame import headerWithSender, withHeader
from fleximq.wire.fleximq_scanner import FIXED_BYTES

#: Maximum number of unanswered requests to the broker itself, since some answers are large.
QUESTIONS = 64
#: ... if they are about values: their answers are small or come one by one, and readers wait for them.
VALUE_QUESTIONS = 1024
#: A client is not read while a request to the broker with so many bytes of arguments is not answered.
LARGE_REQUEST = 1 << 16


class Conversation(Protocol):
    """The session that the messages belong to."""

    address: IAddress
    answers: Answers
    broker: Broker
    context: ListenerContext
    keepAlive: KeepAlive | None
    outbox: Outbox
    state: ConnectionState

    def counted(self, error: BrokerError) -> None:
        """Count and log an error."""

    def linkEnded(self) -> None:
        """End with the connection to the owner of the journal."""

    def passOn(self, frames: Chunk) -> None:
        """Send messages to the owner of the journal."""

    def refused(self, error: BrokerError, kind: int | None, fields: Mapping[Any, Any], topic: str = "") -> None:
        """Answer an error for a message with this type and header."""

    def requestDone(self) -> None:
        """Close the connection if this was the last answer that it waits for."""

    def subscribing(self) -> None:
        """Charge one subscription request."""


class FlexiMessages:
    """The messages of one joined client that no cache knows: from the JOIN to the end of its session.

    ``peer`` is its subscriber, ``replies`` answers it, ``reads`` publishes its runs and caches its headers.
    """

    __slots__ = (
        "_broker", "_inputPauses", "_largeRequests", "_later", "_me", "_peer", "_questions", "_queues", "_reads",
        "_replies", "_session", "_valueQuestions", "link",
    )  # fmt: skip

    def __init__(
        self, session: Conversation, peer: IPeer, me: ConnectedClient, replies: FlexiReplies, reads: ReadLoop
    ) -> None:
        self._session = session
        self._peer = peer
        self._broker = session.broker
        self._me = me
        self._replies = replies
        self._reads = reads
        self._queues: QueueMessages | None = None
        #: The connection to the owner of the journal, at another node of a mesh.
        self.link: OwnerLink | None = None
        self._questions = self._valueQuestions = 0
        self._largeRequests = 0
        self._inputPauses: PausablePublisher | None = None
        #: The number of SUBs and UNSUBs that await earlier publications.
        self._later = 0

    def act(self, opened: OpenHeader, frame: bytes) -> None:
        """Check the header of a message, and act by its type; raises BrokerError."""
        envelope = opened.envelope
        _, kind, client_id = readPrefix(envelope)
        if kind == MessageType.JOIN:
            raise Conflict("this connection has joined already")
        if kind not in _ACTIONS:
            raise NotImplementedByBroker(f"message type {kind} is not known")
        if client_id != self._replies.id:
            raise Forbidden(f"the client id is {client_id}, but this connection has {self._replies.id}")
        if opened.unreadable is not None:
            raise opened.unreadable
        fields = opened.fields
        header = checkHeader(MessageType(kind), fields)
        if (SENDER in fields or SENDER_BYTES in fields) and isForged(fields, self._me.sender):
            raise BadRequest(f"{SENDER!r} is set by the broker alone")
        act: Callable[[Header, bytes, bytes], None] = getattr(self, _ACTIONS[kind])
        frame = frame if envelope[RESERVED] == NO_RESERVED else withZeroReserved(frame)
        try:
            act(header, envelope, frame)
        except NotOwner:
            self.passOn(frame)

    def passOn(self, frames: Chunk) -> None:
        """Send messages to the owner of the journal, over a connection of this client's own."""
        if self.link is None:
            self.link = OwnerLink(self._session, self._me, self._replies)
            self.link.begin()
        self.link.send(frames)

    def message_REQ(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Forward a request, or answer one to the broker itself."""
        entry = header.routing[0]
        path = entry.path or ""
        if entry.client_id == BROKER_ID:
            self._answer(header, path, payloadOf(frame, len(envelope)))
        else:
            self._broker.request(self._me, entry.target, header.id or "", path, frame)
            self._rememberDirect(header, envelope, frame)

    def _answer(self, header: Header, path: str, payload: bytes) -> None:
        arguments = path_table.readArguments(self._broker, self._me, path, payload)
        isValue = path in VALUE_PATHS
        most = VALUE_QUESTIONS if isValue else QUESTIONS
        if (self._valueQuestions if isValue else self._questions) >= most:
            about = " about values" if isValue else ""
            raise TooManyRequests(f"more than {most} requests to the broker{about} are not answered yet")
        self._count(path, 1)
        isLarge = len(payload) > LARGE_REQUEST
        self._largeRequests += isLarge
        try:
            answered = partial(self._answered, path, header.id, isLarge)
            path_table.answer(self._broker, self._me, path, arguments, answered)
        except BrokerError:
            self._count(path, -1)
            self._largeRequests -= isLarge
            raise
        self._inputPauses = self._session.outbox.reader
        if self._largeRequests and self._inputPauses is not None:
            self._inputPauses.readPauses.pause(ReadPause.UNANSWERED)  # or many large arguments would wait in memory

    @property
    def questions(self) -> int:
        """The number of unanswered requests to the broker; a connection to its owner counts as one."""
        return self._questions + self._valueQuestions + (self.link is not None)

    def _count(self, path: str, change: int) -> None:
        if path in VALUE_PATHS:
            self._valueQuestions += change
        else:
            self._questions += change

    def _answered(self, path: str, requestId: str | None, isLarge: bool, value: Any) -> None:
        self._count(path, -1)
        self._largeRequests -= isLarge
        if isLarge and not self._largeRequests and self._inputPauses is not None:
            self._inputPauses.readPauses.resume(ReadPause.UNANSWERED)
        if not self._session.outbox.isOpen:
            return  # large values would be packed for nothing
        if isinstance(value, BrokerError):
            self._session.counted(value)
            self._replies.sendError(value, path, requestId)
        else:
            self._replies.sendValue(path, requestId, value)
        self._session.requestDone()

    def message_REP(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Forward a reply to its requester; report a missing one by a NOTIF 600."""
        entry = header.routing[0]
        if entry.client_id == BROKER_ID:
            return
        ids = self._broker.clients.accepting(entry.target)
        if len(ids) > 1:
            raise InvalidRouting(f"there are {len(ids)} clients {entry}, but a REP goes to one")
        try:
            self._broker.reply(self._me, next(iter(ids), 0), header.id or "", frame, entry.path or "")
        except ClientNotFound:
            self._replies.sendLost(header, entry)
        else:
            if entry.client_id:
                self._rememberDirect(header, envelope, frame)

    def message_NOTIF(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Send a copy to each known target, then report each unknown one by a NOTIF 600."""
        entries = [entry for entry in header.routing if entry.client_id != BROKER_ID]
        if len(entries) < len(header.routing):
            self._queueing().notified(header, envelope, frame)
        idsOf = self._idsOf(entries)
        lost = [entry for entry in entries if not idsOf[entry.target]]
        paths = dict.fromkeys(entry.path or "" for entry in entries)
        self._broker.notify(self._me, chain.from_iterable(idsOf.values()), paths, frame)
        for entry in lost:
            self._replies.sendLost(header, entry)

    def _idsOf(self, entries: Sequence[RoutingEntry]) -> dict[int | str, Collection[int]]:
        """Return the ids of the clients that these entries mean, by target."""
        targets = dict.fromkeys(entry.target for entry in entries)
        return {target: self._broker.clients.accepting(target) for target in targets}

    def message_BCAST(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Send a copy to all other clients."""
        self._broker.broadcast(self._me, frame)

    def message_PUB(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Publish, and cache the envelope if it is likely to be repeated."""
        if self._me.sender and SENDER not in header.fields:
            named = headerWithSender(envelope[FIXED_BYTES:], self._me.sender)
            if not named:
                raise BadRequest("the header has no room for the name of the sender")
            envelope, frame = withHeader(frame[: len(envelope)], named, frame)
        topic = self._broker.topicFor(self._me, header.topic)
        parsed = Envelope(topic, self._me, FlexiSource(len(envelope), header, self._me.id))
        if header.queueing is not None and (header.queueing.queue is not None or header.queueing.isScheduled):
            self._queueing().publish(header, header.queueing, parsed, envelope, frame)
            return
        audience = header.routing and [entry for entry in header.routing if entry.client_id != BROKER_ID]
        if audience:
            ids = chain.from_iterable(self._idsOf(audience).values())
            self._broker.publishNarrowed(parsed, frame, 1, dict.fromkeys(ids))
            return
        if frame.startswith(envelope) and PER_MESSAGE_KEYS.isdisjoint(header.fields):
            self._reads.envelopes.remember(envelope, parsed)
        messageId = header.fields.get("message_id")
        if messageId is None:
            self._reads.publish(parsed, envelope, frame, 1)
        else:
            self._reads.publish(parsed, envelope, frame, 1, (messageId,))

    def _queueing(self) -> QueueMessages:
        """Return the acts on queues, made when the first one is needed."""
        if self._queues is None:
            self._queues = QueueMessages(self._session, self._me, self._replies, self._reads, self.lost)
            self._reads.repeated = self._queues.repeated
        return self._queues

    def message_SUB(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Subscribe to a topic or pattern, from now on or from an offset in the journal."""
        self._session.subscribing()
        self._inOrder(self._subscribe, header, frame)

    def _inOrder(self, act: Callable[[Header], None], header: Header, frame: bytes) -> None:
        """Act after this client's pending publications to the same topics were delivered."""
        if not self._later and (not self._concerns(header.topic) or self._broker.arePublicationsDecided(self._me)):
            act(header)
            return
        self._later += 1
        self._broker.whenPublicationsDecided(partial(self._actLater, act, header, frame), self._me)

    def _concerns(self, name: str) -> bool:
        """Return whether a pending publication may match this topic or pattern."""
        topic = self._broker.topics.find(name)
        return isPattern(name) or (topic is not None and bool(topic.pendingRuns))

    def _actLater(self, act: Callable[[Header], None], header: Header, frame: bytes) -> None:
        self._later -= 1
        if self._session.state is ConnectionState.OPEN:
            try:
                act(header)
            except NotOwner:
                self.passOn(frame)
            except BrokerError as error:
                self.lost(error, "")  # before the PONG that waits for it

    def _subscribe(self, header: Header) -> None:
        try:
            if header.queueing is not None:
                self._queueing().consume(header.topic, header.queueing)
            elif header.start is not None:
                self._broker.follow(self._me, self._replaying(offsets=True), header.topic, Start(*header.start))
            elif header.topic not in self._me.subscriptions:
                self._broker.subscribe(self._me, self._peer, header.topic)
                self._broker.recall(self._me, self._replaying(offsets=False), header.topic)
        except (InvalidTopic, NotPermitted) as error:
            raise SubscriptionFailed(str(error)) from error

    def _replaying(self, offsets: bool) -> ReplayOutlet:
        session, form = self._session, REPLAY_FORMS[offsets]
        render = partial(records, offsets=offsets)
        return ReplayOutlet(
            self._peer, session.outbox, session.context.clock, form, render, self._replies.writer.replay, self.lost
        )

    def lost(self, error: BrokerError, name: str) -> None:
        """Report that the subscription or queue of this name is lost."""
        self._session.counted(error)
        self._session.outbox.take(self._replies.error(error.status, errorPayload(error), name))

    def message_UNSUB(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """End a subscription, by the name it was made with; an unknown one is no error."""
        self._inOrder(self._unsubscribe, header, frame)

    def _unsubscribe(self, header: Header) -> None:
        if header.queueing is None:
            self._broker.unsubscribe(self._me, header.topic)
        else:
            self._queueing().stop(header.queueing)

    def message_PING(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Answer with a PONG after the commit of all earlier publications."""
        keepAlive, answers = self._session.keepAlive, self._session.answers
        if header.interval is not None and keepAlive is not None:
            keepAlive.suggest(header.interval)
        pong = self._replies.writer.encoded(MessageType.PONG, {"keepalive": {"timestamp": header.timestamp}})
        if self.link is not None:
            # Its place among the answers is taken then, since errors of the owner's precede it.
            self.link.whenDone(lambda: self._broker.whenCommitted(answers.later((pong,)), self._me))
        elif self._me.consumed or self._me.settled:
            self._pongWhenSettled(pong)
        elif self._broker.arePublicationsDecided(self._me):
            answers.take(pong)
        else:
            self._broker.whenCommitted(answers.later((pong,)), self._me)

    def _pongWhenSettled(self, pong: bytes) -> None:
        """Answer when the settlements so far are on disk too, or with an error before the PONG if they cannot be."""
        chunks = [pong]
        release = self._session.answers.later(chunks)

        def stored(reason: str | None) -> None:
            if reason is not None:
                error = NotStored(reason)
                self._session.counted(error)
                chunks.insert(0, self._replies.error(error.status, words(str(error)), SETTLE))
            release()

        self._broker.whenStored(stored, self._me)

    def message_PONG(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Note that the client answers PINGs; receiving it is enough for the keep-alive."""
        if self._session.keepAlive is not None:
            self._session.keepAlive.mayBeSilent = False

    def _rememberDirect(self, header: Header, envelope: bytes, frame: bytes) -> None:
        """Cache a header that may be repeated with another id, unless the frame was modified."""
        if frame.startswith(envelope):
            entry = header.routing[0]
            self._reads.directs.remember(envelope, entry.target, entry.path or "", header.id or "")

    def rightsChanged(self, lost: Sequence[str]) -> None:
        """Clear the caches, and answer for each lost subscription as for a refused one."""
        self._reads.forget()
        if self._me.service and not permits(self._me, Action.SERVE, self._me.service):
            self._broker.rename(self._me, "")
        for name in lost:
            self.lost(SubscriptionFailed(f"subscribing to {name!r} is not permitted any more"), name)

    def inputEnded(self) -> None:
        """Return the deliveries that the client cannot settle any more."""
        if self._queues is not None:
            self._queues.stopAll()
        if self.link is not None:
            self.link.inputEnded()

    def left(self) -> None:
        """Forget the acts on queues after the end of the connection."""
        self._queues = None
        if self.link is not None:
            self.link.close()


#: The method of :class:`FlexiMessages` for each type.
_ACTIONS = {int(kind): f"message_{kind.name}" for kind in MessageType if kind is not MessageType.JOIN}
