"""The admission of a connection: a check of its credentials, its limits before that, and the expiry after it.

Before a client is admitted, the bytes that its connection buffers are limited and charged to the budget of all such
connections, and a deadline runs. The state of the connection is its session's: see
:class:`fleximq.dialects.connection.connection_state.ConnectionState`.
"""

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.logger import Logger
from twisted.python.failure import Failure

from fleximq.broker.deadlines import Deadline
from fleximq.broker.envelope import ConnectedClient
from fleximq.config.option_values import Sender
from fleximq.dialects.connection.credential_check import CredentialExpiry
from fleximq.dialects.context import ListenerContext
from fleximq.errors import BrokerError, JoinRejected, NoCapacity, TooLarge, Unauthorized
from fleximq.interfaces import IAdmission, IConversation, IPeer
from fleximq.security.credentials import UNTRUSTED, Certificate
from fleximq.security.peer_address import peerAddress
from fleximq.security.principal import Admitted, Principal
from fleximq.values.unadmitted_budget import BufferCharge

#: Input allowed before authentication, in bytes, where it is required or the dialect's first message is small:
#: credentials are part of a header of at most 64 KiB.
MAX_UNAUTHENTICATED_BYTES = 1 << 17
_EXPIRED = "the credentials have expired"
_log = Logger()

Then = Callable[[Admitted], None]
Refused = Callable[[BrokerError], None]


class Candidate(Protocol):
    """A session, as far as its admission needs it."""

    address: IAddress
    certificate: Callable[[], Certificate | None]
    context: ListenerContext
    dialect: ClassVar[str]

    def failed(self, error: BrokerError) -> None:
        """Answer an error."""

    def refusal(self) -> str | None:
        """Return the reason why the peer may not join with any credentials, or None."""

    def startChecking(self) -> None:
        """Wait for the decision of a pending check."""

    def decided(self, act: Callable[[], None]) -> None:
        """Act on the decision."""

    def expel(self, error: BrokerError) -> None:
        """End an open connection with this error."""


class Handshake:
    """The admission of one session.

    ``admission`` is the listener's rule, ``admitted`` the result for credentials in an HTTP request, and ``charge`` the
    bytes charged to the budget. The session is an argument of the methods: an attribute would be a reference cycle,
    which Python frees late.
    """

    __slots__ = ("_check", "_deadline", "_expiry", "_mayJoin", "admission", "admitted", "charge")

    def __init__(self, context: ListenerContext) -> None:
        self.admission: IAdmission = context.admission
        self.admitted: Admitted | None = None
        self.charge = BufferCharge(context.unadmitted)
        self._check: Deferred[None] | None = None
        self._expiry: CredentialExpiry | None = None
        self._deadline: Deadline | None = None
        self._mayJoin = False  # the address was not refused a moment ago

    def limit(self, session: Candidate, size: int, joinsFirst: bool) -> None:
        """Refuse a peer that has sent or buffers so many bytes, if they are too many for one without credentials."""
        if size > MAX_UNAUTHENTICATED_BYTES and (
            joinsFirst or (self.admission.required and session.certificate() is None)
        ):
            most = MAX_UNAUTHENTICATED_BYTES
            session.failed(TooLarge(f"at most {most} bytes can be sent here before credentials are shown"))

    def refusal(self, session: Candidate) -> str | None:
        """Return the reason why the peer may not join with any credentials, or None."""
        certificate = session.certificate()
        refusal = UNTRUSTED if certificate and not certificate.isTrusted else self.admission.refusal(session.address)
        self._mayJoin = refusal is None
        return refusal

    def check(self, session: Candidate, credentials: object, then: Then, refused: Refused) -> None:
        """Check credentials and call one of the two functions: see :meth:`fleximq.dialects.session.Session.admit`."""
        try:
            admitted = self.admission.admit(credentials, session.address)
        except BrokerError as error:
            refused(error)
            return
        if isinstance(admitted, Admitted):
            _decide(admitted, then, refused)
            return
        outcome: list[Admitted | Failure] = []
        check: Deferred[None] = admitted.addBoth(outcome.append)
        if outcome:
            _decide(outcome[0], then, refused)
            return
        self._check = check
        session.startChecking()
        check.addBoth(lambda ignored: session.decided(partial(_decide, outcome[0], then, refused)))
        check.addErrback(lambda failure: _log.failure("a credential check failed", failure))

    def decided(self) -> None:
        """The check is over; the address may have been banned meanwhile."""
        self._mayJoin = False
        self._check = None

    def permit(self, session: Candidate, who: Principal | None) -> None:
        """Raise JoinRejected or Unauthorized if the peer may not join, or its credentials have expired meanwhile."""
        refusal = None if self._mayJoin else session.refusal()
        if refusal is not None:
            raise JoinRejected(refusal)
        if who is not None and who.expires is not None and who.expires <= session.context.broker.wall():
            raise Unauthorized(_EXPIRED)

    def join(
        self, session: Candidate, conversation: IConversation, admitted: Admitted, peer: IPeer | None, user: bool
    ) -> ConnectedClient:
        """Join the broker as a client; errors as :meth:`fleximq.dialects.session.Session.letIn`."""
        who, rights = admitted.principal, admitted.rights
        self.permit(session, who)
        principal = None if who is None else who.name
        address, context = peerAddress(session.address), session.context
        try:
            client = context.broker.join(
                session.dialect, peer, principal, address, user, context.reserved, rights, who, conversation
            )
        except NoCapacity as error:
            error.principal = principal
            raise
        if context.settings.sender is Sender.PRINCIPAL:
            client.sender = principal or ""
        return client

    def joined(self, session: Candidate, expires: float | None) -> None:
        """End the limits, and expel the client when its credentials expire, in seconds since 1970."""
        self.charge.change(0)
        self.stopDeadline()
        if expires is not None:
            clock, wall = session.context.clock, session.context.broker.wall
            self._expiry = CredentialExpiry(clock, wall, expires, lambda: session.expel(Unauthorized(_EXPIRED)))

    def startDeadline(self, session: Candidate, seconds: float, act: Callable[[], None]) -> None:
        """Act after so many seconds, in place of an earlier deadline."""
        self.stopDeadline()
        self._deadline = session.context.broker.deadlines.callLater(max(0.0, seconds), act)

    @property
    def hasDeadline(self) -> bool:
        """Whether a deadline was started, and not stopped."""
        return self._deadline is not None

    def stopDeadline(self) -> None:
        """Cancel the deadline of the handshake, or of the connection's end."""
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()

    def stop(self) -> None:
        """Stop the check and the expiry, as the connection ends."""
        if self._expiry is not None:
            self._expiry.stop()
            self._expiry = None
        if self._check is not None:
            check, self._check = self._check, None
            check.cancel()


def _decide(outcome: Admitted | Failure, then: Then, refused: Refused) -> None:
    """Call one of the two functions; raise an unforeseen exception."""
    if not isinstance(outcome, Failure):
        try:
            then(outcome)
        except BrokerError as error:
            refused(error)
    elif isinstance(outcome.value, BrokerError):
        refused(outcome.value)
    else:
        outcome.raiseException()
