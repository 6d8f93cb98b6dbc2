"""The Identity dialect: publish and subscribe in plain text (Identity document, docs/reference/dialects.rst).

Consecutive PUBLISHes to one channel in one read are published as one run: each message after the first costs one
comparison, 0.1 us, instead of a topic look-up.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from twisted.internet.interfaces import IAddress
from zope.interface import implementer

from fleximq.broker.envelope import ConnectedClient, Envelope
from fleximq.broker.replay.feed import DeferredRun
from fleximq.dialects.connection.connection_state import ConnectionState
from fleximq.dialects.connection.error_codes import IDENTITY_CODES, codeOf
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.identity.channel_list import ChannelList
from fleximq.dialects.identity.form import RECALLING, IdentitySource, RecordTexts, senderName
from fleximq.dialects.outbox import Outbox
from fleximq.dialects.replay_outlet import ReplayOutlet
from fleximq.dialects.session import NamedLogger, Session
from fleximq.errors import BadRequest, BrokerError, Forbidden, NotKept, NotPermitted, NotRecorded, Unauthorized
from fleximq.interfaces import ISubscriber
from fleximq.security.principal import Admitted
from fleximq.status import Status
from fleximq.wire.identity_text import (
    ClientText,
    Word,
    checkChannel,
    encodeError,
    encodeIdentity,
    encodeSubAck,
    encodeUnsubAck,
    parseText,
)
from fleximq.wire.websocket_frame import PING, TEXT, encodeFrame, webSocketFramesWithin

_PUBLISH = Word.PUBLISH.value + b":"
#: Bytes of history read at a time.
_RECALLED_BYTES = 1 << 17


@implementer(ISubscriber)
class IdentitySession(Session):
    """One Identity client's conversation. No message closes the connection, except a frame over the size limit."""

    _log = NamedLogger(__name__)
    dialect = "identity"
    limited = (b"PUBLISH:", b"SUBSCRIBE:")
    #: A run is rendered when the first subscriber writes it, or reads earlier messages; for slow readers, after all
    #: writes.
    form = RECALLING
    client: ConnectedClient

    def __init__(
        self,
        context: ListenerContext,
        outbox: Outbox,
        address: IAddress,
        channels: ChannelList | None = None,
        recordTexts: RecordTexts | None = None,
    ) -> None:
        super().__init__(context, outbox, address)
        outbox.messagesWithin = webSocketFramesWithin
        self._channels = channels or ChannelList(context)
        self._recordTexts = recordTexts or RecordTexts()
        self._envelopes: dict[bytes, Envelope] = {}
        self._isAnnouncing = False  # a channel, to the nodes of a mesh; input waits
        self._waiting: Iterator[bytes] = iter(())
        self._actions: dict[Word, Callable[[ClientText], None]] = {
            Word.SUBSCRIBE: self._subscribe,
            Word.UNSUBSCRIBE: self._unsubscribe,
            Word.PUBLISH: self._publishFirst,
        }

    @property
    def deliver(self) -> Callable[[DeferredRun, int], None]:
        """The outbox's method itself, so that a delivery costs no further call."""
        return self.outbox.deliverLate

    def opened(self) -> None:
        """Join with the credentials of the request or a client certificate."""
        if self.handshake.admitted is None:
            self.admit(self.certificate(), self._welcome, self._joinFailed)
            return
        try:
            self._welcome(self.handshake.admitted)
        except BrokerError as error:
            self._joinFailed(error)

    def _joinFailed(self, error: BrokerError) -> None:
        self.failed(error)
        self.end(f"error {int(error.status)}")

    def _welcome(self, admitted: Admitted) -> None:
        self.letIn(admitted, user=True)
        self._send(encodeIdentity(senderName(self.client)))
        self.outbox.take(self._channels.frame(self.client))
        self._channels.join(self.outbox, self.client)
        self.startKeepAlive()

    def ping(self) -> None:
        """Send a PING of WebSocket."""
        self.outbox.take(encodeFrame(PING, b""))

    # -- input -------------------------------------------------------------------------------------

    def receivedAll(self, messages: Sequence[bytes]) -> None:
        """Process UTF-8 messages in order.

        An envelope is cached by ``PUBLISH:<channel>:`` from the first one that passed all checks to the UNSUBSCRIBE.
        """
        self.traffic.messagesIn += len(messages)
        self._process(iter(self.admittedOf(messages)))

    def resume(self) -> None:
        """Continue with the messages after a SUBSCRIBE."""
        self._process(self._waiting)

    def _process(self, messages: Iterator[bytes]) -> None:
        known = self._envelopes.get
        envelope: Envelope | None = None
        beginning, size = b"", 0
        texts: list[bytes] = []
        for message in messages:
            if texts and message.startswith(beginning):
                texts.append(message[size:])
                continue
            if texts and envelope is not None:
                self._publish(envelope, texts)
                texts = []
            size = message.find(b":", len(_PUBLISH)) + 1
            beginning = message[:size]
            envelope = known(beginning)
            if envelope is not None:
                texts.append(message[size:])
                continue
            self._perform(message)
            if self.state is ConnectionState.ENDING:
                return
            if self._isAnnouncing:
                self._waiting = messages
                return
        if texts and envelope is not None:
            self._publish(envelope, texts)

    def _perform(self, message: bytes) -> None:
        request = parseText(message)
        if request is None:
            return
        try:
            self._actions[request.word](request)
        except BrokerError as error:
            self.failed(error)

    # -- the action of each word -------------------------------------------------------------------

    def _subscribe(self, request: ClientText) -> None:
        checkChannel(request.channel)
        self.subscribing()
        self.broker.checkSubscription(self.client, request.channel, literal=True)
        if request.channel in self.client.subscriptions:
            self._send(encodeSubAck(request.channel))
            return
        self._isAnnouncing, isLater = True, False

        def announced() -> None:
            self._isAnnouncing = False
            if self.state is ConnectionState.OPEN:
                self.attempt(partial(self._acknowledge, request.channel))
            if isLater:
                self.checking(False)

        self.broker.announce(request.channel, announced)
        if self._isAnnouncing:
            isLater = True
            self.checking(True)

    def _acknowledge(self, channel: str) -> None:
        """Acknowledge before subscribing, which may deliver messages: clients rely on that order."""
        self._send(encodeSubAck(channel))
        self.broker.subscribe(self.client, self, channel, literal=True)
        render, slices = self._recordTexts.render, self.broker.slices
        outbox, clock, size = self.outbox, self.context.clock, _RECALLED_BYTES
        past = ReplayOutlet(self, outbox, clock, RECALLING, render, outbox.take, slices=slices, chunkBytes=size)
        self.broker.recall(self.client, past, channel, literal=True, history=self.broker.rules.history)

    def _unsubscribe(self, request: ClientText) -> None:
        self.broker.unsubscribe(self.client, request.channel)
        self._envelopes.pop(_beginning(request.channel), None)
        self._send(encodeUnsubAck(request.channel))

    def _publishFirst(self, request: ClientText) -> None:
        checkChannel(request.channel)
        if request.message is None:
            raise BadRequest("Missing message")
        if request.channel not in self.client.subscriptions:
            raise Unauthorized("Not subscribed")
        topic = self.broker.topicFor(self.client, request.channel)
        envelope = Envelope(topic, self.client, IdentitySource(request.channel, senderName(self.client)))
        self._envelopes[_beginning(request.channel)] = envelope
        self._publish(envelope, [request.message])

    def _publish(self, envelope: Envelope, texts: list[bytes]) -> None:
        try:
            self.broker.publish(envelope, texts, len(texts), self._reportRefused)
        except NotKept as error:
            for each in error.each():
                self.failed(each)

    def _reportRefused(self, reason: str | None, indexes: Sequence[int]) -> None:
        if reason is not None:
            error = NotRecorded(reason)
            for _ in indexes:
                self.failed(error)

    # -- output ------------------------------------------------------------------------------------

    def _send(self, text: bytes) -> None:
        self.outbox.take(encodeFrame(TEXT, text))

    def answerError(self, error: BrokerError) -> None:
        """Send ``ERROR:<code>:<sentence>``."""
        words = str(error)
        if isinstance(error, NotPermitted):
            words = f"not permitted: {error.name}" if error.name else "not permitted"
        self._send(encodeError(codeOf(error, IDENTITY_CODES, int(error.status)), words))

    def rightsChanged(self, lost: Sequence[str]) -> None:
        """Clear cached envelopes, and send an ERROR for each lost channel."""
        self._envelopes.clear()
        for channel in lost:
            self.failed(Forbidden(f"not permitted any more: {channel}"))

    # -- the end ---------------------------------------------------------------------------------

    def warn(self) -> None:
        """Send ``ERROR:503:...``; a close frame follows."""
        if self.state is ConnectionState.OPEN:
            self._send(encodeError(int(Status.SERVICE_UNAVAILABLE), "the broker is stopping"))

    def left(self) -> None:
        """Stop the channel list, and clear cached envelopes and waiting input."""
        self._envelopes.clear()
        self._waiting = iter(())
        self._channels.leave(self.outbox)


def _beginning(channel: str) -> bytes:
    return _PUBLISH + channel.encode() + b":"
