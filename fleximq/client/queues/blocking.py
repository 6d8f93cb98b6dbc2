"""Blocking wrappers shared by the BlipMQ and MiniMQ clients, and the event loop that they use.

One loop per process runs in a background thread, from the first client on. A forked child gets its own.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import cache
from typing import Any, Generic, ParamSpec, Self, TypeVar

from fleximq.client.contexts import ClosedOnExit
from fleximq.client.errors import ConnectionLost
from fleximq.client.loops.asyncio_loop import AsyncioLoop
from fleximq.client.loops.connection import Loop
from fleximq.client.queues.prefetch import Pulled
from fleximq.client.reconnecting import Reconnecting
from fleximq.client.settings import TIMEOUT, State
from fleximq.client.topic_warnings import LOOP_THREAD
from fleximq.client.wrapper import BlockingClient, Wrapper

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class LoopThread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self.loop: Loop = AsyncioLoop(self._loop)
        self._thread = threading.Thread(target=self._loop.run_forever, name=LOOP_THREAD, daemon=True)
        self._thread.start()

    @property
    def isMine(self) -> bool:
        """Whether it runs in this process, not in the parent of a fork."""
        return self._pid == os.getpid()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the loop, and return its result; an interrupt cancels it.

        Raises ConnectionLost in a forked child, and RuntimeError in the loop's own thread, where callbacks run.
        """
        if not self.isMine:
            work.close()
            raise ConnectionLost("the client belongs to the parent of this process: connect again")
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a callback must not wait for the client; use another thread")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(
        self, function: Callable[Arguments, Result], *arguments: Arguments.args, **more: Arguments.kwargs
    ) -> Result:
        """Call a function in the loop, and return its result; errors as :meth:`run`."""

        async def called() -> Result:
            return function(*arguments, **more)

        return self.run(called())


_lock = threading.Lock()
_loopOf = cache(lambda process: LoopThread())


def loopThread() -> LoopThread:
    """Return the loop of this process."""
    with _lock:
        return _loopOf(os.getpid())


async def inThread(function: Callable[[Any], Result], argument: Any) -> Result:
    """Call a function in a new thread, and return its result."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()  # from now on, cancelling the wait does not affect the thread

    def work() -> None:
        try:
            future.set_result(function(argument))
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=work, name="fleximq-serving", daemon=True).start()
    return await asyncio.wrap_future(future)


C = TypeVar("C")
K = TypeVar("K", bound=Reconnecting)
P = TypeVar("P", bound=Pulled[Any])
T = TypeVar("T")


class InLoopThread(Wrapper[C]):
    """A wrapper with methods that run in the loop's thread."""

    def __init__(self, inner: C) -> None:
        super().__init__(inner)
        self._thread = loopThread()

    def _call(self, method: Callable[..., Result], *arguments: Any, **more: Any) -> Result:
        return self._thread.call(method, *arguments, **more)

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._thread.run(work)


class BlockingQueueClient(InLoopThread[K], BlockingClient[K]):
    """A connection to a broker with blocking methods. In a forked child it is closed."""

    @property
    def state(self) -> State:
        """The state of the connection."""
        return self._inner.state if self._thread.isMine else State.CLOSED

    def close(self, timeout: float | None = TIMEOUT) -> None:
        if self._thread.isMine:
            self._wait(self._inner.close(timeout))

    def hang_up(self) -> None:
        if self._thread.isMine:
            self._call(self._inner.hang_up)

    close.__doc__, hang_up.__doc__ = Reconnecting.close.__doc__, Reconnecting.hang_up.__doc__


class BlockingPulled(InLoopThread[P], ClosedOnExit, Generic[P, T]):
    """The messages of a queue: iterate over it, or call :meth:`next`."""

    next: Callable[..., T | None]

    @property
    def waiting(self) -> int:
        """The number of fetched messages that are unread."""
        return self._inner.waiting

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        """Return the next message, waiting until this or the client is closed; errors as :meth:`next`."""
        message = self.next()
        if message is None:
            raise StopIteration
        return message

    def close(self) -> None:
        if self._thread.isMine:
            self._call(self._inner.close)

    close.__doc__ = Pulled.close.__doc__
