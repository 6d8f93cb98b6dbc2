"""The life cycle of a client connection, common to all dialects.

A session knows the dialect and the broker but not the transport: a *protocol* (:mod:`fleximq.dialects.stream`,
:mod:`fleximq.dialects.websocket.session_protocol`) gives it an outbox and passes input to it. Its states are those of
:class:`~fleximq.dialects.connection.connection_state.ConnectionState`.
"""

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Protocol

from twisted.internet.interfaces import IAddress
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from fleximq.broker.envelope import ConnectedClient
from fleximq.dialects.answers import Answers
from fleximq.dialects.connection.connection_rate import ConnectionRate, admittedMessages, overRate
from fleximq.dialects.connection.connection_state import ConnectionState
from fleximq.dialects.connection.keepalive import KeepAlive
from fleximq.dialects.connection.read_pauses import ReadPauses
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.handshake import Handshake
from fleximq.dialects.outbox import Outbox
from fleximq.dialects.session_log import labelOf, tellError, tellJoined, tellLeft
from fleximq.errors import BrokerError
from fleximq.interfaces import IConversation, IPeer
from fleximq.security.credentials import Certificate
from fleximq.security.peer_address import clientKey
from fleximq.security.principal import Admitted
from fleximq.values.connection_load import ConnectionLoad
from fleximq.values.counted_event import CountedEvent, EventFamily

#: Seconds within which a closing connection must have read its last answers.
LINGER = 10.0
#: The end reason of connections when the broker stops.
STOPPED = "broker stopped"
#: The end reason of connections over the budget of :class:`~fleximq.values.unadmitted_budget.UnadmittedBudget`.
OVER_BUDGET = "too much input before admission"


_UNJOINED = ConnectionState.WAITING, ConnectionState.CHECKING


class NamedLogger(Logger):
    """A class attribute that logs under the name of a module, also in subclasses elsewhere."""

    def __get__(self, instance: object, owner: type | None = None) -> "NamedLogger":
        """Return the logger itself; Twisted's logger would return one named after the class."""
        return self


class SessionInput(Protocol):
    """The protocol of a session, as far as its input can be watched."""

    readPauses: ReadPauses

    def tapInput(self, tap: Callable[[bytes], None]) -> Callable[[], None]:
        """Pass the input from the next message on to a tap too, before it is processed, and return a function that ends
        this; one tap at a time.
        """


