"""What every connection of a listener has at hand."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from twisted.internet.interfaces import IAddress, IReactorTime

from fleximq.broker.broker import Broker
from fleximq.dialects.envelope_cache import Purse
from fleximq.dialects.slow_consumer import DISCONNECT, Policy
from fleximq.dialects.turn import Turn
from fleximq.settings import Settings


class Invitation(NamedTuple):
    """For the one who was asked to come: the client id that is reserved, and who it is."""

    id: int
    principal: str


@dataclass(frozen=True, slots=True)
class Context:
    """Handed to the factories of all dialects.

    ``policy`` rules the deliveries to slow consumers. ``refusal`` returns the sentence with which a peer at this
    address is turned away, or None: it may come in. ``invited`` is there if only one is to connect, whom the broker
    itself has started. ``envelopes`` bounds what connections remember of them together.
    """

    broker: Broker
    settings: Settings
    clock: IReactorTime
    turn: Turn
    refusal: Callable[[IAddress], str | None]
    policy: Policy = DISCONNECT
    invited: Invitation | None = None
    envelopes: Purse = field(default_factory=Purse)
