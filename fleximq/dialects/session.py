"""What all sessions share: how a connection comes in, how it ends, and where errors are answered.

A session speaks one dialect with one peer. It knows its bytes and the broker, but not what carries them: a *face*
(:mod:`fleximq.dialects.stream`, :mod:`fleximq.dialects.websocket`) gives it an outbox and feeds it.

The states, and what moves a connection from one to the next::

    WAITING --let in--> OPEN --end()--> ENDING --connection lost--> CLOSED
       |________________________________^

``end`` is called with a short constant phrase, which is logged and counted.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import ClassVar

from twisted.internet.interfaces import IAddress, IDelayedCall
from twisted.logger import Logger

from fleximq.broker.values import Client
from fleximq.dialects.answers import Answers
from fleximq.dialects.context import Context
from fleximq.dialects.outbox import Outbox
from fleximq.errors import BrokerError
from fleximq.interfaces import IPeer
from fleximq.security.whence import whence

#: Seconds that a closing connection has for taking its last answers.
LINGER = 10.0
#: Why connections end when the broker does.
STOPPED = "broker stopped"


class State(Enum):
    """Where a connection is in its life."""

    WAITING = "waiting for its handshake"
    OPEN = "open"
    ENDING = "ending"
    CLOSED = "closed"


class Session:
    """One peer's conversation; subclasses say what goes over the wire.

    Subclasses define ``dialect``, :meth:`received` and :meth:`answerError`, and call :meth:`letIn`. ``heard`` is when
    the peer was last heard, in the clock's seconds; the face sets it. ``reason`` is why it ends, "" until it does.
    ``stuck`` says that it left something undone until the peer has read more. ``mayFinish`` says that its peers are
    told in good time when the broker stops, ``dismissed`` that they have no more of it.
    """

    dialect: ClassVar[str]
    mayFinish: ClassVar[bool] = False
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
        self.client: Client | None = None
        self.state = State.WAITING
        self.heard = self._began = context.clock.seconds()
        self.listening = True
        self.stuck = False
        self.reason = ""
        self._deadline: IDelayedCall | None = context.clock.callLater(
            context.settings.handshakeTimeout, self._handshakeLate
        )

    @property
    def owed(self) -> int:
        """How many bytes of answers wait until a publication is safe."""
        return 0 if self.answers is None else self.answers.size

    def lastHeard(self) -> float:
        """Return when the peer was last heard; now, while it is not listened to."""
        return self.heard if self.listening else self.context.clock.seconds()

    # -- for subclasses ----------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Work through what was read; raises nothing but BrokerError."""
        raise NotImplementedError

    def answerError(self, error: BrokerError) -> None:
        """Answer an error in the dialect's words; the connection is closed afterwards if the error says so."""
        raise NotImplementedError

    def opened(self) -> None:
        """The connection is up; called once, before anything is received."""

    def rightsChanged(self, lost: Sequence[str]) -> None:
        """The client may do other things from now on: forget what it was allowed, and tell it what it has lost.

        :param lost: the names of subscriptions that have ended.
        """

    def left(self) -> None:
        """The connection is gone and the client has left: let go of timers, and of all that may be large.

        Sessions are in cycles, so it may be long until Python finds them; what they hold must not wait for that.
        """

    def letIn(self, principal: str | None = None, peer: IPeer | None = None, user: bool = False) -> Client:
        """Register this connection as a client of the broker.

        :raises NoCapacity: the broker is full.
        """
        invited = self.context.invited
        if invited is not None:
            principal = invited.principal
        id = None if invited is None else invited.id
        place = whence(self.address)
        client = self.broker.join(self.dialect, peer, principal, place, user, id)
        self.client = client
        self.state = State.OPEN
        self.handshakeDone()
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
            self.broker.whenSafe(call, self.client)

    def refusal(self) -> str | None:
        """Return why this peer may not come in at all, or None."""
        return self.context.refusal(self.address)

    def cameAt(self, seconds: float) -> None:
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
        if self.state in (State.ENDING, State.CLOSED):
            return False
        self.state = State.ENDING
        self.reason = STOPPED if self.dismissed else reason
        self.handshakeDone()
        self._deadline = self.context.clock.callLater(LINGER, self.outbox.abort)
        return True

    def attempt(self, act: Callable[[], None]) -> None:
        """Do something for the peer and answer what goes wrong; what nobody foresaw is logged and ends it."""
        try:
            act()
        except BrokerError as error:
            self.failed(error)
        except Exception:
            self._log.failure("{dialect}: a read could not be worked through", dialect=self.dialect)
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
        self._log.debug("{who}: {error}", who=self._who(), error=error)

    def slow(self) -> None:
        """The peer does not read what it asked for."""
        self._log.warn("{who} reads too slowly: disconnected", who=self._who())
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
        if self.state is State.CLOSED:
            return
        reason = self.reason or "connection lost"
        self.state = State.CLOSED
        self.broker.traffic.end(self.dialect, self.traffic)
        self.handshakeDone()
        self.outbox.stopProducing()
        if self.client is not None:
            self.broker.leave(self.client, reason)
        else:
            self.broker.observers.counted(f"not let in: {reason}", 1)
        self.left()
        self._log.info("{who} left: {reason}", who=self._who(), reason=reason, event="left", **self._account())

    def _account(self) -> dict[str, object]:
        """Return who this was, for how many seconds, and how much went over the connection, for the log."""
        client, traffic = self.client, self.traffic
        return {
            "dialect": self.dialect,
            "address": whence(self.address),
            "client": None if client is None else client.name,
            "client_id": None if client is None else client.id,
            "principal": None if client is None else client.principal,
            "seconds": round(self.context.clock.seconds() - self._began, 3),
            "bytes_in": traffic.bytesIn,
            "bytes_out": traffic.bytesOut,
            "messages_in": traffic.messagesIn,
            "messages_out": traffic.messagesOut,
        }

    def _who(self) -> str:
        return self.client.name if self.client is not None else f"{self.dialect} peer at {whence(self.address)}"

    def _handshakeLate(self) -> None:
        self._deadline = None
        self.end("handshake deadline")
