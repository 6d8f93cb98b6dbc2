"""How :meth:`work` settles a job, by the result of its function; the same for all forms of the client."""

import inspect
from collections.abc import Callable
from logging import Logger
from typing import Any

from fleximq.client.backoff import Backoff
from fleximq.client.errors import NotSettled
from fleximq.client.jobs import Job, Reject
from fleximq.errors import SettingError


def checkBackoff(retry: object) -> None:
    """Raise TypeError unless delays between attempts are a Backoff or None."""
    if retry is not None and not isinstance(retry, Backoff):
        raise TypeError(f"retry is {retry!r}, but must be a Backoff")


def checkWork(
    function: Callable[[Job], Any], concurrency: int, mayWait: bool = False, retry: Backoff | None = None
) -> None:
    """Raise TypeError or SettingError for wrong arguments; ``mayWait`` allows coroutine functions."""
    checkBackoff(retry)
    if not callable(function) or (inspect.iscoroutinefunction(function) and not mayWait):
        kind = "a function" if mayWait else "a function that is no coroutine function"
        raise TypeError(f"work needs {kind} that takes a job, not {function!r}")
    if concurrency < 1:
        raise SettingError(f"concurrency is {concurrency}, but must be at least 1")


class WorkRules:
    """The function of one worker, and how its jobs are settled.

    :param retry: delays before further attempts; None: as the queue's definition says.
    """

    def __init__(self, function: Callable[[Job], Any], retry: Backoff | None, log: Logger) -> None:
        self.function = function
        self._retry = retry
        self._log = log

    def settle(self, job: Job, error: Exception | None) -> None:
        """Settle a job whose function has returned, or raised an error."""
        try:
            if job.is_settled:
                self._failed(job, error, "it was settled before")
            elif error is None:
                job.ack()
            elif isinstance(error, Reject):
                job.reject(str(error))
            else:
                self._repeat(job, error)
        except NotSettled as lost:
            self._log.warning("%r is not settled: %s", job, lost.words)

    def _repeat(self, job: Job, error: Exception) -> None:
        if self._retry is None:
            self._failed(job, error, "its queue's definition says whether and when it is delivered again")
            job.retry()
            return
        pause = self._retry.pause(job.attempt)
        if pause is None:
            self._failed(job, error, "that was its last attempt, and it becomes a dead letter")
            job.reject(f"attempt {job.attempt}, the last, failed: {type(error).__name__}: {error}")
        else:
            self._failed(job, error, f"it is delivered again in {pause:.3g} s")
            job.retry(pause)

    def _failed(self, job: Job, error: Exception | None, words: str) -> None:
        """Log the error of a job; Reject and NotSettled are no failures of its function."""
        if error is not None and not isinstance(error, Reject | NotSettled):
            self._log.error("%r failed; %s", job, words, exc_info=error)
