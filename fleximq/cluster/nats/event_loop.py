"""An asyncio event loop on a thread of its own, called from the reactor's thread."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

T = TypeVar("T")


class EventLoop:
    """Runs coroutines from :meth:`start` to :meth:`stop`; ``callFromThread`` calls on the reactor's thread."""

    def __init__(self, callFromThread: Callable[..., object]) -> None:
        self._callFromThread = callFromThread
        self._loop = asyncio.new_event_loop()
        # It warns of a method of its own at the end of each TLS connection.
        logging.getLogger("asyncio").setLevel(logging.ERROR)
        self._thread = Thread(target=self._run, name="cluster", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine; its future may be cancelled."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def ask(self, work: Coroutine[Any, Any, T]) -> "Deferred[T]":
        """Run a coroutine, and fire with its result on the reactor's thread; never, if it is stopped before."""
        answer: Deferred[T] = Deferred()

        def fire(future: "Future[T]") -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is None:
                answer.callback(future.result())
            else:
                answer.errback(error)

        self.run(work).add_done_callback(lambda future: self._callFromThread(fire, future))
        return answer

    async def onReactor(self, call: Callable[[], None]) -> None:
        """Return when a function has run on the reactor's thread."""
        done: Future[None] = Future()

        def run() -> None:
            try:
                call()
            finally:
                if done.set_running_or_notify_cancel():
                    done.set_result(None)

        self._callFromThread(run)
        await asyncio.wrap_future(done)

    def stop(self) -> None:
        """Cancel all coroutines, and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        loop = self._loop
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks))
        loop.close()
