"""The BlipMQ dialect: actions and answers for each frame (BlipMQ document, docs/reference/dialects.rst).

Each phase of the handshake has a table of actions by frame type. A run is processed as a whole: one publication, one
poll.

Measured over TCP, messages of 100 bytes pipelined in rounds of 100,000 (benchmarks, scenes ``blipmq-qos0`` and
``blipmq-qos1``): QoS0 1.4 M published and 1.3 M polled a second of processor time, QoS1 1.6 M published, 1.2 M
polled and acknowledged; 0.15 M where POLL and ACK alternate (StringTransport).
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain

from twisted.internet.interfaces import IAddress

from fleximq.broker.consumers.polled_subscription import PolledSubscription
from fleximq.broker.envelope import ConnectedClient, Envelope
from fleximq.compiled import choice
from fleximq.dialects.blipmq.messages import (
    SOURCES,
    BlipJoinRefused,
    exceedsFrame,
    nackOf,
    renderDeliveries,
)
from fleximq.dialects.connection.connection_rate import admittedRuns, overRate
from fleximq.dialects.connection.connection_state import ConnectionState
from fleximq.dialects.connection.envelope_cache import EnvelopeCache
from fleximq.dialects.connection.error_codes import UnsupportedVersion
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.outbox import Outbox
from fleximq.dialects.pull_stream import CHUNK_BYTES, PullEvent, PullSession, PullState
from fleximq.dialects.session import NamedLogger
from fleximq.dialects.stream import READ_SECONDS
from fleximq.errors import (
    AuthenticationFailed,
    BadRequest,
    BrokerError,
    JoinRejected,
    NotFound,
    NotKept,
    NotRecorded,
    NotStored,
    Unauthorized,
    Unfit,
)
from fleximq.limits import BLIP_FRAME_BYTES
from fleximq.security.credentials import ApiKey, Certificate
from fleximq.security.principal import Admitted
from fleximq.values.message import Message
from fleximq.wire.blipmq_frame import BlipRun, FrameType, encodeFrame
from fleximq.wire.blipmq_payload import (
    VERSION,
    decodeAck,
    decodeAuth,
    decodeHello,
    decodePoll,
    decodePublish,
    decodeSubscribe,
    encodeNack,
    encodeSubscription,
)

#: The subscription id in the ACK of a successful HELLO or AUTH.
_NO_SUBSCRIPTION = 0
#: The correlation id of frames that answer no request.
_NO_REQUEST = 0
_READY = PullState.READY
_NONE: BlipRun = (FrameType.POLL, b"", [], [])
#: A run of PUBLISHes makes at most so many copies in one turn, in all subscriptions together: about 10 ms.
COPIES = 60_000


class BlipSession(PullSession):
    """One BlipMQ client's conversation. Input that arrives while it waits is only split into runs."""

    _log = NamedLogger(__name__)
    dialect = "blipmq"
    joinsFirst = True
    #: The client, from AUTH on; no earlier step uses it.
    _me: ConnectedClient

    def __init__(self, context: ListenerContext, outbox: Outbox, address: IAddress) -> None:
        super().__init__(context, outbox, address)
        self._scanner = choice.BlipScanner()
        self._envelopes: EnvelopeCache[Envelope] = EnvelopeCache(context.envelopeBudget)
        self._owner = ""
        self._errorIds: Sequence[int] = ()
        self._runs: Iterator[BlipRun] = iter(())
        self._unanswered: BlipRun = _NONE
        self._polled = 0
        # Those to which the client is attached, by the payload of its POLLs and ACKs: found once, until rights change.
        self._attached: dict[bytes, PolledSubscription] = {}
        self._steps = _GREETING

    @property
    def buffered(self) -> int:
        """Bytes buffered of an incomplete frame."""
        return self._scanner.buffered

    def received(self, data: bytes) -> None:
        """Process a read, run by run, until the outbox is full; called with b"" to continue."""
        runs = self._scanner.feed(data)
        if self.rate is not None and self.rate.refuses:
            runs = admittedRuns(self.rate.meter, runs, partial(self._refused, overRate()))
        if self.pullState is _READY:
            self._runs = runs
        elif data:
            self._runs = chain(self._runs, runs)
            return
        else:
            self.step(PullEvent.RESUME)
            rest = self._unanswered
            self.traffic.messagesIn -= len(rest[2])  # they were counted on arrival
            self._runs = chain([rest] if rest[2] else [], self._runs)
        self._work()

    def _work(self) -> None:
        seconds = self.context.clock.seconds
        until = seconds() + READ_SECONDS
        for kind, head, correlations, messages in self._runs:
            self.traffic.messagesIn += len(correlations)
            try:
                self._steps[kind](self, head, correlations, messages)
            except NotKept as error:
                for each in error.each() if isinstance(error, Unfit) else (error,):
                    self._refused(each, [correlations[index] for index in each.refused])
            except BrokerError as error:
                self._refused(error, correlations)
                if self.state is ConnectionState.ENDING:
                    return
            except Exception:
                self._errorIds = correlations[:1]
                raise
            if self.pullState is not _READY:
                return
            if seconds() > until:
                self._awaitTurn(_NONE)
                return
        if self._inputEnded:
            self.end("client closed")

    def _awaitTurn(self, rest: BlipRun) -> None:
        self._unanswered = rest
        self.step(PullEvent.TURN_OVER)

    # -- the handshake -----------------------------------------------------------------------------

    def _hello(self, head: bytes, correlations: list[int], messages: list[bytes]) -> None:
        if decodeHello(head) != VERSION:
            raise UnsupportedVersion("unsupported protocol version")
        self._steps = _AUTHENTICATING
        self._acknowledge(correlations[0], _NO_SUBSCRIPTION)

    def _auth(self, head: bytes, correlations: list[int], messages: list[bytes]) -> None:
        """Check an API key. Without one, a client certificate applies."""
        refusal = self.refusal()
        if refusal is not None:
            raise BlipJoinRefused(refusal)
        key = decodeAuth(head)
        certificate = self.certificate()
        then = partial(self._authenticated, correlations, key)
        refused = partial(self._wrong, correlations)
        if not key:
            self.admit(certificate, then, refused)
        elif certificate is None:
            self.admit(ApiKey(key), then, refused)
        else:
            self.admit(ApiKey(key), then, partial(self._withCertificate, certificate, then, refused))
        if self.isChecking:
            self.step(PullEvent.CHECK)

    def _withCertificate(
        self,
        certificate: Certificate,
        then: Callable[[Admitted], None],
        refused: Callable[[BrokerError], None],
        error: BrokerError,
    ) -> None:
        """Try the certificate if no checker accepts API keys."""
        if isinstance(error, AuthenticationFailed):
            self.admit(certificate, then, refused)
        else:
            refused(error)

    def _authenticated(self, correlations: list[int], key: str, admitted: Admitted) -> None:
        self._me = self.letIn(admitted)
        self._owner = ownerOf(admitted, key)
        self._steps = _TALKING
        self._acknowledge(correlations[0], _NO_SUBSCRIPTION)

    def _wrong(self, correlations: list[int], error: BrokerError) -> None:
        """Refuse an AUTH; the client may try again unless policy forbids it."""
        if isinstance(error, Unauthorized | AuthenticationFailed):
            error = Unauthorized("invalid API key")
        elif isinstance(error, JoinRejected):
            error = BlipJoinRefused(str(error))
        self._refused(error, correlations)

    def resume(self) -> None:
        """Continue after an AUTH."""
        self.step(PullEvent.RESUME)
        self._work()

    # -- actions of an authenticated client --------------------------------------------------------

    def _publish(self, head: bytes, correlations: list[int], messages: list[bytes]) -> None:
        envelope = self._envelopes.get(head)
        if envelope is None or envelope.topic.gone:
            self._envelopes.forget(head)
            envelope = self._learn(head)
        most = COPIES // (1 + len(envelope.topic.members)) or 1
        if len(messages) > most:
            self._awaitTurn((FrameType.PUBLISH, head, correlations[most:], messages[most:]))
            del correlations[most:], messages[most:]
        self.broker.publish(envelope, messages, len(messages), partial(self._reportRefused, correlations))

    def _reportRefused(self, correlations: Sequence[int], reason: str | None, indexes: Sequence[int]) -> None:
        """Send NACKs for messages that the journal refused, before the PONG that awaits the commit."""
        if reason is not None:
            error = NotRecorded(reason)
            self.counted(error)
            self.outbox.take(_nacks([correlations[index] for index in indexes], error))

    def _learn(self, head: bytes) -> Envelope:
        name, qos = decodePublish(head)
        topic = self.broker.topicFor(self._me, name)
        envelope = Envelope(topic, self._me, SOURCES[qos], qos, durable=qos == 1)
        self._envelopes.remember(head, envelope)
        return envelope

    def _subscribe(self, head: bytes, correlations: list[int], messages: list[bytes]) -> None:
        topic, qos = decodeSubscribe(head)
        if not self.broker.arePublicationsDecided(self._me):
            # Earlier publications of this client reach their topics at the commit; the new subscription must not get
            # them.
            self.step(PullEvent.LOAD)
            self._unanswered = FrameType.SUBSCRIBE, head, correlations, []
            self.broker.whenPublicationsDecided(self._continueSoon, self._me)
            return
        self.subscribing()
        subscription = self.broker.openSubscription(self._me, self._owner, topic, qos)
        encoded = encodeSubscription(subscription.id)
        self._attached[encoded] = subscription
        if subscription.durable:
            answer = [encodeFrame(FrameType.ACK, correlations[0], encoded)]
            self.broker.whenCommitted(partial(self._subscribed, correlations, answer, self.answers.later(answer)))
        else:
            self._acknowledge(correlations[0], subscription.id)

    def _subscribed(self, correlations: Sequence[int], answer: list[bytes], release: Callable[[], None]) -> None:
        """Answer with the id of a durable subscription after its commit, or with the journal's error."""
        reason = self.broker.journalRefusal()
        if reason is not None:
            error = NotRecorded(reason)
            self.counted(error)
            answer[0] = _nacks(correlations, error)
        release()

    def _poll(self, head: bytes, correlations: list[int], messages: list[bytes]) -> None:
        """Answer POLLs in batches, until the queue is empty or the outbox full."""
        subscription = self._attached.get(head)
        if subscription is None:
            subscription = self.broker.subscription(self._me, self._owner, decodePoll(head))
            self._attached[head] = subscription
        while correlations and self.pullState is _READY:
            tags, polled = subscription.poll(self._me, len(correlations), CHUNK_BYTES)
            if not tags:
                self._waitFor(subscription, head, correlations)
                return
            chunk = renderDeliveries(subscription.topic, tags, polled, correlations)
            if len(chunk) > BLIP_FRAME_BYTES:
                tags, polled = _sendable(subscription, tags, polled)
                chunk = renderDeliveries(subscription.topic, tags, polled, correlations)
            self.answers.take(chunk)
            self.traffic.messagesOut += len(tags)
            correlations = correlations[len(tags) :]
            self._polled += len(chunk)
            if self._polled >= CHUNK_BYTES:
                self._polled = 0
                self.outbox.flush()
                self._unanswered = FrameType.POLL, head, correlations, []
                if self.outbox.full:
                    self.step(PullEvent.OUTBOX_FULL)

    def _waitFor(self, subscription: PolledSubscription, head: bytes, correlations: list[int]) -> None:
        """Delay these POLLs until a message is ready or publications are committed, else leave them unanswered."""
        isPreparing = subscription.preparing
        if not isPreparing and self.broker.arePublicationsDecided(self._me):
            return
        self.step(PullEvent.LOAD)
        self._unanswered = FrameType.POLL, head, correlations, []
        if isPreparing:
            subscription.whenPrepared(self._continueSoon)
        else:
            self.broker.whenPublicationsDecided(self._continueSoon, self._me)

    def _continueSoon(self) -> None:
        self.context.clock.callLater(0, self._loaded)

    def _loaded(self) -> None:
        if self.state is not ConnectionState.CLOSED:
            self.onReady()

    def _ack(self, head: bytes, correlations: list[int], messages: list[bytes]) -> None:
        subscription = self._attached.get(head)
        if subscription is None:
            subscription = self.broker.subscription(self._me, self._owner, decodeAck(head))
        unknown = subscription.acknowledge(correlations, self._me)
        if unknown:
            self._refused(NotFound("unknown subscription or delivery tag"), unknown)

    def _ping(self, head: bytes, correlations: list[int], messages: list[bytes]) -> None:
        answer = [encodeFrame(FrameType.PONG, correlations[0])]
        self.broker.whenStored(partial(self._stored, correlations[0], answer, self.answers.later(answer)), self._me)

    def _stored(self, correlation: int, answer: list[bytes], release: Callable[[], None], reason: str | None) -> None:
        """Answer a PING; with a NACK before the PONG if earlier ACKs are not on disk."""
        if reason is not None:
            error = NotStored(reason)
            self.counted(error)
            answer.insert(0, _nacks([correlation], error))
        release()

    def _ignore(self, head: bytes, correlations: list[int], messages: list[bytes]) -> None:
        """Ignore a NACK or PONG of the client: it answers no request."""

    # -- answers -----------------------------------------------------------------------------------

    def _acknowledge(self, correlation: int, subscription: int) -> None:
        self.answers.take(encodeFrame(FrameType.ACK, correlation, encodeSubscription(subscription)))

    def _refused(self, error: BrokerError, correlations: Sequence[int]) -> None:
        self._errorIds = correlations
        self.failed(error)
        self._errorIds = ()

    def answerError(self, error: BrokerError) -> None:
        """Send a NACK for each affected frame; none if the input was not a frame."""
        if self._errorIds:
            self.answers.take(_nacks(self._errorIds, error))

    def expel(self, error: BrokerError) -> None:
        """Send a NACK with correlation id 0, as it answers no request, then close."""
        self._errorIds = (_NO_REQUEST,)
        super().expel(error)
        self._errorIds = ()

    def inputEnded(self) -> None:
        """Answer pending requests, then close."""
        self._inputEnded = True
        if self.pullState is _READY:
            self.end("client closed")

    def rightsChanged(self, lost: Sequence[str]) -> None:
        """Forget envelopes and subscriptions; later requests are checked again."""
        self._envelopes.clear()
        self._attached.clear()

    def left(self) -> None:
        """Forget envelopes, subscriptions and pending input."""
        self._envelopes.clear()
        self._attached.clear()
        self._scanner = choice.BlipScanner()
        self._runs = iter(())


