"""A job of 40 real minutes runs once, with the settings that a broker and a worker have without options."""

import os
import threading
from contextlib import ExitStack

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import Client, connect
from fleximq.client.jobs import Job
from tests.broker_process import PATIENCE, BrokerProcess
from tests.nightly import nightly

#: Seconds that the job takes.
LONG = 40 * 60.0


class Workers:
    """Two workers of one queue; ``runs`` has the attempts that any of them has begun."""

    def __init__(self, ending: ExitStack, *options: str) -> None:
        broker = ending.enter_context(BrokerProcess(*options))
        self.clients = [ending.enter_context(connect(f"tcp://127.0.0.1:{broker.port()}")) for _ in range(2)]
        self.runs: list[int] = []
        self.ended = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(each,)) for each in self.clients]
        for thread in self._threads:
            thread.start()

    def _work(self, client: Client) -> None:
        client.work("jobs", self._run)

    def _run(self, job: Job) -> None:
        self.runs.append(job.attempt)
        threading.Event().wait(LONG)
        self.ended.set()

    def stop(self) -> None:
        """Let the running jobs end, and acknowledge them."""
        for client in self.clients:
            client.stop_work()
        for thread in self._threads:
            thread.join(LONG + PATIENCE)
        self.clients[0].flush()


@nightly
class LongJobTests(SynchronousTestCase):
    """One worker has the job, the other one is idle."""

    def test_aJobOfFortyMinutesRunsOnce(self) -> None:
        """In a queue in memory and in one on disk, at the same time."""
        with ExitStack() as ending:
            brokers = [Workers(ending), Workers(ending, "--journal", os.path.abspath(self.mktemp()))]
            for workers in brokers:
                workers.clients[0].enqueue("jobs", "long")
            for workers in brokers:
                self.assertTrue(workers.ended.wait(LONG + PATIENCE))
                workers.stop()
                [queue] = [each for each in workers.clients[0].queues() if each["queue"] == "jobs"]
                self.assertEqual((workers.runs, queue["messages"], queue["in_flight"]), ([1], 0, 0))
