"""A broker with few open files, and more silent connections than it has room for; the real program."""

import os
import resource
import signal
import socket
from contextlib import ExitStack

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerProcess
from tests.conversations.clients import PATIENCE, FlexiClient, Stream


class FewFilesTests(SynchronousTestCase):
    """A low ``ulimit -n``."""

    def start(self, openFiles: int) -> None:
        """Start a broker with a journal of small files, and a client that has joined."""
        self.open = ExitStack()
        self.addCleanup(self.open.close)
        launcher = ("sh", "-c", f'ulimit -n {openFiles}; exec "$@"', "sh")
        words = ("--journal", "journal", "--durable", "#", "--journal-segment", "64KiB", "--handshake-timeout", "5")
        self.broker = self.open.enter_context(BrokerProcess(*words, launcher=launcher))
        self.client = self.join()

    def join(self) -> FlexiClient:
        """Return a client that has joined."""
        return self.open.enter_context(FlexiClient(Stream(self.broker.address))).join()

    def publish(self, number: int) -> None:
        """Store a file of messages each time."""
        for _ in range(number):
            for _ in range(8):
                self.client.publish("a", "x" * 10_000)
            self.assertEqual(self.client.barrier(), [])

    def test_hundredSilentConnectionsStopNeitherJournalNorReloadNorLater(self) -> None:
        """A hundred silent connections stop neither the journal, nor a reload, nor later clients."""
        self.start(64)
        self.assertIn("The system permits 64 open files, so at most ", self.broker.output)
        silent = [self.open.enter_context(socket.socket()) for _ in range(100)]
        for each in silent:
            each.settimeout(PATIENCE)
            each.connect(self.broker.address)
        self.publish(5)
        self.assertGreater(len([*(self.broker.folder / "journal").glob("*.fxj")]), 3)
        os.kill(self.broker.pid, signal.SIGHUP)
        self.broker.waitForOutput("read again")
        self.publish(5)
        for each in silent:
            each.close()
        with FlexiClient(Stream(self.broker.address)) as later:
            later.join()
        self.assertNotIn("Too many open files", self.broker.output)
        self.assertNotIn("Traceback", self.broker.output)

    def test_clientsBeyondThoseThatThereIsRoomForHear503UntilOneHasLeft(self) -> None:
        """Clients beyond those that there is room for hear 503, until one has left."""
        self.start(128)
        maximum = int(self.broker.waitForOutput(r"at most (\d+) clients")[1])
        clients = [self.client, *(self.join() for _ in range(maximum - 1))]
        with FlexiClient(Stream(self.broker.address)) as another:
            self.assertEqual(another.send("JOIN").hear().status, 503)
        self.publish(5)
        clients[1].close()
        self.broker.waitForOutput("fleximq-1001 left: ")
        self.join()
        self.assertNotIn("No connections are accepted", self.broker.output)

    def test_ifClientsLeaveNoRoomForOthersThoseWaitUntilThereIsSome(self) -> None:
        """If the clients leave no room for others, those wait until there is some; the journal goes on."""
        self.start(64)
        clients = []
        for _ in range(30):
            stream = socket.create_connection(self.broker.address, PATIENCE)
            clients.append(self.open.enter_context(FlexiClient(Stream(stream))).send("JOIN"))
        self.broker.waitForOutput("No connections are accepted for now: at least 48 of 64 open files are in use")
        self.publish(5)
        for client in clients:
            self.assertEqual(client.hear().kind, "REP")
            client.close()
        self.broker.waitForOutput("Connections are accepted again")

    def test_reloadWithoutAnyFreeFileIsRefusedByOneSentenceAndWorksLater(self) -> None:
        """A reload without any free file is refused by one sentence, and works later."""
        self.start(64)
        resource.prlimit(self.broker.pid, resource.RLIMIT_NOFILE, (3, 64))
        os.kill(self.broker.pid, signal.SIGHUP)
        self.broker.waitForOutput("The settings stay as they are: .* cannot be read: too many open files")
        resource.prlimit(self.broker.pid, resource.RLIMIT_NOFILE, (64, 64))
        os.kill(self.broker.pid, signal.SIGHUP)
        self.broker.waitForOutput("read again")
        self.assertNotIn("Traceback", self.broker.output)
