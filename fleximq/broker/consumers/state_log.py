"""Appends state records to the journal: deliveries and acknowledgements of durable queues, once per reactor turn, and
openings and ends of subscriptions and work queues.
"""

from collections.abc import Callable

from fleximq.broker.consumers.polled_subscriptions import PolledSubscription
from fleximq.broker.consumers.polled_subscriptions import keyOf as keyOfSubscription
from fleximq.broker.consumers.work_queues import WorkQueue
from fleximq.broker.consumers.work_queues import keyOf as keyOfQueue
from fleximq.broker.deadlines import Deadlines
from fleximq.broker.queues.durable_queue import DurableQueue
from fleximq.interfaces import IJournal
from fleximq.values.message import Message
from fleximq.values.state_records import QueueClosed, QueueOpened

#: The key of notes that say up to which id subscriptions may have been opened, volatile ones included.
IDS = "i:"
#: So many of these ids are noted at a time.
_BLOCK = 1000


class OpeningLog:
    """Records the queues to restore after a restart.

    ``lastId`` is the last subscription id that may have been given, as far as the journal knows.
    """

    def __init__(self, journal: IJournal) -> None:
        self.lastId = 0
        self._journal = journal

    def subscribed(self, subscription: PolledSubscription) -> None:
        """Record an opened subscription, or at least its id."""
        if subscription.durable:
            key, owner = keyOfSubscription(subscription.id), subscription.owner
            self._opened(key, subscription.topic, subscription.qos, subscription.id, owner)
        elif subscription.id > self.lastId:
            self.lastId = subscription.id + _BLOCK
            self._opened(IDS, "", 0, self.lastId, None)

    def subscriptionExpired(self, subscription: PolledSubscription) -> None:
        """Record that a subscription has expired."""
        if subscription.durable:
            self._journal.appendState(QueueClosed(keyOfSubscription(subscription.id)))

    def queueOpened(self, queue: WorkQueue) -> None:
        """Record that a topic has a queue."""
        if queue.durable:
            self._opened(keyOfQueue(queue.name), queue.name, 1, 0, None)

    def queueExpired(self, queue: WorkQueue) -> None:
        """Record that a topic's queue has expired."""
        if queue.durable:
            self._journal.appendState(QueueClosed(keyOfQueue(queue.name)))

    def _opened(self, key: str, topic: str, qos: int, id: int, owner: str | None) -> None:
        self._journal.appendState(QueueOpened(key, topic, qos, id, owner, self._journal.end))


DeadLetter = Callable[[str, Message, Callable[[str | None], None]], None]


class StateLog:
    """Collects the queues with new state records; provides :class:`fleximq.broker.queues.durable_queue.QueueLog`.

    :param deadLetter: publishes a dead letter and reports None if it is stored, else the reason of the failure.
    """

    def __init__(self, journal: IJournal, deadlines: Deadlines, deadLetter: DeadLetter) -> None:
        self.journal = journal
        self.deadLetter = deadLetter
        self._deadlines = deadlines
        self._changed: dict[DurableQueue, None] = {}

    def wall(self) -> int:
        """Return the microseconds since 1970."""
        return round(self._deadlines.seconds() * 1_000_000)

    def soon(self, call: Callable[[], None]) -> None:
        """Call in the next turn."""
        self._deadlines.call(0, call)

    def changed(self, queue: DurableQueue) -> None:
        """Collect this queue's state records at the end of the turn, or before the next wait for commits."""
        if not self._changed:
            self._deadlines.call(0, self.flush)
        self._changed[queue] = None

    def flush(self) -> None:
        """Append the state records now."""
        if self._changed:
            changed, self._changed = self._changed, {}
            for queue in changed:
                for note in queue.stateRecords():
                    self.journal.appendState(note)
