"""Lets programs that wait use what was written for an event loop: one loop in a thread of its own for the process.

It begins with the first client and goes on until the process ends; after a fork the child has one of its own.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from fleximq.client.errors import ConnectionLost
from fleximq.client.loops.asyncio_loop import AsyncioLoop
from fleximq.client.loops.interfaces import Loop

P = ParamSpec("P")
T = TypeVar("T")


class LoopThread:
    """A loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self.loop: Loop = AsyncioLoop(self._loop)
        self._thread = threading.Thread(target=self._loop.run_forever, name="fleximq-queues", daemon=True)
        self._thread.start()

    @property
    def isMine(self) -> bool:
        """Whether it runs in this process, and not in the one that this was forked from."""
        return self._pid == os.getpid()

    def run(self, function: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **more: P.kwargs) -> T:
        """Run a coroutine function in the loop, and return its result; if the wait is interrupted, it is ended.

        :raises ConnectionLost: the client was made by the process that this one was forked from.
        :raises RuntimeError: the loop's own thread, in which callbacks run, must not wait for itself.
        """
        if not self.isMine:
            raise ConnectionLost("the client belongs to the process that this one was forked from")
        if threading.current_thread() is self._thread:
            raise RuntimeError("a callback must not wait for the client: do that in another thread")
        future = asyncio.run_coroutine_threadsafe(function(*arguments, **more), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
        """Call a function in the loop, and return its result; errors as :meth:`run`."""

        async def called() -> T:
            return function(*arguments, **more)

        return self.run(called)


_lock = threading.Lock()
_current: LoopThread | None = None


def theThread() -> LoopThread:
    """Return this process's own."""
    global _current
    with _lock:
        if _current is None or not _current.isMine:
            _current = LoopThread()
        return _current


async def inThread(function: Callable[[Any], T], argument: Any) -> T:
    """Call a function in a thread of its own, and return its result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(set: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            set(value)

    def work() -> None:
        try:
            told = (future.set_result, function(argument))
        except Exception as error:
            told = (future.set_exception, error)  # type: ignore[assignment]
        loop.call_soon_threadsafe(settle, *told)

    threading.Thread(target=work, name="fleximq-serving", daemon=True).start()
    return await future
