"""Queues and jobs in every form of the client, with the real broker."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

from fleximq.client.backoff import Backoff
from fleximq.client.errors import ConnectionLost, NotSettled, RequestFailed, SubscribeFailed
from fleximq.client.jobs import Job, Reject
from fleximq.errors import SettingError
from tests.client.cases import SOON, FormCase, NetworkCase, Place, inEveryForm
from tests.client.scripted import InThread

_durable = Place(lambda: ("--journal", "journal", "--durable", "#"))


class Queues(FormCase):
    """A producer and workers of one queue."""

    def connected(self, **options: Any) -> Any:
        """Return a client."""
        return self.connectedTo(f"tcp://127.0.0.1:{_durable.broker.port()}", **options)

    def enqueue(self, client: Any, *values: Any, **options: Any) -> None:
        """Put values into the queue."""
        for value in values:
            client.enqueue(self.topic, value, **options)
        client.flush()

    def dead(self, client: Any, count: int) -> list[Any]:
        """Return values of dead letters."""
        jobs = client.consume(f"$dead/{self.topic}", 10)
        return [jobs.next(SOON).value for _ in range(count)]

    def test_jobsWaitAndAreAcknowledgedAfterTheBody(self) -> None:
        """Those of a loop that ended early return when the iterator is closed."""
        one, two = self.connected(), self.connected()
        self.enqueue(one, "a", {"b": 1}, "c", key="k", message_id=None)
        jobs = one.consume(self.topic)
        got = []
        for job in jobs:
            got.append((job.value, job.attempt, job.key, job.queue, job.topic))
            if job.value == "c":
                break
        self.assertEqual(got, [(each, 1, "k", self.topic, self.topic) for each in ("a", {"b": 1}, "c")])
        jobs.close()
        one.flush()
        again = two.consume(self.topic, 10).next(SOON)
        self.assertEqual((again.value, again.attempt), ("c", 2))

    def test_manyJobsArriveInOrder(self) -> None:
        """With a prefetch, and settlements sent together."""
        one = self.connected()
        one.enqueue_many(self.topic, range(3000))
        one.enqueue_many(self.topic, [b"x"], priority=4)
        jobs = one.consume(self.topic, prefetch=64)
        self.assertEqual([jobs.next(SOON).value for _ in range(3001)], [*range(3000), b"x"])
        self.assertIsNone(jobs.next(0))
        one.flush()
        [row] = [each for each in one.queues() if each["queue"] == self.topic]
        self.assertEqual((row["messages"], row["in_flight"], row["consumers"]), (0, 0, 1))

    def test_settlementsHaveTheirEffects(self) -> None:
        """A retry comes again with its attempt, a rejected job is a dead letter, and an acknowledged one is gone."""
        one = self.connected()
        self.enqueue(one, "again", "bad", "good")
        jobs = one.consume(self.topic, prefetch=3)
        again, bad, good = (jobs.take(SOON) for _ in range(3))
        good.ack()
        bad.reject("no such customer")
        again.retry(0)
        once = jobs.take(SOON)
        self.assertEqual((once.value, once.attempt), ("again", 2))
        once.extend(timedelta(minutes=1))
        once.ack()
        one.flush()
        self.assertEqual(self.dead(one, 1), ["bad"])
        jobs.close()
        self.assertIsNone(self.connected().consume(self.topic).next(0))

    def test_aJobIsSettledOnce(self) -> None:
        """By the program; the loop leaves it alone then."""
        one = self.connected()
        self.enqueue(one, "a", "b")
        jobs = one.consume(self.topic)
        first = jobs.next(SOON)
        first.ack()
        for settle in (first.ack, first.retry, first.reject, lambda: first.extend(1)):
            self.assertIn("already settled", str(self.assertRaises(NotSettled, settle)))
        self.assertEqual(jobs.next(SOON).value, "b")
        one.flush()

    def test_aSecondConsumerOfAQueueIsRefused(self) -> None:
        """A client is one consumer; after its end it may consume again."""
        one = self.connected()
        jobs = one.consume(self.topic)
        self.assertRaises(ValueError, one.consume, self.topic)
        self.assertRaises(SettingError, one.consume, "other", 0)
        jobs.close()
        self.assertIsNone(one.consume(self.topic).next(0))

    def test_closingEndsTheIteration(self) -> None:
        """Though a thread or task waits for jobs."""
        one = self.connected()
        jobs = one.consume(self.topic)
        waiting = InThread(lambda: list(jobs))
        jobs.close()
        self.assertEqual(waiting.result(), [])

    def test_workSettlesByTheEndOfItsFunction(self) -> None:
        """Reject makes a dead letter, another error another attempt, and after the last a dead letter."""
        one = self.connected()
        seen: list[tuple[Any, int]] = []

        def function(job: Job) -> None:
            seen.append((job.value, job.attempt))
            if job.value == "bad":
                raise Reject("never")
            if job.value == "weak" or (job.value == "flaky" and job.attempt == 1):
                raise OSError("try again")
            if job.value == "last":
                one_.stop_work()

        one_: Any = getattr(one, "_inner", one)
        self.enqueue(one, "good", "bad", "flaky", "weak")
        working = InThread(
            lambda: one.work(self.topic, function, retry=Backoff(first=0.001, most=0.001, jitter=0, attempts=2))
        )
        self.assertEqual(sorted(self.dead(self.connected(), 2)), ["bad", "weak"])
        self.enqueue(self.connected(), "last")
        working.result()
        expected = [("bad", 1), ("flaky", 1), ("flaky", 2), ("good", 1), ("last", 1)]
        self.assertEqual(sorted(seen), [*expected, ("weak", 1), ("weak", 2)])
        self.assertIsNone(self.connected().consume(self.topic).next(0))

    def test_definitionsAreMadeOnce(self) -> None:
        """An equal one is nothing, a different one a conflict, and values out of range are refused."""
        one = self.connected()
        definition: dict[str, Any] = {"max_attempts": 3, "lease": timedelta(minutes=1), "retry": Backoff(first=1)}
        defined = one.define_queue(self.topic, **definition)
        self.assertEqual((defined["queue"], defined["max_attempts"], defined["lease"]), (self.topic, 3, 60))
        self.assertEqual(defined["retry"], {"first": 1, "most": 30, "factor": 2, "jitter": 0.5})
        self.assertEqual(one.define_queue(self.topic, **definition), defined)
        error = self.assertRaises(RequestFailed, one.define_queue, self.topic, max_attempts=4)
        self.assertEqual(error.status, 409)
        self.assertEqual(one.define_queue(self.topic, max_attempts=4, replace=True)["max_attempts"], 4)
        self.assertRaises(RequestFailed, one.define_queue, self.topic, expired="never", replace=True)

    def test_aPausedQueueDeliversNothing(self) -> None:
        """Until it is resumed."""
        one = self.connected()
        one.define_queue(self.topic)
        one.pause_queue(self.topic)
        self.enqueue(one, "a")
        jobs = one.consume(self.topic)
        self.assertIsNone(jobs.next(0))
        one.pause_queue(self.topic, False)
        self.assertEqual(jobs.next(SOON).value, "a")

    def test_schedulesAreListedAndRemoved(self) -> None:
        """Single ones by their id, recurring ones by their name."""
        one = self.connected()
        at = datetime(2030, 1, 1, tzinfo=UTC)
        single = one.schedule(self.topic, "a", at=at, queue=True, headers={"message_id": "m1"})
        one.repeat(f"r-{self.topic}", self.topic, 5, every=timedelta(hours=1), headers={"own": 1})
        rows = [each for each in one.schedules() if each["topic"] == self.topic]
        self.assertEqual([each.get("name", each.get("id")) for each in rows], [f"r-{self.topic}", single])
        self.assertEqual((rows[1]["due"], rows[1]["message_id"]), (round(at.timestamp() * 1000), "m1"))
        self.assertTrue(one.pause_schedule(f"r-{self.topic}"))
        self.assertFalse(one.pause_schedule("none"))
        for schedule in (single, f"r-{self.topic}"):
            self.assertEqual([one.cancel_schedule(schedule), one.cancel_schedule(schedule)], [True, False])

    def test_aScheduleIsPublishedIntoItsQueue(self) -> None:
        """By both calls."""
        one = self.connected()
        one.schedule(self.topic, {"a": b"1"}, delay=0, queue=True)
        one.enqueue(self.topic, "b", at=datetime.now(UTC), priority=0)
        jobs = one.consume(self.topic, 2)
        self.assertEqual(self.values(jobs, 2), [{"a": b"1"}, "b"])

    def test_wrongArgumentsAreRefusedBeforeAnythingIsSent(self) -> None:
        """Naive times, negative durations, both a delay and a time, and functions that are none."""
        one = self.connected()
        naive = datetime(2030, 1, 1)  # noqa: DTZ001
        for options in ({"at": naive}, {"delay": -1}, {"delay": 1, "at": datetime.now(UTC)}, {"headers": {"topic": 1}}):
            self.assertRaises(ValueError, lambda options=options: one.enqueue(self.topic, 1, **options))
        self.assertRaises(ValueError, one.schedule, self.topic, 1)
        error = self.assertRaises(ValueError, one.repeat, "r", self.topic, 1, every=0.5)
        self.assertEqual(str(error), "every is 0.5, but must be at least 1 second")
        self.assertRaises(TypeError, one.work, self.topic, 5)
        self.assertRaises(ValueError, one.define_queue, self.topic, retry=Backoff(attempts=1))
        self.assertRaises(TypeError, one.enqueue_many, self.topic, "abc")


class Outages(NetworkCase):
    """Consumers whose connection ends."""

    place = _durable

    def test_jobsOfALostConnectionAreVoid(self) -> None:
        """Settling one raises; it is delivered again."""
        one = self.connected()
        one.enqueue(self.topic, "a")
        one.flush()
        jobs = one.consume(self.topic)
        job = jobs.take(SOON)
        self.cut(one)
        self.assertIn("delivered again", str(self.assertRaises(NotSettled, job.ack)))
        again = jobs.next(SOON)
        self.assertEqual((again.value, again.attempt), ("a", 2))
        again.ack()
        one.flush()

    def test_anIterationContinuesAfterALostConnection(self) -> None:
        """The job before is logged, and delivered again."""
        one = self.connected()
        one.enqueue_many(self.topic, ["a", "b"])
        one.flush()
        jobs = one.consume(self.topic, 2)
        self.assertEqual(jobs.next(SOON).value, "a")
        self.cut(one)
        with self.assertLogs("fleximq.client", "WARNING"):
            self.assertEqual([jobs.next(SOON).value for _ in range(2)], ["a", "b"])

    def test_aLostSettlementIsToldByTheFlush(self) -> None:
        """It may not have arrived."""
        one = self.connected()
        one.enqueue(self.topic, "a")
        one.flush()
        job = one.consume(self.topic).take(SOON)
        self.network.isDown = True
        job.ack()
        self.away(one)
        self.network.isDown = False
        self.assertRaises(ConnectionLost, one.flush)

    def test_aClientThatDoesNotReconnectEndsItsWork(self) -> None:
        """With the error."""
        one = self.connected(reconnect=None)
        started = threading.Event()
        one.enqueue(self.topic, "a")

        def work() -> None:
            one.work(self.topic, lambda job: started.set())

        working = InThread(work)
        started.wait(SOON)
        self.network.cut()
        self.assertRaises(ConnectionLost, working.result)

    def test_closedClientsRaise(self) -> None:
        """As all calls do."""
        one = self.connected()
        one.close()
        for call in (one.consume, lambda topic: one.enqueue(topic, 1), lambda topic: one.cancel(topic, "m")):
            self.assertRaises(ConnectionLost, call, self.topic)


class Rights(FormCase):
    """A client that is not permitted to consume."""

    def test_aRefusedConsumerSaysSo(self) -> None:
        """The name of a queue that cannot be one."""
        one = self.connectedTo(f"tcp://127.0.0.1:{_durable.broker.port()}")
        error = self.assertRaises(SubscribeFailed, one.consume, "$SYS/x" + "y" * 2000)
        self.assertEqual(error.status // 100, 6)


inEveryForm(globals(), Queues, Outages, Rights)
