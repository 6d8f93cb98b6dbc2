"""Unread messages for the channels of one process. They are put in any thread, and received on any event loop."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Lock

#: A future of a receiver, which wakes it.
Waiter = asyncio.Future[None]


class _Mailbox:
    """The messages of one channel with the times at which they expire, and the receivers that wait for one."""

    __slots__ = ("messages", "waiters")

    def __init__(self) -> None:
        self.messages: deque[tuple[float, bytes]] = deque()
        self.waiters: deque[Waiter] = deque()

    def expire(self, now: float) -> None:
        """Drop the messages that are too old."""
        while self.messages and self.messages[0][0] <= now:
            self.messages.popleft()

    def next(self) -> list[Waiter]:
        """Remove and return the receiver that waits longest and whose event loop is open, if there is one."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.get_loop().is_closed():
                return [waiter]
        return []


class Mailboxes:
    """The channels of one process that have unread messages or receivers; messages expire after ``expiry`` seconds."""

    def __init__(self, expiry: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._expiry = expiry
        self._clock = clock
        self._lock = Lock()
        self._boxes: dict[str, _Mailbox] = {}
        self._nextSweep = clock() + expiry

    def __len__(self) -> int:
        return len(self._boxes)

    def put(self, channels: Iterable[str], payload: bytes, capacityOf: Callable[[str], int]) -> int:
        """Add a message for some channels; return how many of them are full, and do not get it."""
        full, waiters = 0, []
        with self._lock:
            now = self._clock()
            self._sweep(now)
            message = now + self._expiry, payload
            for channel in channels:
                box = self._boxes.get(channel)
                if box is None:
                    box = self._boxes[channel] = _Mailbox()
                box.expire(now)
                if len(box.messages) >= capacityOf(channel):
                    full += 1
                else:
                    box.messages.append(message)
                    waiters += box.next()
        _resolve(waiters, None)
        return full

    async def get(self, channel: str) -> bytes:
        """Remove and return the next message of a channel; a cancelled call removes none."""
        while True:
            with self._lock:
                box = self._boxes.setdefault(channel, _Mailbox())
                box.expire(self._clock())
                if box.messages:
                    _, payload = box.messages.popleft()
                    self._forget(channel, box)
                    return payload
                waiter = asyncio.get_running_loop().create_future()
                box.waiters.append(waiter)
            try:
                await waiter
            except BaseException:
                with self._lock:
                    if waiter in box.waiters:
                        box.waiters.remove(waiter)
                    elif box.messages:  # it was woken for a message that it does not take
                        _resolve(box.next(), None)
                    self._forget(channel, box)
                raise

    def clear(self) -> None:
        """Drop all messages; receivers go on waiting."""
        with self._lock:
            for channel, box in tuple(self._boxes.items()):
                box.messages.clear()
                self._forget(channel, box)

    def fail(self, error: Exception) -> None:
        """Raise an error in all receivers that wait."""
        with self._lock:
            for channel, box in tuple(self._boxes.items()):
                waiters, box.waiters = box.waiters, deque()
                _resolve(waiters, error)
                self._forget(channel, box)

    def _sweep(self, now: float) -> None:
        """Forget the expired messages of all channels, once in ``expiry`` seconds."""
        if now >= self._nextSweep:
            self._nextSweep = now + self._expiry
            for channel, box in tuple(self._boxes.items()):
                box.expire(now)
                self._forget(channel, box)

    def _forget(self, channel: str, box: _Mailbox) -> None:
        if not box.messages and not box.waiters and self._boxes.get(channel) is box:
            del self._boxes[channel]


def _resolve(waiters: Iterable[Waiter], error: Exception | None) -> None:
    """Complete futures on their event loops, with one call for each loop."""
    byLoop: dict[asyncio.AbstractEventLoop, list[Waiter]] = {}
    for waiter in waiters:
        byLoop.setdefault(waiter.get_loop(), []).append(waiter)
    for loop, several in byLoop.items():
        with suppress(RuntimeError):  # it is closed
            loop.call_soon_threadsafe(_complete, several, error)


def _complete(waiters: list[Waiter], error: Exception | None) -> None:
    for waiter in waiters:
        if not waiter.done():
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)
