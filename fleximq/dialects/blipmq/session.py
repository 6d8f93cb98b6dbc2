"""The BlipMQ dialect: what is answered to each frame (specification: the BlipMQ document and docs/dialects.rst).

What a frame does depends on how far the handshake has come: one table, :data:`_STEPS`, has the step for each phase
and type of frame. Runs are worked through whole: one publication, one poll.

Measured over TCP, messages of 100 bytes pipelined in rounds of 100,000 (benchmarks, scenes ``blipmq-qos0`` and
``blipmq-qos1``): QoS0 1.2 M published and 0.73 M polled a second, QoS1 1.0 M published, 0.65 M polled and acknowledged;
0.16 M a second where POLL and ACK alternate (StringTransport).
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from itertools import chain

from twisted.internet.interfaces import IAddress

from fleximq.broker.consumers.polled_subscription import PolledSubscription
from fleximq.broker.envelope import ConnectedClient, Envelope, QueueDelivery
from fleximq.dialects.answers import Answers
from fleximq.dialects.blipmq.messages import (
    SOURCES,
    BlipJoinRefused,
    UnsupportedVersion,
    isTooLarge,
    nackOf,
    renderDeliveries,
)
from fleximq.dialects.connection.connection_rate import admittedRuns, overRate
from fleximq.dialects.connection.envelope_cache import EnvelopeCache
from fleximq.dialects.context import Context
from fleximq.dialects.outbox import Outbox
from fleximq.dialects.pull_stream import CHUNK_BYTES
from fleximq.dialects.session import ConnectionState, NamedLogger, StreamSession
from fleximq.errors import (
    AuthenticationFailed,
    BadRequest,
    BrokerError,
    JoinRejected,
    NotFound,
    NotKept,
    NotRecorded,
    Unauthorized,
)
from fleximq.limits import BLIP_FRAME_BYTES
from fleximq.security.credentials import ApiKey, Certificate
from fleximq.security.principal import Admitted
from fleximq.wire.blipmq_frame import BlipRun, BlipScanner, FrameType, encodeFrame
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

#: The answer to a HELLO and an AUTH that succeeded is an ACK of this subscription.
_NO_SUBSCRIPTION = 0
#: The correlation id of what the broker says by itself.
_NO_REQUEST = 0


class Phase(Enum):
    """How far the handshake has come."""

    GREETING = "HELLO is awaited"
    AUTHENTICATING = "AUTH is awaited"
    TALKING = "the client is authenticated"


class BlipSession(StreamSession):
    """One BlipMQ client's conversation.

    While it is ``stuck`` because of its reader it is to be given no more. Where it is ``loading`` as well, because a
    message is being read back or on its way to the disk, it calls ``goOn`` when it was.
    """

    _log = NamedLogger("fleximq.dialects.blipmq.BlipSession")
    dialect = "blipmq"
    #: Who this is, from AUTH on; nothing that asks for it is reached earlier.
    _me: ConnectedClient

    def __init__(self, context: Context, outbox: Outbox, address: IAddress) -> None:
        super().__init__(context, outbox, address)
        self.answers: Answers = Answers(outbox)
        self._scanner = BlipScanner()
        self._envelopes = EnvelopeCache(context.envelopeBudget)
        self._owner = ""
        self._errorIds: Sequence[int] = ()
        self._runs: Iterator[BlipRun] = iter(())
        self._unanswered: tuple[FrameType, bytes, list[int]] = FrameType.POLL, b"", []
        self._polled = 0
        self._inputEnded = False
        self.loading = False
        self.onReady: Callable[[], None] = _nothing
        self._enter(Phase.GREETING)

    def _enter(self, phase: Phase) -> None:
        self._steps = _STEPS[phase]

    @property
    def buffered(self) -> int:
        """How many bytes are kept of an unfinished frame."""
        return self._scanner.buffered

    def received(self, data: bytes) -> None:
        """Work through what was read, run by run, as far as the peer reads the answers; later go on with b""."""
        runs = self._scanner.feed(data)
        if self.rate is not None and self.rate.refuses:
            runs = admittedRuns(self.rate.meter, runs, self._overRate)
        if not self.suspended:
            self._runs = runs
        elif data:
            self._runs = chain(self._runs, runs)
            return
        else:
            self.suspended = False
            kind, head, correlations = self._unanswered
            self.traffic.messagesIn -= len(correlations)  # they were counted when they came
            self._runs = chain([(kind, head, correlations, [])] if correlations else [], self._runs)
        self._work()
        if self._inputEnded and not self.suspended:
            self.end("client closed")

    def _overRate(self, correlations: Sequence[int]) -> None:
        """Refuse these frames."""
        self._refused(overRate(), correlations)

    def _work(self) -> None:
        for kind, head, correlations, messages in self._runs:
            self.traffic.messagesIn += len(correlations)
            try:
                self._steps[kind](self, head, correlations, messages)
            except NotKept as error:
                self._refused(error, [correlations[place] for place in error.refused])
            except BrokerError as error:
                self._refused(error, correlations)
                if self.state is ConnectionState.ENDING:
                    return
            except Exception:
                self._errorIds = correlations[:1]
                raise
            if self.suspended:
                return

    # -- the handshake -----------------------------------------------------------------------------

    def _hello(self, head: bytes, correlations: list[int], messages: list[bytes]) -> None:
        if decodeHello(head) != VERSION:
            raise UnsupportedVersion("unsupported protocol version")
        self._enter(Phase.AUTHENTICATING)
        self._acknowledge(correlations[0], _NO_SUBSCRIPTION)

    def _auth(self, head: bytes, correlations: list[int], messages: list[bytes]) -> None:
        """Have a key checked; an empty one shows nothing. Whoever has none may have shown a certificate."""
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
        self.suspended = self.isChecking

    def _withCertificate(
        self,
        certificate: Certificate,
        then: Callable[[Admitted], None],
        refused: Callable[[BrokerError], None],
        error: BrokerError,
    ) -> None:
        """Ask about the certificate where nothing checks keys."""
        if isinstance(error, AuthenticationFailed):
            self.admit(certificate, then, refused)
        else:
            refused(error)

    def _authenticated(self, correlations: list[int], key: str, admitted: Admitted) -> None:
        self._me = self.letIn(admitted)
        self._owner = ownerOf(admitted, key)
        self._enter(Phase.TALKING)
        self._acknowledge(correlations[0], _NO_SUBSCRIPTION)

    def _wrong(self, correlations: list[int], error: BrokerError) -> None:
        """Refuse an AUTH in the document's words; the client may try again unless policy keeps it out."""
        if isinstance(error, Unauthorized | AuthenticationFailed):
            error = Unauthorized("invalid API key")
        elif isinstance(error, JoinRejected):
            error = BlipJoinRefused(str(error))
        self._refused(error, correlations)

    def resume(self) -> None:
        """Go on behind an AUTH."""
        self.suspended = False
        self._work()
        if self._inputEnded and not self.suspended:
            self.end("client closed")

    # -- what an authenticated client may do -------------------------------------------------------

    def _publish(self, head: bytes, correlations: list[int], messages: list[bytes]) -> None:
        envelope = self._envelopes.get(head)
        if envelope is None or envelope.topic.gone:
            self._envelopes.forget(head)
            envelope = self._learn(head)
        self.broker.publish(envelope, messages, len(messages), partial(self._committed, correlations))

    def _committed(self, correlations: Sequence[int], reason: str | None, places: Sequence[int]) -> None:
        """Refuse what the journal did; the PONG that waits for it comes behind."""
        if reason is not None:
            error = NotRecorded(reason)
            self.counted(error)
            self.outbox.take(_nacks([correlations[place] for place in places], error))

    def _learn(self, head: bytes) -> Envelope:
        """Find out what the head of a PUBLISH means, and remember it."""
        name, qos = decodePublish(head)
        topic = self.broker.topicFor(self._me, name)
        envelope = Envelope(topic, self._me, SOURCES[qos], qos, durable=qos == 1)
        self._envelopes.remember(head, envelope)
        return envelope

    def _subscribe(self, head: bytes, correlations: list[int], messages: list[bytes]) -> None:
        topic, qos = decodeSubscribe(head)
        if not self.broker.arePublicationsDecided(self._me):
            # What this client published before comes to its topics when it is kept; it is not for this one.
            self.suspended = self.loading = True
            self._unanswered = FrameType.SUBSCRIBE, head, correlations
            self.broker.whenPublicationsDecided(self._continueSoon, self._me)
            return
        self.subscribing()
        subscription = self.broker.openSubscription(self._me, self._owner, topic, qos)
        if subscription.kept:
            answer = [encodeFrame(FrameType.ACK, correlations[0], encodeSubscription(subscription.id))]
            self.broker.whenCommitted(partial(self._subscribed, correlations, answer, self.answers.laterList(answer)))
        else:
            self._acknowledge(correlations[0], subscription.id)

    def _subscribed(self, correlations: Sequence[int], answer: list[bytes], release: Callable[[], None]) -> None:
        """Give the id of a subscription that outlives the broker, when that is safe; if it cannot be, say so."""
        reason = self.broker.journalRefusal()
        if reason is not None:
            error = NotRecorded(reason)
            self.counted(error)
            answer[0] = _nacks(correlations, error)
        release()

    def _poll(self, head: bytes, correlations: list[int], messages: list[bytes]) -> None:
        """Answer POLLs in portions, until there is nothing more, or no more room for what the peer does not read."""
        id = decodePoll(head)
        while correlations and not self.suspended:
            deliveries = self.broker.poll(self._me, self._owner, id, len(correlations), CHUNK_BYTES)
            if not deliveries:
                self._waitFor(self.broker.loading(self._owner, id), head, correlations)
                return
            subscription = self.broker.subscriptions.find(id, self._owner)
            chunk = renderDeliveries(subscription.topic, deliveries, correlations)
            if len(chunk) > BLIP_FRAME_BYTES:
                deliveries = _sendable(subscription, deliveries)
                chunk = renderDeliveries(subscription.topic, deliveries, correlations)
            self.answers.take(chunk)
            self.traffic.messagesOut += len(deliveries)
            correlations = correlations[len(deliveries) :]
            self._polled += len(chunk)
            if self._polled >= CHUNK_BYTES:
                self._polled = 0
                self.outbox.flush()
                self.suspended = self.outbox.full
                self._unanswered = FrameType.POLL, head, correlations

    def _waitFor(self, subscription: PolledSubscription | None, head: bytes, correlations: list[int]) -> None:
        """Answer these POLLs, and all behind them, when the next message was read back, or what this client published.

        Where neither is to come there is no answer.
        """
        if subscription is None and self.broker.arePublicationsDecided(self._me):
            return
        self.suspended = self.loading = True
        self._unanswered = FrameType.POLL, head, correlations
        if subscription is not None:
            subscription.whenLoaded(self._continueSoon)
        else:
            self.broker.whenPublicationsDecided(self._continueSoon, self._me)

    def _continueSoon(self) -> None:
        self.context.clock.callLater(0, self._loaded)

    def _loaded(self) -> None:
        self.loading = False
        if self.state is not ConnectionState.CLOSED:
            self.onReady()

    def _ack(self, head: bytes, correlations: list[int], messages: list[bytes]) -> None:
        id = decodeAck(head)
        unknown = [tag for tag in correlations if not self.broker.acknowledge(self._owner, id, tag, self._me)]
        if unknown:
            self._refused(NotFound("unknown subscription or delivery tag"), unknown)

    def _ping(self, head: bytes, correlations: list[int], messages: list[bytes]) -> None:
        self.broker.whenCommitted(self.answers.later(encodeFrame(FrameType.PONG, correlations[0])), self._me)

    def _ignore(self, head: bytes, correlations: list[int], messages: list[bytes]) -> None:
        """A client's NACK or PONG answers nothing that was asked."""

    # -- answers -----------------------------------------------------------------------------------

    def _acknowledge(self, correlation: int, subscription: int) -> None:
        self.answers.take(encodeFrame(FrameType.ACK, correlation, encodeSubscription(subscription)))

    def _refused(self, error: BrokerError, correlations: Sequence[int]) -> None:
        self._errorIds = correlations
        self.failed(error)
        self._errorIds = ()

    def answerError(self, error: BrokerError) -> None:
        """Answer each frame concerned by a NACK. Where no frame could be made out, there is nothing to answer."""
        if self._errorIds:
            self.answers.take(_nacks(self._errorIds, error))

    def expel(self, error: BrokerError) -> None:
        """Close behind a NACK that answers nothing: its correlation id is 0."""
        self._errorIds = (_NO_REQUEST,)
        super().expel(error)
        self._errorIds = ()

    def inputEnded(self) -> None:
        """Answer what was asked, then close."""
        self._inputEnded = True
        if not self.suspended:
            self.end("client closed")

    def rightsChanged(self, lost: Sequence[str]) -> None:
        """Forget what heads mean; what is not permitted any more is answered when it is asked for."""
        self._envelopes.clear()

    def left(self) -> None:
        """Forget what was remembered and what was begun."""
        self._envelopes.clear()
        self._scanner = BlipScanner()
        self._runs = iter(())

    def close(self) -> None:
        """Close when all that was published is decided, and the last PONG that is due was sent."""
        self.whenDecided(lambda: self.answers.whenSent(self.outbox.close))


