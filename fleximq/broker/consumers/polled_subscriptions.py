"""All polled subscriptions: clients open and find them; without a connection they end after their grace time."""

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field

from fleximq.broker.authorization import permit, permits
from fleximq.broker.consumers.polled_subscription import PolledSubscription
from fleximq.broker.consumers.state_log import StateLog
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.queues.queue_factory import QueueFactory
from fleximq.broker.queues.queue_state import QueueState
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.errors import NoCapacity, NotFound, SubscriptionFailed
from fleximq.interfaces import IJournal
from fleximq.limits import SYSTEM, Limits
from fleximq.rights import Action
from fleximq.values.counted_event import CountedEvent, EventFamily

#: BlipMQ document, "Error Codes", 404.
UNKNOWN = "unknown subscription or delivery tag"
#: Counted for the messages dropped with a subscription.
DROPPED_EXPIRED = CountedEvent(EventFamily.DROPPED, "subscription expired")


def journalFault(journal: IJournal) -> str | None:
    """Return the reason why the journal is read-only; None if it is writable."""
    health = journal.health()
    return None if health["state"] == "ok" else str(health["reason"])


@dataclass(eq=False, repr=False)
class PolledSubscriptions:
    """All polled subscriptions of a broker; those over a limit that was reduced remain.

    ``lastId`` is the last id given. ``onExpired`` is called with a subscription after its grace time, when it is closed
    and removed, and how many messages it dropped.

    :param grace: seconds that a subscription outlives its last connection, ``durableGrace`` those of durable ones.
    """

    _makeQueue: QueueFactory
    _topics: TopicTable
    _stateLog: StateLog
    _: KW_ONLY
    limits: Limits
    grace: float
    durableGrace: float = 86400.0
    onExpired: Callable[[PolledSubscription, int], None] = lambda subscription, dropped: None
    lastId: int = 0
    _byId: dict[int, PolledSubscription] = field(default_factory=dict)
    _byHolder: dict[object, dict[int, PolledSubscription]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._byId)

    def __iter__(self) -> Iterator[PolledSubscription]:
        """Iterate over all subscriptions in order of their ids; the loop may close them."""
        return iter(list(self._byId.values()))

    def open(self, client: ConnectedClient, owner: str | None, name: str, qos: int) -> PolledSubscription:
        """Make a polled subscription with a queue of its own, which its owner may poll from any connection.

        :raises InvalidTopic: the name is empty or longer than 1,024 bytes.
        :raises NotPermitted: the client may not subscribe to it.
        :raises SubscriptionFailed: the client has the maximum number of subscriptions, or the journal is read-only.
        :raises NoCapacity: the broker has the maximum number, including those that outlive their connection; or the
            client's principal may make no more topics.
        """
        permit(client, Action.SUBSCRIBE, name)
        if len(self._byId) >= self.limits.queues:
            raise NoCapacity(f"there are {len(self._byId)} subscriptions already")
        if self.subscriptionCount(client) >= self.limits.subscriptions:
            raise SubscriptionFailed(f"more than {self.limits.subscriptions} subscriptions")
        limits = client.rights.limits
        self._topics.make(name, client.principal, limits.topics)
        durable = self._mustBeDurable(qos, name)
        self.lastId += 1
        subscription = self._add(self.lastId, owner, name, qos, durable)
        subscription.attach(client)
        if limits.queueBytes is not None:
            bounds = subscription.queue.bounds
            bounds.maxBytes = min(bounds.maxBytes, limits.queueBytes)
        self._stateLog.opened(subscription)
        self._topics.subscribe(subscription, name, guard=subscription if qos else None, durable=subscription.durable)
        return subscription

    def _mustBeDurable(self, qos: int, name: str) -> bool:
        journal = self._stateLog.journal
        if not qos or not journal.onDisk or name.startswith(SYSTEM):
            return False
        reason = journalFault(journal)
        if reason is not None:
            raise SubscriptionFailed(f"the subscription cannot be kept: {reason}")
        return True

    def restore(self, state: QueueState, idle: float) -> PolledSubscription:
        """Restore a subscription, ``idle`` for so many seconds, from the journal's state and start its grace time."""
        self.lastId = max(self.lastId, state.id)
        subscription = self._add(state.id, state.owner, state.topic, state.qos, True)
        if subscription.queue.recorder is not None:
            subscription.queue.recorder.restore(state)
        subscription.rest(idle)
        return subscription

    def _add(self, subscriptionId: int, owner: str | None, topic: str, qos: int, durable: bool) -> PolledSubscription:
        key = f"s:{subscriptionId}" if durable else ""
        queue = self._makeQueue(topic, key, dropsOldest=False, subscriptionId=subscriptionId)
        subscription = self._byId[subscriptionId] = PolledSubscription(
            subscriptionId,
            owner,
            topic,
            qos,
            queue,
            deadlines=self._makeQueue.deadlines,
            grace=self.durableGrace if queue.durable else self.grace,
            counted=self._makeQueue.counted,
            onAttached=self._attached,
            onGraceOver=self._graceOver,
            onDisk=self._stateLog.journal.onDisk,
            timeToLive=self._makeQueue.timeToLiveOf(topic),
        )
        return subscription

    def get(self, subscriptionId: int) -> PolledSubscription | None:
        """Return the subscription with this id, whatever its owner; None if it does not exist."""
        return self._byId.get(subscriptionId)

    def find(self, subscriptionId: int, owner: str | None) -> PolledSubscription:
        """Return the subscription with this id; raises NotFound if it does not exist or, not revealed, has another
        owner.
        """
        subscription = self._byId.get(subscriptionId)
        if subscription is None or subscription.owner != owner:
            raise NotFound(UNKNOWN)
        return subscription

    def permitted(self, client: ConnectedClient, owner: str | None, subscriptionId: int) -> PolledSubscription:
        """As :meth:`find`; raises NotPermitted if the client may not subscribe to its topic any more."""
        subscription = self.find(subscriptionId, owner)
        permit(client, Action.SUBSCRIBE, subscription.topic)
        return subscription

    def subscriptionCount(self, holder: object) -> int:
        """Return to how many subscriptions this connection is attached, by opening or by polling them."""
        return len(self._byHolder.get(holder, ()))

    def leave(self, holder: object) -> None:
        """Detach this connection from all its subscriptions."""
        for subscription in self._byHolder.pop(holder, {}).values():
            subscription.detach(holder)

    def narrow(self, client: ConnectedClient) -> None:
        """Detach a client from the subscriptions that it may not poll any more, as if it had left."""
        held = self._byHolder.get(client, {})
        for subscription in [each for each in held.values() if not permits(client, Action.SUBSCRIBE, each.topic)]:
            del held[subscription.id]
            subscription.detach(client)

    def _attached(self, holder: object, subscription: PolledSubscription) -> None:
        self._byHolder.setdefault(holder, {})[subscription.id] = subscription

    def _graceOver(self, subscription: PolledSubscription) -> None:
        del self._byId[subscription.id]
        dropped = subscription.close()
        if dropped:
            self._makeQueue.counted(DROPPED_EXPIRED, dropped)
        self._stateLog.ended(subscription)
        self._topics.unsubscribe(subscription, subscription.topic)
        self.onExpired(subscription, dropped)
