"""A polled subscription: its own copy of a topic's messages, independent of connections.

The rules are those of the BlipMQ document and of docs/reference/dialects.rst: the delivered QoS is the lower of the
publisher's and the subscription's. QoS1 messages are tracked until they are acknowledged and never dropped: publishing
asks :meth:`PolledSubscription.admits` first. QoS0 messages are delivered once, and the oldest dropped if the queue is
full. Both keep their common order. After an owner's last connection a grace time runs, then the subscription expires.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field

from zope.interface import implementer

from fleximq.broker.consumers.queue_owner import QueueOwner
from fleximq.broker.deadlines import Deadline, Deadlines
from fleximq.broker.queues.queue import DROPPED, EXPIRED, QUEUED, Queue
from fleximq.broker.queues.waiting import NEVER_USED, MessageAges, WaitingMessages
from fleximq.interfaces import IGuard, ISubscriber
from fleximq.values.message import Message
from fleximq.values.message_cost import ANY, cost, costOf


@implementer(ISubscriber, IGuard)
@dataclass(eq=False, repr=False)
class PolledSubscription(QueueOwner):
    """A queue of tracked messages, and the untracked messages among them.

    :param owner: who may poll it, e.g. an API key; None for all anonymous clients.
    :param qos: 0 or 1, the maximum of its deliveries.
    :param queue: for the tracked messages; must leave the bounds to :meth:`admits` (``dropsOldest=False``).
    :param grace: seconds that it outlives its last connection; then ``onGraceOver`` is called.
    :param timeToLive: seconds after which its untracked messages expire, as those of ``queue`` do; None: never.
    :param onAttached: called with each attached holder.
    """

    form = QUEUED

    id: int
    owner: str | None
    topic: str
    qos: int
    queue: Queue
    _: KW_ONLY
    deadlines: Deadlines
    grace: float
    counted: Callable[[str, int], None]
    onAttached: Callable[[object, "PolledSubscription"], None]
    onGraceOver: Callable[["PolledSubscription"], None]
    timeToLive: InitVar[float | None] = None
    _holders: set[object] = field(default_factory=set)
    _graceTime: Deadline | None = None
    _idleSince: float = field(init=False)
    _closed: bool = False
    _untracked: WaitingMessages = field(default_factory=WaitingMessages)
    # For each run of QoS0 messages: the tag of the QoS1 message that arrived just before it, which may not be given
    # yet, and the number of messages.
    _after: deque[tuple[int, int]] = field(default_factory=lambda: NEVER_USED)
    _ages: MessageAges | None = None
    #: How many untracked messages have left.
    _untrackedGone: int = 0

    def __post_init__(self, timeToLive: float | None) -> None:
        self._ages = None if timeToLive is None else MessageAges(timeToLive)
        self._idleSince = self.deadlines.seconds()

    @property
    def depth(self) -> int:
        return self.queue.depth + len(self._untracked)

    @property
    def size(self) -> int:
        return self.queue.size + self._untracked.size

    @property
    def idle(self) -> float | None:
        """The seconds since its last connection left; None while it has one."""
        return None if self._holders else self.deadlines.seconds() - self._idleSince

    @property
    def loading(self) -> bool:
        isUntrackedNext = self._untracked and not self.queue.returned and self._after[0][0] <= self.queue.lastTag
        return self.queue.loading and not isUntrackedNext

    def admits(self, count: int, size: int) -> str | None:
        """Admit all messages if it is of QoS0; untracked ones do not count, since they are dropped for tracked ones."""
        return self.queue.admits(count, size) if self.qos else None

    def deliver(self, rendered: Sequence[Message], count: int) -> None:
        """Add one run of one QoS; over the bounds, drop and count the oldest QoS0 messages, never tracked ones."""
        if self._closed or not rendered:
            return
        if self.qos and rendered[0].qos:
            self.queue.deliver(rendered, count)
            if self._untracked:
                self._makeRoom()
        else:
            self._deliverUntracked(rendered)

    def pollMany(self, holder: object, number: int, most: int = ANY) -> tuple[Sequence[int], Sequence[Message]]:
        """Attach the holder and deliver up to ``number`` messages until they cost ``most`` bytes; return tags and
        messages. A tag of 0 means that no acknowledgement is expected.
        """
        self.attach(holder)
        self._expireUntracked()
        if not self._untracked:
            return self.queue.take(holder, number, most)[:2]
        tags: list[int] = []
        messages: list[Message] = []
        while self._untracked and len(tags) < number and most > 0:
            ahead = self.queue.returned + self._after[0][0] - self.queue.lastTag
            if ahead > 0:
                tracked, taken, _ = self.queue.take(holder, min(ahead, number - len(tags)), most)
                if not taken and self.queue.loading:
                    return tags, messages
                most -= cost(taken)
            else:
                size = self._untracked.size
                taken = self._pollUntracked(number - len(tags), most)
                tracked = [0] * len(taken)
                most -= size - self._untracked.size
            tags += tracked
            messages += taken
        tracked, taken, _ = self.queue.take(holder, number - len(tags), most)
        return [*tags, *tracked], [*messages, *taken]

    def deadLetter(self, tag: int) -> None:
        """Remove a delivery that cannot be sent: to the dead letters, or dropped if its tag is 0."""
        if tag:
            self.queue.deadLetter(tag)
        else:
            self.counted(DROPPED, 1)

    def discard(self, number: int) -> int:
        gone = 0
        while self._untracked and gone < number:
            gone += len(self._pollUntracked(number - gone))
        deliveries = self.queue.takeMany(None, number - gone)
        for delivery in deliveries:
            self.queue.acknowledge(delivery.tag)
        return gone + len(deliveries)

    def attach(self, holder: object) -> None:
        """Register a connection that uses the subscription; the grace time stops."""
        if self._closed or holder in self._holders:
            return
        self._holders.add(holder)
        if self._graceTime is not None:
            self._graceTime.cancel()
            self._graceTime = None
        self.onAttached(holder, self)

    def detach(self, holder: object) -> None:
        """Detach a connection: its messages in flight return, in order; after the last one the grace time begins."""
        if holder not in self._holders:
            return
        self._holders.discard(holder)
        if not self._holders:
            self.rest(0.0)
        self.queue.release(holder)

    def rest(self, seconds: float) -> None:
        """Begin the grace time, of which so many seconds have passed."""
        self._idleSince = self.deadlines.seconds() - seconds
        self._graceTime = self.deadlines.callLater(max(0.0, self.grace - seconds), self._endGrace)

    def close(self) -> int:
        """Drop all messages and refuse new ones; return how many were dropped, including those in flight."""
        self._closed = True
        if self._graceTime is not None:
            self._graceTime.cancel()
            self._graceTime = None
        self._holders.clear()
        dropped = len(self._untracked)
        self._untracked.clear()
        self._after = NEVER_USED
        return dropped + self.queue.close()

    def _endGrace(self) -> None:
        self._graceTime = None
        self.onGraceOver(self)

    def _deliverUntracked(self, messages: Sequence[Message]) -> None:
        room = self.queue.maxBytes - self.queue.weight
        fitting, size = messages, cost(messages)
        if size > room:
            fitting = [message for message in messages if costOf(message) <= room]
            size = cost(fitting)
            self.counted(DROPPED, len(messages) - len(fitting))
        self._untracked.append(fitting, size)
        if self._after is NEVER_USED:
            self._after = deque()
        if fitting:
            self._after.append((self.queue.lastTag + self.queue.untried, len(fitting)))
            if self._ages is not None:
                self._ages.add(self._untrackedGone + len(self._untracked), self.deadlines.seconds())
        self._makeRoom()

    def _pollUntracked(self, number: int, most: int = ANY) -> list[Message]:
        """Remove and return up to ``number`` messages of the first run, until they cost ``most`` bytes."""
        messages = self._untracked.popMany(min(number, self._after[0][1]), most)
        self._removed(len(messages))
        return [message if message.qos == 0 else message._replace(qos=0) for message in messages]

    def _removed(self, number: int) -> None:
        """Shorten the first run by so many messages, which left it."""
        self._untrackedGone += number
        tag, count = self._after[0]
        if count > number:
            self._after[0] = tag, count - number
        else:
            self._after.popleft()

    def _expireUntracked(self) -> None:
        expired = 0
        until = 0 if self._ages is None else self._ages.before(self.deadlines.seconds())
        while self._untracked and self._untrackedGone < until:
            self._untracked.dropOldest()
            self._removed(1)
            expired += 1
        if expired:
            self.counted(EXPIRED, expired)

    def _makeRoom(self) -> None:
        """Drop untracked messages, oldest first, until the bounds hold."""
        self._expireUntracked()
        queue = self.queue
        durable = queue.depth + queue.inFlight
        dropped = 0
        while self._untracked and (
            durable + len(self._untracked) > queue.maxMessages or queue.weight + self._untracked.size > queue.maxBytes
        ):
            self._untracked.dropOldest()
            self._removed(1)
            dropped += 1
        if dropped:
            self.counted(DROPPED, dropped)