_Step = Callable[[BlipSession, bytes, list[int], list[bytes]], None]


def _refuse(kind: type[BrokerError], words: str) -> _Step:
    def refuse(session: BlipSession, head: bytes, correlations: list[int], messages: list[bytes]) -> None:
        raise kind(words)

    return refuse


_EARLY: dict[FrameType, _Step] = dict.fromkeys(FrameType, _refuse(Unauthorized, "unauthenticated"))
_SECOND_HELLO = _refuse(BadRequest, "HELLO already performed")

#: What is done in each phase with each type of frame.
_STEPS: dict[Phase, dict[FrameType, _Step]] = {
    Phase.GREETING: _EARLY
    | {
        FrameType.HELLO: BlipSession._hello,
        FrameType.AUTH: _refuse(BadRequest, "HELLO not performed"),
    },
    Phase.AUTHENTICATING: _EARLY
    | {
        FrameType.HELLO: _SECOND_HELLO,
        FrameType.AUTH: BlipSession._auth,
    },
    Phase.TALKING: {
        FrameType.HELLO: _SECOND_HELLO,
        FrameType.AUTH: _refuse(BadRequest, "already authenticated"),
        FrameType.PUBLISH: BlipSession._publish,
        FrameType.SUBSCRIBE: BlipSession._subscribe,
        FrameType.ACK: BlipSession._ack,
        FrameType.NACK: BlipSession._ignore,
        FrameType.PING: BlipSession._ping,
        FrameType.PONG: BlipSession._ignore,
        FrameType.POLL: BlipSession._poll,
    },
}


def ownerOf(admitted: Admitted, key: str) -> str:
    """Return by what a client is known that comes again: its name, or for who has none the key that it shows.

    The key itself is kept nowhere.
    """
    if admitted.principal is not None:
        return f"principal:{admitted.principal.name}"
    return hashlib.sha256(key.encode()).hexdigest()


def _nacks(correlations: Sequence[int], error: BrokerError) -> bytes:
    payload = encodeNack(*nackOf(error))
    return b"".join([encodeFrame(FrameType.NACK, correlation, payload) for correlation in correlations])


def _nothing() -> None:
    """Nobody waits for what is read back."""


def _sendable(subscription: PolledSubscription, deliveries: Sequence[QueueDelivery]) -> list[QueueDelivery]:
    """Bury what no frame can hold, and return the rest; the POLLs of what was buried go to what comes behind it."""
    fitting = []
    for delivery in deliveries:
        if isTooLarge(subscription.topic, delivery):
            subscription.deadLetter(delivery)
        else:
            fitting.append(delivery)
    return fitting
