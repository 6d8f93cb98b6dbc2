"""Jobs in the blocking form: settlements that are sent together, and signals."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from fleximq.client.blocking import connect, thread_client
from fleximq.client.jobs import Job
from fleximq.client.protocol.consumers import SETTLE
from tests.client.blocking.test_client import ScriptedCase
from tests.client.cases import Place
from tests.client.scripted import PATIENCE, Peer

ROOT = Path(__file__).parents[3]
_broker = Place()
_WORKER = """
import sys
from fleximq.client.blocking import Jobs, connect
def halted(self, halt=Jobs.halt):
    halt(self)
    print("stopping", flush=True)
Jobs.halt = halted
def function(job):
    print("begun", flush=True)
    sys.stdin.readline()
    print("done", job.value, flush=True)
with connect(sys.argv[1]) as client:
    client.work("signals", function, prefetch=2)
    print("over", flush=True)
"""

_TWO_WORKERS = """
import sys, threading
from fleximq.client.blocking import connect
with connect(sys.argv[1]) as client:
    other = threading.Thread(target=client.work, args=("other", print))
    other.start()
    client.work("signals", lambda job: print("begun", flush=True))
    other.join()
    print("over", flush=True)
"""


def deliver(peer: Peer, *tags: int) -> None:
    """Send jobs."""
    for tag in tags:
        peer.publish("jobs", tag, delivery={"queue": "jobs", "tag": tag, "attempt": 1})


class SettlingTests(ScriptedCase):
    """What a scripted broker hears of settlements."""

    def test_quickJobsAreSettledTogether(self) -> None:
        """By one notification to the broker, before the PING of the flush."""
        heard: list[Any] = []

        def script(peer: Peer) -> None:
            sub = peer.subscribed()
            self.assertEqual(sub.header, {"topic": "jobs", "queue": "jobs", "prefetch": 9})
            deliver(peer, *range(9))
            settled = peer.hear("NOTIF")
            heard.append((settled.header["routing"], settled.value))
            peer.passBarrier()
            peer.untilEnd()

        self.patch(thread_client, "_TURN", 1e9)
        client = self.talk(script, keep_alive=60)
        jobs = client.consume("jobs", 9)
        for tag, job in zip(range(9), jobs, strict=False):
            self.assertEqual(job.value, tag)
            job.ack()
        client.flush()
        self.assertEqual(heard, [([{"client_id": 1, "path": SETTLE}], {"queue": "jobs", "ack": [*range(9)]})])

    def test_aWaitingThreadSettlesFirst(self) -> None:
        """The broker delivers no more before."""

        def script(peer: Peer) -> None:
            peer.subscribed()
            deliver(peer, 1)
            self.assertEqual(peer.hear("NOTIF").value, {"queue": "jobs", "ack": [1]})
            deliver(peer, 2)
            peer.untilEnd()

        self.patch(thread_client, "_TURN", 1e9)
        jobs = self.talk(script, keep_alive=60).consume("jobs")
        self.assertEqual([job and job.value for job in (jobs.next(PATIENCE), jobs.next(PATIENCE))], [1, 2])

    def test_jobsAreSettledAtOnceWhileAThreadWaits(self) -> None:
        """For one that the broker delivers only after that, since no more may be unsettled."""

        def script(peer: Peer) -> None:
            peer.subscribed()
            deliver(peer, 1)
            self.assertEqual(peer.hear("NOTIF").value, {"queue": "jobs", "ack": [1]})
            deliver(peer, 2)
            peer.untilEnd()

        self.patch(thread_client, "_TURN", 1e9)
        self.patch(thread_client, "_CHECK_SECONDS", 1e9)
        jobs = self.talk(script, keep_alive=3600).consume("jobs")
        first = jobs.take(PATIENCE)
        assert first is not None
        found: list[Job | None] = []
        waiting = threading.Thread(target=lambda: found.append(jobs.take(PATIENCE)))
        waiting.start()
        while not jobs._box.readers:
            time.sleep(0.001)
        first.ack()
        waiting.join()
        self.assertEqual([job and job.value for job in found], [2])

    def test_closingReturnsJobs(self) -> None:
        """By an UNSUB with the queue."""

        def script(peer: Peer) -> None:
            peer.subscribed()
            self.assertEqual(peer.hear("UNSUB").header, {"topic": "jobs", "queue": "jobs"})
            peer.untilEnd()

        self.talk(script).consume("jobs").close()

    def test_aStoppedWorkerReturnsWhatItHasNotBegun(self) -> None:
        """At once, while its job runs, and gets no more."""
        returned = threading.Event()

        def script(peer: Peer) -> None:
            peer.subscribed()
            deliver(peer, 1, 2)
            self.assertEqual(peer.hear("SUB").header, {"topic": "jobs", "queue": "jobs", "prefetch": 0})
            self.assertEqual(peer.hear("NOTIF").value, {"queue": "jobs", "retry": [[2, 0]]})
            returned.set()
            self.assertEqual(peer.hear("NOTIF").value, {"queue": "jobs", "ack": [1]})
            peer.hear("UNSUB")
            peer.untilEnd()

        def function(job: Job) -> None:
            client.stop_work()
            self.assertTrue(returned.wait(PATIENCE))

        client = self.talk(script, keep_alive=60)
        client.work("jobs", function, prefetch=2)

    def test_aCallThatIsNotAConsumerYetIsStopped(self) -> None:
        """It ends as soon as the broker has made it one."""

        def script(peer: Peer) -> None:
            peer.passBarrier()
            first, _, second = peer.hear("PING"), peer.hear("SUB"), peer.hear("PING")
            client.stop_work()
            peer.pong(first)
            peer.pong(second)
            peer.hear("SUB")
            peer.hear("UNSUB")
            peer.untilEnd()

        client = self.talk(script, keep_alive=60)
        client.work("jobs", print)


class SignalTests(ScriptedCase):
    """A worker in a process of its own."""

    def test_aSignalEndsAllWorkersOfTheClient(self) -> None:
        """Also those in other threads, which no signal reaches."""
        url = f"tcp://127.0.0.1:{_broker.broker.port()}"
        client = connect(url)
        self.addCleanup(client.hang_up)
        client.enqueue("signals", "a")
        client.flush()
        process = subprocess.Popen(
            [sys.executable, "-c", _TWO_WORKERS, url], cwd=ROOT, text=True, stdout=subprocess.PIPE
        )
        with process:
            assert process.stdout is not None
            self.assertEqual(process.stdout.readline(), "begun\n")
            process.send_signal(signal.SIGTERM)
            self.assertEqual((process.communicate(timeout=PATIENCE)[0], process.returncode), ("over\n", 0))

    def test_aWorkerFinishesItsJobAtSigterm(self) -> None:
        """And leaves the other one to others."""
        url = f"tcp://127.0.0.1:{_broker.broker.port()}"
        for number in (signal.SIGTERM, signal.SIGINT):
            client = connect(url)
            self.addCleanup(client.hang_up)
            client.enqueue_many("signals", ["a", "b"])
            client.flush()
            process = subprocess.Popen(
                [sys.executable, "-c", _WORKER, url], cwd=ROOT, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            with process:
                assert process.stdout is not None
                self.assertEqual(process.stdout.readline(), "begun\n")
                process.send_signal(number)
                self.assertEqual(process.stdout.readline(), "stopping\n")
                out, _ = process.communicate("\n", timeout=PATIENCE)
            self.assertEqual((out, process.returncode), ("done a\nover\n", 0))
            left = client.consume("signals").next(PATIENCE)
            assert left is not None
            self.assertEqual(left.value, "b")
            left.ack()
            client.close()
