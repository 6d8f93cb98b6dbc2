"""The way of a FlexiMQ client from its first message to its welcome (FlexiMQ document 4.2 and 5.2).

A JOIN may ask for a challenge, and its credentials may be checked for a while. In a mesh a client with a name is
welcomed after all nodes know the name; until then its input waits, and so do messages of other clients for it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from fleximq.broker.broker import Broker
from fleximq.dialects.connection.connection_state import ConnectionState
from fleximq.dialects.fleximq.join import JoinRequest, newChallenge, readJoin
from fleximq.dialects.fleximq.replies import FlexiReplies, correlation
from fleximq.dialects.fleximq.writers import AnyWriter, HeldMessages
from fleximq.dialects.handshake import Handshake, Refused, Then
from fleximq.errors import BrokerError, JoinRejected, Unauthorized
from fleximq.security.credentials import Certificate
from fleximq.security.principal import Admitted
from fleximq.status import Status
from fleximq.wire.fleximq_frame import readPrefix
from fleximq.wire.fleximq_header import MessageType, OpenHeader


class JoiningSession(Protocol):
    """A session, as far as its JOIN needs it."""

    broker: Broker
    certificate: Callable[[], Certificate | None]
    checking: Callable[[bool], None]
    forward: Callable[..., Any]
    handshake: Handshake
    receiveBroadcast: Callable[..., Any]
    state: ConnectionState

    def admit(self, credentials: object, then: Then, refused: Refused) -> None:
        """Check credentials."""

    def failed(self, error: BrokerError, requestId: str | None = None) -> None:
        """Answer an error."""

    def joined(self, request: JoinRequest, admitted: Admitted) -> None:
        """Join the broker with the name of the request; raises BrokerError."""

    def refusal(self) -> str | None:
        """Return the reason why the peer may not join with any credentials, or None."""

    def use(self, writer: AnyWriter) -> None:
        """Write in another form from now on."""


class Joining:
    """Reads the JOINs of one connection, of which the first may ask for a challenge."""

    __slots__ = ("_challenge",)

    def __init__(self) -> None:
        self._challenge = ""

    def read(self, session: JoiningSession, replies: FlexiReplies, opened: OpenHeader) -> None:
        """Process the first message of a client, or the second after a challenge; calls ``joined``, perhaps later.

        :raises BrokerError: it is no JOIN, or its client may not join.
        """
        _, kind, client_id = readPrefix(opened.envelope)
        refusal = session.refusal()
        if kind != MessageType.JOIN:
            raise Unauthorized("the first message must be a JOIN")
        if refusal is not None:
            raise JoinRejected(refusal)
        request = readJoin(client_id, opened, self._challenge)
        if request.wantsChallenge:
            self._sendChallenge(replies, request.id)
            return
        joined = partial(session.joined, request._replace(credentials=None))
        handshake = session.handshake
        if request.credentials is None and handshake.admitted is not None:
            joined(handshake.admission.renewed(handshake.admitted))
        else:
            session.admit(
                request.credentials or session.certificate(), joined, partial(session.failed, requestId=request.id)
            )

    def _sendChallenge(self, replies: FlexiReplies, requestId: str | None) -> None:
        """Ask for a second JOIN, with a signature; once on a connection."""
        if self._challenge:
            raise Unauthorized("this connection has got a challenge already")
        self._challenge, payload = newChallenge()
        fields = {"status": int(Status.UNAUTHORIZED)} | correlation(requestId)
        replies.send(MessageType.REP, fields, payload, sender=0)


def announce(session: JoiningSession, replies: FlexiReplies, welcome: Callable[[], None]) -> None:
    """Call ``welcome`` when all nodes of a mesh know the client's name. Until then input and messages wait."""
    held = HeldMessages(replies.writer)
    isKnown = False

    def known() -> None:
        nonlocal isKnown
        isKnown = True
        if session.state is not ConnectionState.CHECKING:  # at once, or the connection has ended
            return
        session.state = ConnectionState.OPEN
        session.handshake.charge.change(0)
        session.use(replies.writer)
        welcome()
        held.release()
        session.checking(False)

    session.broker.announce(None, known)
    if isKnown:
        welcome()
        return
    session.forward, session.receiveBroadcast = held.forward, held.receiveBroadcast
    session.state = ConnectionState.CHECKING
    session.checking(True)
