"""All subscriptions that are polled, by id and by the connections that use them.

What one of them does is in :mod:`fleximq.broker.subscription`; here they get their numbers, are found by their
owners only, and end when their grace time is over.
"""

from collections.abc import Callable, Iterator
from functools import partial

from fleximq.broker.deadlines import Deadlines
from fleximq.broker.queues import Queue
from fleximq.broker.subscription import Subscription
from fleximq.errors import NotFound
from fleximq.message import Message

__all__ = ["DROPPED_EXPIRED", "UNKNOWN", "Subscription", "Subscriptions"]

#: BlipMQ document, "Error Codes", 404.
UNKNOWN = "unknown subscription or delivery tag"
#: What is counted when a subscription takes messages with it.
DROPPED_EXPIRED = "dropped: subscription expired"


class Subscriptions:
    """All subscriptions of a broker, by id and by the connections that use them.

    :param retryAfter: seconds after which an unacknowledged message comes again.
    :param maxDeliveries: after so many deliveries a message is dead.
    :param maxMessages: bound of one subscription.
    :param maxBytes: bound of one subscription in bytes.
    :param grace: seconds that a subscription lives on after its last connection.
    :param onDead: is given the topic and the dead message.
    :param counted: is told what is worth counting.
    :param onExpired: is given a subscription whose grace time is over, when it is closed and no longer found.
    """

    def __init__(
        self,
        deadlines: Deadlines,
        *,
        retryAfter: float,
        maxDeliveries: int,
        maxMessages: int,
        maxBytes: int,
        grace: float,
        onDead: Callable[[str, Message], None] | None,
        counted: Callable[[str, int], None],
        onExpired: Callable[[Subscription], None],
    ) -> None:
        self._makeQueue = partial(
            Queue,
            deadlines=deadlines,
            retryAfter=retryAfter,
            maxDeliveries=maxDeliveries,
            maxMessages=maxMessages,
            maxBytes=maxBytes,
            onDead=onDead,
            counted=counted,
            dropsOldest=False,
        )
        self._deadlines = deadlines
        self._grace = grace
        self._counted = counted
        self._onExpired = onExpired
        self._lastId = 0
        self._byId: dict[int, Subscription] = {}
        self._byHolder: dict[object, dict[int, Subscription]] = {}

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return len(self._byId)

    def __iter__(self) -> Iterator[Subscription]:
        """Iterate over all subscriptions in order of their ids; the loop may close them."""
        return iter(list(self._byId.values()))

    def open(self, holder: object, owner: str | None, topic: str, qos: int) -> Subscription:
        """Make a new subscription and attach the holder, any hashable object that stands for a connection.

        The caller subscribes it to the topic. The same topic twice gives two subscriptions.
        """
        self._lastId += 1
        subscription = self._byId[self._lastId] = Subscription(
            self._lastId,
            owner,
            topic,
            qos,
            self._makeQueue(name=topic),
            deadlines=self._deadlines,
            grace=self._grace,
            counted=self._counted,
            onAttached=self._attached,
            onGraceOver=self._graceOver,
        )
        subscription.attach(holder)
        return subscription

    def find(self, id: int, owner: str | None) -> Subscription:
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

    def close(self) -> None:
        """Close all subscriptions, without a word to ``onExpired``."""
        for subscription in self._byId.values():
            subscription.close()
        self._byId.clear()
        self._byHolder.clear()

    def _attached(self, holder: object, subscription: Subscription) -> None:
        self._byHolder.setdefault(holder, {})[subscription.id] = subscription

    def _graceOver(self, subscription: Subscription) -> None:
        del self._byId[subscription.id]
        dropped = subscription.close()
        if dropped:
            self._counted(DROPPED_EXPIRED, dropped)
        self._onExpired(subscription)
