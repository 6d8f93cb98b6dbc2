"""Waiting for the next entry of a box, of deliveries or of jobs, on an event loop."""

from collections.abc import Callable
from typing import Any, Protocol

from fleximq.client.loops.connection import Loop
from fleximq.client.protocol.completion import Pending, resolveAll


class WaitableBox(Protocol):
    """A box that tells its news: entries, or its ``end``, which is an error, True, or None while it is open."""

    end: Exception | bool | None
    onNews: Callable[[], None] | None


class BoxWaiting:
    """The part of an iterator that waits until its box has news; several tasks may wait for the same box."""

    def __init__(self, loop: Loop, box: Any) -> None:
        self._loop = loop
        self._box = box
        self._waiters: list[Pending[None]] = []

    async def _news(self, timeout: float | None, expected: str) -> bool:
        """Wait for news of an empty box, and return True; False after ``timeout`` seconds, or if the box has ended.

        :param expected: what the caller waits for, in words.
        :raises Exception: the error with which the box has ended.
        """
        box: WaitableBox = self._box
        if box.end is not None:
            if isinstance(box.end, Exception):
                raise box.end
            return False
        box.onNews = self._told
        try:
            await self._loop.waitAmong(self._waiters, timeout, expected)
        except TimeoutError:
            return False
        return True

    def _told(self) -> None:
        self._box.onNews = None
        resolveAll(self._waiters)
