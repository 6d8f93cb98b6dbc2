"""Jobs in the blocking form: an iterator that threads may share, and a worker with threads that ends at signals."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Protocol

from fleximq.client.blocking.shared_connection import SIGNAL_SECONDS, SharedConnection
from fleximq.client.contexts import ClosedOnExit
from fleximq.client.jobs import Job, acknowledgeHanded
from fleximq.client.protocol.client_state import ClientState
from fleximq.client.protocol.consumers import JobBox
from fleximq.client.protocol.work_rules import WorkRules

_log = logging.getLogger(__name__)
_DEFAULTS: dict[signal.Signals, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}


class Consuming(Protocol):
    """The client of an iterator."""

    _connection: SharedConnection
    _clientState: ClientState

    def _sendSettlements(self) -> None: ...

    def _unsubscribe(self, box: JobBox) -> None: ...


class Jobs(ClosedOnExit):
    """The jobs of a queue: iterate over it, or call :meth:`next`.

    A job is acknowledged when the same thread requests the next one, so after the body of the loop, unless it is
    settled. If the loop ends early, by ``break`` or an error, its last job is not acknowledged; :meth:`close` returns
    it. Threads may share it; one thread gets each job.
    """

    def __init__(self, client: Consuming, box: JobBox) -> None:
        self._client = client
        self._box = box
        self._handed = threading.local()

    def __repr__(self) -> str:
        return f"<Jobs of {self.queue}, {self.waiting} waiting>"

    @property
    def queue(self) -> str:
        """The queue."""
        return self._box.topic

    @property
    def waiting(self) -> int:
        """The number of unread jobs."""
        return len(self._box.waiting)

    def __iter__(self) -> Iterator[Job]:
        """Yield jobs, waiting without a limit, until this or the client is closed; errors as :meth:`next`."""
        while (job := self.next()) is not None:
            yield job

    def next(self, timeout: float | None = None) -> Job | None:
        """Acknowledge the job before, and return the next one; None after ``timeout`` seconds, or if this is closed.

        A job whose connection has ended is not acknowledged, but logged, since it is delivered again.

        :raises ConnectionLost: the connection ended, and the client will not reconnect.
        :raises SubscribeFailed: the client may not consume from the queue any more.
        """
        handed: Job | None = getattr(self._handed, "job", None)
        self._handed.job = None
        acknowledgeHanded(handed, _log)
        job = self._handed.job = self.take(timeout)
        return job

    def take(self, timeout: float | None = None) -> Job | None:
        """Return the next job without acknowledging any; otherwise as :meth:`next`."""
        client = self._client
        with client._connection.lock:
            job = client._clientState.consumers.next(self._box)
            self._box.readers += job is None
        if job is not None:
            return job
        try:
            client._sendSettlements()
            found = client._connection.waitFor(self._news, timeout, needed=False)
        finally:
            with client._connection.lock:
                self._box.readers -= 1
        return found if isinstance(found, Job) else None

    def _news(self) -> Job | bool | None:
        job = self._client._clientState.consumers.next(self._box)
        if job is not None:
            return job
        if isinstance(self._box.end, Exception):
            raise self._box.end
        return self._box.end

    def halt(self) -> None:
        """Get no more jobs, and return the unread ones; those that were read can still be settled."""
        connection = self._client._connection
        with connection.lock:
            self._client._clientState.halt(self._box)
            connection.wake()
        connection.writePending()

    def close(self) -> None:
        """Stop consuming; jobs that are not settled return to the queue at once."""
        self._client._unsubscribe(self._box)


class Worker:
    """Runs a function for the jobs of a queue in threads.

    The calling thread only waits, so that a signal has an effect at once. A signal whose handler is the default one
    ends all workers of the client; the second one has its usual effect.

    :param stopAll: ends all workers of the client as soon as the functions that run have ended.
    """

    def __init__(self, jobs: Jobs, rules: WorkRules, concurrency: int, stopAll: Callable[[], None]) -> None:
        self._jobs = jobs
        self._rules = rules
        self._concurrency = concurrency
        self._stopAll = stopAll
        #: True for a signal; otherwise the end of a thread, and its error. A signal may put while another call runs.
        self._news: SimpleQueue[BaseException | bool | None] = SimpleQueue()

    def stop(self) -> None:
        """Start no more jobs."""
        self._jobs.halt()

    async def run(self) -> None:
        """Work, without awaiting, until :meth:`stop` or the end of the consumer; raises its error, or a thread's."""
        errors: list[BaseException] = []
        with self._signals():
            for _ in range(self._concurrency):
                threading.Thread(target=self._work, name=f"fleximq-work-{self._jobs.queue}", daemon=True).start()
            running = self._concurrency
            while running:
                try:
                    news = self._news.get(timeout=SIGNAL_SECONDS)
                except Empty:
                    continue
                if news is True:
                    self._stopAll()
                    continue
                running -= 1
                if isinstance(news, BaseException):
                    errors.append(news)
                    self._jobs.halt()
        if errors:
            raise errors[0]

    def _work(self) -> None:
        try:
            while (job := self._jobs.take()) is not None:
                error = None
                try:
                    self._rules.function(job)
                except Exception as raised:
                    error = raised
                self._rules.settle(job, error)
        except BaseException as error:
            self._news.put(error)
        else:
            self._news.put(None)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        taken = [each for each, default in _DEFAULTS.items() if signal.getsignal(each) is default]

        def restore() -> None:
            for each in taken:
                signal.signal(each, _DEFAULTS[each])

        def stop(number: int, frame: FrameType | None) -> Any:
            restore()
            self._news.put(True)

        for each in taken:
            signal.signal(each, stop)
        try:
            yield
        finally:
            restore()
