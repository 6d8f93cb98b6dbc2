"""Which subscriptions and work queues there are, told to the journal as they begin and end."""

from fleximq.broker.consumers.polled_subscriptions import Subscription
from fleximq.broker.consumers.polled_subscriptions import keyOf as keyOfSubscription
from fleximq.broker.consumers.work_queues import TopicQueue
from fleximq.broker.consumers.work_queues import keyOf as keyOfQueue
from fleximq.interfaces import IJournal
from fleximq.values.records import Closed, Opened

#: The key of notes that say up to which id subscriptions may have been opened, those included that do not last.
IDS = "i:"
#: So many of these ids are noted at a time.
_BLOCK = 1000


class Openings:
    """Notes what is to be there again after a restart.

    ``lastId`` is the last id of a subscription that may have been given, as far as the journal knows.
    """

    def __init__(self, journal: IJournal) -> None:
        self.lastId = 0
        self._journal = journal

    def subscribed(self, subscription: Subscription) -> None:
        """Note that a subscription was opened, or at least that its id was given."""
        if subscription.kept:
            key, owner = keyOfSubscription(subscription.id), subscription.owner
            self._opened(key, subscription.topic, subscription.qos, subscription.id, owner)
        elif subscription.id > self.lastId:
            self.lastId = subscription.id + _BLOCK
            self._opened(IDS, "", 0, self.lastId, None)

    def subscriptionExpired(self, subscription: Subscription) -> None:
        """Note that a subscription has expired."""
        if subscription.kept:
            self._journal.note(Closed(keyOfSubscription(subscription.id)))

    def queueOpened(self, queue: TopicQueue) -> None:
        """Note that a topic has a queue."""
        if queue.kept:
            self._opened(keyOfQueue(queue.name), queue.name, 1, 0, None)

    def queueExpired(self, queue: TopicQueue) -> None:
        """Note that a topic's queue has expired."""
        if queue.kept:
            self._journal.note(Closed(keyOfQueue(queue.name)))

    def _opened(self, key: str, topic: str, qos: int, id: int, owner: str | None) -> None:
        self._journal.note(Opened(key, topic, qos, id, owner, self._journal.end))
