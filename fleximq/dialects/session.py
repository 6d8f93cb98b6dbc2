"""What all sessions share: how a connection comes in, how it ends, and where errors are answered.

A session speaks one dialect with one peer. It knows its bytes and the broker, but not what carries them: a *face*
(:mod:`fleximq.dialects.stream`, :mod:`fleximq.dialects.websocket.face`) gives it an outbox and feeds it.

The states, and what moves a connection from one to the next::

    WAITING --let in--> OPEN --end()--> ENDING --connection lost--> CLOSED
     |   ^|___________________________________^
     v   |
    CHECKING (credentials are looked into; back to WAITING when that is decided)

``end`` is called with a short constant phrase, which is logged and counted.
"""

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import ClassVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from fleximq.broker.envelope import ConnectedClient
from fleximq.dialects.answers import Answers
from fleximq.dialects.connection.connection_rate import ConnectionRate
from fleximq.dialects.connection.credential_check import CredentialExpiry
from fleximq.dialects.context import Context
from fleximq.dialects.outbox import Outbox
from fleximq.errors import BrokerError, TooLarge, Unauthorized
from fleximq.interfaces import IAdmission, IConversation, IPeer
from fleximq.security.credentials import Certificate
from fleximq.security.peer_address import clientKey, peerAddress
from fleximq.security.principal import Admitted
from fleximq.values.counted_event import CountedEvent, EventFamily

#: Seconds that a closing connection has for taking its last answers.
LINGER = 10.0
#: Where credentials have to be shown, so many bytes may be begun before: they stand in a header of 64 KiB at most.
MAX_UNAUTHENTICATED_BYTES = 1 << 17
#: Why connections end when the broker does.
STOPPED = "broker stopped"
_EXPIRED = "the credentials have expired"


class ConnectionState(Enum):
    """Where a connection is in its life."""

    WAITING = "waiting for its handshake"
    CHECKING = "its credentials are being checked"
    OPEN = "open"
    ENDING = "ending"
    CLOSED = "closed"


class NamedLogger(Logger):
    """A class attribute that logs under the given name, whichever module the class is defined in."""

    def __get__(self, instance: object, owner: type | None = None) -> "NamedLogger":
        """Return the logger itself; Twisted's would return one named after the class."""
        return self


