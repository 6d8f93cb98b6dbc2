"""A few threads for work that takes long; they are begun when they are first needed, and end with their owner."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure


class Workers:
    """Does work in threads.

    :param callFromThread: the reactor's.
    :param count: so many threads at most.
    """

    def __init__(self, callFromThread: Callable[..., Any], count: int) -> None:
        self._callFromThread = callFromThread
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="fleximq-credentials")

    def run(self, call: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """Do this in a thread, and give what comes of it on the reactor's. What is cancelled goes on unheard."""
        done: Deferred[Any] = Deferred()
        self._threads.submit(_outcome, call, arguments).add_done_callback(
            lambda future: self._callFromThread(_tell, done, future)
        )
        return done


def _outcome(call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return call(*arguments)
    except BaseException:
        return Failure()


def _tell(done: Deferred[Any], future: Future[Any]) -> None:
    if not done.called:
        done.callback(future.result())
