"""Three real nodes of a mesh: no confirmed subscription misses a message, a flood into a stopped node does no harm."""

import os
import signal
from pathlib import Path
from threading import Thread

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blipmq.blocking import connect as connectQueues
from fleximq.client.blocking import Client, connect
from tests.broker_process import BrokerProcess
from tests.cluster.nats.servers import MISSING, Servers
from tests.conversations.clients import IdentityClient
from tests.nightly import nightly

#: Subscriptions of the barrier's test, and those to topics with queues.
_SUBSCRIPTIONS, _QUEUES = 10_000, 300
#: Messages of the flood, and their bytes: 500 MB.
_MESSAGES, _BYTES = 50_000, 10_000


@nightly
class MeshTests(SynchronousTestCase):
    """Each node has two listeners for the mesh, and one that forwards; no topic is durable."""

    if MISSING:
        skip = MISSING

    def setUp(self) -> None:
        servers = Servers(self.mktemp(), 3)
        self.addCleanup(servers.end)
        servers.wait()
        words = [word for url in servers.urls for word in ("--cluster", url)]
        words += ["--mesh", "--allow-anonymous", "--cluster-bytes", "64MiB"]
        for scheme in ("fleximq+tcp", "tcp", "identity+tcp"):
            words += ["--listen", f"{scheme}:0:interface=127.0.0.1"]
        self.brokers = [
            BrokerProcess(*words, "--node", name, "--journal", f"{Path(self.mktemp()).absolute()}") for name in "abc"
        ]
        for each in self.brokers:
            each.start()
            self.addCleanup(each.stop, signal.SIGKILL)
        for each in self.brokers:
            each.waitFor(lambda: "serves its clients itself" in each.output, "its mesh")  # noqa: B023
        self.brokers[0].waitFor(lambda: self.owner is not None, "an owner")

    @property
    def owner(self) -> BrokerProcess | None:
        """The broker that owns the journal."""
        return next((each for each in self.brokers if "this node owns" in each.output), None)

    def client(self, broker: BrokerProcess) -> Client:
        """Return a client of a node."""
        client = connect(f"tcp://127.0.0.1:{broker.port(0)}", timeout=60)
        self.addCleanup(client.close)
        return client

    def test_barrier(self) -> None:
        """What is published at another node after the PONG arrives."""
        clients = [self.client(each) for each in self.brokers]
        for number in range(_SUBSCRIPTIONS):
            first, second = clients[number % 3], clients[(number + 1 + number // 3 % 2) % 3]
            with first.subscribe(f"t.{number}") as got:
                first.flush()
                second.publish(f"t.{number}", number)
                self.assertIsNotNone(got.next(timeout=10), number)

    def test_identityBarrier(self) -> None:
        """What is published at another node after the SUB-ACK arrives."""
        publishers = [self.client(each) for each in self.brokers]
        subscribers = [IdentityClient(("127.0.0.1", each.port(2))) for each in self.brokers]
        for each in subscribers:
            self.addCleanup(each.close)
        for number in range(_SUBSCRIPTIONS):
            first, second = subscribers[number % 3], publishers[(number + 1 + number // 3 % 2) % 3]
            first.subscribe(f"t{number}")
            second.publish(f"t{number}", str(number))
            self.assertRegex(first.hear(), f"^MSG:t{number}:.*:{number}$")
            self.assertEqual(first.ask(f"UNSUBSCRIBE:t{number}"), f"UNSUB-ACK:t{number}")

    def test_queues(self) -> None:
        """No publication passes by a durable queue that was opened at the owner: other nodes send it there."""
        others = [self.client(each) for each in self.brokers if each is not self.owner]
        port = self.brokers[0].port(1)
        with connectQueues(f"tcp://127.0.0.1:{port}", timeout=60) as queues:
            for number in range(_QUEUES):
                queue = queues.subscribe(f"q.{number}")
                other = others[number % 2]
                other.publish(f"q.{number}", number)
                other.flush()
                self.assertIsNotNone(queue.next(timeout=10), number)

    def test_fullSpeed(self) -> None:
        """A subscriber that reads all gets all that is published at full speed at another node."""
        publisher, subscriber = self.client(self.brokers[0]), self.client(self.brokers[1])
        body = [bytes(1024)] * 200
        with subscriber.subscribe("f") as got:
            subscriber.flush()
            sending = Thread(target=lambda: [publisher.publish_many("f", body) for _ in range(4000)])
            sending.start()
            arrived = sum(got.next(timeout=10) is not None for _ in range(800_000))
            sending.join()
        self.assertEqual(arrived, 800_000)

    def test_flood(self) -> None:
        """A stopped node that is sent 500 MB changes no owner and loses nothing: the publisher waits, until the node is
        silent and leaves the mesh.
        """
        stopped = next(each for each in self.brokers if each is not self.owner)
        assert self.owner is not None
        publisher, subscriber = self.client(self.owner), self.client(stopped)
        got = subscriber.subscribe("f")
        subscriber.flush()
        os.kill(stopped.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, stopped.pid, signal.SIGCONT)
        publisher.publish_many("f", [b"%d " % number * (_BYTES // 6) for number in range(_MESSAGES)])
        publisher.flush()
        self.assertRegex(self.owner.output, "is not in the mesh any more: it is silent")
        os.kill(stopped.pid, signal.SIGCONT)
        arrived = []
        while (message := got.next(timeout=5)) is not None:
            arrived.append(int(message.value.split()[0]))
        self.assertEqual(arrived, list(range(len(arrived))))
        publisher.publish("f", b"after")
        self.assertIsNotNone(got.next(timeout=10))
        self.assertNotIn("were lost", stopped.output)
        self.assertEqual(sum(each.output.count("this node owns") for each in self.brokers), 1)
