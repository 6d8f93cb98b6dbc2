"""Polled subscriptions as clients use them: rights, limits, topics and the journal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fleximq.broker.authorization import permit, permits
from fleximq.broker.consumers.polled_subscriptions import PolledSubscription, PolledSubscriptions
from fleximq.broker.consumers.state_log import StateLog
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.topics.topic_table import SYSTEM, TopicTable
from fleximq.errors import NoCapacity, SubscriptionFailed
from fleximq.interfaces import IJournal
from fleximq.limits import Limits
from fleximq.rights import Action
from fleximq.values.message import Message
from fleximq.values.message_cost import ANY


def journalFault(journal: IJournal) -> str | None:
    """Return the reason why the journal is read-only; None if it is writable."""
    health = journal.health()
    return None if health["state"] == "ok" else str(health["reason"])


@dataclass(eq=False, repr=False)
class SubscriptionAccess:
    """Opens, polls and ends all polled subscriptions; those over a limit that was reduced remain.

    ``onDropped`` is called with id, topic and messages of an expired durable subscription.
    """

    limits: Limits
    _journal: IJournal
    _topics: TopicTable
    _stateLog: StateLog
    subscriptions: PolledSubscriptions
    onDropped: Callable[[int, str, int], None] = lambda id, topic, number: None

    def __post_init__(self) -> None:
        self.subscriptions.onExpired = self._expired

    def open(self, client: ConnectedClient, owner: str | None, name: str, qos: int) -> PolledSubscription:
        """Make a polled subscription with a queue of its own, which its owner may poll from any connection.

        :raises InvalidTopic: the name is empty or longer than 1,024 bytes.
        :raises NotPermitted: the client may not subscribe to it.
        :raises SubscriptionFailed: the client has the maximum number of subscriptions, or the journal is read-only.
        :raises NoCapacity: the broker has the maximum number, including those that outlive their connection; or the
            client's principal may make no more topics.
        """
        permit(client, Action.SUBSCRIBE, name)
        subscriptions = self.subscriptions
        if len(subscriptions) >= self.limits.queues:
            raise NoCapacity(f"there are {len(subscriptions)} subscriptions already")
        if subscriptions.subscriptionCount(client) >= self.limits.subscriptions:
            raise SubscriptionFailed(f"more than {self.limits.subscriptions} subscriptions")
        limits = client.rights.limits
        self._topics.make(name, client.principal, limits.topics)
        subscription = subscriptions.open(client, owner, name, qos, self._mustBeDurable(qos, name))
        if limits.queueBytes is not None:
            subscription.queue.maxBytes = min(subscription.queue.maxBytes, limits.queueBytes)
        self._stateLog.opened(subscription)
        self._topics.subscribe(subscription, name, guard=subscription if qos else None, durable=subscription.durable)
        return subscription

    def _mustBeDurable(self, qos: int, name: str) -> bool:
        if not qos or not self._journal.onDisk or name.startswith(SYSTEM):
            return False
        reason = journalFault(self._journal)
        if reason is not None:
            raise SubscriptionFailed(f"the subscription cannot be kept: {reason}")
        return True

    def poll(
        self, client: ConnectedClient, owner: str | None, id: int, number: int, most: int = ANY
    ) -> tuple[Sequence[int], Sequence[Message]]:
        """Deliver up to ``number`` messages of a subscription, until they cost ``most``; return tags and messages.

        :raises NotFound: the subscription does not exist, or has another owner.
        :raises NotPermitted: the client may not subscribe to its topic any more.
        """
        subscription = self.subscriptions.find(id, owner)
        permit(client, Action.SUBSCRIBE, subscription.topic)
        subscription.attach(client)
        polled = subscription.pollMany(client, number, most)
        if polled[0] and subscription.durable:
            client.consumed = True
        return polled

    def loading(self, owner: str | None, id: int) -> PolledSubscription | None:
        """Return the subscription if its next message must first be read from the journal; raises NotFound as
        :meth:`poll`.
        """
        subscription = self.subscriptions.find(id, owner)
        return subscription if subscription.preparing else None

    def acknowledge(
        self, owner: str | None, id: int, tags: list[int], client: ConnectedClient | None = None
    ) -> list[int]:
        """Acknowledge messages, which ``client`` can wait for, and return the unknown tags; errors as :meth:`poll`."""
        subscription = self.subscriptions.find(id, owner)
        if client is not None:
            permit(client, Action.SUBSCRIBE, subscription.topic)
            client.consumed = client.settled = self._journal.onDisk
        return subscription.queue.acknowledgeMany(tags)

    def narrow(self, client: ConnectedClient) -> None:
        """Detach a client from the subscriptions that it may not poll any more, as if it had left."""
        self.subscriptions.detach(client, lambda topic: not permits(client, Action.SUBSCRIBE, topic))

    def _expired(self, subscription: PolledSubscription, dropped: int) -> None:
        self._stateLog.ended(subscription)
        self._topics.unsubscribe(subscription, subscription.topic)
        if dropped and subscription.durable:
            self.onDropped(subscription.id, subscription.topic, dropped)