@implementer(IConversation)
class Session(metaclass=ABCMeta):
    """One peer's conversation; subclasses define the messages on the wire.

    Subclasses define ``dialect`` and :meth:`answerError`, and call :meth:`letIn`. ``receivedAt`` is the time of the
    last read, in the clock's seconds. ``reason`` is the end reason, "" before the end. ``isLongLived``: clients are
    expected to stay connected, so that each is logged, ``mayFinish`` that peers are warned before the broker stops,
    ``dismissed`` that their time is over. ``limited`` are the beginnings of messages that :meth:`admittedOf` may
    refuse. ``joinsFirst`` means that the first message is small in any case.

    The protocol sets itself as ``protocol``, ``certificate``, which returns the client certificate, and ``checking``,
    called with True and False at the start and end of a pending credential check, or of another wait of input.
    ``handshake`` admits the peer.
    """

    __slots__ = (
        "__weakref__", "address", "answers", "began", "broker", "certificate", "checking", "client", "context",
        "dismissed", "handshake", "keepAlive", "listening", "outbox", "protocol", "rate", "reason", "receivedAt",
        "state", "traffic",
    )  # fmt: skip
    dialect: ClassVar[str]
    mayFinish: ClassVar[bool] = False
    isLongLived: ClassVar[bool] = True
    joinsFirst: ClassVar[bool] = False
    limited: ClassVar[tuple[bytes, ...]] = ()
    _log = Logger()

    def __init__(self, context: ListenerContext, outbox: Outbox, address: IAddress) -> None:
        self.context = context
        self.broker = context.broker
        self.outbox = outbox
        self.traffic = outbox.traffic
        self.broker.traffic.begin(self.dialect, self.traffic)
        self.answers: Answers | None = None
        self.address = address
        self.client: ConnectedClient | None = None
        self.rate: ConnectionRate | None = None
        self.state = ConnectionState.WAITING
        self.handshake = Handshake(context)
        self.certificate: Callable[[], Certificate | None] = _noCertificate
        self.checking: Callable[[bool], None] = _ignore
        self.keepAlive: KeepAlive | None = None
        self.receivedAt = self.began = context.clock.seconds()
        self.protocol: SessionInput | None = None
        self.listening = True
        self.dismissed = False
        self.reason = ""

    @property
    def buffered(self) -> int:
        """Bytes buffered of an incomplete message."""
        return 0

    @property
    def isChecking(self) -> bool:
        """Whether a credential check is pending."""
        return self.state is ConnectionState.CHECKING

    def lastReceived(self) -> float:
        """Return the time of the last read; now, while reading is paused."""
        return self.receivedAt if self.listening else self.context.clock.seconds()

    # -- for subclasses ----------------------------------------------------------------------------

    @abstractmethod
    def answerError(self, error: BrokerError) -> None:
        """Send an error in the dialect's form; the caller closes the connection if the error requires it."""

    def opened(self) -> None:
        """The connection is up; called once, before any input."""

    def mayReceive(self, size: int) -> bool:
        """Return whether a peer may send more after so many bytes, received or buffered; otherwise refuse it."""
        self.handshake.limit(self, size, self.joinsFirst)
        return self.state is ConnectionState.WAITING

    def buffering(self, size: int) -> None:
        """Charge the bytes buffered before admission; end if all such connections buffer too much."""
        if not self.handshake.charge.change(size):
            self.abort(OVER_BUDGET)

    def rightsChanged(self, lost: Sequence[str]) -> None:
        """Drop cached permissions after a change of rights, and report the subscriptions with the ``lost`` names."""

    def left(self) -> None:
        """Release timers and large objects after the connection is closed, as Python frees reference cycles late."""

    def resume(self) -> None:
        """Continue with the input suspended by a credential check; raises only BrokerError."""

    def admit(
        self, credentials: object, then: Callable[[Admitted], None], refused: Callable[[BrokerError], None]
    ) -> None:
        """Check credentials and call one of the two functions, at once or later, unless the connection ends before.

        Until then the session is CHECKING: it gets no input, and :meth:`resume` is called after the decision. A
        BrokerError raised by ``then`` is passed to ``refused``.
        """
        self.handshake.check(self, credentials, then, refused)

    def startChecking(self) -> None:
        """Wait for the decision of a pending credential check."""
        self.state = ConnectionState.CHECKING
        self.checking(True)

    def decided(self, act: Callable[[], None]) -> None:
        """Act on the decision of a credential check, and continue with the input, unless another check is pending."""
        if self.state is ConnectionState.CHECKING:
            self.handshake.decided()
            self.state = ConnectionState.WAITING
            self.attempt(act)
            if self.state is not ConnectionState.CHECKING:  # again
                self.checking(False)

    def letIn(self, admitted: Admitted, peer: IPeer | None = None, user: bool = False) -> ConnectedClient:
        """Join the broker as a client, until the credentials expire.

        :raises NoCapacity: the broker is full.
        :raises JoinRejected, Unauthorized: the peer's address may not join, or the credentials have expired meanwhile.
        """
        who = admitted.principal
        client = self.client = self.handshake.join(self, self, admitted, peer, user)
        meter = self.context.rates.meter(client.principal, lambda: client.rights.limits.rates)
        if meter is not None:
            self.rate = ConnectionRate(meter, self.traffic, self.context.clock, self.broker.observers.counted)
        self.state = ConnectionState.OPEN
        self.handshake.joined(self, None if who is None else who.expires)
        tellJoined(self, client, self._log)
        return client

    def startKeepAlive(self) -> KeepAlive:
        """Send a PING after one interval of silence, and end after three."""
        self.keepAlive = KeepAlive(self.broker.deadlines, self.context.settings.keepalive, self)
        return self.keepAlive

    def ping(self) -> None:
        """Send a PING; overridden where :meth:`startKeepAlive` is called."""

    def silent(self) -> None:
        """End, as the peer was silent for too long."""
        self.end("keep-alive")

    def whenDecided(self, call: Callable[[], None]) -> None:
        """Call when all publications of this connection were committed or refused, and the refusals answered."""
        if self.client is None:
            call()
        else:
            self.broker.whenCommitted(call, self.client)

    def subscribing(self) -> None:
        """Charge one subscription request; raises TooManyRequests if it exceeds the client's rate."""
        if self.rate is not None:
            self.rate.subscribing()

    def admittedOf(self, messages: Iterable[bytes]) -> Iterable[bytes]:
        """Return the messages within the client's rates, if others are refused; those are answered."""
        if self.rate is None or not self.rate.refuses:
            return messages
        return admittedMessages(self.limited, self.rate.meter, messages, lambda: self.failed(overRate()))

    def refusal(self) -> str | None:
        """Return the reason why this peer may not join with any credentials, or None."""
        return self.handshake.refusal(self)

    def awaitHandshake(self, since: float) -> None:
        """Start the handshake deadline, counted from this time of the clock, unless it runs or the client joined."""
        if self.client is None and self.state in _UNJOINED and not self.handshake.hasDeadline:
            left = since + self.context.settings.handshakeTimeout - self.context.clock.seconds()
            self.handshake.startDeadline(self, left, self._handshakeLate)

    # -- the end of the connection -----------------------------------------------------------------

    def end(self, reason: str) -> None:
        """Send pending output, then close; the reason is a short constant phrase, which is logged and counted."""
        if self._ending(reason):
            self.close()

    def close(self) -> None:
        """Close after the last answer; where answers may await a commit, after all publications are decided."""
        answers = self.answers
        if answers is None:
            self.outbox.close()
        else:
            self.whenDecided(lambda: answers.whenSent(self.outbox.close))

    def abort(self, reason: str) -> None:
        """Close now; pending output is dropped."""
        if self._ending(reason):
            self.outbox.abort()

    def _ending(self, reason: str) -> bool:
        if self.state in (ConnectionState.ENDING, ConnectionState.CLOSED):
            return False
        wasChecking = self.state is ConnectionState.CHECKING
        self.state = ConnectionState.ENDING
        self.reason = STOPPED if self.dismissed else reason
        self.handshake.startDeadline(self, LINGER, self.outbox.abort)
        self.handshake.stop()
        if wasChecking:
            self.checking(False)
        return True

    def attempt(self, act: Callable[[], None]) -> None:
        """Run a function and answer its errors; an unforeseen exception is logged and ends the connection."""
        try:
            act()
        except Exception as error:
            self.unexpected(error)

    def unexpected(self, error: Exception) -> None:
        """Answer an error that input caused; all but BrokerErrors are logged and end the connection."""
        if isinstance(error, BrokerError):
            self.failed(error)
            return
        self._log.failure("{dialect}: a read could not be processed", Failure(error), dialect=self.dialect)
        self.failed(BrokerError("internal error"))
        self.end("internal error")

    def failed(self, error: BrokerError) -> None:
        """Answer a client's error, and close if it is fatal."""
        self.counted(error)
        self.answerError(error)
        if error.closes:
            self.end(f"error {int(error.status)}")

    def counted(self, error: BrokerError) -> None:
        """Count and log a client's error."""
        self.broker.observers.counted(f"error: {int(error.status)}", 1)
        tellError(self, error, self._log)

    def expel(self, error: BrokerError) -> None:
        """Send an error and close, as the client may not stay; it receives no more deliveries meanwhile."""
        if self.state is ConnectionState.OPEN:
            self.failed(error)
            self.end(f"error {int(error.status)}")
            if self.client is not None:
                self.broker.leave(self.client, self.reason)

    def load(self) -> ConnectionLoad:
        """Return the traffic of the connection, and the reasons for which it is slow."""
        traffic, outbox = self.traffic, self.outbox
        unread = outbox.unread
        reasons = [f"it does not read: {unread} bytes of at most {outbox.limit} wait"] if outbox.isUnread else []
        if self.protocol is not None and (paused := self.protocol.readPauses.words()):
            reasons.append(f"the broker does not read from it: {paused}")
        carried = traffic.bytesIn, traffic.bytesOut, traffic.messagesIn, traffic.messagesOut
        return ConnectionLoad(*carried, unread, outbox.limit, tuple(reasons))

    def slow(self) -> None:
        """Disconnect a peer that does not read its output."""
        self._log.warn("{who} reads too slowly: disconnected", who=labelOf(self))
        self.abort("slow consumer")

    def inputEnded(self) -> None:
        """The peer has ended its input: send pending answers, then close."""
        self.end("client closed")

    def warn(self) -> None:
        """Warn the peer that the broker stops; without effect in dialects that have no message for it."""

    def dismiss(self) -> None:
        """Close because the broker stops, after answering requests as if the peer had ended its input."""
        if not self.dismissed:
            self.dismissed = True
            self.outbox.linger()
            self.inputEnded()

    def lost(self, inOrder: bool = False) -> None:
        """The connection is closed; ``inOrder``: by the peer, in the way of its protocol."""
        if self.state is ConnectionState.CLOSED:
            return
        reason = self.reason or ("client closed" if inOrder else "connection lost")
        self.state = ConnectionState.CLOSED
        self.context.sessions.discard(self)
        self.handshake.charge.change(0)
        self.handshake.stop()
        self.broker.traffic.end(self.dialect, self.traffic)
        self.handshake.stopDeadline()
        self.outbox.stopProducing()
        if self.keepAlive is not None:
            self.keepAlive.stop()
            self.keepAlive = None
        if self.rate is not None:
            self.rate.close()
        if self.client is not None:
            self.broker.leave(self.client, reason)
            if self.isLongLived:
                who = clientKey(self.client.principal, self.address)
                self.context.flapping.left(who, self.context.clock.seconds() - self.client.joined)
        else:
            self.broker.observers.counted(CountedEvent(EventFamily.NOT_LET_IN, reason), 1)
        self.left()
        # The protocol and its functions end reference cycles.
        self.protocol = None
        self.certificate = _noCertificate
        self.checking = _ignore
        tellLeft(self, reason, self._log)

    def _handshakeLate(self) -> None:
        self.end("handshake deadline")


class StreamSession(Session):
    """A session that reads a byte stream."""

    __slots__ = ("_inputEnded",)

    def __init__(self, context: ListenerContext, outbox: Outbox, address: IAddress) -> None:
        super().__init__(context, outbox, address)
        self._inputEnded = False

    def receiver(self) -> Callable[[bytes], None]:
        """Return the function to call with each read: :meth:`received`, or what it calls in a part of the session."""
        return self.received

    @abstractmethod
    def received(self, data: bytes) -> None:
        """Process a read, or the part of it that the protocol cut out; raises only BrokerError."""


def _noCertificate() -> None:
    return None


def _ignore(waits: bool) -> None:
    pass
