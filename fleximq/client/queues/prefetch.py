"""Messages that a client must request: a few are prefetched, and each is acknowledged on the next request.

An empty queue is polled again after growing delays; a new request polls it at once.
"""

import logging
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from fleximq.client.backoff import Backoff
from fleximq.client.contexts import MessageIterator
from fleximq.client.errors import ClientError, ConnectionLost
from fleximq.client.protocol.completion import Pending, resolveAll
from fleximq.client.queues.reconnecting_link import ReconnectingLink
from fleximq.client.settings import State
from fleximq.errors import SettingError

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Pulled(MessageIterator[T]):
    """The messages of a queue: iterate over it, or call :meth:`next`.

    A message is acknowledged when the next one is requested, so after the body of the loop. If the loop ends early, by
    ``break`` or an error, its last message is not acknowledged, and the broker delivers it again. ``prefetch`` limits
    the prefetched messages (SettingError below 1), ``idle`` has the delays between polls of an empty queue.
    """

    def __init__(self, link: ReconnectingLink, prefetch: int, idle: Backoff) -> None:
        if prefetch < 1:
            raise SettingError(f"prefetch is {prefetch}, but must be at least 1")
        self._link = link
        self._prefetch = prefetch
        self._idle = idle
        self._fetched: deque[T] = deque()
        self._delivered: list[T] = []
        self._waiters: list[Pending[None]] = []
        self._callers = 0
        self._rounds = 0
        self._isFetching = self._isEmpty = self._isClosed = False
        self._error: ClientError | None = None
        self._pauses: Iterator[float] | None = None
        #: Ends the current pause.
        self._wake: Pending[None] = Pending()

    @property
    def waiting(self) -> int:
        """The number of fetched messages that are unread."""
        return len(self._fetched)

    async def next(self, timeout: float | None = None) -> T | None:
        """Acknowledge the previous messages, and return the next one; None if there is none, or this is closed.

        :param timeout: seconds; with 0 the broker is asked once. None: no limit.
        :raises ConnectionLost: the connection ended, and the client will not reconnect.
        :raises SubscribeFailed: or ConsumeFailed: the broker refuses, or does not know the subscription.
        """
        found = await self.next_many(1, timeout)
        return found[0] if found else None

    async def next_many(self, most: int, timeout: float | None = None) -> list[T]:
        """Return 1 to ``most`` messages, which are acknowledged together; otherwise as :meth:`next`."""
        handed, self._delivered = self._delivered, []
        if handed:
            self._acknowledge(handed)
        if not self._fetched:
            self._callers += 1
            try:
                await self._waitForMessages(timeout)
            finally:
                self._callers -= 1
        found = [self._fetched.popleft() for _ in range(min(most, len(self._fetched)))]
        self._delivered += found
        if found and not self._isEmpty and 2 * len(self._fetched) < self._prefetch and self._prefetch > 1:
            self._startFetching()
        return found

    def ack(self, message: T) -> None:
        """Acknowledge a message now instead of on the next request."""
        with suppress(ValueError):
            self._delivered.remove(message)
            self._acknowledge([message])

    def leave(self, message: T) -> None:
        """Do not acknowledge a message; the broker delivers it again."""
        with suppress(ValueError):
            self._delivered.remove(message)

    def close(self) -> None:
        """Fetch no more messages; those already fetched can still be read."""
        self._isClosed = True
        self._wakeWaiters()

    @abstractmethod
    async def _fetch(self, most: int) -> int:
        """Request up to ``most`` messages once, add them to ``_fetched``, and return their number."""

    @abstractmethod
    def _acknowledge(self, messages: Sequence[T]) -> None:
        """Acknowledge these messages."""

    def _ended(self, why: ClientError | None) -> None:
        """Handle the end of the client; ``why`` is None if the program has closed it."""
        if why is None:
            self._fetched.clear()
            self._delivered.clear()
            self._isClosed = True
        elif self._error is None:
            self._error = why
        self._wakeWaiters()

    async def _waitForMessages(self, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        rounds = self._rounds
        isFirst = True
        while not self._fetched:
            if self._error is not None:
                raise self._error
            left = None if deadline is None else deadline - time.monotonic()
            if self._isClosed or (left is not None and left <= 0 and self._rounds > rounds):
                return
            if left is not None and left <= 0:
                left = self._link._settings.timeout
            told: Pending[None] = Pending()
            self._waiters.append(told)
            try:
                self._startFetching(isFirst)
                isFirst = False
                await self._link._loop.wait(told, left, "a message")
            except TimeoutError:
                return
            finally:
                with suppress(ValueError):
                    self._waiters.remove(told)

    def _startFetching(self, isUrgent: bool = False) -> None:
        if not self._isFetching:
            self._isFetching = True
            self._link._loop.start(self._fetchLoop())
        elif isUrgent:
            self._wake.succeed(None)

    async def _fetchLoop(self) -> None:
        """Fetch until a message arrives or no caller waits."""
        try:
            while not self._isClosed and self._error is None:
                if await self._fetchOnce() or self._fetched or not self._callers:
                    return
                await self._pause()
                if not self._callers:
                    return
        except Exception:
            _log.exception("Fetching messages failed")
            self._error = ConnectionLost("fetching messages failed; the log says how")
        finally:
            self._isFetching = False
            self._wakeWaiters()

    async def _fetchOnce(self) -> int:
        most = self._prefetch - len(self._fetched)
        try:
            await self._link._waitUntilJoined(None)
            came = await self._fetch(most)
        except ClientError as error:
            isEnd = self._link.state is State.CLOSED and self._error is None and not self._isClosed
            if isEnd or not isinstance(error, ConnectionLost):
                self._error = error
            return 0
        self._rounds += 1
        self._isEmpty = came < most
        if came:
            self._pauses = None
        self._wakeWaiters()
        return came

    async def _pause(self) -> None:
        if self._link.state is not State.JOINED:
            return
        self._pauses = self._pauses or self._idle.pauses()
        self._wake = Pending()
        with suppress(TimeoutError):
            await self._link._loop.wait(self._wake, next(self._pauses, self._idle.most), "")

    def _wakeWaiters(self) -> None:
        resolveAll(self._waiters)
        if self._isClosed:
            self._wake.succeed(None)
