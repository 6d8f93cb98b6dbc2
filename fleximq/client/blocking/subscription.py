"""The subscription of a blocking client."""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

from fleximq.client.blocking.shared_connection import SharedConnection
from fleximq.client.errors import ClientError
from fleximq.client.events import Delivery, Notification
from fleximq.client.protocol.inbox import Box, Inbox

M = TypeVar("M", bound=Delivery | Notification)


class Subscription(Generic[M]):
    """The messages of a topic or pattern, in order: iterate over it, or call :meth:`next`.

    Threads may share a subscription; one thread gets each delivery.

    Unread deliveries are held in memory, since a thread that reads from the connection reads for all. While the client
    holds more than ``prefetch`` bytes, threads that wait for deliveries stop reading, and the broker treats the client
    as a slow consumer; a thread that waits for an answer still reads. A subscription with more than 1 GiB of unread
    deliveries is ended with :class:`~fleximq.client.errors.Overrun`.
    """

    def __init__(self, connection: SharedConnection, inbox: Inbox, box: Box, end: Callable[[Box], None]) -> None:
        self._connection = connection
        self._lock = connection.lock
        self._inbox = inbox
        self._box = box
        self._end = end

    def __repr__(self) -> str:
        return f"<Subscription to {self._box.topic or 'notifications'}, {self.waiting} waiting>"

    @property
    def topic(self) -> str:
        """The topic or pattern; "" for notifications."""
        return self._box.topic

    @property
    def waiting(self) -> int:
        """The number of unread deliveries."""
        return len(self._box.waiting)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[M]:
        """Yield each delivery, waiting without a limit, until the subscription or the client is closed.

        Raises the errors of :meth:`next`.
        """
        while (delivery := self.next()) is not None:
            yield delivery

    def next(self, timeout: float | None = None) -> M | None:
        """Return the next delivery; None after ``timeout`` seconds without one, or if this is closed.

        Errors are raised after the last unread delivery was returned.

        :raises ConnectionLost: the connection ended.
        :raises SubscribeFailed: the broker ended the subscription, since it cannot deliver the next message.
        :raises Overrun: too many deliveries were unread.
        """
        if self._box.waiting:
            with self._lock:
                delivery: M | None = self._inbox.take(self._box)
            if delivery is not None:
                return delivery
        found = self._connection.waitFor(self._news, timeout, needed=False)
        return None if isinstance(found, bool) else found

    def _news(self) -> M | bool | None:
        delivery: M | None = self._inbox.take(self._box)
        if delivery is not None:
            return delivery
        end = self._box.end
        if isinstance(end, ClientError):
            raise end
        return end

    def close(self) -> None:
        """Unsubscribe; unread deliveries can still be read."""
        self._end(self._box)
