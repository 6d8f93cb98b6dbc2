"""Clients in the process enqueue jobs, consume and settle them."""

from datetime import UTC, datetime
from typing import Any

from twisted.internet.defer import Deferred

from fleximq.client.errors import NotSettled
from fleximq.client.jobs import Job
from fleximq.errors import BadRequest, Conflict, ConsumerEnded, NotPermitted, SettingError
from fleximq.in_process.jobs import Jobs
from fleximq.security.permissions import Rights
from fleximq.values.queue_definition import QueueDefinition
from tests.in_process.case import InProcessCase


class JobsCase(InProcessCase):
    """A broker, and a client that consumes."""

    def setUp(self) -> None:
        """Begin with a producer and a worker."""
        self.broker()
        self.producer, self.worker = self.client(), self.client()

    def consume(self, prefetch: int = 1, queue: str = "jobs", client: Any = None) -> Jobs:
        """Return the iterator of a consumer."""
        return self.done((client or self.worker).consume(queue, prefetch))  # type: ignore[no-any-return]

    def enqueue(self, *values: object, **keys: Any) -> None:
        """Put values into the queue."""
        for value in values:
            self.done(self.producer.enqueue("jobs", value, **keys))

    def next(self, jobs: Jobs) -> Job:
        """Return the next job."""
        return self.done(jobs.next())  # type: ignore[no-any-return]


class JobsTests(JobsCase):
    """The iterator and its jobs."""

    def test_aJobIsThePublicationWithItsDelivery(self) -> None:
        self.enqueue({"to": "anna"}, key="k", priority=7)
        job = self.next(self.consume())
        self.assertEqual((job.value, job.queue, job.attempt, job.topic), ({"to": "anna"}, "jobs", 1, "jobs"))
        self.assertEqual((job.key, job.header["priority"]), ("k", 7))

    def test_theNextJobAcknowledgesThePrevious(self) -> None:
        self.enqueue(1, 2)
        jobs = self.consume()
        self.assertEqual([self.next(jobs).value, self.next(jobs).value], [1, 2])
        waiting = jobs.next()
        self.turn()
        self.assertNoResult(waiting)
        jobs.close()
        self.assertIsNone(self.done(waiting))
        queue = self.aBroker.queues.get("jobs")
        assert queue is not None
        self.assertEqual((queue.depth, queue.inFlight), (0, 0))

    def test_aLoopReadsJobsUntilTheConsumerIsClosed(self) -> None:
        jobs, read = self.consume(), []

        async def work() -> None:
            async for job in jobs:
                read.append(job.value)

        over = Deferred.fromCoroutine(work())
        self.enqueue(1, 2, 3)
        self.turn()
        self.turn()
        jobs.close()
        self.done(over)
        self.assertEqual(read, [1, 2, 3])

    def test_jobsAreRetriedAndRejected(self) -> None:
        self.enqueue("a", "b")
        jobs = self.consume()
        self.next(jobs).retry()
        job = self.next(jobs)
        self.assertEqual((job.value, job.attempt), ("a", 2))
        job.reject("no such customer")
        self.assertEqual(self.next(jobs).value, "b")
        letters = self.consume(1, "$dead/jobs")
        self.assertEqual(self.next(letters).value, "a")

    def test_aSettledJobIsNotSettledAgain(self) -> None:
        self.enqueue(1)
        job = self.next(self.consume())
        job.ack()
        for again in (job.ack, job.retry, job.reject):
            self.assertRaises(NotSettled, again)

    def test_aLoopGoesOnAfterTheEndOfALease(self) -> None:
        """The job is not acknowledged, but logged, and delivered again."""
        me = self.aBroker.clients.find(self.producer.id)
        assert me is not None
        self.aBroker.defineQueue(me, QueueDefinition("jobs", lease=5.0))
        self.enqueue(1)
        jobs = self.consume()
        self.next(jobs)
        self.clock.advance(6)
        with self.assertLogs("fleximq.in_process.jobs", "WARNING") as logged:
            self.assertEqual(self.next(jobs).attempt, 2)
        self.assertIn("is not acknowledged", logged.output[0])

    def test_closingReturnsUnsettledJobs(self) -> None:
        self.enqueue(1, 2)
        jobs = self.consume(2)
        job = self.next(jobs)
        jobs.close()
        self.assertRaises(NotSettled, job.ack)
        self.assertEqual(self.next(self.consume(1, client=self.client())).attempt, 2)

    def test_theEndOfTheClientEndsItsConsumers(self) -> None:
        self.enqueue(1)
        jobs = self.consume()
        job = self.next(jobs)
        self.worker.close()
        self.assertRaises(NotSettled, job.ack)
        self.assertTrue(jobs.isClosed)
        self.refused(self.worker.consume("jobs"), Conflict)

    def test_aLostRightEndsTheConsumer(self) -> None:
        jobs = self.consume()
        client = self.aBroker.clients.find(self.worker.id)
        assert client is not None
        self.aBroker.changeRights(client, Rights({}))
        self.refused(jobs.next(), ConsumerEnded)

    def test_wrongConsumersAreRefused(self) -> None:
        self.consume()
        self.refused(self.worker.consume("jobs"), ValueError)
        self.refused(self.worker.consume("other", 0), SettingError)
        self.refused(self.client(Rights({})).consume("jobs"), NotPermitted)


class EnqueueTests(JobsCase):
    """The keys of a job."""

    def test_aJobWaitsForItsTime(self) -> None:
        self.enqueue("later", delay=2)
        self.enqueue("latest", at=datetime.fromtimestamp(self.aBroker.wall() + 4, UTC))
        jobs = self.consume(2)
        reading = jobs.next()
        self.clock.advance(1)
        self.turn()
        self.assertNoResult(reading)
        self.clock.advance(1)
        self.assertEqual(self.done(reading).value, "later")
        reading = jobs.next()
        self.clock.advance(2)
        self.assertEqual(self.done(reading).value, "latest")

    def test_wrongKeysAreRefused(self) -> None:
        for keys, kind in (
            ({"delay": 1, "at": datetime.now(UTC)}, ValueError),
            ({"at": datetime(2030, 1, 1)}, ValueError),
            ({"priority": 10}, BadRequest),
            ({"expires": -1}, ValueError),
        ):
            self.refused(self.producer.enqueue("jobs", 1, **keys), kind)
