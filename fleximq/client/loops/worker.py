"""Jobs on event loops: an asynchronous iterator, and a worker with several jobs at once."""

import inspect
import logging
from typing import Protocol

from fleximq.client.contexts import MessageIterator
from fleximq.client.jobs import Job, acknowledgeHanded
from fleximq.client.loops.box_waiting import BoxWaiting
from fleximq.client.loops.connection import Cancel, Loop
from fleximq.client.protocol.client_state import ClientState
from fleximq.client.protocol.completion import Pending
from fleximq.client.protocol.consumers import JobBox
from fleximq.client.protocol.work_rules import WorkRules

_log = logging.getLogger(__name__)


class Consuming(Protocol):
    """The client of an iterator."""

    _loop: Loop
    _clientState: ClientState

    def _sendSettlements(self) -> None: ...

    def _unsubscribe(self, box: JobBox) -> None: ...


class LoopJobs(BoxWaiting, MessageIterator[Job]):
    """The jobs of a queue: iterate over it, or call :meth:`next`.

    A job is acknowledged when the next one is requested, so after the body of the loop, unless it is settled. If the
    loop ends early, by ``break`` or an error, its last job is not acknowledged; :meth:`close` returns it. Tasks must
    not share an iterator; the client's ``work`` runs several jobs at once.
    """

    _box: JobBox

    def __init__(self, client: Consuming, box: JobBox) -> None:
        super().__init__(client._loop, box)
        self._client = client
        self._handed: Job | None = None

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

    async def next(self, timeout: float | None = None) -> Job | None:
        """Acknowledge the job before, and return the next one; None after ``timeout`` seconds, or if this is closed.

        A job whose connection has ended is not acknowledged, but logged, since it is delivered again.

        :raises ConnectionLost: the connection ended, and the client will not reconnect.
        :raises SubscribeFailed: the client may not consume from the queue any more.
        """
        handed, self._handed = self._handed, None
        acknowledgeHanded(handed, _log)
        self._handed = await self.take(timeout)
        return self._handed

    async def take(self, timeout: float | None = None) -> Job | None:
        """Return the next job without acknowledging any; otherwise as :meth:`next`."""
        consumers = self._client._clientState.consumers
        while (job := consumers.next(self._box)) is None:
            if not await self._news(timeout, "a job"):
                return None
        return job

    def halt(self) -> None:
        """Get no more jobs, and return the unread ones; those that were read can still be settled."""
        self._client._clientState.halt(self._box)
        self._client._sendSettlements()

    def close(self) -> None:
        """Stop consuming; jobs that are not settled return to the queue at once."""
        self._client._unsubscribe(self._box)


class LoopWorker:
    """Runs a function for the jobs of a queue, several at once."""

    def __init__(self, loop: Loop, jobs: LoopJobs, rules: WorkRules, concurrency: int) -> None:
        self._loop = loop
        self._jobs = jobs
        self._rules = rules
        self._running = concurrency
        self._cancels: list[Cancel] = []
        self._over: Pending[None] = Pending()
        self._error: Exception | None = None
        self._isCancelled = False

    def stop(self) -> None:
        """Start no more jobs."""
        self._jobs.halt()

    async def run(self) -> None:
        """Work until :meth:`stop` or the end of the consumer; raises its error.

        If it is cancelled, the running functions are too, and their jobs are not settled.
        """
        for _ in range(self._running):
            self._cancels.append(self._loop.start(self._work()))
        try:
            await self._loop.wait(self._over, None, "")
        finally:
            self._isCancelled = True
            for cancel in self._cancels:
                cancel()
        if self._error is not None:
            raise self._error

    async def _work(self) -> None:
        try:
            while (job := await self._jobs.take()) is not None:
                error = None
                try:
                    found = self._rules.function(job)
                    if inspect.isawaitable(found):
                        await found
                except Exception as raised:
                    error = raised
                if self._isCancelled:
                    return
                self._rules.settle(job, error)
        except Exception as error:
            self._error = self._error or error
            self._jobs.halt()
        finally:
            self._running -= 1
            if not self._running:
                self._over.succeed(None)
