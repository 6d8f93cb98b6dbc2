"""The subscriptions of clients in the process: iterate over the messages, or pass each to a function."""

from collections.abc import Callable
from inspect import isawaitable
from typing import Any, Generic, Protocol, Self, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from fleximq.client.contexts import AsyncClosedOnExit
from fleximq.client.events import Delivery, Notification
from fleximq.client.jobs import Job
from fleximq.client.protocol.inbox import BoxReader
from fleximq.errors import BrokerError

_log = Logger()
M = TypeVar("M", bound=Delivery | Notification | Job)


class Boxes(Protocol):
    """The boxes of one client."""

    def take(self, box: Any) -> Any:
        """Remove and return the next message of a box that has some."""


class Subscription(BoxReader, AsyncClosedOnExit, Generic[M]):
    """The messages of a topic or pattern, in order: iterate over it with ``async for``, or call :meth:`next`.

    A subscription with more than ``prefetch`` unread bytes ends: after the last unread message, SubscriptionFailed is
    raised. One with ``from_`` never has more: it reads the journal only as fast as the program reads the messages. Of
    notifications, those over ``prefetch`` bytes are dropped.

    :param box: the unread messages.
    :param inbox: has the box: for messages, the client's inbox, which counts the bytes of all boxes.
    :param close: called with the box to unsubscribe.
    """

    def __init__(self, box: Any, inbox: Boxes, clock: IReactorTime, close: Callable[[Any], None]) -> None:
        self._box = box
        self._inbox = inbox
        self._clock = clock
        self._close = close
        self._waiting: list[Deferred[None]] = []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M:
        message: M | None = self._inbox.take(self._box) if self._box.waiting else await self._next(None)
        if message is None:
            raise StopAsyncIteration
        return message

    def next(self, timeout: float | None = None) -> "Deferred[M | None]":
        """Fire with the next message; with None after ``timeout`` seconds without one, or if the subscription is
        closed.

        :raises SubscriptionFailed: more than ``prefetch`` bytes were unread, or the subscription is not permitted any
            more.
        :raises NoLongerKept: the next message was removed from the journal.
        """
        return Deferred.fromCoroutine(self._next(timeout))

    async def _next(self, timeout: float | None) -> M | None:
        box = self._box
        while not box.waiting:
            if isinstance(box.end, Exception):
                raise box.end
            if box.end is not None or not await self._news(timeout):
                return None
        return self._inbox.take(box)  # type: ignore[no-any-return]

    async def _news(self, timeout: float | None) -> bool:
        """Wait for a message or the end of the subscription; return False after ``timeout`` seconds without either."""
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        self._box.onNews = self._told
        isLate = False

        def giveUp() -> None:
            nonlocal isLate
            isLate = True
            waiting.cancel()

        timer = None if timeout is None else self._clock.callLater(timeout, giveUp)
        try:
            await waiting
        except CancelledError:
            if not isLate:
                raise
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            if timer is not None and timer.active():
                timer.cancel()
        return not isLate

    def _told(self) -> None:
        self._box.onNews = None
        self._clock.callLater(0, self._wake)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)

    @property
    def isClosed(self) -> bool:
        """Whether this was closed, by the program or with its client; False after an error."""
        return self._box.end is True

    def close(self) -> None:
        """Unsubscribe; unread messages can still be read."""
        self._close(self._box)


async def passTo(function: Callable[[Any], Any], subscription: Subscription[Any]) -> None:
    """Call a function with each message, one at a time, until the subscription is closed; exceptions are logged, and
    its end after an error.
    """
    try:
        async for message in subscription:
            if subscription.isClosed:
                return
            try:
                result = function(message)
                if isawaitable(result):
                    await result
            except Exception:
                _log.failure("The function for messages of {topic} failed", topic=subscription.topic)
    except BrokerError as error:
        _log.error("The subscription to {topic} has ended: {error}", topic=subscription.topic, error=error)
