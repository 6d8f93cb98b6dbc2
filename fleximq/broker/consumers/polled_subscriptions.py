"""All subscriptions that are polled, by id and by the connections that use them.

What one of them does is in :mod:`fleximq.broker.consumers.polled_subscription`; here they get their numbers, are found
by their
owners only, and end when their grace time is over.
"""

from collections.abc import Callable, Iterator

from fleximq.broker.consumers.polled_subscription import PolledSubscription
from fleximq.broker.queues.durable_queue import DurableQueue
from fleximq.broker.queues.queue_factory import QueueFactory
from fleximq.broker.queues.queue_state import QueueState
from fleximq.errors import NotFound
from fleximq.values.counted_event import CountedEvent, EventFamily

__all__ = ["DROPPED_EXPIRED", "UNKNOWN", "PolledSubscription", "PolledSubscriptions", "keyOf"]

#: BlipMQ document, "Error Codes", 404.
UNKNOWN = "unknown subscription or delivery tag"
#: What is counted when a subscription takes messages with it.
DROPPED_EXPIRED = CountedEvent(EventFamily.DROPPED, "subscription expired")


def keyOf(id: int) -> str:
    """Return the key by which the journal knows a subscription's queue."""
    return f"s:{id}"


class PolledSubscriptions:
    """All subscriptions of a broker, by id and by the connections that use them.

    :param makeQueue: makes the queue of a subscription.
    :param grace: seconds that a subscription lives on after its last connection.
    :param keptGrace: the same for those that outlive the process.
    :param onExpired: is given a subscription whose grace time is over, when it is closed and no longer found.

    ``lastId`` is the latest id that was given.
    """

    def __init__(
        self,
        makeQueue: QueueFactory,
        *,
        grace: float,
        onExpired: Callable[[PolledSubscription], None],
        keptGrace: float = 86400.0,
    ) -> None:
        self.lastId = 0
        self._makeQueue = makeQueue
        self._deadlines = makeQueue.deadlines
        self._counted = makeQueue.counted
        self._grace = grace
        self._keptGrace = keptGrace
        self._onExpired = onExpired
        self._byId: dict[int, PolledSubscription] = {}
        self._byHolder: dict[object, dict[int, PolledSubscription]] = {}

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return len(self._byId)

    def __iter__(self) -> Iterator[PolledSubscription]:
        """Iterate over all subscriptions in order of their ids; the loop may close them."""
        return iter(list(self._byId.values()))

    def open(self, holder: object, owner: str | None, topic: str, qos: int, kept: bool = False) -> PolledSubscription:
        """Make a new subscription and attach the holder, any hashable object that stands for a connection.

        The caller subscribes it to the topic. The same topic twice gives two subscriptions.

        :param kept: let it outlive the process, if there is a journal for that.
        """
        self.lastId += 1
        subscription = self._add(self.lastId, owner, topic, qos, kept)
        subscription.attach(holder)
        return subscription

    def restore(self, state: QueueState, idle: float) -> PolledSubscription:
        """Make a subscription what the journal knows of it, and let its grace time run.

        :param idle: seconds that it was not used.
        """
        self.lastId = max(self.lastId, state.id)
        subscription = self._add(state.id, state.owner, state.topic, state.qos, True)
        if isinstance(subscription.queue, DurableQueue):
            subscription.queue.restore(state)
        subscription.rest(idle)
        return subscription

    def _add(self, id: int, owner: str | None, topic: str, qos: int, kept: bool) -> PolledSubscription:
        kept = kept and self._makeQueue.keeps
        queue = self._makeQueue(topic, keyOf(id) if kept else "", dropsOldest=False)
        subscription = self._byId[id] = PolledSubscription(
            id,
            owner,
            topic,
            qos,
            queue,
            deadlines=self._deadlines,
            grace=self._keptGrace if kept else self._grace,
            kept=kept,
            counted=self._counted,
            onAttached=self._attached,
            onGraceOver=self._graceOver,
        )
        return subscription

    def find(self, id: int, owner: str | None) -> PolledSubscription:
        """Return the subscription with this id.

        :raises NotFound: when there is none, or it is another owner's: which of the two is not told.
        """
        subscription = self._byId.get(id)
        if subscription is None or subscription.owner != owner:
            raise NotFound(UNKNOWN)
        return subscription

    def heldBy(self, holder: object) -> int:
        """Return to how many subscriptions this connection is attached, by opening or by polling them."""
        return len(self._byHolder.get(holder, ()))

    def leave(self, holder: object) -> None:
        """Detach this connection from all its subscriptions."""
        for subscription in self._byHolder.pop(holder, {}).values():
            subscription.detach(holder)

    def detach(self, holder: object, wanted: Callable[[str], bool]) -> None:
        """Detach this connection from its subscriptions to topics of which this is wanted."""
        held = self._byHolder.get(holder, {})
        for subscription in [each for each in held.values() if wanted(each.topic)]:
            del held[subscription.id]
            subscription.detach(holder)

    def close(self) -> None:
        """Close all subscriptions, without a word to ``onExpired``."""
        for subscription in self._byId.values():
            subscription.close()
        self._byId.clear()
        self._byHolder.clear()

    def _attached(self, holder: object, subscription: PolledSubscription) -> None:
        self._byHolder.setdefault(holder, {})[subscription.id] = subscription

    def _graceOver(self, subscription: PolledSubscription) -> None:
        del self._byId[subscription.id]
        dropped = subscription.close()
        if dropped:
            self._counted(DROPPED_EXPIRED, dropped)
        self._onExpired(subscription)
