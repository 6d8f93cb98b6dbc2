"""Consumers of a client, without a connection: jobs, and the settlements that they become."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.errors import NotSettled
from fleximq.client.events import Delivery
from fleximq.client.jobs import WORDS_BYTES
from fleximq.client.protocol.consumers import Consumers
from fleximq.errors import SettingError


class ConsumersTests(SynchronousTestCase):
    """One consumer of the queue "jobs"."""

    def setUp(self) -> None:
        """Open it."""
        self.consumers = Consumers(lambda job, kind, more: self.consumers.add(job, kind, more))
        self.box = self.consumers.open("jobs", 10)

    def deliver(self, tag: int, queue: str = "jobs", **more: Any) -> bool:
        """Put a delivery, and return whether it was a job."""
        header = {"topic": "jobs", "delivery": {"queue": queue, "tag": tag, "attempt": 1, **more}}
        return self.consumers.put(Delivery("jobs", b"\x01", 7, header))

    def job(self, tag: int) -> Any:
        """Deliver a job, and read it."""
        self.deliver(tag)
        return self.consumers.next(self.box)

    def test_settlementsOfAQueueAreOneMap(self) -> None:
        """Times are milliseconds; without a delay the queue's definition decides."""
        for tag in (1, 2):
            self.job(tag).ack()
        self.job(3).retry(1.5)
        self.job(4).retry()
        self.job(5).reject("no")
        self.job(6).extend(60)
        self.assertEqual(self.consumers.unsent, 6)
        expected = {"queue": "jobs", "ack": [1, 2], "retry": [(3, 1500), (4, None)], "reject": [(5, "no")]}
        self.assertEqual(list(self.consumers.take()), [{**expected, "extend": [(6, 60_000)]}])
        self.assertEqual((self.consumers.unsent, list(self.consumers.take())), (0, []))

    def test_anEndedJobIsNotExtended(self) -> None:
        """The broker would not know it any more."""
        job = self.job(1)
        job.extend(5)
        job.ack()
        self.assertEqual(list(self.consumers.take()), [{"queue": "jobs", "extend": [], "ack": [1]}])

    def test_wordsOfARejectionAreCut(self) -> None:
        """To 4 KiB of whole characters."""
        self.job(1).reject("é" * WORDS_BYTES)
        [found] = self.consumers.take()
        self.assertEqual(found["reject"], [(1, "é" * (WORDS_BYTES // 2))])

    def test_jobsAreVoidAfterTheirConnection(self) -> None:
        """Read ones raise, unread ones and unsent settlements are dropped."""
        job = self.job(1)
        self.job(2).ack()
        self.deliver(3)
        self.consumers.lose()
        self.assertEqual((self.consumers.unsent, self.consumers.next(self.box)), (0, None))
        self.assertIn("delivered again", str(self.assertRaises(NotSettled, job.ack)))
        self.assertFalse(job.is_settled)
        self.job(1).ack()
        self.assertEqual(self.consumers.unsent, 1)

    def test_aJobHasWhatItsPublisherSent(self) -> None:
        """And its queue, tag and attempt."""
        job = self.job(5)
        self.assertEqual((job.queue, job.tag, job.attempt, job.value), ("jobs", 5, 1, 1))
        self.assertEqual((job.topic, job.key, job.message_id, job.sender), ("jobs", None, None, None))
        self.assertEqual((job.priority, self.consumers.next(self.box)), (4, None))
        self.assertEqual(repr(job), "<Job 5 of jobs, attempt 1>")

    def test_otherDeliveriesAreNoJobs(self) -> None:
        """A publisher's own field of this name; a job without a consumer is dropped."""
        self.assertFalse(self.consumers.put(Delivery("jobs", b"", 7, {"topic": "jobs", "delivery": "tomorrow"})))
        self.assertFalse(self.deliver(1, more=1))
        self.assertTrue(self.deliver(1, queue="other"))
        self.assertIsNone(self.consumers.next(self.box))

    def test_aHaltedConsumerSettlesItsJobs(self) -> None:
        """But gets no more: others return to their queue."""
        job = self.job(1)
        self.deliver(2)
        self.consumers.halt(self.box)
        self.deliver(3)
        self.assertIsNone(self.consumers.next(self.box))
        job.ack()
        self.assertEqual([*self.consumers.take()], [{"queue": "jobs", "retry": [(2, 0), (3, 0)], "ack": [1]}])
        self.assertTrue(self.consumers.close(self.box))
        self.assertFalse(self.consumers.close(self.box))

    def test_prefetchHasBounds(self) -> None:
        """Those of the broker."""
        for wrong in (0, 65_536):
            self.assertRaises(SettingError, self.consumers.open, "other", wrong)
        self.consumers.open("other", 65_535)
