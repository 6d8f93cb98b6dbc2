"""A polled subscription: its own copy of a topic's messages, independent of connections.

The rules are those of the BlipMQ document and of docs/reference/dialects.rst: the delivered QoS is the lower of the
publisher's and the subscription's. QoS1 messages are tracked until they are acknowledged and never dropped: publishing
asks :meth:`PolledSubscription.admits` first. QoS0 messages are delivered once, and the oldest dropped if the queue is
full. Both keep their common order. After an owner's last connection a grace time runs, then the subscription expires.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field

from zope.interface import implementer

from fleximq.broker.consumers.queue_owner import QueueOwner
from fleximq.broker.consumers.untracked_messages import UntrackedMessages
from fleximq.broker.deadlines import Deadline, Deadlines
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.queues.bounds import DROPPED
from fleximq.broker.queues.expiry import EXPIRED
from fleximq.broker.queues.in_flight import SLICE
from fleximq.broker.queues.queue import Queue
from fleximq.broker.queues.queued_form import QUEUED
from fleximq.interfaces import IGuard, ISubscriber
from fleximq.values.death_reason import DeathReason
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
    :param onDisk: whether the broker's journal is on disk.
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
    onDisk: bool = False
    timeToLive: InitVar[float | None] = None
    _holders: set[object] = field(default_factory=set)
    _graceTime: Deadline | None = None
    _idleSince: float = field(init=False)
    _closed: bool = False
    _untracked: UntrackedMessages = field(init=False)
    _whenReady: list[Callable[[], object]] = field(default_factory=list)

    def __post_init__(self, timeToLive: float | None) -> None:
        self._untracked = UntrackedMessages(timeToLive)
        self._idleSince = self.deadlines.seconds()

    @property
    def depth(self) -> int:
        return self.queue.stored.depth + len(self._untracked)

    @property
    def size(self) -> int:
        return self.queue.stored.size + self._untracked.size

    @property
    def idle(self) -> float | None:
        """The seconds since its last connection left; None while it has one."""
        return None if self._holders else self.deadlines.seconds() - self._idleSince

    @property
    def preparing(self) -> bool:
        if self._isUntrackedTooOld():
            return True
        isUntrackedNext = (
            self._untracked and not self.queue.stored.returned and self._untracked.after <= self.queue.stored.lastTag
        )
        return self.queue.preparing and not isUntrackedNext

    def whenPrepared(self, call: Callable[[], object]) -> None:
        if not self._isUntrackedTooOld():
            self.queue.whenPrepared(call)
            return
        self._whenReady.append(call)
        if len(self._whenReady) == 1:
            self.deadlines.callLater(0, self._expireSlices)

    def _expireSlices(self) -> None:
        self._expireUntracked()
        if self._isUntrackedTooOld():
            self.deadlines.callLater(0, self._expireSlices)
            return
        calls, self._whenReady = self._whenReady, []
        for call in calls:
            self.queue.whenPrepared(call)

    def _isUntrackedTooOld(self) -> bool:
        return bool(self._untracked) and self._untracked.isNextTooOld(self.deadlines.seconds())

    def _expireUntracked(self) -> None:
        """Drop a slice of the untracked messages that are too old."""
        expired = self._untracked.expire(self.deadlines.seconds(), SLICE)
        if expired:
            self.counted(EXPIRED, expired)

    def admits(self, count: int, size: int) -> str | None:
        """Admit all messages if it is of QoS0; untracked ones do not count, since they are dropped for tracked ones."""
        return self.queue.bounds.admits(count, size) if self.qos else None

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

    def poll(self, client: ConnectedClient, number: int, most: int = ANY) -> tuple[Sequence[int], Sequence[Message]]:
        """As :meth:`pollMany`, for a client that waits for the commit of its deliveries. Hot."""
        polled = self.pollMany(client, number, most)
        if polled[0] and self.queue.recorder is not None:
            client.consumed = True
        return polled

    def acknowledge(self, tags: list[int], client: ConnectedClient | None = None) -> list[int]:
        """Acknowledge messages, and return the tags that are unknown. Hot.

        :param client: its ``whenCommitted`` waits until the acknowledgement is on disk.
        """
        if client is not None:
            client.consumed = client.settled = self.onDisk
        return self.queue.acknowledgeMany(tags)

    def pollMany(self, holder: object, number: int, most: int = ANY) -> tuple[Sequence[int], Sequence[Message]]:
        """Attach the holder and deliver up to ``number`` messages until they cost ``most`` bytes; return tags and
        messages. A tag of 0 means that no acknowledgement is expected.
        """
        if holder not in self._holders:
            self.attach(holder)
        untracked = self._untracked
        if not untracked.size:
            return self.queue.take(holder, number, most)[:2]
        if self._isUntrackedTooOld():
            if not self._whenReady:
                self._expireUntracked()
            if self._isUntrackedTooOld():
                return (), ()
        tags: list[int] = []
        messages: list[Message] = []
        while self._untracked and len(tags) < number and most > 0:
            ahead = len(self.queue.stored.returned) + self._untracked.after - self.queue.stored.lastTag
            if ahead > 0:
                tracked, taken, _ = self.queue.take(holder, min(ahead, number - len(tags)), most)
                if not taken and self.queue.preparing:
                    return tags, messages
                most -= cost(taken)
            else:
                size = self._untracked.size
                taken = self._untracked.take(number - len(tags), most)
                tracked = [0] * len(taken)
                most -= size - self._untracked.size
            tags += tracked
            messages += taken
        tracked, taken, _ = self.queue.take(holder, number - len(tags), most)
        return [*tags, *tracked], [*messages, *taken]

    def deadLetter(self, tag: int) -> None:
        """Remove a delivery that cannot be sent: to the dead letters, or dropped if its tag is 0."""
        if tag:
            self.queue.reject(tag, reason=DeathReason.TOO_LARGE)
        else:
            self.counted(DROPPED, 1)

    def discard(self, number: int) -> int:
        gone = 0
        while self._untracked and gone < number:
            gone += len(self._untracked.take(number - gone))
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
        self._whenReady.clear()
        return dropped + self.queue.close()

    def _endGrace(self) -> None:
        self._graceTime = None
        self.onGraceOver(self)

    def _deliverUntracked(self, messages: Sequence[Message]) -> None:
        room = self.queue.bounds.maxBytes - self.queue.stored.weight
        fitting, size = messages, cost(messages)
        if size > room:
            fitting = [message for message in messages if costOf(message) <= room]
            size = cost(fitting)
            self.counted(DROPPED, len(messages) - len(fitting))
        if fitting:
            self._untracked.add(fitting, size, self.queue.stored.arrived, self.deadlines.seconds())
        self._makeRoom()

    def _makeRoom(self) -> None:
        """Drop untracked messages, oldest first, until the bounds hold."""
        self._expireUntracked()
        queue = self.queue
        tracked = queue.stored.depth + len(queue.stored.flying)
        dropped = 0
        while self._untracked and (
            tracked + len(self._untracked) > queue.bounds.maxMessages
            or queue.stored.weight + self._untracked.size > queue.bounds.maxBytes
        ):
            self._untracked.dropOldest()
            dropped += 1
        if dropped:
            self.counted(DROPPED, dropped)
