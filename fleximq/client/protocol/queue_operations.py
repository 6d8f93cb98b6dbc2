"""The operations of a FlexiMQ client on queues, coroutines written once for all forms."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from logging import Logger
from typing import Any, Generic, Literal, Protocol, TypeVar

from fleximq.client.backoff import Backoff
from fleximq.client.jobs import Job
from fleximq.client.payloads import severalOf
from fleximq.client.protocol.consumers import JobBox
from fleximq.client.protocol.operations import Deliveries, Notifications
from fleximq.client.protocol.publications import chunksOf, jobFields
from fleximq.client.protocol.schedule_operations import valueOf
from fleximq.client.protocol.value_operations import ValueOperations
from fleximq.client.protocol.work_rules import WorkRules, checkBackoff, checkWork
from fleximq.client.settings import TIMEOUT
from fleximq.client.times import Duration, seconds
from fleximq.client.topic_warnings import literalTopic


class Closable(Protocol):
    """What this module needs of an iterator over jobs."""

    def close(self) -> None:
        """Stop consuming."""


class Worker(Protocol):
    """Runs a function for the jobs of a queue."""

    def stop(self) -> None:
        """Start no more jobs."""

    async def run(self) -> None:
        """Work until :meth:`stop` or the end of the consumer; raises its error."""


#: The form's iterator over jobs.
Consumed = TypeVar("Consumed", bound=Closable)


class QueueOperations(ValueOperations[Deliveries, Notifications], Generic[Deliveries, Notifications, Consumed]):
    """The operations of one client, with those on queues, values and schedules. ``_mayWait``: the functions of its
    workers may be coroutine functions.
    """

    _mayWait = False
    _log: Logger
    _workers: set[Worker]
    #: How often the work was stopped.
    _stops = 0

    @abstractmethod
    def _jobs(self, box: JobBox) -> Consumed:
        """Return the form's iterator over the jobs of a consumer."""

    @abstractmethod
    def _settle(self, job: Job, kind: str, more: Any) -> None:
        """Add a settlement, and send it soon; raises NotSettled."""

    # -- jobs --------------------------------------------------------------------------------------

    @literalTopic
    async def enqueue(
        self,
        queue: str,
        value: object,
        /,
        *,
        priority: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        expires: Duration | None = None,
        key: str | bytes | None = None,
        message_id: str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        """Put a value into a queue, which is made if there is none. Errors as :meth:`publish`; it waits as rarely.

        After :meth:`flush` the job is in its queue and, with a journal, on disk.

        :param priority: 0 to 9; jobs with higher ones are first. Without it 4.
        :param delay: seconds until it is put into the queue, or ``at``: a time with a zone; a schedule until then. To
            be able to withdraw it, use :meth:`schedule` with ``queue=True``, which returns an id.
        :param expires: seconds after which it is removed if no consumer has it; after ``delay`` or ``at``.
        :param key: in a queue that is ordered by keys, jobs with equal keys run one after the other.
        :param message_id: by which :meth:`cancel` finds it; with a journal, the broker drops a repeated one.
        :param headers: as for :meth:`publish`.
        """
        named = {"queue": True, "priority": priority, "key": key, "message_id": message_id}
        fields = jobFields(headers, delay, at, expires, **named)
        payload = self._settings.codec.pack(value)
        await self._post(len(payload), lambda conversation: conversation.publication(queue, payload, fields))

    @literalTopic
    async def enqueue_many(
        self, queue: str, values: Iterable[object], /, *, priority: int | None = None, expires: Duration | None = None
    ) -> None:
        """Put several values into a queue, several times as fast as single ones; as :meth:`publish_many`."""
        fields = jobFields(None, None, None, expires, queue=True, priority=priority)
        for size, make in chunksOf(queue, severalOf(values), self._settings.codec.pack, fields):
            await self._post(size, make)

    @literalTopic
    async def consume(self, queue: str, prefetch: int = 1, timeout: float | None = TIMEOUT) -> Consumed:
        """Become a consumer of a queue, which is made if there is none, and return an iterator over its jobs.

        The iterator acknowledges each job after the loop's body, unless that has settled it. Close it, or use it in a
        ``with`` block: unsettled jobs then return to the queue. After a reconnect, it continues with new jobs.

        :param prefetch: the most unsettled jobs of this client at once, 1 to 65,535. More than one is faster.
        :raises SubscribeFailed: the broker refused.
        :raises TimeoutError: no answer within ``timeout`` seconds.
        :raises ValueError: this client consumes from the queue already.
        """
        made = lambda: self._clientState.newConsumer(queue, prefetch)  # noqa: E731
        return self._jobs(await self._subscribed(made, timeout, f"the consumer of {queue}"))

    @abstractmethod
    def _newWorker(self, jobs: Consumed, rules: WorkRules, concurrency: int) -> Worker:
        """Return the form's worker."""

    async def work(
        self,
        queue: str,
        function: Callable[[Job], object],
        /,
        *,
        concurrency: int = 1,
        prefetch: int | None = None,
        retry: Backoff | None = None,
        timeout: float | None = TIMEOUT,
    ) -> None:
        """Call a function with each job of a queue, until :meth:`stop_work`, SIGTERM or SIGINT, or the client's end.

        The job is acknowledged when the function returns, unless it has settled the job itself. If it raises
        :class:`~fleximq.client.jobs.Reject`, the job is rejected; any other exception is logged, and the job retried.
        At the end, running functions end first, and other jobs return to the queue. Outages are logged and reported to
        ``on_state``; a job that outlives its connection is logged, since it is delivered again.

        :param function: on an event loop, it may be a coroutine function.
        :param concurrency: how many jobs run at once: in threads, or on the event loop.
        :param prefetch: the most unsettled jobs of this client, by default ``concurrency``.
        :param retry: delays before further attempts, and their number, after which the job is rejected; by default, as
            the queue's definition says.
        :raises ConnectionLost: the connection ended, and the client will not reconnect.
        :raises SubscribeFailed: and others, as :meth:`consume`.
        """
        checkWork(function, concurrency, self._mayWait, retry)
        stops = self._stops
        jobs = await self.consume(queue, prefetch or concurrency, timeout)
        worker = self._newWorker(jobs, WorkRules(function, retry, self._log), concurrency)
        self._workers.add(worker)
        if self._stops != stops:  # while it became a consumer
            worker.stop()
        try:
            await worker.run()
        finally:
            self._workers.discard(worker)
            jobs.close()

    def stop_work(self) -> None:
        """End all calls of :meth:`work` as soon as the functions that run have ended; it does not wait for that."""
        self._stops += 1
        for worker in tuple(self._workers):
            worker.stop()

    async def cancel(self, queue: str, message_id: str, timeout: float | None = TIMEOUT) -> bool:
        """Remove a job that waits in a queue; return whether it did. A job that a consumer has is not removed.

        :raises RequestFailed: and others, as :meth:`ask`.
        """
        asked = {"queue": queue, "message_id": message_id}
        return valueOf(await self.ask("/queue/cancel", asked, timeout), "cancelled", bool)

    async def define_queue(
        self,
        queue: str,
        /,
        *,
        sources: Sequence[str] | None = None,
        durable: bool | None = None,
        lease: Duration | None = None,
        max_attempts: int | None = None,
        retry: Backoff | None = None,
        dead_letters: str | None = None,
        expired: Literal["drop", "dead"] | None = None,
        max_in_flight: int | None = None,
        ordered_by: Literal["key"] | None = None,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        when_full: Literal["refuse", "drop-oldest"] | None = None,
        expiry: Duration | None = None,
        message_ttl: Duration | None = None,
        paused: bool | None = None,
        replace: bool = False,
        timeout: float | None = TIMEOUT,
    ) -> dict[str, Any]:
        """Define a queue, and return its definition; nothing happens if it is defined equally.

        :param sources: topics and patterns whose messages it receives; by default the topic of its own name.
        :param durable: whether its messages are on disk; by default if the broker has a journal.
        :param lease: seconds for which a job belongs to its consumer; by default, as long as its connection lasts.
        :param max_attempts: deliveries after which a job becomes a dead letter.
        :param retry: the delays before the second and later attempts, without its ``attempts``.
        :param dead_letters: the topic of dead letters; by default ``$dead/`` and the queue's name.
        :param expired: "dead" if expired jobs become dead letters.
        :param max_in_flight: the most unsettled jobs of all consumers.
        :param ordered_by: "key": of jobs with equal keys, one is out at a time, in order.
        :param max_messages: and ``max_bytes``: the bounds of the queue.
        :param when_full: "refuse", or "drop-oldest".
        :param expiry: seconds without a consumer after which the queue is deleted.
        :param message_ttl: seconds after which waiting jobs expire.
        :param paused: deliver nothing until it is resumed.
        :param replace: change an existing definition, which needs the right to ``admin``; otherwise a different one
            raises RequestFailed with status 409.
        :raises RequestFailed: a value is wrong, or something is not permitted.
        """
        given = {
            "sources": None if sources is None else list(severalOf(sources)),
            "durable": durable,
            "lease": None if lease is None else seconds("lease", lease),
            "max_attempts": max_attempts,
            "retry": None if retry is None else _delays(retry),
            "dead_letters": dead_letters,
            "expired": expired,
            "max_in_flight": max_in_flight,
            "ordered_by": ordered_by,
            "max_messages": max_messages,
            "max_bytes": max_bytes,
            "when_full": when_full,
            "expiry": None if expiry is None else seconds("expiry", expiry),
            "message_ttl": None if message_ttl is None else seconds("message_ttl", message_ttl),
            "paused": paused,
            "replace": replace or None,
        }
        asked = {"queue": queue} | {name: value for name, value in given.items() if value is not None}
        return dict(await self.ask("/queue/define", asked, timeout))

    async def pause_queue(self, queue: str, paused: bool = True, timeout: float | None = TIMEOUT) -> None:
        """Stop the deliveries of a queue, or resume them; it still receives messages. Needs the right to ``admin``.

        :raises RequestFailed: and others, as :meth:`ask`.
        """
        await self.ask("/queue/pause", {"queue": queue, "paused": paused}, timeout)

    async def queues(self, timeout: float | None = TIMEOUT) -> list[dict[str, Any]]:
        """Return the queues that this client may see, with definition, consumers and messages; errors as :meth:`ask`.

        :param timeout: seconds for each page of 1,000.
        """
        return await self._pages("/queue/list", ("queues",), timeout)


def _delays(retry: Backoff) -> dict[str, float]:
    checkBackoff(retry)
    if retry.attempts is not None:
        raise ValueError("max_attempts limits the attempts of a queue, not attempts of its Backoff")
    return {"first": retry.first, "most": retry.most, "factor": retry.factor, "jitter": retry.jitter}