@implementer(IConversation)
class Session(metaclass=ABCMeta):
    """One peer's conversation; subclasses say what goes over the wire.

    Subclasses define ``dialect`` and :meth:`answerError`, and call :meth:`letIn`. ``heard`` is when
    the peer was last heard, in the clock's seconds; the face sets it. ``reason`` is why it ends, "" until it does.
    ``stuck`` says that it left something undone until the peer has read more. ``pace`` keeps it to its rates, where
    there are any, and ``stays`` says that its clients are expected to keep their connection. ``mayFinish`` says that
    its peers are told in good time when the broker stops, ``dismissed`` that they have no more of it.

    The face sets ``certificate``, which returns what the peer has shown by TLS, ``checking``, which is told True when
    a check of credentials begins to take time and False when it is decided, and ``admitted``: who the peer is by what
    it showed before its first word, if it did. ``admission`` is the rule of the listener, unless the face has another.
    """

    dialect: ClassVar[str]
    mayFinish: ClassVar[bool] = False
    stays: ClassVar[bool] = True
    dismissed = False
    _log = Logger()

    def __init__(self, context: Context, outbox: Outbox, address: IAddress) -> None:
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
        self.admitted: Admitted | None = None
        self.admission: IAdmission = context.admission
        self.certificate: Callable[[], Certificate | None] = _nothing
        self.checking: Callable[[bool], None] = _unheard
        self._check: Deferred[None] | None = None
        self._expiry: CredentialExpiry | None = None
        self.heard = self._began = context.clock.seconds()
        self.listening = True
        self.suspended = False
        self.reason = ""
        self._deadline: IDelayedCall | None = context.clock.callLater(
            context.settings.handshakeTimeout, self._handshakeLate
        )

    @property
    def pendingAnswerBytes(self) -> int:
        """How many bytes of answers wait until a publication is safe."""
        return 0 if self.answers is None else self.answers.size

    @property
    def buffered(self) -> int:
        """How many bytes are kept of something that the peer has begun to say."""
        return 0

    @property
    def isChecking(self) -> bool:
        """Whether it is not known yet whose credentials it was shown."""
        return self.state is ConnectionState.CHECKING

    def lastReceived(self) -> float:
        """Return when the peer was last heard; now, while it is not listened to."""
        return self.heard if self.listening else self.context.clock.seconds()

    # -- for subclasses ----------------------------------------------------------------------------

    @abstractmethod
    def answerError(self, error: BrokerError) -> None:
        """Answer an error in the dialect's words; the connection is closed afterwards if the error says so."""

    def opened(self) -> None:
        """The connection is up; called once, before anything is received."""

    def mayReceive(self, held: int) -> bool:
        """Tell whether a peer that was not let in yet may say more; it is refused where credentials take less.

        :param buffered: how many bytes are kept of what it has begun.
        """
        if held > MAX_UNAUTHENTICATED_BYTES and self.admission.required and self.certificate() is None:
            self.attempt(_raiseTooLarge)
        return self.state is ConnectionState.WAITING

    def rightsChanged(self, lost: Sequence[str]) -> None:
        """The client may do other things from now on: forget what it was allowed, and tell it what it has lost.

        :param lost: the names of subscriptions that have ended.
        """

    def left(self) -> None:
        """The connection is gone and the client has left: let go of timers, and of all that may be large.

        Sessions are in cycles, so it may be long until Python finds them; what they hold must not wait for that.
        """

    def resume(self) -> None:
        """Go on with what was left undone when a check of credentials began; raises nothing but BrokerError."""

    def admit(
        self, credentials: object, then: Callable[[Admitted], None], refused: Callable[[BrokerError], None]
    ) -> None:
        """Find out who shows these credentials, and call one of the two: at once if it is known at once, else later.

        Until then the session is CHECKING. It is given nothing to work through, and is told to :meth:`resume` when it
        was decided. Nothing is called if the connection ends before.

        :param credentials: one of :mod:`fleximq.security.credentials`, None if nothing is shown.
        :param then: lets the client in; a BrokerError that it raises is handed to ``refused``.
        """
        check = self.admission.admit(credentials, self.address)
        outcome: list[Admitted | Failure] = []
        check.addBoth(outcome.append)
        if outcome:
            _decide(outcome[0], then, refused)
            return
        self.state = ConnectionState.CHECKING
        self._check = check
        self.checking(True)
        check.addBoth(lambda ignored: self._decided(partial(_decide, outcome[0], then, refused)))
        check.addErrback(lambda failure: self._log.failure("a check of credentials went wrong", failure))

    def _decided(self, act: Callable[[], None]) -> None:
        if self.state is ConnectionState.CHECKING:
            self._check = None
            self.state = ConnectionState.WAITING
            self.attempt(act)
            if self._check is None:
                self.checking(False)

    def _expired(self) -> None:
        self.expel(Unauthorized(_EXPIRED))

    def letIn(self, admitted: Admitted, peer: IPeer | None = None, user: bool = False) -> ConnectedClient:
        """Register this connection as a client of the broker, until its credentials expire.

        :param admitted: who it is, as :meth:`admit` found out.
        :raises NoCapacity: the broker is full.
        :raises Unauthorized: the credentials have expired meanwhile.
        """
        who, rights = admitted
        if who is not None and who.expires is not None and who.expires <= self.context.clock.seconds():
            raise Unauthorized(_EXPIRED)
        principal = None if who is None else who.name
        place = peerAddress(self.address)
        client = self.broker.join(self.dialect, peer, principal, place, user, self.context.reserved, rights, who, self)
        self.client = client
        meter = self.context.rates.meter(principal)
        if meter is not None:
            self.rate = ConnectionRate(meter, self.traffic, self.context.clock, self.broker.observers.counted)
        self.state = ConnectionState.OPEN
        self.handshakeDone()
        if who is not None and who.expires is not None:
            self._expiry = CredentialExpiry(self.context.clock, who.expires, self._expired)
        self._log.info(
            "{client} joined from {address}",
            client=client.name, address=place, event="joined", dialect=self.dialect, principal=principal,
            client_id=client.id,
        )  # fmt: skip
        return client

    def whenDecided(self, call: Callable[[], None]) -> None:
        """Call when all that this connection has published is kept or refused, and that was answered."""
        if self.client is None:
            call()
        else:
            self.broker.whenCommitted(call, self.client)

    def subscribing(self) -> None:
        """Charge that a subscription is asked for.

        :raises TooManyRequests: that is over the client's rate.
        """
        if self.rate is not None:
            self.rate.subscribing()

    def refusal(self) -> str | None:
        """Return why this peer may not come in at all, whatever it shows, or None."""
        return self.admission.refusal(self.address)

    def _stopWatching(self) -> None:
        """Look for no expiry any more, and drop a check that is on its way."""
        if self._expiry is not None:
            self._expiry.stop()
            self._expiry = None
        if self._check is not None:
            check, self._check = self._check, None
            check.cancel()

    def arrivedAt(self, seconds: float) -> None:
        """Count the handshake's deadline from this time of the clock instead of from now."""
        if self._deadline is not None:
            end = seconds + self.context.settings.handshakeTimeout
            # Not reset(): to move a timer forward, Twisted looks through all that there are.
            self._deadline.cancel()
            left = max(0.0, end - self.context.clock.seconds())
            self._deadline = self.context.clock.callLater(left, self._handshakeLate)

    def handshakeDone(self) -> None:
        """Stop the clock of the handshake, or of the connection's end."""
        if self._deadline is not None:
            if self._deadline.active():
                self._deadline.cancel()
            self._deadline = None

    # -- how it ends -------------------------------------------------------------------------------

    def end(self, reason: str) -> None:
        """Send what waits, then close."""
        if self._ending(reason):
            self.close()

    def close(self) -> None:
        """Close the connection behind its last answer; sessions whose answers may be late override this."""
        self.outbox.close()

    def abort(self, reason: str) -> None:
        """Close now; what waits is dropped."""
        if self._ending(reason):
            self.outbox.abort()

    def _ending(self, reason: str) -> bool:
        if self.state in (ConnectionState.ENDING, ConnectionState.CLOSED):
            return False
        wasChecking = self.state is ConnectionState.CHECKING
        self.state = ConnectionState.ENDING
        self.reason = STOPPED if self.dismissed else reason
        self.handshakeDone()
        self._deadline = self.context.clock.callLater(LINGER, self.outbox.abort)
        self._stopWatching()
        if wasChecking:
            self.checking(False)
        return True

    def attempt(self, act: Callable[[], None]) -> None:
        """Do something for the peer and answer what goes wrong; what nobody foresaw is logged and ends it."""
        try:
            act()
        except Exception as error:
            self.unexpected(error)

    def unexpected(self, error: Exception) -> None:
        """Answer an error of the work for this peer; any but a BrokerError is logged and ends the connection."""
        if isinstance(error, BrokerError):
            self.failed(error)
            return
        self._log.failure("{dialect}: a read could not be worked through", Failure(error), dialect=self.dialect)
        self.failed(BrokerError("internal error"))
        self.end("internal error")

    def failed(self, error: BrokerError) -> None:
        """Answer what a client did wrong, and close if it cannot be got over."""
        self.counted(error)
        self.answerError(error)
        if error.closes:
            self.end(f"error {int(error.status)}")

    def counted(self, error: BrokerError) -> None:
        """Count and log what a client did wrong."""
        self.broker.observers.counted(f"error: {int(error.status)}", 1)
        suppressed = self.context.logLimit.passes(self.context.clock.seconds())
        if suppressed is not None:
            self._log.debug("{who}: {error}{more}", who=self._label(), error=error, more=_more(suppressed))

    def expel(self, error: BrokerError) -> None:
        """Tell a client why it may stay no longer, and close; it is brought nothing more while that takes time."""
        if self.state is ConnectionState.OPEN:
            self.failed(error)
            self.end(f"error {int(error.status)}")
            if self.client is not None:
                self.broker.leave(self.client, self.reason)

    def slow(self) -> None:
        """The peer does not read what it asked for."""
        self._log.warn("{who} reads too slowly: disconnected", who=self._label())
        self.abort("slow consumer")

    def inputEnded(self) -> None:
        """The peer will say no more: send the answers that are pending, then close."""
        self.end("client closed")

    def warn(self) -> None:
        """Tell the peer that the broker stops; nothing happens in a dialect that has no words for it."""

    def dismiss(self) -> None:
        """The broker stops: answer what was asked, as if the peer had ended its input, then close."""
        if not self.dismissed:
            self.dismissed = True
            self.outbox.linger()
            self.inputEnded()

    def lost(self) -> None:
        """The connection is gone."""
        if self.state is ConnectionState.CLOSED:
            return
        reason = self.reason or "connection lost"
        self.state = ConnectionState.CLOSED
        self._stopWatching()
        self.broker.traffic.end(self.dialect, self.traffic)
        self.handshakeDone()
        self.outbox.stopProducing()
        if self.rate is not None:
            self.rate.close()
        if self.client is not None:
            self.broker.leave(self.client, reason)
            self._flapped(self.client)
        else:
            self.broker.observers.counted(CountedEvent(EventFamily.NOT_LET_IN, reason), 1)
        self.left()
        self._logLeft(reason)

    def _logLeft(self, reason: str) -> None:
        """Say who has left; of those who were never let in, not of each."""
        suppressed = 0 if self.client is not None else self.context.logLimit.passes(self.context.clock.seconds())
        if suppressed is not None:
            self._log.info(
                "{who} left: {reason}{more}",
                who=self._label(), reason=reason, more=_more(suppressed), event="left", **self._account(),
            )  # fmt: skip

    def _flapped(self, client: ConnectedClient) -> None:
        """Note that a client has left, if such clients are expected to stay."""
        if self.stays:
            who = clientKey(client.principal, self.address)
            self.context.flapping.left(who, self.context.clock.seconds() - client.joined)

    def _account(self) -> dict[str, object]:
        """Return who this was, for how many seconds, and how much went over the connection, for the log."""
        client, traffic = self.client, self.traffic
        return {
            "dialect": self.dialect,
            "address": peerAddress(self.address),
            "client": None if client is None else client.name,
            "client_id": None if client is None else client.id,
            "principal": None if client is None else client.principal,
            "seconds": round(self.context.clock.seconds() - self._began, 3),
            "bytes_in": traffic.bytesIn,
            "bytes_out": traffic.bytesOut,
            "messages_in": traffic.messagesIn,
            "messages_out": traffic.messagesOut,
        }

    def _label(self) -> str:
        return self.client.name if self.client is not None else f"{self.dialect} peer at {peerAddress(self.address)}"

    def _handshakeLate(self) -> None:
        self._deadline = None
        self.end("handshake deadline")


class StreamSession(Session):
    """A session that is handed what a stream brings."""

    @abstractmethod
    def received(self, data: bytes) -> None:
        """Work through what was read, or what the face has cut out of that; raises nothing but BrokerError."""


def _more(suppressed: int) -> str:
    """Return the end of a line that says how many like it were left out."""
    return f" ({suppressed} more lines left out)" if suppressed else ""


def _decide(
    outcome: Admitted | Failure, then: Callable[[Admitted], None], refused: Callable[[BrokerError], None]
) -> None:
    """Call one of the two; what nobody foresaw is raised."""
    if not isinstance(outcome, Failure):
        try:
            then(outcome)
        except BrokerError as error:
            refused(error)
    elif isinstance(outcome.value, BrokerError):
        refused(outcome.value)
    else:
        outcome.raiseException()


def _raiseTooLarge() -> None:
    raise TooLarge(f"at most {MAX_UNAUTHENTICATED_BYTES} bytes can be begun here before credentials are shown")


def _nothing() -> None:
    """No certificate can be shown."""


def _unheard(waits: bool) -> None:
    """Nobody has to be told."""
