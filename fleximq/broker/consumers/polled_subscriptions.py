"""All polled subscriptions, by id and by the connections that use them; they end after their grace time."""

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field

from fleximq.broker.consumers.polled_subscription import PolledSubscription
from fleximq.broker.queues.queue_factory import QueueFactory
from fleximq.broker.queues.queue_state import QueueState
from fleximq.errors import NotFound
from fleximq.values.counted_event import CountedEvent, EventFamily

__all__ = ["DROPPED_EXPIRED", "UNKNOWN", "PolledSubscription", "PolledSubscriptions"]

#: BlipMQ document, "Error Codes", 404.
UNKNOWN = "unknown subscription or delivery tag"
#: Counted for the messages dropped with a subscription.
DROPPED_EXPIRED = CountedEvent(EventFamily.DROPPED, "subscription expired")


@dataclass(eq=False, repr=False)
class PolledSubscriptions:
    """All polled subscriptions of a broker. ``lastId`` is the last id given.

    :param grace: seconds that a subscription outlives its last connection, ``durableGrace`` those of durable ones.
    :param onExpired: called with a subscription after its grace time, when it is closed and removed, and how many
        messages it dropped.
    """

    _makeQueue: QueueFactory
    _: KW_ONLY
    grace: float
    onExpired: Callable[[PolledSubscription, int], None] = lambda subscription, dropped: None
    durableGrace: float = 86400.0
    lastId: int = 0
    _byId: dict[int, PolledSubscription] = field(default_factory=dict)
    _byHolder: dict[object, dict[int, PolledSubscription]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._byId)

    def __iter__(self) -> Iterator[PolledSubscription]:
        """Iterate over all subscriptions in order of their ids; the loop may close them."""
        return iter(list(self._byId.values()))

    def open(
        self, holder: object, owner: str | None, topic: str, qos: int, durable: bool = False
    ) -> PolledSubscription:
        """Make a subscription for a connection, durable if asked and possible; the caller adds it to the topic."""
        self.lastId += 1
        subscription = self._add(self.lastId, owner, topic, qos, durable)
        subscription.attach(holder)
        return subscription

    def restore(self, state: QueueState, idle: float) -> PolledSubscription:
        """Restore a subscription, ``idle`` for so many seconds, from the journal's state and start its grace time."""
        self.lastId = max(self.lastId, state.id)
        subscription = self._add(state.id, state.owner, state.topic, state.qos, True)
        if subscription.queue.recorder is not None:
            subscription.queue.recorder.restore(state)
        subscription.rest(idle)
        return subscription

    def _add(self, id: int, owner: str | None, topic: str, qos: int, durable: bool) -> PolledSubscription:
        queue = self._makeQueue(topic, f"s:{id}" if durable else "", dropsOldest=False)
        subscription = self._byId[id] = PolledSubscription(
            id,
            owner,
            topic,
            qos,
            queue,
            deadlines=self._makeQueue.deadlines,
            grace=self.durableGrace if queue.durable else self.grace,
            counted=self._makeQueue.counted,
            onAttached=self._attached,
            onGraceOver=self._graceOver,
            timeToLive=self._makeQueue.timeToLiveOf(topic),
        )
        return subscription

    def find(self, id: int, owner: str | None) -> PolledSubscription:
        """Return the subscription with this id; raises NotFound if it does not exist or, not revealed, has another
        owner.
        """
        subscription = self._byId.get(id)
        if subscription is None or subscription.owner != owner:
            raise NotFound(UNKNOWN)
        return subscription

    def subscriptionCount(self, holder: object) -> int:
        """Return to how many subscriptions this connection is attached, by opening or by polling them."""
        return len(self._byHolder.get(holder, ()))

    def leave(self, holder: object) -> None:
        """Detach this connection from all its subscriptions."""
        for subscription in self._byHolder.pop(holder, {}).values():
            subscription.detach(holder)

    def detach(self, holder: object, wanted: Callable[[str], bool]) -> None:
        """Detach this connection from its subscriptions to topics for which ``wanted`` returns True."""
        held = self._byHolder.get(holder, {})
        for subscription in [each for each in held.values() if wanted(each.topic)]:
            del held[subscription.id]
            subscription.detach(holder)

    def _attached(self, holder: object, subscription: PolledSubscription) -> None:
        self._byHolder.setdefault(holder, {})[subscription.id] = subscription

    def _graceOver(self, subscription: PolledSubscription) -> None:
        del self._byId[subscription.id]
        dropped = subscription.close()
        if dropped:
            self._makeQueue.counted(DROPPED_EXPIRED, dropped)
        self.onExpired(subscription, dropped)