_Step = Callable[[BlipSession, bytes, list[int], list[bytes]], None]


def _refuse(kind: type[BrokerError], words: str) -> _Step:
    def refuse(session: BlipSession, head: bytes, correlations: list[int], messages: list[bytes]) -> None:
        raise kind(words)

    return refuse


_EARLY: dict[FrameType, _Step] = dict.fromkeys(FrameType, _refuse(Unauthorized, "unauthenticated"))
_SECOND_HELLO = _refuse(BadRequest, "HELLO already performed")

#: The action for each frame type while HELLO is awaited, while AUTH is awaited, and for an authenticated client.
_GREETING = _EARLY | {FrameType.HELLO: BlipSession._hello, FrameType.AUTH: _refuse(BadRequest, "HELLO not performed")}
_AUTHENTICATING = _EARLY | {FrameType.HELLO: _SECOND_HELLO, FrameType.AUTH: BlipSession._auth}
_TALKING: dict[FrameType, _Step] = {
    FrameType.HELLO: _SECOND_HELLO,
    FrameType.AUTH: _refuse(BadRequest, "already authenticated"),
    FrameType.PUBLISH: BlipSession._publish,
    FrameType.SUBSCRIBE: BlipSession._subscribe,
    FrameType.ACK: BlipSession._ack,
    FrameType.NACK: BlipSession._ignore,
    FrameType.PING: BlipSession._ping,
    FrameType.PONG: BlipSession._ignore,
    FrameType.POLL: BlipSession._poll,
}


def ownerOf(admitted: Admitted, key: str) -> str:
    """Return the owner of a client's subscriptions across connections: its principal, else the hash of its API key."""
    if admitted.principal is not None:
        return f"principal:{admitted.principal.name}"
    return hashlib.sha256(key.encode()).hexdigest()


def _nacks(correlations: Sequence[int], error: BrokerError) -> bytes:
    payload = encodeNack(*nackOf(error))
    return b"".join([encodeFrame(FrameType.NACK, correlation, payload) for correlation in correlations])


def _sendable(
    subscription: PolledSubscription, tags: Sequence[int], messages: Sequence[Message]
) -> tuple[list[int], list[Message]]:
    """Dead-letter messages larger than a frame and return the others; later messages answer their POLLs."""
    fitting: tuple[list[int], list[Message]] = [], []
    for tag, message in zip(tags, messages, strict=True):
        if exceedsFrame(subscription.topic, message):
            subscription.deadLetter(tag)
        else:
            fitting[0].append(tag)
            fitting[1].append(message)
    return fitting
