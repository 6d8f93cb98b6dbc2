"""The log and audit lines of a connection: that its client joined, was refused an act, or left.

Lines of one kind are limited in number; the audit log records each login and each refusal. The logger is an argument,
since each dialect logs under the name of its own module.
"""

from typing import ClassVar, Protocol

from twisted.internet.interfaces import IAddress
from twisted.logger import Logger

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.traffic import Traffic
from fleximq.dialects.context import ListenerContext
from fleximq.errors import AuthenticationFailed, BrokerError, Forbidden, JoinRejected, NoCapacity, Unauthorized
from fleximq.security.peer_address import peerAddress
from fleximq.values.printable import shortened

#: Maximum characters of an error in the log.
_LOGGED = 400
#: The errors that the audit log records.
_REFUSALS = (Unauthorized, Forbidden, AuthenticationFailed, JoinRejected)


class Logged(Protocol):
    """A session, as far as its log lines need it. ``began``: when it began, in the clock's seconds."""

    address: IAddress
    began: float
    broker: Broker
    client: ConnectedClient | None
    context: ListenerContext
    dialect: ClassVar[str]
    isLongLived: ClassVar[bool]
    traffic: Traffic


def labelOf(session: Logged) -> str:
    """Return the client's name with its principal; of a peer that has not joined, its dialect and address."""
    client = session.client
    if client is None:
        return f"{session.dialect} peer at {peerAddress(session.address)}"
    return f"{client.name} ({client.principal})" if client.principal else client.name


def tellJoined(session: Logged, client: ConnectedClient, log: Logger) -> None:
    """Audit and log that the session's client joined."""
    _audit(session, "login")
    more = _more(session, "client joined" if session.isLongLived else "joined")
    if more is not None:
        log.info(
            "{client} joined{who} from {address}{more}",
            client=client.name, who=f" as {client.principal}" if client.principal else "", address=client.address,
            event="joined", dialect=session.dialect, principal=client.principal, client_id=client.id, more=more,
        )  # fmt: skip


def tellError(session: Logged, error: BrokerError, log: Logger) -> None:
    """Log an error that the peer gets, and audit it if it is a refusal."""
    if isinstance(error, _REFUSALS) or (session.client is None and isinstance(error, NoCapacity)):
        _audit(session, "refused", error.principal, reason=str(error))
    more = _more(session, "error")
    if more is not None:
        log.debug("{who}: {error}{more}", who=labelOf(session), error=shortened(str(error), _LOGGED), more=more)


def tellLeft(session: Logged, reason: str, log: Logger) -> None:
    """Log the end of a connection, with its duration and its traffic."""
    client, traffic = session.client, session.traffic
    more = _more(session, "client left" if client is not None and session.isLongLived else "left")
    if more is not None:
        log.info(
            "{who} left: {reason}{more}",
            who=labelOf(session), reason=reason, more=more, event="left", dialect=session.dialect,
            address=peerAddress(session.address),
            client=None if client is None else client.name,
            client_id=None if client is None else client.id,
            principal=None if client is None else client.principal,
            seconds=round(session.context.clock.seconds() - session.began, 3),
            bytes_in=traffic.bytesIn, bytes_out=traffic.bytesOut,
            messages_in=traffic.messagesIn, messages_out=traffic.messagesOut,
        )  # fmt: skip


def _more(session: Logged, kind: str) -> str | None:
    """Return the end of a log line of this kind, None if it is over the limit."""
    return session.context.logLimits[kind].ending(session.context.clock.seconds())


def _audit(session: Logged, event: str, principal: str | None = None, **fields: object) -> None:
    client = session.client
    session.broker.audit(
        event,
        principal=principal if client is None else client.principal,
        address=peerAddress(session.address) if client is None else client.address,
        dialect=session.dialect,
        client_id=None if client is None else client.id,
        **fields,
    )
