"""Which settlement follows from the end of a function."""

import logging
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.backoff import Backoff
from fleximq.client.events import Delivery
from fleximq.client.jobs import Job, Reject
from fleximq.client.protocol.consumers import Consumers
from fleximq.client.protocol.work_rules import WorkRules, checkWork
from fleximq.errors import SettingError

_log = logging.getLogger("fleximq.client.tests")


class WorkRulesTests(SynchronousTestCase):
    """One job, with the second attempt."""

    def settled(self, error: Exception | None, retry: Backoff | None = None) -> Any:
        """Return the settlement of a job that ended so."""
        found: list[Any] = []
        header = {"delivery": {"queue": "q", "tag": 1, "attempt": 2}}
        job = Job(Delivery("q", b"", 7, header), None, lambda job, *settlement: found.append(settlement))
        WorkRules(lambda job: None, retry, _log).settle(job, error)
        [settlement] = found
        return settlement

    def test_success(self) -> None:
        """An acknowledgement."""
        self.assertEqual(self.settled(None), ("ack", None))

    def test_rejection(self) -> None:
        """With its words, and without an error in the log."""
        with self.assertNoLogs(_log):
            self.assertEqual(self.settled(Reject("no")), ("reject", ("no",)))

    def test_failure(self) -> None:
        """It is logged; the delay is the queue's, or that of this attempt, and after the last the job is rejected."""
        backoff = Backoff(first=1, most=60, factor=3, jitter=0, attempts=3)
        last = Backoff(first=1, most=60, jitter=0, attempts=2)
        with self.assertLogs(_log, "ERROR") as logs:
            self.assertEqual(self.settled(OSError("x")), ("retry", (None,)))
            self.assertEqual(self.settled(OSError("x"), backoff), ("retry", (3000,)))
            self.assertEqual(self.settled(OSError("x"), last), ("reject", ("attempt 2, the last, failed: OSError: x",)))
        for line, words in zip(logs.output, ("its queue", "delivered again in 3 s", "last attempt"), strict=True):
            self.assertIn(words, line)

    def test_voidJobIsLogged(self) -> None:
        """Its connection has ended, so it is delivered again."""
        consumers = Consumers(lambda job, kind, more: consumers.add(job, kind, more))
        box = consumers.open("q", 1)
        consumers.put(Delivery("q", b"", 7, {"delivery": {"queue": "q", "tag": 1, "attempt": 1}}))
        job = consumers.next(box)
        assert job is not None
        consumers.lose()
        with self.assertLogs(_log, "WARNING") as logs:
            WorkRules(lambda job: None, None, _log).settle(job, None)
        self.assertIn("is not settled", logs.output[0])

    def test_arguments(self) -> None:
        """Coroutine functions are for event loops."""

        async def wait(job: Job) -> None:
            pass

        checkWork(wait, 1, mayWait=True)
        self.assertRaises(TypeError, checkWork, wait, 1)
        self.assertRaises(TypeError, checkWork, None, 1, mayWait=True)
        self.assertRaises(TypeError, checkWork, wait, 1, mayWait=True, retry=5)
        self.assertRaises(SettingError, checkWork, print, 0)
