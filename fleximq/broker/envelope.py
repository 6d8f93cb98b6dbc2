"""The broker's own values: clients, envelopes of runs, and deliveries of queues."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from zope.interface import implementer

from fleximq.interfaces import IConversation, IPeer, IRights, ISource, ISubscriber
from fleximq.rights import EVERYTHING
from fleximq.values import message_loops
from fleximq.values.death_reason import DeathReason
from fleximq.values.message import Message
from fleximq.values.message_cost import OVERHEAD, cost
from fleximq.values.message_run import MessageRun
from fleximq.values.records import Run, runOf

if TYPE_CHECKING:
    from fleximq.broker.topics.topic_table import Topic

#: FlexiMQ document 4.1.1: the client id of the broker itself.
BROKER_ID = 1
#: FlexiMQ document 4.1.1: the first and last id given to clients.
FIRST_CLIENT_ID = 1000
LAST_CLIENT_ID = 0xFFFFFFFE

#: Reports for messages at these indexes of a run that they are durable (None), or why they are not.
OnDecided = Callable[[str | None, Sequence[int]], None]


class ClientSubscription(NamedTuple):
    """One subscription of a client: its subscriber, and whether the name is literal."""

    subscriber: ISubscriber
    literal: bool


@dataclass(slots=True, eq=False)
class ConnectedClient:
    """A connection registered as a client, of any dialect.

    ``name`` is its sender name in text dialects; ``service`` the name that it shares with others as a receiver of
    direct messages, "" without one; ``principal`` the authenticated name (None: anonymous), and ``identity`` the result
    of authentication; ``peer`` accepts direct messages; ``joined`` is the clock's seconds. ``lastRun`` is the number of
    its last run in the journal, which may not be committed yet; ``consumed`` tells whether it received or acknowledged
    durable messages since it last waited for commits, ``settled`` whether it acknowledged some that may not be on disk
    yet; ``committed`` is the offset of the first message of its run that was committed last, while that is reported;
    ``reader`` is the dialect's object that pauses it as a publisher.
    ``conversation`` is notified when its ``rights`` change. ``sender`` is the principal that subscribers see, "" unless
    the option ``sender`` says so. ``isDelegate``: it is a client of another node of a mesh, and here for the journal
    only, so it is not listed.
    """

    id: int
    dialect: str
    name: str
    principal: str | None = None
    address: str = ""
    peer: IPeer | None = None
    joined: float = 0.0
    subscriptions: dict[str, ClientSubscription] = field(default_factory=dict)
    lastRun: int = 0
    consumed: bool = False
    settled: bool = False
    committed: int = 0
    reader: Any = None
    rights: IRights = EVERYTHING
    conversation: IConversation | None = None
    identity: Any = None
    service: str = ""
    sender: str = ""
    isDelegate: bool = False


@implementer(ISource)
class MessageSource:
    """The source of bodies that are lists of messages. A subclass with faster ways overrides its methods."""

    __slots__ = ()

    def messages(self, body: Any) -> Sequence[Message]:
        messages: Sequence[Message] = body
        return messages

    def queued(self, body: Any, first: int) -> Sequence[Message]:
        messages = self.messages(body)
        return message_loops.numbered(messages, first) if first else messages

    def size(self, body: Any, count: int) -> int:
        return cost(self.messages(body)) - OVERHEAD * count

    def run(self, body: Any) -> Run:
        return runOf(self.messages(body))

    def pick(self, body: Any, places: Sequence[int]) -> Any:
        return [body[place] for place in places]


class Envelope(NamedTuple):
    """The common fields of a run's messages; made by a dialect, often once for thousands of runs.

    ``durable`` publications go through the journal and are refused rather than lost (BlipMQ QoS1, MiniMQ PRODUCE).
    ``offset`` is that of the first message of a committed run, 0 otherwise; the others follow it. ``time`` is when the
    journal took it, in microseconds since 1970; 0 if that is not known here.
    """

    topic: "Topic"
    publisher: ConnectedClient
    source: ISource
    qos: int = 1
    durable: bool = False
    offset: int = 0
    time: int = 0


class QueueDelivery(NamedTuple):
    """A message delivered by a queue: its tag (0 if it needs no acknowledgement) and the number of its deliveries."""

    tag: int
    message: Message
    attempts: int


class RunDeliveries(Sequence[QueueDelivery]):
    """The first deliveries of the messages of a run; ``tags`` are theirs."""

    __slots__ = ("messages", "tags")

    def __init__(self, tags: range, messages: MessageRun) -> None:
        self.tags = tags
        self.messages = messages

    def __len__(self) -> int:
        return len(self.tags)

    def __iter__(self) -> Iterator[QueueDelivery]:
        return iter(message_loops.firstDeliveries(QueueDelivery, self.tags, 1, 0, self.messages))

    @overload
    def __getitem__(self, place: int) -> QueueDelivery: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[QueueDelivery]: ...
    def __getitem__(self, place: int | slice) -> QueueDelivery | Sequence[QueueDelivery]:
        if isinstance(place, slice):
            return [*self][place]
        return QueueDelivery(self.tags[place], self.messages[place], 1)


class LastDelivery(NamedTuple):
    """The last delivery of a message that becomes a dead letter, and why.

    ``consumer`` is the name of the client that received it, "" if it is not known, and ``words`` are those of its
    rejection. ``first`` is when the first delivery of the message ended, in seconds of the clock; None: this was it.
    """

    tag: int
    message: Message
    attempts: int
    reason: DeathReason
    consumer: str = ""
    words: str = ""
    first: float | None = None
