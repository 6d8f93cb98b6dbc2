"""The broker's own values: who is there, what a run has in common, what was handed out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from fleximq.interfaces import IConversation, IPeer, IRights, ISource, ISubscriber
from fleximq.rights import EVERYTHING
from fleximq.values.message import Message

if TYPE_CHECKING:
    from fleximq.broker.topics.topic_table import Topic

#: FlexiMQ document 4.1.1: the client id of the broker itself.
BROKER_ID = 1
#: FlexiMQ document 4.1.1: the first and last id given to clients.
FIRST_CLIENT_ID = 1000
LAST_CLIENT_ID = 0xFFFFFFFE

#: Reports for messages at these indexes of a run that they are durable (None), or why they are not.
OnDecided = Callable[[str | None, Sequence[int]], None]


class Pattern(NamedTuple):
    """One subscription of a client: who takes it, and whether its name is taken as it stands."""

    subscriber: ISubscriber
    literal: bool


@dataclass(slots=True, eq=False)
class ConnectedClient:
    """A connection that has been let in, whatever dialect it speaks.

    ``name`` is how it appears as a sender in text dialects; ``principal`` who it is (None: anonymous);
    ``peer`` takes direct messages, None for dialects without them; ``joined`` is the clock's seconds; ``lastRun`` is
    the number of its last run in the journal, which may still be on its way to the disk; ``consumed`` tells whether
    it was handed something that is kept, or has acknowledged it, since it last asked when all is safe; ``reader`` is
    whatever the dialects know it by as somebody who publishes. ``rights`` is what it may do, and ``conversation`` hears
    when that changes; ``identity`` is what authentication said of it, None where nobody asked.
    """

    id: int
    dialect: str
    name: str
    principal: str | None = None
    address: str = ""
    peer: IPeer | None = None
    joined: float = 0.0
    patterns: dict[str, Pattern] = field(default_factory=dict)
    lastRun: int = 0
    consumed: bool = False
    reader: Any = None
    rights: IRights = EVERYTHING
    conversation: IConversation | None = None
    identity: Any = None


class Envelope(NamedTuple):
    """What all messages of a run share.

    Made by a dialect, often once for thousands of runs. ``durable`` publications go through the journal and are
    refused rather than lost (BlipMQ QoS1, MiniMQ PRODUCE). ``offset`` is the place in the journal of the first
    message of a run that was committed, 0 elsewhere; its other messages follow one by one.
    """

    topic: "Topic"
    publisher: ConnectedClient
    source: ISource
    qos: int = 1
    durable: bool = False
    offset: int = 0


class QueueDelivery(NamedTuple):
    """A message handed out by a queue: its tag (0 where it needs no acknowledgement) and the how-manieth time."""

    tag: int
    message: Message
    attempts: int
