"""A client of another node of a mesh at the node that owns the journal (/explanation/cluster, "The mesh").

Its node has admitted it, and sends its messages about queues, schedules and values here, over a connection of its own:
:mod:`fleximq.dialects.fleximq.owner_link`. Here it has the same id and the rights of the same principal, but receives
no direct messages. Deliveries are its consumer's until this connection ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from twisted.internet.interfaces import IAddress

from fleximq.dialects.context import ListenerContext
from fleximq.dialects.fleximq.session import FlexiSession
from fleximq.dialects.outbox import Outbox
from fleximq.dialects.stream import StreamProtocol
from fleximq.errors import BrokerError
from fleximq.rights import EVERYTHING
from fleximq.security.principal import Admitted, Principal


@dataclass(frozen=True, slots=True)
class Delegate:
    """A client as its node describes it: ``service`` is its name, and ``isNamed`` whether it joined with one."""

    id: int
    service: str
    isNamed: bool
    principal: Principal | None

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> "Delegate":
        """Return the delegate that :func:`fleximq.dialects.fleximq.owner_link.describe` described."""
        who = description["principal"]
        if who is not None:
            grants = {action: tuple(patterns) for action, patterns in who["grants"].items()}
            who = Principal(**{**who, "roles": frozenset(who["roles"]), "grants": grants})
        return cls(description["id"], description["service"], description["isNamed"], who)


class DelegateSession(FlexiSession):
    """The conversation of a delegate, which has joined at its node."""

    __slots__ = ("_delegate",)

    def __init__(self, delegate: Delegate, context: ListenerContext, outbox: Outbox, address: IAddress) -> None:
        super().__init__(context, outbox, address)
        self._delegate = delegate

    def opened(self) -> None:
        """Join the broker; the client gets an error if it may not."""
        self.attempt(self._enter)

    def _enter(self) -> None:
        delegate, clients = self._delegate, self.broker.clients
        admitted = self.context.admission.renewed(Admitted(delegate.principal, EVERYTHING))
        clients.reserve(delegate.id)
        try:
            me = self.letIn(admitted)
        except BrokerError:
            clients.release(delegate.id)
            raise
        me.service = delegate.service  # for dead letters; messages to this name reach the client at its node
        self.beginAs(me, delegate.isNamed)
        self.startKeepAlive()


def buildDelegate(context: ListenerContext, delegate: Delegate, address: IAddress) -> StreamProtocol:
    """Return the protocol of a delegate's connection."""
    protocol = StreamProtocol(replace(context, reserved=delegate.id), partial(DelegateSession, delegate))
    protocol.address = address
    return protocol
