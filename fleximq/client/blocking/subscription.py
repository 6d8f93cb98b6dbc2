"""What a blocking client's subscription looks like to the program."""

from collections.abc import Callable, Iterator

from fleximq.client.blocking.shared_connection import WireSocket
from fleximq.client.errors import ClientError
from fleximq.client.events import Delivery
from fleximq.client.protocol.inbox import Box, Inbox


class Subscription:
    """What is published to a topic or pattern, in order: iterate over it, or take one by one.

    Several threads may take from one subscription; each delivery goes to one of them.

    What waits here takes memory, for a thread that waits for something else reads what comes for this one as well.
    While more than ``prefetch`` bytes wait for all subscriptions together, threads that wait for deliveries leave the
    rest to the broker, to which the client is then a slow reader; a thread that waits for an answer reads on. A
    subscription for which more than 1 GiB waits is ended with :class:`~fleximq.client.errors.Overrun`.
    """

    def __init__(self, wire: WireSocket, inbox: Inbox, box: Box, end: Callable[[Box], None]) -> None:
        self._wire = wire
        self._lock = wire.lock
        self._inbox = inbox
        self._box = box
        self._end = end

    @property
    def topic(self) -> str:
        """The topic or pattern."""
        return self._box.topic

    @property
    def waiting(self) -> int:
        """How many deliveries came and were not taken."""
        return len(self._box.waiting)

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Delivery]:
        """Yield every delivery, waiting for each as long as it takes, until subscription or client are closed.

        Raises what :meth:`next` raises.
        """
        while (delivery := self.next()) is not None:
            yield delivery

    def next(self, timeout: float | None = None) -> Delivery | None:
        """Return the next delivery; None if none came within ``timeout`` seconds, or if this was closed.

        All that came is given before anything is raised.

        :raises ConnectionLost: the connection ended.
        :raises SubscribeFailed: the broker ended the subscription, for it cannot bring what comes next.
        :raises Overrun: far more came than was taken.
        """
        if self._box.waiting:
            with self._lock:
                delivery: Delivery | None = self._inbox.take(self._box)
            if delivery is not None:
                return delivery
        found = self._wire.waitFor(self._news, timeout, needed=False)
        return None if isinstance(found, bool) else found

    def _news(self) -> Delivery | bool | None:
        delivery: Delivery | None = self._inbox.take(self._box)
        if delivery is not None:
            return delivery
        end = self._box.end
        if isinstance(end, ClientError):
            raise end
        return end

    def close(self) -> None:
        """Subscribe no longer; what came before can still be taken."""
        self._end(self._box)
